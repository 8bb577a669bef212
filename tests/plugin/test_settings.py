"""Options and ini keys: what they do, and one clear line and exit code 4 where they cannot be obeyed."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from course import EXERCISE, NAIVE, RIGHT, SLOW_TO_COMPILE, Course

from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.plugin.settings import WITH_A_VALUE


def seed_of(result: pytest.RunResult) -> int:
    """Return the seed in the header, having checked that the report's end repeats it."""
    header = re.search(r"^gpulab: seed (\d+)$", result.stdout.str(), re.M)
    end = re.search(r"^Repeat this run with --gpulab-seed=(\d+)\.$", result.stdout.str(), re.M)
    assert header and end and header[1] == end[1]
    return int(header[1])


def usage_error(result: pytest.RunResult) -> str:
    """Return the one line of a usage error."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if line]
    return line.removeprefix("ERROR: ")


def test_header_names_device_reason_and_seed(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    result = course.grade("twice.cu", "-k", "compile")
    result.stdout.re_match_lines([r"gpulab: simulated GPU .*, because .*", r"gpulab: seed \d+$"])


def test_the_seed_is_fresh_unless_given(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    first, second = (seed_of(course.grade("twice.cu", "-k", "compile")) for _ in range(2))
    assert first != second
    assert seed_of(course.grade("twice.cu", "-k", "compile", "--gpulab-seed=42")) == 42
    assert seed_of(course.grade("twice.cu", "-k", "compile", "-o", "gpulab_seed=43")) == 43
    assert seed_of(course.grade("twice.cu", "-k", "compile", "--gpulab-seed=42", "-o", "gpulab_seed=43")) == 42


def test_the_seed_is_printed_even_if_quiet(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    result = course.grade("twice.cu", "-q", "-k", "compile")
    result.stdout.fnmatch_lines(["Repeat this run with --gpulab-seed=*."])


@pytest.mark.parametrize("seed", ["-1", "x", "4294967296", "1.5", "²"])
def test_bad_seed(course: Course, seed: str) -> None:
    line = usage_error(course.grade(f"--gpulab-seed={seed}"))
    assert line == f"--gpulab-seed={seed}: a seed is a whole number from 0 to 4294967295"


@pytest.mark.parametrize("limit", ["x", "0", "0.0", "-1", "1e9", "nan", "²"])
def test_bad_time_limit(course: Course, limit: str) -> None:
    line = usage_error(course.grade(f"--gpulab-timeout={limit}"))
    assert line == f"--gpulab-timeout={limit}: a time limit is a number of seconds greater than 0"


@pytest.mark.parametrize("key", ["--gpulab-timeout=0.01", "-ogpulab_timeout=0.01"])
def test_a_check_that_takes_too_long_fails(course: Course, key: str) -> None:
    course.write("twice.cu", SLOW_TO_COMPILE)
    result = course.grade("twice.cu", "-k", "compile", key)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*endless-loop: This check had not ended after 0.01 s; it was stopped."])


@pytest.mark.parametrize("architecture", ["90", "sm_", "sm_90a", "compute_90", "SM_90", "sm_²"])
def test_bad_architecture(course: Course, architecture: str) -> None:
    line = usage_error(course.grade(f"--gpulab-arch={architecture}"))
    assert line == f"--gpulab-arch={architecture}: an architecture is sm_ and its number, such as sm_86"


def test_an_architecture_that_nothing_is_known_of(course: Course) -> None:
    line = usage_error(course.grade("--gpulab-arch=sm_70"))
    assert line.startswith("unknown architecture 'sm_70'; available: sm_75, sm_80, sm_86")


@pytest.mark.parametrize("apart", [[], ["--gpulab-timeout=60"]])
@pytest.mark.parametrize("key", ["--gpulab-arch=sm_86", "-ogpulab_arch=sm_86"])
def test_occupancy_is_that_of_the_architecture(course: Course, key: str, apart: list[str]) -> None:
    course.write("twice.cu", RIGHT)
    result = course.grade("twice.cu", "-v", key, *apart)
    lines = result.stdout.str().splitlines()
    assert (
        "gpulab: modelled GPU: NVIDIA H200 (Hopper), 132 SMs at 1980 MHz, 4800 GB/s peak; occupancy for sm_86" in lines
    )
    assert "For sm_86." in lines
    assert "occupancy for            sm_86 (Ampere)" in lines


def test_a_gpu_that_is_not_described(course: Course) -> None:
    line = usage_error(course.grade("--gpulab-gpu=rtx2"))
    assert line == "no GPU model is named 'rtx2'; available: h200, h100, a100, rtx3090, rtx4090, l4, t4"


@pytest.mark.parametrize("apart", [[], ["--gpulab-timeout=60"]])
@pytest.mark.parametrize("key", ["--gpulab-gpu=t4", "-ogpulab_gpu=t4"])
def test_kernels_run_on_the_gpu_that_is_chosen(course: Course, key: str, apart: list[str]) -> None:
    course.write("twice.cu", RIGHT.replace("2 * in[i]", "__CUDA_ARCH__ == 750 ? 2 * in[i] : 0"))
    result = course.grade("twice.cu", "-v", key, *apart)
    lines = result.stdout.str().splitlines()
    assert any(line.startswith("gpulab: simulated GPU (cost model: NVIDIA T4), because") for line in lines)
    assert "gpulab: modelled GPU: NVIDIA T4 (Turing), 40 SMs at 1590 MHz, 320 GB/s peak" in lines
    assert "modelled GPU             NVIDIA T4" in lines
    assert "For sm_75." in lines
    result.assert_outcomes(passed=6)


def test_occupancy_may_be_for_another_architecture_than_the_chosen_gpus(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    lines = course.grade("twice.cu", "-v", "--gpulab-gpu=t4", "--gpulab-arch=sm_86").stdout.str().splitlines()
    assert "gpulab: modelled GPU: NVIDIA T4 (Turing), 40 SMs at 1590 MHz, 320 GB/s peak; occupancy for sm_86" in lines
    assert "For sm_86." in lines


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ("out[i] = __reduce_add_sync(~0u, in[i]);", '*identifier "__reduce_add_sync" is undefined*'),
        ('asm("redux.sync.add.s32 %0, %1, -1;" : "=r"(out[i]) : "r"(in[i]));', "*'redux' requires .target sm_80*"),
    ],
)
def test_features_that_the_chosen_gpu_lacks_are_compile_errors(course: Course, instead: str, said: str) -> None:
    course.write("twice.cu", RIGHT.replace("out[i] = 2 * in[i];", instead))
    course.grade("twice.cu", "-k", "compile").assert_outcomes(passed=1)
    result = course.grade("twice.cu", "-k", "compile", "--gpulab-gpu=t4")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*compile-error: The file does not compile*", said])


def test_the_header_describes_the_device(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    lines = course.grade("twice.cu", "-k", "compile").stdout.str().splitlines()
    assert "gpulab: modelled GPU: NVIDIA H200 (Hopper), 132 SMs at 1980 MHz, 4800 GB/s peak" in lines


@pytest.mark.parametrize("name", WITH_A_VALUE)
def test_an_option_without_its_value_is_a_usage_error(course: Course, name: str) -> None:
    """An unset variable of a shell must not turn a class's run into one of the course's own skeletons."""
    option = f"--gpulab-{name.replace('_', '-')}="
    assert usage_error(course.grade(option)) == f"{option} has no value: give it one, or leave it out"


def test_a_missing_sanitizer_is_a_usage_error(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(info=DeviceInfo("cuda", "a GPU", "nvcc", "sm_90", estimates=False), close=lambda: None)
    monkeypatch.setattr("pytest_gpulab.devices._open_cuda", lambda *asked: gpu)
    monkeypatch.setenv("PATH", str(course.folder))
    course.write("twice.cu", RIGHT)
    line = usage_error(course.pytest("--gpulab", "--gpulab-device=cuda", "--gpulab-sanitizer", "twice.cu"))
    assert line == "--gpulab-sanitizer: compute-sanitizer, of the CUDA toolkit, is not on the PATH"


def test_a_missing_ncu_is_a_note(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimpleNamespace(info=DeviceInfo("cuda", "a GPU", "nvcc", "sm_90", estimates=False), close=lambda: None)
    monkeypatch.setattr("pytest_gpulab.devices._open_cuda", lambda *asked: gpu)
    monkeypatch.setenv("PATH", str(course.folder))
    course.write("twice.cu", RIGHT)
    result = course.pytest("--gpulab", "--gpulab-device=cuda", "--gpulab-ncu", "-k", "nothing", "twice.cu")
    result.stdout.fnmatch_lines(["gpulab: --gpulab-ncu has no effect: ncu, of Nsight Compute, is not on the PATH"])


def test_the_simulated_gpu_needs_no_ncu(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    result = course.grade("--gpulab-ncu", "-k", "compile", "twice.cu")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["gpulab: --gpulab-ncu has no effect: the simulated GPU has its own counters, shown with -v"]
    )


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:-1", "SIM"])
def test_bad_device(course: Course, device: str) -> None:
    line = usage_error(course.grade(f"--gpulab-device={device}"))
    assert line == f"--gpulab-device={device}: a device is auto, sim, cuda or cuda:N with the number of a GPU"


@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_a_missing_gpu_is_a_usage_error(course: Course, workers: list[str]) -> None:
    course.write("twice.cu", RIGHT)
    line = usage_error(course.grade("--gpulab-device=cuda:99", *workers, "twice.cu"))
    assert re.search("PyCUDA|CUDA device|GPU", line)


def test_collect_only_needs_no_device(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    result = course.grade("--gpulab-device=cuda:99", "--co", "twice.cu")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["gpulab: collecting only, no device opened", "gpulab: seed *", "*7 tests collected*"])


@pytest.mark.parametrize("option", ["--setup-plan", "--setup-only", "--collect-only"])
def test_a_run_whose_configuration_grades_nothing_is_no_success(course: Course, option: str) -> None:
    course.write("pytest.ini", f"[pytest]\naddopts = {option}\n")
    course.write("twice.cu", RIGHT)
    assert course.grade("twice.cu").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_the_device_may_come_from_the_ini_file(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    result = course.pytest("--gpulab", "-o", "gpulab_device=cuda:99", "twice.cu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_no_exercises_folder(course: Course) -> None:
    course.write("pytest.ini", "[pytest]\ngpulab_exercises = elsewhere\n")
    line = usage_error(course.grade())
    assert line == (
        f"no exercises folder at {course.folder / 'elsewhere'}: "
        "run from the course's folder, or name it with --gpulab-exercises=DIR"
    )


@pytest.mark.parametrize("given", [["--gpulab-exercises=more"], ["-o", "gpulab_exercises=more"]])
def test_exercises_elsewhere(course: Course, given: list[str]) -> None:
    course.write("more/thrice/exercise.py", EXERCISE)
    course.write("more/thrice/naive.cu", NAIVE)
    course.write("more/thrice/thrice.cu", RIGHT)
    result = course.grade("-q", "--co", *given)
    assert result.outlines[0] == "more/thrice/thrice.cu::compile"


@pytest.mark.parametrize("spec", ["json", "json:", "xml:grades.xml", "grades.json"])
def test_bad_report(course: Course, spec: str) -> None:
    line = usage_error(course.grade(f"--gpulab-report={spec}"))
    formats = "json, csv, gradescope, classroom50, prairielearn, github, ctrf, html, annotated, feedback, explain"
    assert line == f"--gpulab-report={spec}: a report is FORMAT:PATH with FORMAT one of {formats}"


def test_a_report_that_cannot_be_written_is_refused_before_grading(course: Course) -> None:
    line = usage_error(course.grade("--gpulab-report=json:exercises/twice/naive.cu/grades.json"))
    assert line == f"cannot write the report {course.folder / 'exercises/twice/naive.cu'}: File exists"
    line = usage_error(course.grade("--gpulab-report=json:exercises"))
    assert line == f"cannot write the report {course.folder / 'exercises'}: Is a directory"


def test_looking_whether_a_report_can_be_written_leaves_no_trace(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    course.grade("--co", "--gpulab-report=json:grades.json", "twice.cu")
    assert not (course.folder / "grades.json").exists()


@pytest.mark.parametrize("name", ["submissions", "roster", "scheduler", "store", "workers", "report", "feedback"])
@pytest.mark.parametrize("sign", ["=", " "])
def test_options_that_need_the_flag_are_refused_without_it(course: Course, name: str, sign: str) -> None:
    course.write("test_one.py", "def test_one(): raise SystemExit('run')\n")
    line = usage_error(course.pytest(*f"--gpulab-{name}{sign}twice".split()))
    assert line == f"--gpulab-{name} has no effect without --gpulab: add --gpulab"


@pytest.mark.parametrize("flag", ["regrade", "annotate"])
def test_a_flag_that_asks_for_grades_is_refused_without_the_first_one(course: Course, flag: str) -> None:
    line = usage_error(course.pytest(f"--gpulab-{flag}"))
    assert line == f"--gpulab-{flag} has no effect without --gpulab: add --gpulab"


@pytest.mark.parametrize("option", ["--gpulab-submissions=class", "--gpulab-calibrate"])
def test_options_in_the_configuration_or_the_environment_do_not_stop_other_tests(
    course: Course, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    course.write("test_one.py", "def test_one(): pass\n")
    course.write("pytest.ini", f"[pytest]\naddopts = --gpulab-report=json:grades.json {option}\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", option)
    course.pytest().assert_outcomes(passed=1)


def test_settings_are_not_even_read_without_the_flag(course: Course) -> None:
    course.write("test_one.py", "def test_one(): pass\n")
    result = course.pytest("--gpulab-seed=x", "--gpulab-device=x")
    result.assert_outcomes(passed=1)

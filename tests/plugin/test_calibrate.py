"""`--gpulab-calibrate`, and the thresholds that it finds, in grades of the same GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from clocked_gpu import NAME, ClockedGpu
from course import EXERCISE, NAIVE, RIGHT, WITHOUT, Course
from test_settings import usage_error

OWN = "SpeedTier(1.5, 20, 4096, required=True), SpeedTier(1000, 10, 4096)"
TIERS = "SpeedTier(1.5, 20, 256, required=True), SpeedTier(4, 10, 256)"
LADDER = {"1_naive": 6.0, "2_better": 3.0, "3_best": 1.0}
EXPECTED = """
["1_naive.cu"]
points = 70
fails = { "speedup[1.5x]" = "too-slow" }
["2_better.cu"]
points = 90
["3_best.cu"]
points = 100
"""
FILE = "exercises/calibration/test-gpu-3000.toml"


def takes(elapsed_ms: float) -> str:
    return f"// takes {elapsed_ms:g} ms\n{RIGHT}"


@pytest.fixture
def ladder(course: Course, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A course with a ladder, and a GPU."""
    assert OWN in EXERCISE
    course.write("exercises/twice/exercise.py", EXERCISE.replace(OWN, TIERS))
    course.write("exercises/twice/naive.cu", f"// takes 6 ms\n{NAIVE}")
    course.write("pytest.ini", "[pytest]\nfilterwarnings = error\ngpulab_expected = solutions/twice/expected.toml\n")
    course.write("solutions/twice/expected.toml", EXPECTED)
    for name, elapsed_ms in LADDER.items():
        course.write(f"solutions/twice/{name}.cu", takes(elapsed_ms))
    monkeypatch.setattr("pytest_gpulab.devices._open_cuda", lambda *asked: ClockedGpu())
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.CALIBRATING_ROUNDS", 16)
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.WARM_UP_S", 0.0)
    monkeypatch.setattr("pytest_gpulab.grading.speed.buffers.SLACK_BYTES", 2**12)
    return course


def grade(course: Course, *args: str) -> pytest.RunResult:
    return course.pytest("--gpulab", "--gpulab-device=cuda", *args)


@pytest.fixture(scope="module")
def written() -> list[str]:
    """The calibration of the ladder, once a test has measured it."""
    return []


def calibrate(course: Course, written: list[str]) -> None:
    """Calibrate with the ladder, or write the same file as the test before did."""
    if written:
        course.write(FILE, written[0])
    else:
        grade(course, "--gpulab-calibrate", "solutions", "-k", "speedup")
        written.append((course.folder / FILE).read_text())


def calibrated(course: Course) -> dict[str, Any]:
    from pytest_gpulab.grading.calibration.file import read

    return read(course.folder / FILE).exercises["twice"]["tiers"]


def test_a_ladder_is_measured_and_written(ladder: Course) -> None:
    result = grade(ladder, "--gpulab-calibrate", "solutions")
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes() == {"passed": 18, "bonus": 3}
    result.stdout.fnmatch_lines(
        [
            f"gpulab: thresholds: this run measures them for {FILE}",
            "solutions/twice/1_naive.cu .....bb *",
            "*= gpulab: calibration =*",
            "twice:",
            "tier  slowest that must reach     at  fastest that must not     at   own  threshold",
            "1.5x  2_better                 *x                1_naive  *x  1.5x *x",
            "4x    3_best                   *x               2_better  *x    4x *x",
            "at: the less favourable end of the interval; threshold: 0.85 of the slowest that must reach it.",
            f"Written to {FILE}.",
            "thresholds: the exercise's own, while a calibration is measured.",
        ]
    )
    assert [tier["threshold"] for tier in calibrated(ladder).values()] == pytest.approx([1.7, 5.1], rel=0.01)


@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_a_calibration_implies_grading(ladder: Course, workers: list[str]) -> None:
    ladder.write("solutions/conftest.py", "raise SystemExit('nothing beside the kernels is run')\n")
    line = usage_error(ladder.pytest("--gpulab-device=sim", "--gpulab-calibrate", *workers, "solutions"))
    assert line.startswith("--gpulab-calibrate measures times, but the simulated GPU")
    if not workers:
        result = ladder.pytest("--gpulab-device=cuda", "--gpulab-calibrate", "solutions", "-k", "speedup")
        assert result.ret == pytest.ExitCode.OK
        result.stdout.fnmatch_lines([f"Written to {FILE}."])
        assert [tier["threshold"] for tier in calibrated(ladder).values()] == pytest.approx([1.7, 5.1], rel=0.01)


def test_grades_of_that_gpu_are_held_to_it_and_say_so(ladder: Course, written: list[str]) -> None:
    calibrate(ladder, written)
    ladder.write("twice/alice.cu", takes(3.7))
    result = grade(ladder, "twice", "--gpulab-report=json:grades.json", "--tb=short")
    result.stdout.fnmatch_lines(
        [
            f"gpulab: thresholds: calibrated for {NAME} ({FILE})",
            "too-slow: A speedup of 1.62x over naive.cu.",
            "on this device speedup[[]1.5x[]] requires 1.*x",
            "alice *",
            "  FAILED speedup[[]1.5x[]] (1.*x is required on this GPU), missed 4x (5.*x is required on this GPU):",
            "      too-slow: A speedup of 1.62x over naive.cu.",
            f"thresholds: calibrated for {NAME} on 20* ({FILE}).",
        ]
    )
    (found,) = json.loads((ladder.folder / "grades.json").read_text())["grades"]
    last = found["checks"][-1]
    assert (last["name"], last["measurement"]["calibrated"]) == ("speedup[4x]", True)
    assert last["measurement"]["threshold"] == calibrated(ladder)["4x"]["threshold"]
    assert found["provenance"]["thresholds"].startswith(f"calibrated for {NAME} on 20")


def test_the_exercises_own_thresholds_hold_where_none_is_wanted_or_none_fits(
    ladder: Course, monkeypatch: pytest.MonkeyPatch, written: list[str]
) -> None:
    calibrate(ladder, written)
    ladder.write("twice/alice.cu", takes(3.7))
    result = grade(ladder, "twice", "--gpulab-calibration=none")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(
        [
            "gpulab: thresholds: the exercises' own, because of --gpulab-calibration=none",
            "thresholds: the exercise's own.",
        ]
    )
    monkeypatch.setattr("pytest_gpulab.devices._open_cuda", lambda *asked: ClockedGpu("Test GPU 4000"))
    result = grade(ladder, "twice")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(
        ["gpulab: thresholds: the exercises' own; no calibration in exercises/calibration is for this GPU"]
    )


def test_another_version_of_the_exercise_is_not_held_to_it(ladder: Course, written: list[str]) -> None:
    calibrate(ladder, written)
    exercise = ladder.folder / "exercises/twice/exercise.py"
    ladder.write(exercise, exercise.read_text().replace("title=", 'version="2", title='))
    ladder.write("twice/alice.cu", takes(3.7))
    result = grade(ladder, "twice")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(
        [f"thresholds: the exercise's own; {FILE} is for its version 1, this", "  is 2."], consecutive=True
    )


@pytest.mark.unmeasured
def test_the_file_can_be_named(ladder: Course) -> None:
    ladder.write("twice/alice.cu", takes(3.7))
    for given in ("--gpulab-calibration=mine.toml", "-ogpulab_calibration=mine.toml"):
        result = grade(ladder, "--gpulab-calibrate", "solutions", "-k", "speedup", given)
        result.stdout.fnmatch_lines(["Written to mine.toml."])
        assert not (ladder.folder / FILE).exists()
        grade(ladder, "twice", "-k", "speedup", given).assert_outcomes(failed=1, deselected=5)
        (ladder.folder / "mine.toml").rename(ladder.folder / "other.toml")
    grade(ladder, "twice").assert_outcomes(passed=6)


def test_the_fraction_can_be_chosen(ladder: Course) -> None:
    grade(ladder, "--gpulab-calibrate", "--gpulab-calibrate-fraction=0.95", "solutions", "-k", "speedup")
    assert [tier["threshold"] for tier in calibrated(ladder).values()] == pytest.approx([1.9, 5.7], rel=0.01)


def test_steps_that_cannot_be_separated_fail_the_run(ladder: Course) -> None:
    ladder.write("solutions/twice/3_best.cu", takes(2.9))
    result = grade(ladder, "--gpulab-calibrate", "solutions", "-k", "speedup")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (line,) = [line for line in result.outlines if line.startswith("ERROR: ")]
    assert line.startswith("ERROR: twice: no threshold for speedup[4x]: 3_best.cu reaches 2.0")
    assert "threshold" in calibrated(ladder)["1.5x"]
    assert "threshold" not in calibrated(ladder)["4x"] and calibrated(ladder)["4x"]["problem"]


def test_without_a_ladder_there_is_nothing_to_calibrate_with(ladder: Course) -> None:
    ladder.write("twice/alice.cu", takes(3.7))
    result = grade(ladder, "--gpulab-calibrate", "twice")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "ERROR: no calibration was written: none of the files has expected verdicts and a speed that was measured",
        ]
    )
    assert not (ladder.folder / FILE).exists()


def test_a_file_that_goes_bad_meanwhile_is_not_overwritten(ladder: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(gpu: ClockedGpu) -> None:
        ladder.write(FILE, "spoilt")

    monkeypatch.setattr(ClockedGpu, "close", spoil)
    result = grade(ladder, "--gpulab-calibrate", "solutions", "-k", "speedup")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"ERROR: *{FILE}: not valid TOML: *"])
    assert (ladder.folder / FILE).read_text() == "spoilt"


def test_a_file_in_the_folders_place_is_a_usage_error(ladder: Course) -> None:
    (ladder.folder / "exercises/calibration").write_text("")
    line = usage_error(grade(ladder, "--gpulab-calibrate", "solutions"))
    assert line == f"cannot write the calibration {ladder.folder / FILE}"


def test_a_calibration_that_cannot_be_written_is_reported(ladder: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(gpu: ClockedGpu) -> None:
        (ladder.folder / "exercises/calibration").symlink_to("nowhere")

    monkeypatch.setattr(ClockedGpu, "close", spoil)
    result = grade(ladder, "--gpulab-calibrate", "solutions", "-k", "speedup")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR: cannot write the calibration *: File exists"])


def test_a_broken_file_is_a_usage_error(ladder: Course) -> None:
    path = ladder.write(FILE, "format = 'x'")
    line = usage_error(grade(ladder, "solutions"))
    assert line == f'{path}: not a calibration: it must say format = "pytest-gpulab/calibration"'
    missing = usage_error(grade(ladder, "solutions", "--gpulab-calibration=missing.toml"))
    assert missing == f"{ladder.folder / 'missing.toml'}: cannot be read: No such file or directory"


def test_the_simulated_gpu_cannot_be_calibrated_and_needs_no_calibration(ladder: Course) -> None:
    line = usage_error(ladder.grade("--gpulab-calibrate", "solutions"))
    assert line.startswith("--gpulab-calibrate measures times, but the simulated GPU")
    assert line.endswith("only estimates them")
    ladder.write(FILE, "broken")
    result = ladder.grade("solutions", "-k", "compile")
    assert result.ret == pytest.ExitCode.OK
    assert "thresholds" not in result.stdout.str()


@pytest.mark.parametrize("fraction", ["0", "1.1", "85", "-1", "x", ".0", "²"])
def test_bad_fraction(course: Course, fraction: str) -> None:
    line = usage_error(course.grade(f"--gpulab-calibrate-fraction={fraction}"))
    assert line == f"--gpulab-calibrate-fraction={fraction}: a fraction is a number above 0 and at most 1"


def test_none_cannot_be_calibrated(course: Course) -> None:
    line = usage_error(course.grade("--gpulab-calibrate", "--gpulab-calibration=none"))
    assert line == "--gpulab-calibrate writes a calibration: omit --gpulab-calibration=none"


def test_a_run_that_is_stopped_writes_none(ladder: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_gpulab.grading.grader.Grader._speedup", stop)
    options = ("--gpulab", "--gpulab-device=cuda", "--gpulab-calibrate")
    result = ladder.pytester.runpytest_inprocess(*WITHOUT, *options, "solutions", no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["The run was stopped: no calibration was written."])
    assert not Path(ladder.folder / FILE).exists()

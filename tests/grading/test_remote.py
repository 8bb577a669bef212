"""Grading in a process of its own: what a submission does to that process, and that nothing outlives it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile_device import LOG_VARIABLE

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.cuda import turns
from pytest_gpulab.devices.protocol import DeviceInfo, DeviceUnavailable
from pytest_gpulab.grading import process
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import Check, checks_of
from pytest_gpulab.grading.grade import CheckResult, Finding
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.process import WorkerError
from pytest_gpulab.grading.remote import RemoteGrader
from pytest_gpulab.grading.thresholds import Thresholds

EXERCISE = """
import numpy as np
from pytest_gpulab.exercise import Buffer, Case, Exercise, Expected, Launch, Plan, SafeCheck, SpeedTier

def plan(problem):
    n = problem.size
    buffers = (Buffer("in", "input", np.int32, (n,)), Buffer("out", "output", np.int32, (n,)))
    return Plan(buffers, (Launch("twice", (-(-n // 32),), (32,), ("in", "out", np.int32(n))),))

exercise = Exercise(
    title="Every element times two",
    plan=plan,
    inputs=lambda problem, pattern, rng: {"in": rng.integers(-1000, 1000, problem.size, dtype=np.int32)},
    reference=lambda problem, inputs: Expected({"out": 2 * inputs["in"]}),
    cases=(Case("n=1", 1, 20), Case("n=31", 31, 20), Case("n=100", 100, 20)),
    safe=(SafeCheck("memory", 10),),
    speed=(SpeedTier(0.5, 30, 4096, required=True),),
)
"""
KERNEL = """__global__ void twice(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * in[i];
}
"""
HOSTILE = process.PROGRAM.replace("from pytest_gpulab.grading.worker import main", "from hostile_device import main")
WAIT_S = 60.0


class Class:
    """An exercise, a submission, and the log of what a hostile device did."""

    def __init__(self, folder: Path) -> None:
        (folder / "exercises" / "twice").mkdir(parents=True)
        (folder / "exercises" / "twice" / "exercise.py").write_text(EXERCISE)
        (folder / "exercises" / "twice" / "naive.cu").write_text(KERNEL)
        self.exercise = Catalogue(folder / "exercises").load("twice")
        self.checks = {check.name: check for check in checks_of(self.exercise.exercise)}
        self.submission, self.log = folder / "twice.cu", folder / "deeds.txt"
        device, _ = open_device("sim")
        self.device = "sim"
        self.info: DeviceInfo | None = device.info
        device.close()

    def on_a_gpu(self) -> None:
        """Grade on what the worker takes for a GPU."""
        assert self.info is not None
        self.device, self.info = "cuda", replace(self.info, kind="cuda")

    def grader(self, text: str = KERNEL, timeout_s: float = 60.0, **more: Any) -> RemoteGrader:
        self.submission.write_text(text)
        return RemoteGrader(self.exercise, self.submission, self.device, self.info, 1, "twice.cu", timeout_s, **more)

    def deeds(self) -> list[str]:
        return [line.split()[1] for line in self.log.read_text().splitlines()]

    def processes(self) -> list[int]:
        return [int(line.split()[0]) for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Class:
    return Class(tmp_path)


@pytest.fixture
def hostile(bench: Class, monkeypatch: pytest.MonkeyPatch) -> Class:
    return made_hostile(bench, monkeypatch)


def made_hostile(bench: Class, monkeypatch: pytest.MonkeyPatch) -> Class:
    """All workers are forked, if this system can do that."""
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-I", "-c", HOSTILE))
    monkeypatch.setenv(LOG_VARIABLE, str(bench.log))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    bench.on_a_gpu()
    return bench


def graded(bench: Class, text: str, timeout_s: float = 60.0) -> dict[str, CheckResult]:
    results = {result.name: result for result in bench.grader(text, timeout_s).grade().checks}
    assert list(results) == list(bench.checks)
    wait_for_end(bench.processes())
    return results


def wait_for_end(processes: list[int]) -> None:
    end_s = time.monotonic() + WAIT_S
    while left := [process for process in processes if is_alive(process)]:
        assert time.monotonic() < end_s, f"still there: {left}"
        time.sleep(0.02)


def is_alive(process: int) -> bool:
    """Say whether a process is there; one that ended and that nobody has waited for is not."""
    try:
        return re.search(r"^State:\s+[ZX]", Path(f"/proc/{process}/status").read_text(), re.M) is None
    except (FileNotFoundError, ProcessLookupError):
        return False


def verdicts(results: dict[str, CheckResult]) -> dict[str, str]:
    return {name: result.verdict for name, result in results.items()}


EXPECTED = {
    "compile": "passed",
    "correct[n=1]": "passed",
    "correct[n=31]": "failed",
    "correct[n=100]": "passed",
    "safe[memory]": "passed",
    "speedup[0.5x]": "failed",
}


def test_calibrated_thresholds_hold_there_too(bench: Class) -> None:
    calibrated = Thresholds("calibrated for a test", {"0.5x": 1000.0})
    bench.exercise = replace(bench.exercise, thresholds=calibrated)
    grade = bench.grader().grade()
    assert (grade.checks[-1].name, grade.checks[-1].verdict) == ("speedup[0.5x]", "failed")
    assert grade.checks[-1].measurement is not None and grade.checks[-1].measurement.threshold == 1000
    assert grade.provenance.thresholds == "calibrated for a test"
    bench.exercise = replace(bench.exercise, thresholds=replace(calibrated, measuring=True))
    assert bench.grader().grade().checks[-1].verdict == "missed"


@pytest.mark.parametrize("text", [KERNEL, KERNEL.replace("i < n", "i <= n"), KERNEL.replace(";", ""), ""])
def test_the_grade_is_the_same_as_in_this_process(bench: Class, text: str) -> None:
    grader = bench.grader(text)
    apart = grader.grade()
    device, _ = open_device("sim")
    here = Grader(bench.exercise, bench.submission, device, 1, "twice.cu").grade()
    device.close()
    assert [replace(check, duration_s=0.0) for check in apart.checks] == [
        replace(check, duration_s=0.0) for check in here.checks
    ]
    assert replace(apart, checks=()) == replace(here, checks=())


def test_one_process_grades_all_checks_of_a_healthy_submission(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// launch 1: say\n// launch 31: say\n// launch 100: say\n")
    assert set(verdicts(results).values()) == {"passed"}
    assert len(set(hostile.processes())) == 1
    assert "said by a kernel\n" in results["correct[n=1]"].printed
    assert results["safe[memory]"].printed == ""


def test_a_crash_that_repeats_itself_is_the_submissions(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// launch 31: crash\n")
    assert verdicts(results) == EXPECTED
    (found,) = results["correct[n=31]"].findings
    assert found.code == "crash"
    assert found.what == "The process that ran this check was ended by SIGSEGV, 2 times in a row."
    assert hostile.deeds() == ["crash", "crash"]
    (dependent,) = results["speedup[0.5x]"].findings
    assert dependent.what.startswith("Not graded, because `correct[n=31]` did not pass: The process")


def test_a_crash_before_any_kernel_was_launched_is_the_gpus(hostile: Class) -> None:
    """nvcc, which a submission may crash, has processes of its own; what is left is the driver's."""
    results = graded(hostile, KERNEL + "// compile: crash\n")
    assert set(verdicts(results).values()) == {"not gradable"}
    (found,) = results["compile"].findings
    assert found.what == "The device failed: the process that grades was ended by SIGSEGV, 2 times in a row"
    assert hostile.deeds() == ["crash", "crash"]


def test_a_crash_that_does_not_come_again_costs_nothing(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// launch 31: crash_once\n")
    assert set(verdicts(results).values()) == {"passed"}


@pytest.fixture
def waits_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time limits allow for the wait for others that time."""
    monkeypatch.setattr(turns, "PATIENCE_S", 1.0)


@pytest.mark.usefixtures("waits_a_second")
def test_a_hang_is_ended_with_all_that_it_started(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// launch 31: hang\n", timeout_s=5.0)
    assert verdicts(results) == EXPECTED
    (found,) = results["correct[n=31]"].findings
    assert (found.code, found.what) == ("endless-loop", "This check had not ended after 6 s; it was stopped.")
    assert "only be too slow" in found.hint
    assert hostile.deeds() == ["hang", "sleep"]


@pytest.mark.usefixtures("waits_a_second")
def test_a_hanging_compilation_is_not_tried_again(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// compile: hang\n", timeout_s=5.0)
    assert set(verdicts(results).values()) == {"failed"}
    assert hostile.deeds() == ["hang", "sleep"]
    (found,) = results["correct[n=1]"].findings
    assert found.what.startswith("Not graded, because `compile` did not pass: This check had not ended after 6 s")
    assert results["compile"].findings[0].hint.startswith("The compiler did not come to an end")


def test_a_broken_gpu_is_whole_again_for_the_next_check(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// launch 31: fault\n")
    assert verdicts(results) == EXPECTED
    (found,) = results["correct[n=31]"].findings
    assert (found.code, found.what) == ("device-fault", "Twice: the GPU gave the kernel up")
    assert found.evidence[-1] == "the same case on the simulated GPU: right"
    assert hostile.deeds() == ["fault"]


def test_a_failed_assertion_is_quoted_once(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// launch 31: claim\n")
    (found,) = results["correct[n=31]"].findings
    assert found.code == "assert"
    assert found.evidence[0] == "twice.cu:3: twice: thread: [0,0,0] Assertion `i < 31` failed."
    assert "Assertion" not in "".join(found.evidence[1:])


def test_a_device_that_cannot_be_opened_costs_no_points(bench: Class) -> None:
    bench.device = "cuda:99"
    result = bench.grader().run(bench.checks["compile"])
    assert result.verdict == "not gradable"
    assert result.findings[0].what.startswith("The device failed: ")


def test_a_gpu_that_is_not_there_is_not_looked_for_again_in_each_check(hostile: Class) -> None:
    """What follows would be graded by chance, if at all; and it may take half a minute to see that it is not there."""
    results = graded(hostile, KERNEL + "// compile: gone\n")
    assert set(verdicts(results).values()) == {"not gradable"}
    assert {result.findings[0].what for result in results.values()} == {"The device failed: it does not answer"}
    assert hostile.deeds() == ["gone"]


def test_a_mistake_of_ours_shows_where_it_was_made(bench: Class) -> None:
    grader = bench.grader()
    with pytest.raises(WorkerError, match=r"(?s)Traceback.*KeyError: 'unheard of'\n\nstderr of the process:\n"):
        grader.run(Check("unheard of", "correct", 1.0, True, None))
    assert grader.run(bench.checks["compile"]).verdict == "passed"
    grader.close()


def test_a_grader_that_is_told_nothing_of_the_device_asks_the_process_that_grades(hostile: Class) -> None:
    told = hostile.grader().grade()
    known, hostile.info = hostile.info, None
    grader = hostile.grader()
    assert grader.begin() == known
    assert grader.provenance == told.provenance and told.provenance.device_kind == "cuda"
    assert [check.verdict for check in grader.grade().checks] == [check.verdict for check in told.checks]


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ("cuda:99", "PyCUDA is not installed|no GPU can be used|no CUDA device 99|driver is not"),
        ("dies", "was ended by SIGKILL"),
    ],
)
def test_a_device_that_cannot_be_opened_is_said_at_the_beginning(
    bench: Class, device: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "dies":
        program = "import os; os.kill(os.getpid(), 9)"
        monkeypatch.setattr(process, "COMMAND", (sys.executable, "-I", "-c", program))
    bench.device, bench.info = device, None
    grader = bench.grader()
    with pytest.raises(DeviceUnavailable, match=why):
        grader.begin()
    grader.close()


DIES_ONCE = """
import os, sys
from pathlib import Path
if not Path(os.environ["DIED"]).exists():
    Path(os.environ["DIED"]).touch()
    os.kill(os.getpid(), 9)
"""


def test_a_process_that_others_ended_before_it_had_begun_is_started_again(
    bench: Class, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DIED", str(tmp_path / "died"))
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-I", "-c", DIES_ONCE + process.PROGRAM))
    grader = bench.grader()
    assert grader.begin().kind == "simulated" and (tmp_path / "died").exists()
    assert grader.run(bench.checks["compile"]).verdict == "passed"
    grader.close()


def test_closing_is_possible_at_any_time(bench: Class) -> None:
    grader = bench.grader()
    grader.close()
    assert grader.run(bench.checks["compile"]).verdict == "passed"
    grader.close()
    grader.close()


SANITIZER = """#!/bin/sh
for option; do case $option in
  --log-file=*) log=${option#--log-file=}; shift;;
  --*) shift;;
  *) break;;
esac; done
"$@"
printf '========= COMPUTE-SANITIZER\\n========= Invalid __global__ read\\n========= ERROR SUMMARY: 1 error\\n' > "$log"
"""


def install_sanitizer(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str = SANITIZER) -> None:
    (folder / "compute-sanitizer").write_text(program)
    (folder / "compute-sanitizer").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_compute_sanitizers_report_is_attached(hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in takes options and runs the rest, as the real one does."""
    install_sanitizer(tmp_path, monkeypatch)
    grader = hostile.grader(KERNEL + "// launch 31: fault\n", sanitize=True)
    results = {result.name: result for result in grader.grade().checks}
    assert verdicts(results) == EXPECTED
    assert results["correct[n=31]"].findings[0].evidence[-1] == "compute-sanitizer: Invalid __global__ read"
    assert hostile.deeds() == ["fault", "fault"]
    wait_for_end(hostile.processes())


def test_what_the_gpu_stops_while_it_is_timed_is_looked_at_too(
    hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_sanitizer(tmp_path, monkeypatch)
    grader = hostile.grader(KERNEL + "// launch 4096: fault\n", sanitize=True)
    stopped = hostile.checks["speedup[0.5x]"].result("failed", (Finding("device-fault", "given up"),))
    monkeypatch.setattr(grader, "_judged", lambda check: stopped)
    (found,) = grader.run(hostile.checks["speedup[0.5x]"]).findings
    assert (found.what, found.evidence) == ("given up", ("compute-sanitizer: Invalid __global__ read",))
    assert hostile.deeds() == ["fault"]
    grader.close()
    wait_for_end(hostile.processes())


def test_a_sanitizer_that_fails_is_no_loss(hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_sanitizer(tmp_path, monkeypatch, "#!/bin/sh\nexit 1\n")
    grader = hostile.grader(KERNEL + "// launch 31: fault\n", sanitize=True)
    assert {result.name: result.verdict for result in grader.grade().checks} == EXPECTED


def test_what_goes_wrong_under_the_sanitizer_alone_is_no_mistake_of_ours(
    hostile: Class, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_sanitizer(tmp_path, monkeypatch)
    grader = hostile.grader(KERNEL + "// launch 31: fault_then_mistake\n", sanitize=True)
    results = {result.name: result for result in grader.grade().checks}
    assert verdicts(results) == EXPECTED
    assert results["correct[n=31]"].findings[0].what == "Twice: given up"
    assert hostile.deeds() == ["fault_then_mistake", "fault_then_mistake"]


PARENT = """
import sys
from pathlib import Path
from pytest_gpulab.grading import process
from test_remote import HOSTILE, Class, KERNEL

process.COMMAND = (sys.executable, "-I", "-c", HOSTILE)
bench = Class(Path(sys.argv[1]))
bench.on_a_gpu()
bench.grader(KERNEL + "// launch 31: hang\\n").grade()
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("threads", ["1", "2"], ids=["forked", "anew"])
def test_nothing_outlives_the_process_that_asked(tmp_path: Path, threads: str, ending: signal.Signals) -> None:
    log = tmp_path / "deeds.txt"
    environment = os.environ | {LOG_VARIABLE: str(log), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment["OPENBLAS_NUM_THREADS"] = threads
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 background shells let children ignore it
    parent = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, preexec_fn=heed)
    end_s = time.monotonic() + WAIT_S
    while not (log.exists() and "sleep" in log.read_text()):
        assert parent.poll() is None and time.monotonic() < end_s
        time.sleep(0.02)
    hung, compiler = (int(line.split()[0]) for line in log.read_text().splitlines())
    assert is_alive(hung) and is_alive(compiler)
    parent.send_signal(ending)
    parent.wait(WAIT_S)
    wait_for_end([hung, compiler])

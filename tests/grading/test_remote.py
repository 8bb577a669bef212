"""Grading in a process of its own: what a submission does to that process, and that nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hang_guard import HANG_S
from hostile_device import LOG_VARIABLE
from remote_class import EXPECTED, KERNEL, Class, graded, is_alive, verdicts, wait_for_end

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.cuda import gpu_lock
from pytest_gpulab.devices.protocol import DeviceUnavailable
from pytest_gpulab.grading.catalogue import Thresholds
from pytest_gpulab.grading.checks import Check
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.isolation import worker_process as process
from pytest_gpulab.grading.isolation.worker_process import WorkerError


@pytest.fixture
def bench(tmp_path: Path) -> Class:
    return Class(tmp_path)


def test_calibrated_thresholds_hold_there_too(bench: Class) -> None:
    calibrated = Thresholds("calibrated for a test", {"0.5x": 1000.0})
    bench.exercise = bench.exercise._replace(thresholds=calibrated)
    grade = bench.grader().grade()
    assert (grade.checks[-1].name, grade.checks[-1].verdict) == ("speedup[0.5x]", "failed")
    assert grade.checks[-1].measurement is not None and grade.checks[-1].measurement.threshold == 1000
    assert grade.provenance.thresholds == "calibrated for a test"
    bench.exercise = bench.exercise._replace(thresholds=calibrated._replace(measuring=True))
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


def test_a_kill_for_want_of_memory_is_never_the_submissions(hostile: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system counts such kills; a SIGKILL without it stays a crash."""
    kills = iter(range(1000))
    monkeypatch.setattr(process, "memory_kills", lambda: next(kills))
    results = graded(hostile, KERNEL + "// launch 31: killed\n")
    result = results["correct[n=31]"]
    assert (result.verdict, result.findings[0].code) == ("not gradable", "no-memory")
    assert result.findings[0].what.startswith("The system killed the worker process: the machine or its container")
    assert "failed" not in verdicts(results).values()
    monkeypatch.setattr(process, "memory_kills", lambda: 7)
    assert graded(hostile, KERNEL + "// launch 31: killed\n")["correct[n=31]"].findings[0].code == "crash"


def test_a_crash_before_any_kernel_was_launched_is_the_gpus(hostile: Class) -> None:
    """nvcc, which a submission may crash, has processes of its own; what is left is the driver's."""
    results = graded(hostile, KERNEL + "// compile: crash\n")
    assert set(verdicts(results).values()) == {"not gradable"}
    (found,) = results["compile"].findings
    assert found.what == "The device failed: the worker process was ended by SIGSEGV, 2 times in a row"
    assert hostile.deeds() == ["crash", "crash"]


def test_a_crash_that_does_not_come_again_costs_nothing(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// launch 31: crash_once\n")
    assert set(verdicts(results).values()) == {"passed"}


@pytest.fixture
def waits_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time limits allow for the wait for others that time."""
    monkeypatch.setattr(gpu_lock, "SHARED_WAIT_S", 1.0)


@pytest.mark.unmeasured
@pytest.mark.usefixtures("waits_a_second")
def test_a_hang_is_ended_with_all_that_it_started(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// launch 31: hang\n", timeout_s=5.0)
    assert verdicts(results) == EXPECTED
    (found,) = results["correct[n=31]"].findings
    assert (found.code, found.what) == ("endless-loop", "This check had not ended after 6 s; it was stopped.")
    assert "only be too slow" in found.hint
    assert hostile.deeds() == ["hang", "sleep"]


@pytest.mark.unmeasured
@pytest.mark.usefixtures("waits_a_second")
def test_a_compilation_that_gets_no_processor_is_the_machines(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// compile: hang\n", timeout_s=5.0)
    assert set(verdicts(results).values()) == {"not gradable"}
    assert hostile.deeds() == ["hang", "sleep"]
    said = "The device failed: compiling had not ended after 6 s, with "
    assert results["compile"].findings[0].what.startswith(said)


@pytest.mark.unmeasured
@pytest.mark.usefixtures("waits_a_second")
def test_a_hanging_compilation_is_not_tried_again(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// compile: work_without_end\n", timeout_s=5.0)
    assert set(verdicts(results).values()) == {"failed"}
    assert hostile.deeds() == ["work_without_end"]
    (found,) = results["correct[n=1]"].findings
    assert found.what.startswith("Not graded, because `compile` did not pass: This check had not ended after 6 s")
    assert results["compile"].findings[0].hint.startswith("The compiler did not finish")


def test_a_broken_gpu_is_whole_again_for_the_next_check(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// launch 31: fault\n")
    assert verdicts(results) == EXPECTED
    (found,) = results["correct[n=31]"].findings
    assert (found.code, found.what) == ("device-fault", "Twice: the GPU stopped the kernel")
    assert found.evidence[-1] == "the same case on the simulated GPU: passed"
    assert hostile.deeds() == ["fault"]


def test_a_reference_that_goes_on_is_ended_and_disturbs_no_later_check(hostile: Class) -> None:
    results = graded(hostile, KERNEL + "// launch 31: reference_that_goes_on\n// launch 100: say\n")
    assert set(verdicts(results).values()) == {"passed"}
    deeds = list(zip(hostile.processes(), hostile.deeds(), strict=True))
    (first, _), *later = deeds
    assert deeds[0][1] == "reference_that_goes_on"
    assert all(process != first for process, deed in later if deed == "say") and "say" in hostile.deeds()


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
    """Later checks would have random results, and each search may take half a minute."""
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


def test_a_grader_without_device_facts_asks_its_worker(hostile: Class) -> None:
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


def refuse(*_: object, **__: object) -> None:
    raise BlockingIOError(11, "Resource temporarily unavailable")


NO_ROOM = "its process cannot be started: the limit on processes is reached: Resource temporarily unavailable"


def test_a_process_that_cannot_be_started_is_reported_at_the_beginning(
    bench: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_start_process", refuse)
    grader = bench.grader()
    with pytest.raises(DeviceUnavailable, match=f"^{NO_ROOM}$"):
        grader.begin()
    grader.close()


def test_if_the_process_cannot_be_started_nothing_is_graded(hostile: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_start_process", refuse)
    results = graded(hostile, KERNEL)
    assert set(verdicts(results).values()) == {"not gradable"}
    assert {result.findings[0].what for result in results.values()} == {f"The device failed: {NO_ROOM}"}


def test_a_check_without_a_process_does_not_affect_others(bench: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    grader = bench.grader()
    assert grader.run(bench.checks["compile"]).verdict == "passed"
    grader.close()
    with monkeypatch.context() as patch:
        patch.setattr(process, "_start_process", refuse)
        result = grader.run(bench.checks["correct[n=1]"])
    assert (result.verdict, result.findings[0].what) == ("not gradable", f"The device failed: {NO_ROOM}")
    assert grader.run(bench.checks["correct[n=31]"]).verdict == "passed"
    grader.close()


def test_a_process_that_ends_before_it_has_begun_costs_no_points(bench: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    """The submission had no part in it: perhaps there was no room for what every such process starts."""
    grader = bench.grader()
    assert grader.run(bench.checks["compile"]).verdict == "passed"
    grader.close()
    with monkeypatch.context() as patch:
        patch.setattr(process, "COMMAND", (sys.executable, "-I", "-c", "raise SystemExit(1)"))
        result = grader.run(bench.checks["correct[n=1]"])
    words = "The device failed: the worker process ended with exit status 1, 2 times in a row"
    assert (result.verdict, result.findings[0].what) == ("not gradable", words)
    assert grader.run(bench.checks["correct[n=1]"]).verdict == "passed"
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


def test_closing_is_possible_where_no_further_thread_is_allowed(
    hostile: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    grader = hostile.grader(KERNEL + "// launch 1: say\n")
    assert grader.run(hostile.checks["correct[n=1]"]).verdict == "passed"
    monkeypatch.setattr(threading.Thread, "start", refuse)
    grader.close()
    wait_for_end(hostile.processes())


PARENT = """
import sys
from pathlib import Path
from pytest_gpulab.grading.isolation import worker_process as process
from remote_class import HOSTILE, Class, KERNEL

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
    end_s = time.monotonic() + HANG_S
    while not (log.exists() and "sleep" in log.read_text()):
        assert parent.poll() is None and time.monotonic() < end_s
        time.sleep(0.02)
    hung, compiler = (int(line.split()[0]) for line in log.read_text().splitlines())
    assert is_alive(hung) and is_alive(compiler)
    parent.send_signal(ending)
    parent.wait(HANG_S)
    wait_for_end([hung, compiler])

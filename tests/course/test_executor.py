"""Worker processes: a submission that breaks one affects no other, and loses only the check that did it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trouble
from hang_guard import HANG_S, wait_for
from trouble import SOURCE, exercises_in, job

from pytest_gpulab.course.executors import processes as executor_module
from pytest_gpulab.course.executors.processes import ExecutorUnavailable, LocalExecutor
from pytest_gpulab.course.jobs import NotGraded
from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.devices.system.processes import is_grader
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.isolation import fork_server, worker_process
from pytest_gpulab.grading.isolation.worker_process import ProcessScope

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a class is graded on Linux only")


@pytest.fixture
def exercises(tmp_path: Path) -> Path:
    return exercises_in(tmp_path)


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for temporary files, in which only the cache is left, and a fork server that uses it."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setenv("OPENBLAS_NUM_THREADS", "1")
        patch.delenv("GPULAB_GRADER", raising=False)
        fork_server._server.cache_clear()
        yield folder
        fork_server._server.cache_clear()
    assert not left_in(folder)


@pytest.fixture
def executor(temporary: Path) -> Iterator[LocalExecutor]:
    with closing(LocalExecutor(2, ("sim",))) as opened:
        yield opened
    wait_for(lambda: not graders())


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {f"gpulab-cache-{os.getuid()}"}


def graders() -> list[int]:
    server = fork_server.ensure_running()
    assert server is not None
    return workers_of(server.pid)


def verdicts(grade: Grade) -> dict[str, str]:
    return {check.name: check.findings[0].code if check.findings else check.verdict for check in grade.checks}


ALL_RIGHT = dict.fromkeys(("compile", *(f"correct[n={n}]" for n in (1, 31, 100, 1000, 1001))), "passed")


def test_a_submission_that_kills_its_process_loses_only_that_check(executor: LocalExecutor, exercises: Path) -> None:
    futures = [executor.submit(job(exercises, SOURCE % number, f"s{number}")) for number in (1, 0, 0)]
    killer, *others = (future.result(HANG_S) for future in futures)
    assert verdicts(killer) == ALL_RIGHT | {"correct[n=31]": "crash"}
    assert killer.student == "s1" and killer.points == 80
    assert [verdicts(grade) for grade in others] == [ALL_RIGHT, ALL_RIGHT]


@pytest.mark.unmeasured
def test_a_hang_is_stopped_and_named(executor: LocalExecutor, exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "TIME_LIMITS_PER_SUBMISSION", 0.1)
    hanging = executor.submit(job(exercises, SOURCE % 2, timeout_s=5.0))
    assert verdicts(hanging.result(HANG_S)) == ALL_RIGHT | {"correct[n=31]": "endless-loop"}


@pytest.mark.unmeasured
def test_a_submission_that_hangs_in_every_check_is_stopped_early(
    executor: LocalExecutor, exercises: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "TIME_LIMITS_PER_SUBMISSION", 0.1)
    grade = executor.submit(job(exercises, SOURCE % 3, timeout_s=4.0)).result(HANG_S)
    cases = grade.checks[1:]
    assert [check.verdict for check in cases] == ["failed"] * 5
    assert [check.findings[0].because for check in cases] == ["", "", "", "correct[n=1]", "correct[n=1]"]


def before_grading(deed: str) -> str:
    """Return the program of a worker that does something before it grades."""
    return executor_module.worker.PROGRAM.replace("main(int", f"{deed}; main(int")


LACKS_MEMORY = (
    "import trouble; from pytest_gpulab.course.executors import worker; worker.graded = trouble.out_of_memory"
)


def test_a_submission_out_of_memory_gets_its_own_process(
    executor: LocalExecutor, exercises: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module.worker, "PROGRAM", before_grading(LACKS_MEMORY))
    assert verdicts(executor.submit(job(exercises, SOURCE % 0)).result(HANG_S)) == ALL_RIGHT
    monkeypatch.setattr(executor_module, "graded_apart", trouble.out_of_memory)
    lost = executor.submit(job(exercises, SOURCE % 0))
    with pytest.raises(NotGraded, match="that graded it ran out of memory; the one before ran out of memory"):
        lost.result(HANG_S)


def test_a_program_whose_process_is_lost_gets_another_one(
    executor: LocalExecutor, exercises: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels are simulated in the process that grades it, so never in pytest's."""
    lost = job(exercises, SOURCE % 1)
    lost = replace(lost, settings=replace(lost.settings, programs=True))
    with pytest.raises(NotGraded, match=r"graded it was ended by SIGKILL; the one before was ended by SIGKILL$"):
        executor.submit(lost).result(HANG_S)


def test_waiting_jobs_are_cancelled_and_running_jobs_are_stopped(exercises: Path, temporary: Path) -> None:
    with closing(LocalExecutor(1, ("sim",))) as executor:
        running, waiting = (executor.submit(job(exercises, SOURCE % 2)) for _ in range(2))
        (grader,) = wait_for(graders)
        assert running.running() and not waiting.running()
        executor.cancel()
        assert waiting.cancelled()
        with pytest.raises(CancelledError):
            running.result(HANG_S)
        assert not is_alive(grader)
        later = [executor.submit(job(exercises, SOURCE % 0)) for _ in range(2)]
        assert [verdicts(each.result(HANG_S)) for each in later] == [ALL_RIGHT, ALL_RIGHT]


def test_jobs_end_with_the_executor(exercises: Path, temporary: Path) -> None:
    executor = LocalExecutor(2, ("sim",))
    running = [executor.submit(job(exercises, SOURCE % 2)) for _ in range(2)]
    executor.close()
    for future in running:
        with pytest.raises(CancelledError):
            future.result(0)
    assert not graders()


def test_a_process_is_replaced_after_many_jobs(
    exercises: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "JOBS_A_PROCESS", 2)
    seen = []
    with closing(LocalExecutor(1, ("sim",))) as executor:
        for _ in range(3):
            executor.submit(job(exercises, SOURCE % 0)).result(HANG_S)
            seen += graders()
    assert seen[0] == seen[1] != seen[2]


def test_a_process_that_does_not_start_costs_no_point(
    executor: LocalExecutor, exercises: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module.worker, "PROGRAM", "raise SystemExit(7)")
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", "raise SystemExit(7)"))
    with pytest.raises(NotGraded, match=r"^the worker process ended with exit status 7, 2 times in a row$"):
        executor.submit(job(exercises, SOURCE % 0)).result(HANG_S)


@pytest.mark.parametrize(
    ("missing", "error", "words"),
    [("_start_process", 12, "Cannot allocate memory"), ("os.pipe", 24, "Too many open files")],
)
def test_a_system_that_starts_no_process_costs_no_point(
    exercises: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, missing: str, error: int, words: str
) -> None:
    def refused(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(f"pytest_gpulab.grading.isolation.worker_process.{missing}", refused)
    with closing(LocalExecutor(2, ("sim",))) as executor:
        for future in [executor.submit(job(exercises, SOURCE % 0)) for _ in range(3)]:
            with pytest.raises(NotGraded, match=f"^its process cannot be started: {words}$"):
                future.result(HANG_S)


def test_a_system_that_starts_no_thread_is_named(
    exercises: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with closing(LocalExecutor(1, ("sim",))) as executor:
        monkeypatch.setattr(threading.Thread, "start", refused)
        with pytest.raises(ExecutorUnavailable) as caught:
            executor.submit(job(exercises, SOURCE % 0))
        monkeypatch.undo()
    assert str(caught.value) == "the graders cannot be started: can't start new thread; allow more (ulimit -u)"


def test_many_workers_may_open_the_pipes_that_they_need(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
    try:
        LocalExecutor(100, ("sim",)).close()
        soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == most or soft > 100 * 6
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_jobs_are_dealt_to_all_gpus(exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "graded_apart", trouble.graded_nowhere)
    info = DeviceInfo("cuda", "the first GPU", "nvcc", "sm_90", estimates=False)
    with closing(LocalExecutor(3, ("cuda:0", "cuda:1"), info)) as executor:
        futures = [executor.submit(job(exercises, SOURCE % 0)) for _ in range(6)]
        graded_on = [future.result(HANG_S).provenance for future in futures]
    devices = sorted((on.device, on.architecture) for on in graded_on)
    assert devices == 4 * [("cuda:0", "the first GPU")] + 2 * [("cuda:1", "unknown")]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NotGraded("the GPU is gone"), "the GPU is gone"),
        (MemoryError("1 GiB"), "there was no memory to grade it: 1 GiB"),
        (MemoryError(), "there was no memory to grade it: none was left"),
    ],
)
def test_a_failing_job_does_not_affect_others(
    exercises: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def lost(*_: object) -> None:
        raise error

    with closing(LocalExecutor(1, ("cuda:0",))) as executor:
        with monkeypatch.context() as patch:
            patch.setattr(executor_module, "graded_apart", lost)
            with pytest.raises(NotGraded, match=f"^{told}$"):
                executor.submit(job(exercises, SOURCE % 0)).result(HANG_S)
        monkeypatch.setattr(executor_module, "graded_apart", trouble.graded_nowhere)
        assert executor.submit(job(exercises, SOURCE % 0)).result(HANG_S).provenance.device == "cuda:0"


def test_all_of_a_run_share_a_folder(exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def graded_apart(job: object, known: object, scope: ProcessScope) -> None:
        assert scope.memory_bytes is None, "CUDA reserves a large address space"
        seen.append(scope.folder)

    monkeypatch.setattr(executor_module, "graded_apart", graded_apart)
    with closing(LocalExecutor(1, ("cuda:0",))) as executor:
        for _ in range(2):
            executor.submit(job(exercises, SOURCE % 0)).result(HANG_S)
        first, second = seen
        assert first is not None and first == second and Path(first).is_dir()
    assert not Path(first).exists()


def test_graders_are_known_for_such_wherever_they_are_started(temporary: Path) -> None:
    with closing(LocalExecutor(1, ("cuda:0",))):
        server = fork_server.ensure_running()
        assert server is not None
        wait_for(lambda: is_grader(server.pid))  # a process that has just begun has no environment for a moment


PARENT = """
import sys
from pathlib import Path
from trouble import SOURCE, exercises_in, job
from pytest_gpulab.course.executors.processes import LocalExecutor

executor = LocalExecutor(2, ("sim",))
executor.submit(job(exercises_in(Path(sys.argv[1])), SOURCE % 2)).result()
"""


def test_no_worker_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(temporary)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, tmp_path], env=os.environ | environment)
    wait_for(lambda: list(temporary.glob("gpulab-*/gpulab-*/gpulab-*/gpulab-*/twice.cu")))
    (server,) = (number for number in wait_for(lambda: workers_of(parent.pid)) if is_grader(number))
    (grader,) = wait_for(lambda: workers_of(server))
    parent.send_signal(signal.SIGKILL)
    parent.wait(HANG_S)
    wait_for(lambda: not is_alive(grader) and not is_alive(server))
    assert not left_in(temporary)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_worker_has_one_thread_for_numpy_and_an_end_to_its_memory(
    exercises: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """As has a process that checks are graded in one by one."""
    if is_lost:
        monkeypatch.setattr(executor_module.worker, "PROGRAM", "raise SystemExit(7)")
    with closing(LocalExecutor(1, ("sim",))) as executor:
        running = executor.submit(job(exercises, SOURCE % 2))
        (worker,) = wait_for(lambda: [each for each in graders() if limit_of(each) != "unlimited"])
        assert limit_of(worker) == str(executor_module.MEMORY_BYTES)
        assert len(list(Path(f"/proc/{worker}/task").iterdir())) == 1
        assert running.running()


def limit_of(process: int) -> str:
    """Return the limit of a process's address space."""
    with suppress(OSError):
        limits = Path(f"/proc/{process}/limits").read_text()
        return re.findall(r"^Max address space +(\S+)", limits, re.M)[0]
    return "unlimited"


def workers_of(parent: int) -> list[int]:
    """Return the child processes that have begun to load the grader."""
    workers = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            _, its_parent, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            if its_parent == str(parent) and "numpy" in (process / "maps").read_text():
                workers.append(int(process.name))
    return workers


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

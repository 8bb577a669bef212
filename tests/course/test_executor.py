"""Worker processes: a submission that breaks one affects no other, and loses only the check that did it."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import pebble
import pytest
import trouble
from hang_guard import HANG_S
from trouble import SOURCE, exercises_in, job

from pytest_gpulab.course.executors import processes as executor_module
from pytest_gpulab.course.executors.processes import ExecutorUnavailable, LocalExecutor
from pytest_gpulab.course.jobs import NotGraded
from pytest_gpulab.grading.grade import Grade

T = TypeVar("T")


@pytest.fixture
def exercises(tmp_path: Path) -> Path:
    return exercises_in(tmp_path)


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    with closing(LocalExecutor(2)) as opened:
        yield opened


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


def test_a_submission_out_of_memory_gets_its_own_process(
    executor: LocalExecutor, exercises: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_module, "graded", trouble.out_of_memory)
    assert verdicts(executor.submit(job(exercises, SOURCE % 0)).result(HANG_S)) == ALL_RIGHT
    monkeypatch.setattr(executor_module, "graded_apart", trouble.out_of_memory)
    lost = executor.submit(job(exercises, SOURCE % 0))
    with pytest.raises(NotGraded, match="that graded it ran out of memory; the one before ran out of memory"):
        lost.result(HANG_S)


def test_waiting_jobs_are_cancelled_and_running_jobs_are_stopped(exercises: Path) -> None:
    others = set(workers_of(os.getpid()))  # of what was tested before in this process
    with closing(LocalExecutor(1)) as executor:
        running, waiting = (executor.submit(job(exercises, SOURCE % 2)) for _ in range(2))
        (worker,) = wait_for(lambda: set(workers_of(os.getpid())) - others)
        assert running.running() and not waiting.running()
        executor.cancel()
        assert waiting.cancelled()
        with pytest.raises(CancelledError):
            running.result(HANG_S)
    assert not is_alive(worker)


def test_jobs_end_with_the_executor(exercises: Path) -> None:
    executor = LocalExecutor(1)
    running = executor.submit(job(exercises, SOURCE % 2))
    executor.close()
    with pytest.raises(CancelledError):
        running.result(0)


def test_a_process_that_does_not_start_costs_no_point(exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module.worker, "prepare", operator.truediv)
    with closing(LocalExecutor(1)) as executor:
        lost = executor.submit(job(exercises, SOURCE % 0))
        with pytest.raises(NotGraded, match="could not be started or was lost; the one before could not be started"):
            lost.result(HANG_S)


class Useless:
    """A pool whose processes the system does not let start, as when there is no memory left."""

    active = True

    def schedule(self, *_: object, **__: object) -> None:
        raise BrokenProcessPool("Cannot allocate memory")

    def stop(self) -> None: ...

    def join(self) -> None: ...


def test_a_system_that_starts_no_process_costs_no_point(exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "_pebble", lambda: SimpleNamespace(ProcessPool=lambda *_: Useless()))
    with closing(LocalExecutor(2)) as executor:
        for future in [executor.submit(job(exercises, SOURCE % 0)) for _ in range(3)]:
            with pytest.raises(NotGraded, match="no process could be started to grade it: Cannot allocate memory"):
                future.result(0)


class Fileless(Useless):
    """A pool that cannot open the pipes to its process."""

    @property
    def active(self) -> bool:  # type: ignore[override]
        raise OSError(24, "Too many open files")


def test_a_system_that_opens_no_pipe_costs_no_point(exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "_pebble", lambda: SimpleNamespace(ProcessPool=lambda *_: Fileless()))
    with closing(LocalExecutor(1)) as executor:
        for future in [executor.submit(job(exercises, SOURCE % 0)) for _ in range(2)]:
            with pytest.raises(NotGraded, match=r"no process could be started to grade it: .*Too many open files"):
                future.result(0)


HUNDRED = """
import resource
from pytest_gpulab.course.executors.processes import LocalExecutor

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
LocalExecutor(100).close()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], most)
"""


def test_many_workers_may_open_the_pipes_that_they_need() -> None:
    said = subprocess.run([sys.executable, "-c", HUNDRED], capture_output=True, text=True, check=True).stdout
    soft, most = map(int, said.split())
    assert soft == most or soft > 100 * 6


def test_a_signal_without_a_name_is_reported_by_its_number() -> None:
    lost = pebble.ProcessExpired("Abnormal termination", -35)
    assert executor_module._ending(lost) == "was ended by signal 35"


def test_however_many_jobs_wait_when_no_process_starts(exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "_pebble", lambda: SimpleNamespace(ProcessPool=lambda *_: Useless()))
    with closing(LocalExecutor(1)) as executor:
        executor._waiting.extend((job(exercises, SOURCE % 0), Future()) for _ in range(2 * sys.getrecursionlimit()))
        last = executor.submit(job(exercises, SOURCE % 0))
        assert isinstance(last.exception(0), NotGraded)


class Unstoppable(Useless):
    """A pool that ignores the request to stop."""

    def __init__(self) -> None:
        self.answers: list[Future[Grade]] = []

    def schedule(self, *_: object, **__: object) -> Future[Grade]:  # type: ignore[override]
        self.answers.append(Future())
        self.answers[-1].set_running_or_notify_cancel()
        return self.answers[-1]


class Forgetful(Useless):
    """A pool whose process is gone before it has noted the job: pebble never tells what became of that."""

    active = False

    def schedule(self, *_: object, **__: object) -> Future[Grade]:  # type: ignore[override]
        return Future()


def test_a_job_lost_by_pebble_costs_no_point(exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "_pebble", lambda: SimpleNamespace(ProcessPool=lambda *_: Forgetful()))
    monkeypatch.setattr(executor_module, "POLL_S", 0.05)
    with closing(LocalExecutor(1)) as executor:
        for future in [executor.submit(job(exercises, SOURCE % 0)) for _ in range(2)]:
            with pytest.raises(NotGraded, match="could not be started or was lost; the one before could not be start"):
                future.result(HANG_S)


def test_a_late_result_of_pebble_counts(exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Unstoppable()
    monkeypatch.setattr(executor_module, "_pebble", lambda: SimpleNamespace(ProcessPool=lambda *_: pool))
    monkeypatch.setattr(executor_module, "POLL_S", HANG_S)
    with closing(LocalExecutor(1)) as executor:
        executor.submit(job(exercises, SOURCE % 0))
        (worker,) = executor._workers
        for pool.active in (True, False, True, False):
            worker.supervise_job()
            assert not pool.answers[0].done()
        worker.supervise_job()
        assert isinstance(pool.answers[0].exception(0), BrokenProcessPool)
        pool.active = True
    for answer in pool.answers[1:]:
        answer.set_exception(TimeoutError())


def test_a_first_attempt_that_fails_as_all_is_stopped_is_not_followed_by_another(
    exercises: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Unstoppable()
    monkeypatch.setattr(executor_module, "_pebble", lambda: SimpleNamespace(ProcessPool=lambda *_: pool))
    executor = LocalExecutor(1)
    future = executor.submit(job(exercises, SOURCE % 0))
    executor.close()
    pool.answers[0].set_exception(TimeoutError())
    assert len(pool.answers) == 1
    with pytest.raises(CancelledError):
        future.result(0)


def test_workers_need_pebble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pebble", None)
    with pytest.raises(ExecutorUnavailable, match=r"needs pebble.*pip install 'pytest-gpulab\[class\]'"):
        LocalExecutor(1)


PARENT = """
import sys
from pathlib import Path
from trouble import SOURCE, exercises_in, job
from pytest_gpulab.course.executors.processes import LocalExecutor

if __name__ == "__main__":
    executor = LocalExecutor(2)
    futures = [executor.submit(job(exercises_in(Path(sys.argv[1])), SOURCE % 2))]
    futures[0].result()
"""


BUSY = """
import multiprocessing, sys, tempfile, time
from contextlib import suppress
from pytest_gpulab.course.executors import worker

def write_on(folder):
    worker.prepare(folder)
    import numpy  # which tells a worker from multiprocessing's other processes
    while True:
        with suppress(OSError):
            tempfile.mkdtemp(prefix="gpulab-")
        time.sleep(0.0005)

if __name__ == "__main__":
    folder = tempfile.mkdtemp(prefix="gpulab-")
    process = multiprocessing.get_context("spawn").Process(target=write_on, args=(folder,))
    process.start()
    process.join()
"""


@pytest.mark.parametrize(
    ("program", "begun"), [(PARENT, "gpulab-*/gpulab-*/twice.cu"), (BUSY, "gpulab-*/gpulab-*")], ids=["grading", "busy"]
)
def test_no_worker_outlives_a_parent_that_was_killed(program: str, begun: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(program)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(temporary)}
    parent = subprocess.Popen([sys.executable, script, tmp_path], env=environment)
    wait_for(lambda: list(temporary.glob(begun)))
    (worker,) = workers_of(parent.pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait(HANG_S)
    wait_for(lambda: not is_alive(worker))
    assert not list(temporary.glob("gpulab-*"))


def test_a_worker_has_one_thread_for_numpy_and_an_end_to_its_memory(exercises: Path) -> None:
    others = set(workers_of(os.getpid()))
    with closing(LocalExecutor(1)) as executor:
        executor.submit(job(exercises, SOURCE % 0)).result(HANG_S)
        (worker,) = set(workers_of(os.getpid())) - others
        limits = Path(f"/proc/{worker}/limits").read_text().splitlines()
        (address_space,) = (line for line in limits if line.startswith("Max address space"))
        assert address_space.split()[3] == str(executor_module.worker.MEMORY_BYTES)
        assert len(list(Path(f"/proc/{worker}/task").iterdir())) == 2  # itself, and the one that waits for its parent


def workers_of(parent: int) -> list[int]:
    """Return the child processes that have begun to load the grader; multiprocessing has others."""
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


def wait_for(condition: Callable[[], T]) -> T:
    end_s = time.monotonic() + HANG_S
    while not (found := condition()):
        assert time.monotonic() < end_s
        time.sleep(0.02)
    return found

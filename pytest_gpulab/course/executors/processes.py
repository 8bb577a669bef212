"""The protocol of executors, and the executor for simulated GPUs in processes of this machine.

Each worker process grades one job after the other. When a process hangs or dies, its job is graded again check by check
in processes of its own: the verdict then names the check that failed, and all other checks are graded.
"""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_gpulab import UserError
from pytest_gpulab.course.jobs import Job, NotGraded, graded, graded_apart
from pytest_gpulab.devices.system import processes
from pytest_gpulab.grading.grade import Grade

from . import worker

TIME_LIMITS_PER_SUBMISSION = 5
"""Time limit of a whole submission, in time limits of a check, before it is graded check by check."""
LAST_LIMIT_S = 6 * 3600.0  # for a submission with time limits per check: only a mistake of ours reaches it
JOBS_A_PROCESS = 100  # then a new process replaces it, which frees leaked memory

POLL_S = 0.5  # between two checks whether pebble has lost a job

FILES_A_WORKER, OTHER_FILES = 12, 256
"""Open files per worker: its pipes and its sentinel. Many systems allow 1024 by default."""


class Executor(Protocol):
    """An executor of grading jobs.

    A future ends with the job's grade, whatever the submission does, or with `NotGraded`, which costs no point.
    The future of a job in progress is `running()`.
    """

    def submit(self, job: Job) -> Future[Grade]:
        """Run a job as soon as a worker is free."""

    def cancel(self) -> None:
        """Cancel waiting jobs and stop running ones: their futures are cancelled, or raise `CancelledError`."""

    def close(self) -> None:
        """End all processes; unfinished jobs are cancelled."""


class ExecutorUnavailable(UserError):
    """An executor that cannot be started; one line with what is missing and how to get it."""


@dataclass
class _Running:
    """A running job; `lost` says how its first attempt ended."""

    job: Job
    future: Future[Grade]
    lost: str = ""


class LocalExecutor:
    """Worker processes of this machine, each with a simulated GPU; a job starts as soon as one is free.

    Raises ExecutorUnavailable if pebble is not installed, or processes cannot share locks.
    """

    def __init__(self, workers: int) -> None:
        _pebble()
        _check_locks()
        allow_files(FILES_A_WORKER * workers + OTHER_FILES)
        self._folder = tempfile.TemporaryDirectory(prefix="gpulab-", ignore_cleanup_errors=True)
        self._lock = threading.RLock()
        self._is_starting = False
        self._closed = threading.Event()
        self._waiting: deque[tuple[Job, Future[Grade]]] = deque()
        processes.mark_what_is_started()
        self._idle = [_Worker(self._folder.name) for _ in range(workers)]
        self._workers = tuple(self._idle)
        threading.Thread(target=self._supervise_jobs, daemon=True).start()

    def submit(self, job: Job) -> Future[Grade]:
        """Run a job as soon as a worker is free."""
        future: Future[Grade] = Future()
        with self._lock:
            self._waiting.append((job, future))
        self._start_waiting()
        return future

    def cancel(self) -> None:
        """Cancel waiting jobs and stop running ones."""
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        for _, future in waiting:
            future.cancel()
        for each in self._workers:
            each.cancel()

    def close(self) -> None:
        """End the processes."""
        self._closed.set()
        self.cancel()
        for each in self._workers:
            each.stop()
        for each in self._workers:
            each.join()
        self._folder.cleanup()

    def _supervise_jobs(self) -> None:
        while not self._closed.wait(POLL_S):
            for each in self._workers:
                each.supervise_job()

    def _start_waiting(self) -> None:
        with self._lock:
            if self._is_starting:  # this thread holds the lock further up, if the worker was free again at once
                return
            self._is_starting = True
            while self._waiting and self._idle:
                job, future = self._waiting.popleft()
                if future.set_running_or_notify_cancel():
                    free = self._idle.pop()
                    free.grade(_Running(job, future), self._freed)
            self._is_starting = False

    def _freed(self, worker: _Worker) -> None:
        with self._lock:
            self._idle.append(worker)
        self._start_waiting()


class _Worker:
    """A process that grades one job at a time, replaced when it hangs, crashes or has done many.

    Each is a pool of one: a process that dies can keep locks that a larger pool shares.
    """

    def __init__(self, folder: str) -> None:
        """Create a worker without starting it; `folder` is that of `worker.prepare`."""
        self._folder = folder
        self._pool = self._new_pool()
        self._broken: list[Any] = []
        self._running: _Running | None = None
        self._answer: Future[Grade] | None = None
        self._forgotten: Future[Grade] | None = None
        self._lock = threading.Lock()
        self._is_stopped = False

    def grade(self, running: _Running, free: Callable[[_Worker], None]) -> None:
        """Start a job; `free` is called with this worker when its future is done."""
        self._running = running
        job, is_quick = running.job, not running.lost
        limit_s = TIME_LIMITS_PER_SUBMISSION * job.settings.timeout_s if is_quick else LAST_LIMIT_S
        function = graded if is_quick else graded_apart
        try:
            with self._lock:
                if self._is_stopped:  # while the first attempt at a job ended
                    return
                self._answer = self._working_pool().schedule(function, (job,), timeout=limit_s)
        except (RuntimeError, OSError) as error:  # pebble raises RuntimeError for a pool that is broken
            why = error.__cause__ or error
            running.future.set_exception(NotGraded(f"no process could be started to grade it: {why}"))
            free(self)
            return
        self._answer.add_done_callback(lambda answer: self._ended(answer, running, free))

    def _ended(self, answer: Future[Grade], running: _Running, free: Callable[[_Worker], None]) -> None:
        """Pass on the grade, or have the job graded check by check; called in a thread of the pool."""
        error: BaseException | None = CancelledError() if answer.cancelled() else answer.exception()
        if error is None:
            running.future.set_result(answer.result())
        elif isinstance(error, NotGraded | CancelledError):
            running.future.set_exception(error)
        elif running.lost:
            text = f"the process that graded it {_ending(error)}; the one before {running.lost}"
            running.future.set_exception(NotGraded(text))
        else:
            running.lost = _ending(error)
            self.grade(running, free)
            return
        free(self)

    def supervise_job(self) -> None:
        """Give up a job that pebble lost: one that it accepted just as it found the process dead.

        It reports other jobs a moment after the pool broke, so that two checks must find the same.
        """
        answer = self._answer
        if answer is None or answer.done() or self._pool.active:
            self._forgotten = None
        elif answer is not self._forgotten:
            self._forgotten = answer
        else:
            with suppress(InvalidStateError):
                answer.set_exception(BrokenProcessPool("its process is gone"))

    def cancel(self) -> None:
        """Stop the running job."""
        if self._answer is not None:
            self._answer.cancel()

    def stop(self) -> None:
        """Start ending the process for good."""
        with self._lock:
            self._is_stopped = True
        for pool in (self._pool, *self._broken):
            pool.stop()

    def join(self) -> None:
        """Wait until it has ended; call `stop` before."""
        for pool in (self._pool, *self._broken):
            pool.join()
        if self._running is not None and not self._running.future.done():
            self._running.future.set_exception(CancelledError())

    def _working_pool(self) -> Any:
        if not self._pool.active:
            self._broken.append(self._pool)
            self._pool = self._new_pool()
        return self._pool

    def _new_pool(self) -> Any:
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that pytest's threads hold
        return _pebble().ProcessPool(1, JOBS_A_PROCESS, worker.prepare, (self._folder,), context)


def _pebble() -> Any:
    try:
        import pebble
    except ImportError:
        raise ExecutorUnavailable(
            "grading in several processes needs pebble; get it with: python -m pip install 'pytest-gpulab[class]'"
        ) from None
    return pebble


def _check_locks() -> None:
    """Check that processes can share a lock, which Linux keeps in /dev/shm."""
    try:
        multiprocessing.get_context("spawn").Lock()
    except (OSError, ImportError) as error:
        raise ExecutorUnavailable(
            f"grading in several processes needs shared memory in /dev/shm ({getattr(error, 'strerror', error)}): "
            "mount it (in Docker, --tmpfs /dev/shm), or grade single files without --gpulab-workers"
        ) from None


def allow_files(number: int) -> None:
    """Raise this process's limit of open files to the needed number, as far as allowed."""
    try:
        import resource
    except ImportError:  # Windows
        return
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = number if most == resource.RLIM_INFINITY else min(number, most)
    if now not in (resource.RLIM_INFINITY, most) and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _ending(error: BaseException) -> str:
    """Return how a process failed, in words that follow "the process"."""
    if isinstance(error, TimeoutError):
        return "had not ended in time and was stopped"
    if isinstance(error, MemoryError):
        return "ran out of memory"
    if isinstance(error, BrokenProcessPool):
        return "could not be started or was lost"
    code = getattr(error, "exitcode", None)
    if code is None:
        return f"failed: {error!r}"
    if code >= 0:
        return f"ended with exit status {code}"
    named = -code in set(signal.Signals)
    return f"was ended by {signal.Signals(-code).name if named else f'signal {-code}'}"

"""The protocol of executors, and the executor for processes of this machine: threads that wait for graders.

A submission on a GPU has processes of its own, with a time limit per check. On the simulated GPU, a worker process
grades one job after the other: the device stays open, and estimates of baselines are made once. When it hangs or dies,
its job is graded again check by check in processes of its own: the verdict then names the check that failed, and all
other checks are graded.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from typing import Protocol

from pytest_gpulab import UserError
from pytest_gpulab.course.jobs import Job, NotGraded, graded_apart
from pytest_gpulab.devices.protocol import DeviceInfo, DeviceUnavailable
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.isolation import fork_server
from pytest_gpulab.grading.isolation.worker_process import Crashed, Hung, ProcessScope, Worker, WorkerError

from . import worker

TIME_LIMITS_PER_SUBMISSION = 5
"""Time limit of a whole submission, in time limits of a check, before it is graded check by check."""
LAST_LIMIT_S = 6 * 3600.0  # for a program, which limits its runs itself: only a mistake of ours reaches it
JOBS_A_PROCESS = 100  # then a new process replaces it, which frees leaked memory
MEMORY_BYTES = 4 << 30  # address space of a process with a simulated GPU; the shipped exercises need an eighth of it

FILES_A_WORKER, OTHER_FILES = 24, 256
"""Open files per job: of a submission's two processes, of two that are being ended, and for starting one. Many systems
allow 1024 by default."""


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


class LocalExecutor:
    """An `Executor` on devices of this machine; a job starts as soon as a worker is free.

    The workers' devices, such as `("sim",)` or `("cuda:0", "cuda:1")`, replace that of the job. `info` is the first
    GPU's description, if known: many processes that query it at once take long.
    """

    def __init__(self, workers: int, devices: Sequence[str], info: DeviceInfo | None = None) -> None:
        allow_files(FILES_A_WORKER * workers + OTHER_FILES)
        self._folder = fork_server.temporary_folder()
        dealt = [devices[number % len(devices)] for number in range(workers)]
        known = {devices[0]: info}
        self._workers = [_Simulator() if name == "sim" else _Gpu(name, known.get(name)) for name in dealt]
        self._free: SimpleQueue[_Simulator | _Gpu] = SimpleQueue()
        for each in self._workers:
            self._free.put(each)
        self._memory_bytes = MEMORY_BYTES if "sim" in devices else None  # CUDA reserves far more
        self._pool = ThreadPoolExecutor(workers, "grading")
        self._scopes: dict[Future[Grade], ProcessScope] = {}

    def submit(self, job: Job) -> Future[Grade]:
        """Run a job as soon as a worker is free; raise ExecutorUnavailable if the system allows no further thread."""
        scope = ProcessScope(self._folder.name, self._memory_bytes)
        try:
            future = self._pool.submit(self._graded, job, scope)
        except RuntimeError as error:
            raise ExecutorUnavailable(f"the graders cannot be started: {error}; allow more (ulimit -u)") from None
        self._scopes[future] = scope
        future.add_done_callback(lambda done: self._scopes.pop(done, None))
        return future

    def _graded(self, job: Job, scope: ProcessScope) -> Grade:
        free = self._free.get()
        try:
            return free.graded(job, scope)
        except DeviceUnavailable as error:
            raise NotGraded(str(error)) from None
        except MemoryError as error:
            raise NotGraded(f"there was no memory to grade it: {str(error) or 'none was left'}") from None
        finally:
            self._free.put(free)

    def cancel(self) -> None:
        """Cancel waiting jobs and stop running ones."""
        scopes = dict(self._scopes)
        for future in scopes:
            future.cancel()
        for scope in scopes.values():
            scope.end()

    def close(self) -> None:
        """End the processes."""
        self.cancel()
        self._pool.shutdown()
        for each in self._workers:
            each.close()
        self._folder.cleanup()


class _Gpu:
    """A place for one job at a time on a GPU."""

    def __init__(self, device: str, info: DeviceInfo | None) -> None:
        self._device, self._info = device, info

    def graded(self, job: Job, scope: ProcessScope) -> Grade:
        """Grade a job; raises as `graded_apart`."""
        job = replace(job, settings=replace(job.settings, device=self._device))
        return graded_apart(job, self._info, scope)

    def close(self) -> None:
        """No-op: each job ends its processes."""


class _Lost(Exception):
    """A job without a grade; the message says how its process ended, in words that follow "the process"."""


class _Simulator:
    """A worker process with a simulated GPU, replaced when it hangs, crashes or has done many jobs."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._jobs = 0

    def graded(self, job: Job, scope: ProcessScope) -> Grade:
        """Grade a job, twice if the first attempt is lost; raise NotGraded, CancelledError or DeviceUnavailable."""
        try:
            return self._asked(job, scope, TIME_LIMITS_PER_SUBMISSION * job.settings.timeout_s)
        except _Lost as lost:
            first = str(lost)
        try:
            return self._asked(job, scope, LAST_LIMIT_S) if job.settings.programs else graded_apart(job, None, scope)
        except (_Lost, MemoryError) as lost:
            last = str(lost) if isinstance(lost, _Lost) else worker.NO_MEMORY
            raise NotGraded(f"the process that graded it {last}; the one before {first}") from None

    def _asked(self, job: Job, scope: ProcessScope, limit_s: float) -> Grade:
        try:
            self._start(job, scope)
            assert self._worker is not None
            answer = self._worker.ask({"job": worker.packed(job)}, limit_s)
            self._jobs += 1
            scope.remove(self._worker)
            scope.check()  # it may have been ended just before
        except BaseException as error:
            self.close()
            scope.check()  # a job that was cancelled is not lost
            if isinstance(error, Crashed | Hung | WorkerError):
                raise _Lost(_ending(error)) from None
            raise
        if "lost" in answer:
            self.close()
            raise _Lost(answer["lost"])
        if "not graded" in answer:
            raise NotGraded(answer["not graded"])
        return Grade.from_dict(answer["grade"])

    def _start(self, job: Job, scope: ProcessScope) -> None:
        """Start a process if there is none, and let the scope end it."""
        if self._jobs >= JOBS_A_PROCESS:
            self.close()
        if self._worker is None:
            self._worker = Worker(worker.task(job), scope, program=worker.PROGRAM)
        else:
            scope.add(self._worker)

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.kill()
        self._worker, self._jobs = None, 0


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


def _ending(error: Exception) -> str:
    """Return how a process failed, in words that follow "the process"."""
    if isinstance(error, Hung):
        return "had not ended in time and was stopped"
    return f"failed: {error.traceback_end}" if isinstance(error, WorkerError) else str(error)

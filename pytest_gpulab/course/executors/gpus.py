"""The executor for the GPUs of this machine: threads that wait for graders.

A submission on a GPU has processes of its own anyway, each with a time limit. Another process in between would only
wait.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue

from pytest_gpulab.course.jobs import Job, NotGraded, graded_apart
from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.devices.system import processes
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.isolation import fork_server
from pytest_gpulab.grading.isolation.worker_process import ProcessScope

from .processes import OTHER_FILES, Executor, LocalExecutor, allow_files

FILES_A_WORKER = 24
"""Open files per job: of a submission's two processes, of two that are being ended, and for starting one."""


def executor_on(devices: Sequence[str], workers: int, info: DeviceInfo | None = None) -> Executor:
    """Return the executor for devices of this machine: the simulated one (`("sim",)`), or GPUs.

    Raises ExecutorUnavailable if pebble is not installed, which the simulated one needs.
    """
    return LocalExecutor(workers) if tuple(devices) == ("sim",) else GpuExecutor(workers, devices, info)


class GpuExecutor:
    """An `Executor` on GPUs; a job starts as soon as a worker is free.

    The workers' devices, such as `("cuda:0", "cuda:1")`, replace that of the job. `info` is the first one's
    description, if known: many processes that query it at once take long.
    """

    def __init__(self, workers: int, devices: Sequence[str], info: DeviceInfo | None = None) -> None:
        allow_files(FILES_A_WORKER * workers + OTHER_FILES)
        processes.mark_what_is_started()  # before the fork server starts: its children show its environment
        server = fork_server.ensure_running()
        within = None if server is None else server.folder  # removed even if this process is killed
        self._folder = tempfile.TemporaryDirectory(prefix="gpulab-", dir=within, ignore_cleanup_errors=True)
        self._known = {devices[0]: info}
        self._free: SimpleQueue[str] = SimpleQueue()
        for number in range(workers):
            self._free.put(devices[number % len(devices)])
        self._pool = ThreadPoolExecutor(workers, "grading")
        self._scopes: dict[Future[Grade], ProcessScope] = {}

    def submit(self, job: Job) -> Future[Grade]:
        """Run a job as soon as a worker is free."""
        scope = ProcessScope(self._folder.name)
        future = self._pool.submit(self._graded, job, scope)
        self._scopes[future] = scope
        future.add_done_callback(lambda done: self._scopes.pop(done, None))
        return future

    def _graded(self, job: Job, scope: ProcessScope) -> Grade:
        device = self._free.get()
        try:
            job = replace(job, settings=replace(job.settings, device=device))
            return graded_apart(job, self._known.get(device), scope)
        except MemoryError as error:
            raise NotGraded(f"there was no memory to grade it: {str(error) or 'none was left'}") from None
        finally:
            self._free.put(device)

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
        self._folder.cleanup()

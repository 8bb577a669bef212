"""Who runs grading jobs on the GPUs of this machine: threads that wait for graders.

A submission on a GPU has processes of its own anyway, each with a time limit, which it may break. A process between
them and this one would do nothing but wait, too.
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
from pytest_gpulab.grading.isolation import forked
from pytest_gpulab.grading.isolation.worker_process import ProcessScope

from .processes import OTHER_FILES, Executor, LocalExecutor, allow_files

FILES_A_WORKER = 24
"""Open at once in this process: of a submission's two processes, of two that are being ended, and to start one."""


def executor_on(devices: Sequence[str], workers: int, info: DeviceInfo | None = None) -> Executor:
    """Return who grades on devices of this machine: the simulated one, or GPUs.

    Args:
        devices: `("sim",)`, or as `GpuExecutor` takes them.
        workers: how many jobs are graded at once.
        info: what the first device says about itself, if that is known.

    Raises:
        ExecutorUnavailable: pebble is not installed, which the simulated one needs.
    """
    return LocalExecutor(workers) if tuple(devices) == ("sim",) else GpuExecutor(workers, devices, info)


class GpuExecutor:
    """The `Executor` that grades on GPUs; a job starts as soon as one of the workers is free.

    Args:
        workers: how many jobs are graded at once.
        devices: on which the workers are, in turns, such as `("cuda:0", "cuda:1")`; a job's own device is overruled.
        info: what the first of them says about itself, if that is known: many processes that ask at once take long.
    """

    def __init__(self, workers: int, devices: Sequence[str], info: DeviceInfo | None = None) -> None:
        allow_files(FILES_A_WORKER * workers + OTHER_FILES)
        processes.mark_what_is_started()  # the nursery above all: what is forked later shows its environment
        nursery = forked.get_ready()
        within = None if nursery is None else nursery.folder  # removed even if this process is killed
        self._folder = tempfile.TemporaryDirectory(prefix="gpulab-", dir=within, ignore_cleanup_errors=True)
        self._known = {devices[0]: info}
        self._free: SimpleQueue[str] = SimpleQueue()
        for number in range(workers):
            self._free.put(devices[number % len(devices)])
        self._pool = ThreadPoolExecutor(workers, "grading")
        self._custodies: dict[Future[Grade], ProcessScope] = {}

    def submit(self, job: Job) -> Future[Grade]:
        """Have a job graded as soon as a worker is free."""
        scope = ProcessScope(self._folder.name)
        future = self._pool.submit(self._graded, job, scope)
        self._custodies[future] = scope
        future.add_done_callback(lambda done: self._custodies.pop(done, None))
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
        """Forget the jobs that wait and stop those that run."""
        custodies = dict(self._custodies)
        for future in custodies:
            future.cancel()
        for scope in custodies.values():
            scope.end()

    def close(self) -> None:
        """End the processes."""
        self.cancel()
        self._pool.shutdown()
        self._folder.cleanup()

"""The worker of a cluster: checks that it fits a job, unpacks the exercise, and grades in processes.

Dask calls these functions by name, so a worker needs this package in the same version. As on a single machine, worker
processes grade the jobs: a submission that crashes one, or uses up its memory, does not affect Dask's process.
"""

import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest_gpulab
from pytest_gpulab.course.jobs import Job, NotGraded, content_sha256, device_model, files_of
from pytest_gpulab.devices import LAUNCH_LIMIT_S, open_device
from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.grading.grade import Grade

from .processes import Executor, LocalExecutor

IDLE_LIMIT_S = 600.0
"""Time that the processes of a run wait for jobs: their sender may have died."""


@dataclass
class _Run:
    """The processes of a run, the number of their jobs, and the time of the last one."""

    executor: Executor
    jobs: int = 0
    last_s: float = 0.0


_lock = threading.Lock()
_runs: dict[str, _Run] = {}
"""Runs that sent jobs to this worker."""


@dataclass(frozen=True)
class PackedJob:
    """A job with everything that a machine with this package needs for it."""

    job: Job
    files: tuple[tuple[str, bytes], ...]  # the exercise's files by their paths below its folder
    run: str  # unique id of its run
    model: str  # the device of all jobs of the run, from `device_model`
    version: str = pytest_gpulab.__version__  # the sender's version of this package


def packed(job: Job, run: str, model: str) -> PackedJob:
    """Pack a job with its exercise."""
    folder = job.exercises / job.exercise
    files = tuple((path.relative_to(folder).as_posix(), path.read_bytes()) for path in files_of(folder))
    return PackedJob(job, files, run, model)


@cache
def looked_at(spec: str, architecture: str | None, gpu: str | None) -> tuple[DeviceInfo, str]:
    """Return the description of the device that `open_device` opens here, and the reason for it."""
    device, reason = open_device(spec, LAUNCH_LIMIT_S, architecture, gpu, isolated=True)
    info = device.info
    device.close()  # an open device would take GPU memory from the others
    return info, reason


def graded_there(sent: PackedJob) -> Grade:
    """Grade a job on the worker that this is called on.

    Raises NotGraded if this worker differs from those that the run began with, or as an `Executor`'s futures, and
    CancelledError if the run has been forgotten meanwhile.
    """
    from distributed import get_worker

    worker, settings = get_worker(), sent.job.settings
    if sent.version != pytest_gpulab.__version__:
        version = pytest_gpulab.__version__
        raise NotGraded(f"the worker {worker.address} has pytest-gpulab {version}; the run needs {sent.version}")
    model = device_model(looked_at(settings.device, settings.architecture, settings.gpu)[0])
    if model != sent.model:
        raise NotGraded(f"the worker {worker.address} has another device than the run began with: {model}")
    exercises = unpacked(sent, Path(worker.local_directory))
    _end_idle_runs()
    with _lock:
        if sent.run not in _runs:
            _runs[sent.run] = _Run(LocalExecutor(worker.state.nthreads, (settings.device,)))
        run = _runs[sent.run]
        run.jobs += 1
        future = run.executor.submit(replace(sent.job, exercises=exercises))
    try:
        return future.result()
    finally:
        with _lock:
            run.jobs, run.last_s = run.jobs - 1, time.monotonic()


def _end_idle_runs() -> None:
    now_s = time.monotonic()
    with _lock:
        idle = [name for name, run in _runs.items() if not run.jobs and now_s - run.last_s > IDLE_LIMIT_S]
        ended = [_runs.pop(name) for name in idle]
    for run in ended:
        run.executor.close()


def forget(run: str) -> None:
    """Stop the jobs of a run and end its processes."""
    with _lock:
        known = _runs.pop(run, None)
    if known is not None:
        known.executor.close()


def unpacked(sent: PackedJob, scratch: Path) -> Path:
    """Return an exercises folder with the job's exercise; files of an earlier job are reused.

    Raises NotGraded if they do not match the job's hash.
    """
    job = sent.job
    folder = scratch / "gpulab-exercises" / job.exercise_sha256
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=folder.parent))
        for name, file in sent.files:
            path = new / job.exercise / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file)
        try:
            new.rename(folder)
        except OSError:  # another job was faster
            shutil.rmtree(new)
    if content_sha256(folder / job.exercise) != job.exercise_sha256:
        raise NotGraded(f"the exercise {job.exercise} was changed while its submissions were graded")
    return folder

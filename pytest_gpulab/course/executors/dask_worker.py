"""What a worker of a cluster does: look whether it is the right one for a job, unpack its exercise, have it graded.

Dask calls these functions on the worker by their names, so a worker needs this package, and the same version of it. A
job is graded as on the machine of whoever grades alone, by worker processes: a submission that brings one down, or
takes all the memory that it gets, does nothing to Dask's.
"""

from __future__ import annotations

import multiprocessing
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

from .gpus import executor_on
from .processes import Executor

IDLE_LIMIT_S = 600.0
"""How long the processes of a run wait for jobs: whoever sent them may be gone without a word."""


@dataclass
class _Run:
    """The processes that grade for a run, how many jobs they are at, and when they were at one last."""

    executor: Executor
    jobs: int = 0
    last_s: float = 0.0


_lock = threading.Lock()
_runs: dict[str, _Run] = {}
"""Those that have sent jobs to this worker."""


@dataclass(frozen=True)
class PackedJob:
    """A job with all that a machine needs for it which has nothing but this package.

    Attributes:
        files: the exercise's, by their names below its folder.
        run: which run it belongs to, unlike any other.
        model: of the device that all jobs of the run are graded on, as `device_model` says it.
        version: of this package where the job comes from.
    """

    job: Job
    files: tuple[tuple[str, bytes], ...]
    run: str
    model: str
    version: str = pytest_gpulab.__version__


def packed(job: Job, run: str, model: str) -> PackedJob:
    """Pack a job with its exercise."""
    folder = job.exercises / job.exercise
    files = tuple((path.relative_to(folder).as_posix(), path.read_bytes()) for path in files_of(folder))
    return PackedJob(job, files, run, model)


@cache
def looked_at(spec: str, architecture: str | None, gpu: str | None) -> tuple[DeviceInfo, str]:
    """Return what this machine's device says about itself, and why it is that one.

    The arguments are `open_device`'s.

    Raises:
        DeviceUnavailable: it is not there.
    """
    device, reason = open_device(spec, LAUNCH_LIMIT_S, architecture, gpu, isolated=True)
    info = device.info
    device.close()  # whoever holds a GPU's memory takes it from the others
    return info, reason


def graded_there(sent: PackedJob) -> Grade:
    """Grade a job on the worker that this is called on.

    Raises:
        NotGraded: this worker is not like those that the run began with, or as an `Executor`'s futures.
        CancelledError: the run has been forgotten meanwhile.
    """
    from distributed import get_worker

    worker, settings = get_worker(), sent.job.settings
    if sent.version != pytest_gpulab.__version__:
        version = pytest_gpulab.__version__
        raise NotGraded(f"the worker {worker.address} has pytest-gpulab {version}, and the run is by {sent.version}")
    model = device_model(looked_at(settings.device, settings.architecture, settings.gpu)[0])
    if model != sent.model:
        raise NotGraded(f"the worker {worker.address} grades on another device than the run began with: {model}")
    exercises = unpacked(sent, Path(worker.local_directory))
    _end_idle_runs()
    with _lock:
        if sent.run not in _runs:
            multiprocessing.current_process().daemon = False  # Dask's nanny does not foresee that a worker starts some
            _runs[sent.run] = _Run(executor_on((settings.device,), worker.state.nthreads))
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
    """Return a folder of exercises that holds the job's; its files are written unless an earlier job brought the same.

    Raises:
        NotGraded: they are not what the job's hash is of.
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

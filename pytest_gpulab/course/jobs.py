"""A grading job: all that a grade depends on as plain data, and the pure function from it to a `Grade`.

A job travels to another process or machine, where `graded` needs the instructor's exercises and nothing else of the
session. A job never loses a submission: any student's file ends in a `Grade`. An exception is the machine's fault or a
mistake of this package.
"""

import hashlib
import json
import os
import tempfile
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import pytest_gpulab
from pytest_gpulab.devices import LAUNCH_LIMIT_S, open_device
from pytest_gpulab.devices.protocol import Device, DeviceInfo, DeviceUnavailable
from pytest_gpulab.grading.catalogue import (
    UNCALIBRATED,
    BrokenExercise,
    Catalogue,
    Loaded,
    LoadedProgram,
    Thresholds,
    importing,
)
from pytest_gpulab.grading.checks import Check, checks_of
from pytest_gpulab.grading.findings import NO_MEMORY, because_of, lacks_device
from pytest_gpulab.grading.grade import CheckResult, Grade
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.isolation.remote import DEFAULT_TIMEOUT_S, RemoteGrader
from pytest_gpulab.grading.isolation.worker_process import ProcessScope
from pytest_gpulab.grading.time_limits import CaseLimits, TimeLimits
from pytest_gpulab.grading.tools.ncu import Profiler

MAX_STOPPED = 3
"""Checks of one submission that may time out before the remaining ones are skipped as hanging, too."""


class NotGraded(Exception):
    """A job that failed through the machine's fault or this package's; the message is for the instructor."""


@dataclass(frozen=True)
class GradingSettings:
    """The settings that a grade depends on."""

    device: str  # `sim`, `cuda` or `cuda:N`; never `auto`, as all jobs of a run need the same kind
    seed: int
    timeout_s: float = DEFAULT_TIMEOUT_S  # the time limit of a check in a process of its own
    architecture: str | None = None  # as `open_device` takes it
    gpu: str | None = None  # as `open_device` takes it
    sanitize: bool = False  # as `Settings` has it
    count: bool = False  # as `Settings` has it
    annotate: bool = False  # as `Settings` has it
    thresholds: Thresholds = UNCALIBRATED  # the exercise's thresholds on the device
    programs: bool = False  # whether submissions that are whole programs may run


@dataclass(frozen=True)
class Job:
    """A submission to grade."""

    label: str  # its name in the grade, such as `student42/reduction.cu`
    student: str  # the student's id; empty if unknown
    exercise: str
    filename: str  # the submission's plain name, which compilers and findings show
    source: bytes
    exercises: Path  # the instructor's folder of exercises
    exercise_sha256: str  # hash of the exercise's folder, see `content_sha256`
    settings: GradingSettings

    @property
    def source_sha256(self) -> str:
        """Hash of the source, as grades have it."""
        return hashlib.sha256(self.source).hexdigest()

    def key(self, model: str, version: str = pytest_gpulab.__version__) -> str:
        """Return the key of the grade on the device that `device_model` describes.

        It is equal for equal work, independent of the student and the machine.
        """
        settings = asdict(self.settings)
        del settings["device"]  # of several GPUs of a model any will do
        parts = [self.exercise, self.filename, self.exercise_sha256, settings, model, version]
        text = json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()
        return hashlib.sha256(text + b"\0" + self.source).hexdigest()


def device_model(info: DeviceInfo) -> str:
    """Return the properties of a device that a grade depends on: kind, name, size, compiler."""
    return "; ".join((info.kind, info.name, info.architecture, info.compiler, info.details.get("SMs", "")))


def content_sha256(folder: Path) -> str:
    """Return the hash of all files below a folder, names and contents, without caches and hidden files."""
    digest = hashlib.sha256()
    for path in files_of(folder):
        name = os.fsencode(path.relative_to(folder).as_posix())
        contents = path.read_bytes()
        digest.update(b"%d %d\n" % (len(name), len(contents)) + name + contents)
    return digest.hexdigest()


def files_of(folder: Path) -> list[Path]:
    """Return all files below an exercise's folder but caches and hidden ones, in one order on every machine.

    Links are followed: they are the instructor's, and may lead to files that exercises share.
    """
    return sorted(_files_below(folder, frozenset()))


def _files_below(folder: Path, around: frozenset[Path]) -> Iterator[Path]:
    if folder.resolve() in around:  # a link leads back to it
        return
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir():
            yield from _files_below(path, around | {folder.resolve()})
        elif path.is_file():
            yield path


def graded(job: Job) -> Grade:
    """Grade a submission on the simulated GPU, all checks of its exercise, in this process.

    It keeps the device open for the next job. Raises NotGraded if the machine or this package is at fault, and
    MemoryError if this process has too little memory left; a new one may have enough.
    """
    settings = job.settings
    with _blameless(job), tempfile.TemporaryDirectory(prefix="gpulab-") as folder:
        path, loaded = _written(job, Path(folder)), _loaded(job)
        if isinstance(loaded, LoadedProgram):
            return _graded_program(job, loaded, path)
        device = simulated_device(settings.architecture, settings.gpu)
        limits = CaseLimits(TimeLimits.within(settings.timeout_s))
        grade = Grader(loaded, path, device, settings.seed, job.label, limits, settings.annotate).grade()
        if any(found.code == NO_MEMORY for check in grade.checks for found in check.findings):
            raise MemoryError("this process had no memory left")
        return replace(grade, student=job.student)


def _graded_program(job: Job, loaded: LoadedProgram, path: Path) -> Grade:
    """Grade a whole program in a sandbox of its own; raise NotGraded if the sandbox or a compiler is missing."""
    from pytest_gpulab.grading.programs.grader import ProgramGrader
    from pytest_gpulab.grading.programs.runs import NO_SANDBOX

    settings = job.settings
    grade = ProgramGrader(loaded, path, settings.seed, settings.programs, job.label, settings.gpu).grade()
    missing = [found for found in grade.checks[0].findings if found.code == NO_SANDBOX]
    if missing:
        raise NotGraded(f"{missing[0].what}. {missing[0].hint}")
    return replace(grade, student=job.student)


_infos: dict[tuple[str | None, ...], DeviceInfo] = {}
"""Descriptions of the devices that this process has graded on."""


def graded_apart(job: Job, known: DeviceInfo | None = None, scope: ProcessScope | None = None) -> Grade:
    """Grade a submission in a process of its own, with a time limit for every check; `known` describes the device.

    Raises NotGraded and MemoryError as `graded`, and CancelledError if the scope is over.
    """
    settings, scope = job.settings, scope or ProcessScope()
    with _blameless(job), tempfile.TemporaryDirectory(prefix="gpulab-", dir=scope.folder) as folder:
        path, loaded = _written(job, Path(folder)), _loaded(job)
        if isinstance(loaded, LoadedProgram):
            return _graded_program(job, loaded, path)
        profiler = _profiler() if settings.count else None
        more = (settings.architecture, settings.sanitize, profiler, settings.annotate, settings.gpu, scope)
        looked_at = (settings.device, settings.architecture, settings.gpu)
        info = known or _infos.get(looked_at)
        grader = RemoteGrader(loaded, path, settings.device, info, settings.seed, job.label, settings.timeout_s, *more)
        with closing(grader):
            _infos[looked_at] = grader.begin()
            checks = tuple(_while_it_ends(grader, checks_of(loaded.exercise), settings.timeout_s))
        scope.check()  # else results of processes that were ended would count as a grade
        return Grade(job.label, job.exercise, checks, grader.provenance, job.student)


def _while_it_ends(grader: RemoteGrader, checks: Iterable[Check], timeout_s: float) -> Iterator[CheckResult]:
    """Yield the checks' results; the rest of a submission that times out in several checks is not run.

    Raises NotGraded if the device has no room for it.
    """
    stopped: list[CheckResult] = []
    for check in checks:
        if len(stopped) < MAX_STOPPED:
            result = grader.run(check)
            if lacks_device(result):
                raise NotGraded(result.findings[0].what)
            if result.findings and result.findings[0].code == "endless-loop" and result.duration_s >= timeout_s:
                stopped.append(result)
            yield result
        else:
            cause = stopped[0]
            yield check.result("failed", (because_of(cause.name, cause.findings[0], cause.hidden),))


@contextmanager
def _blameless(job: Job) -> Iterator[None]:
    """Raise `NotGraded` for every error that is not the student's."""
    try:
        yield
        if content_sha256(job.exercises / job.exercise) != job.exercise_sha256:
            raise NotGraded(f"the exercise {job.exercise} was changed while its submissions were graded")
    except (NotGraded, CancelledError):
        raise
    except MemoryError as error:
        raise MemoryError(str(error)) from None  # NumPy's own MemoryError cannot be pickled
    except (BrokenExercise, DeviceUnavailable) as error:
        raise NotGraded(str(error)) from None
    except Exception as error:
        what = "".join(traceback.format_exception_only(error)).strip()
        raise NotGraded(f"bug in pytest-gpulab: {what}\n{traceback.format_exc()}") from None


def _written(job: Job, folder: Path) -> Path:
    path = folder / job.filename
    path.write_bytes(job.source)
    return path


def _loaded(job: Job) -> Loaded:
    with importing:  # once, whichever thread comes first
        loaded = _catalogue(job.exercises).load(job.exercise)
    return loaded._replace(thresholds=job.settings.thresholds)


_catalogue, _profiler = cache(Catalogue), cache(Profiler)


@cache
def simulated_device(architecture: str | None, gpu: str | None) -> Device:
    """Return the simulated GPU that this process keeps open; raise DeviceUnavailable."""
    return open_device("sim", LAUNCH_LIMIT_S, architecture, gpu, isolated=True)[0]

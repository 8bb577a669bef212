"""Grading in several processes: each submission is a job, and its checks wait for it.

Used with `--gpulab-workers`, `--gpulab-scheduler`, `--gpulab-store` or a class to grade.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

import pytest

from pytest_gpulab.course.executors.cores import usable_cores
from pytest_gpulab.course.executors.processes import Executor, LocalExecutor
from pytest_gpulab.course.jobs import GradingSettings, Job, content_sha256, device_model
from pytest_gpulab.course.progress import PLAIN_INTERVAL_S, TERMINAL_INTERVAL_S, Pace, Progress, fitted
from pytest_gpulab.course.schedule import AwaitedGrader, Regraded, Schedule
from pytest_gpulab.course.store import Change, Store, StoreError
from pytest_gpulab.grading.catalogue import Loaded, LoadedProgram
from pytest_gpulab.grading.findings import counted
from pytest_gpulab.grading.grader import provenance_of
from pytest_gpulab.grading.isolation.remote import DEFAULT_TIMEOUT_S
from pytest_gpulab.reports.gradebook import Gradebook

from .items import GRADING_SESSION, CheckItem, CudaFile, usage_errors
from .session import GradingSession
from .settings import Settings, SettingsError, shown

WAIT_S = 0.1  # between two updates of the progress


class ParallelRun:
    """A grading run in several processes, one instance per session; `errors` are grades that could not be kept."""

    def __init__(self, config: pytest.Config, gradebook: Gradebook) -> None:
        if hasattr(config, "workerinput") or config.getoption("dist", "no") != "no":
            ours = "--gpulab-submissions, --gpulab-workers and --gpulab-scheduler"
            raise SettingsError(f"{ours} distribute the work already: leave out pytest-xdist's -n")
        self.config, self.gradebook = config, gradebook
        self._schedule: Schedule | None = None
        self._graders: dict[CudaFile, AwaitedGrader] = {}
        self._workers = 0
        self._progress: Progress | None = None
        self._is_stopped = False
        self.errors: list[str] = []
        self._content = cache(_content_of)  # of an exercise's folder, once per folder

    @property
    def session(self) -> GradingSession:
        """The exercises, the device and the settings of the session."""
        return self.config.stash[GRADING_SESSION]

    @property
    def settings(self) -> Settings:
        """Options and ini keys."""
        return self.session.settings

    def start(self) -> None:
        """Prepare the worker processes, which open the device themselves.

        Raises UserError if there is no device, or the store cannot be opened.
        """
        self.session.close_device()
        info = self.session.device_info
        assert info is not None, "a device is opened before anything runs"
        with ExitStack() as opened:
            store = self._store()
            if store is not None:
                opened.callback(store.close)
            self._schedule = Schedule(self._executor(), device_model(info), store)
            opened.pop_all()

    def _store(self) -> Store | None:
        """Open the store, and use its seed if none was given."""
        given = self.settings.seed if self.settings.seed_given else None
        try:
            path = self._store_path()
            store = None if path is None else Store(path, self.settings.course.regrade)
            seed = self.settings.seed if store is None else store.seed(given)
        except OSError as error:
            raise SettingsError(
                f"grades cannot be stored in pytest's cache: {error.strerror}; name a file that can be written with "
                "--gpulab-store=PATH"
            ) from None
        self.session.settings = replace(self.settings, seed=seed)
        return store

    def _store_path(self) -> Path | None:
        """Return the path of the store: the given one, or for a class one in pytest's cache; else None."""
        course, cache = self.settings.course, getattr(self.config, "cache", None)
        if course.store or not course.submissions or cache is None:
            return course.store
        return Path(cache.mkdir("gpulab") / "grades.sqlite")

    def _executor(self) -> Executor:
        if self.session.cluster is not None:
            return self.session.cluster
        devices = self._devices()
        self._workers = self.settings.course.workers or _default_workers(devices)
        return LocalExecutor(self._workers, devices, self.session.device_info)

    def _devices(self) -> tuple[str, ...]:
        spec = self.session.device_spec
        if spec != "cuda":
            return (spec,)
        from pytest_gpulab.devices.cuda.fleet import alike

        return alike()

    def header(self) -> list[str]:
        """Return the header line: the number of processes and of GPUs, and the path of the store."""
        if self._schedule is None:
            return []
        path = self._store_path()
        kept = f"grades are stored in {shown(path)}" if path else "grades are not stored"
        return [f"{self._graders_text()}; {kept}"]

    def _graders_text(self) -> str:
        cluster = self.session.cluster
        if cluster is not None:
            return f"the cluster at {cluster.address}, {counted(cluster.capacity, 'submission')} at a time"
        gpus = self._devices()
        where = f" on {len(gpus)} GPUs" if len(gpus) > 1 else ""
        return f"{counted(self._workers, 'process', 'processes')}{where}"

    @contextmanager
    def running(self, run: pytest.Session) -> Iterator[None]:
        """Grade all jobs in the order of the checks; end all processes in any case."""
        if self._schedule is None:
            yield
            return
        is_under_way = False
        try:
            with usage_errors():
                self._begin(run.items, self._schedule)
            is_under_way = True
            yield
            is_under_way = False
            if not run.shouldstop and not run.shouldfail:
                self._settle(self._schedule)
        finally:
            self._erase()
            self._is_stopped = is_under_way and not run.shouldfail  # by -x: the next run would end at the same check
            with closing(self._schedule):
                self._progress = self._schedule.progress()
                if self._is_stopped:
                    self._note_what_is_graded(run.items)

    def _note_what_is_graded(self, items: Iterable[pytest.Item]) -> None:
        """Add graded submissions to the reports of a stopped run before their items have run."""
        graded = {file: grader for file, grader in self._graders.items() if grader.is_graded}  # the other jobs continue
        for item in items:
            if isinstance(item, CheckItem) and not item.is_graded and item.parent in graded:
                item.parent.use(graded[item.parent])
                is_expected = item.is_expected(item.noted(graded[item.parent].run(item.check)))
                self.gradebook.add(item.user_properties, is_expected)

    def _begin(self, items: Iterable[pytest.Item], schedule: Schedule) -> None:
        wanted = {item.parent: item.exercise for item in items if isinstance(item, CheckItem)}
        for file, exercise in wanted.items():
            try:
                source = file.source()
            except OSError:  # its own grader reports the error
                continue
            self._graders[file] = self._grader(self._job(file, exercise, source), exercise, schedule)

    def _grader(self, job: Job, exercise: Loaded, schedule: Schedule) -> AwaitedGrader:
        info, loaded = self.session.device_info, self._with_thresholds(exercise)
        assert info is not None, "a device is opened before anything runs"
        return AwaitedGrader(schedule.add(job), provenance_of(loaded, info, self.settings.seed, job.source_sha256))

    def _job(self, file: CudaFile, exercise: Loaded, source: bytes) -> Job:
        settings = self.settings
        grading_settings = GradingSettings(
            device=self.session.device_spec,
            seed=settings.seed,
            timeout_s=settings.timeout_s or DEFAULT_TIMEOUT_S,
            architecture=settings.architecture,
            gpu=settings.gpu,
            sanitize=self.session.sanitizes,
            count=self.session.profiler is not None,
            annotate=settings.annotate,
            thresholds=self._with_thresholds(exercise).thresholds,
            programs=settings.programs and isinstance(exercise, LoadedProgram),
        )
        folder, sha256 = exercise.folder, self._content(exercise.folder)
        return Job(
            file.label, file.student, exercise.name, file.filename, source, folder.parent, sha256, grading_settings
        )

    def _with_thresholds(self, exercise: Loaded) -> Loaded:
        return exercise if isinstance(exercise, LoadedProgram) else self.session.calibrated(exercise)

    def await_grade(self, item: pytest.Item) -> None:
        """Wait for the grade of an item's submission, and show the progress of all submissions."""
        grader = self._graders.get(item.parent) if isinstance(item, CheckItem) else None
        if isinstance(item, CheckItem) and grader is not None:
            item.parent.use(grader)
            while not grader.is_done(WAIT_S):
                self._print_progress()

    def _print_progress(self) -> None:
        reporter = self._reporter
        if reporter is None or self._schedule is None or not self._pace.is_due(time.monotonic()):
            return
        line = f"gpulab: {self._schedule.progress().line}"
        if self._is_live:
            reporter.rewrite(fitted(line, self.config.get_terminal_writer().fullwidth - 1), erase=True)
        else:
            reporter.write_line(line)

    def _erase(self) -> None:
        if self._reporter is not None and self._is_live:
            self._reporter.rewrite("", erase=True)
            self._reporter.rewrite("")

    @cached_property
    def _reporter(self) -> pytest.TerminalReporter | None:
        """The terminal's reporter; None if progress is not shown."""
        reporter: pytest.TerminalReporter | None = self.config.pluginmanager.get_plugin("terminalreporter")
        return None if self.config.get_verbosity() < 0 else reporter

    @cached_property
    def _is_live(self) -> bool:
        """True if one line of the terminal shows the progress and pytest writes nothing to it."""
        is_quiet = bool(self.settings.course.submissions) and self.config.get_verbosity() == 0
        return is_quiet and self._reporter is not None and bool(self._reporter.isatty)

    @cached_property
    def _pace(self) -> Pace:
        return Pace(TERMINAL_INTERVAL_S if self._is_live else PLAIN_INTERVAL_S, time.monotonic())

    def leave_cluster(self) -> None:
        """Disconnect from the cluster, if there is one."""
        if self.session.cluster is not None:
            self.session.cluster.close()

    def finish(self) -> None:
        """End all processes, also if no check was run; record the grades that were not stored."""
        if self._schedule is not None:
            self._schedule.close()
            if reasons := self._schedule.not_kept:
                self.errors.append(f"{counted(len(reasons), 'grade is', 'grades are')} not stored: {reasons[0]}")

    def summary(self) -> Iterator[str]:
        """Yield the progress and, after a stopped run, the way to continue."""
        if self._progress is not None:
            yield self._progress.line
            if self._is_stopped:
                yield self._stopped(self._progress)

    def _stopped(self, progress: Progress) -> str:
        graded = f"stopped: {progress.stored + progress.graded} of {progress.total} submissions are graded"
        are_kept = self._store_path() is not None and self._schedule is not None and not self._schedule.not_kept
        return f"{graded} and stored; repeat the command to continue." if are_kept else f"{graded}."

    def _settle(self, schedule: Schedule) -> None:
        """Record the changed points after a complete run, and mark the run as complete in the store."""
        try:
            self.gradebook.changes = tuple(_change_lines(schedule.regraded()))
            schedule.settle()
        except StoreError as error:
            self.errors.append(f"changed points are not noted for later runs: {error}")


def _content_of(folder: Path) -> str:
    try:
        return content_sha256(folder)
    except OSError as error:
        raise SettingsError(f"an exercise cannot be read: {error.filename or folder}: {error.strerror}") from None


def _default_workers(devices: tuple[str, ...]) -> int:
    cores = usable_cores()
    if devices == ("sim",):
        return cores
    from pytest_gpulab.devices.cuda.fleet import graders_with_room

    return min(cores, sum(map(graders_with_room, devices)))


def _change_lines(regraded: Sequence[Regraded]) -> Iterator[str]:
    """Yield a line per submission with changed points, and the number of those with only other checks."""
    listed = [each for each in regraded if each.has_other_points]
    for each in listed:
        checks = ", ".join(map(_change_text, each.changes))
        yield f"{each.submission}: {each.points_before:g} -> {each.points_after:g} points ({checks})"
    same = len(regraded) - len(listed)
    if same:
        one, many = ("more has", "more have") if listed else ("submission has", "submissions have")
        yield f"{counted(same, one, many)} other checks and the same points"


def _change_text(change: Change) -> str:
    before, after = (
        points or "none" if isinstance(points, str | None) else f"{points:g}"
        for points in (change.points_before, change.points_after)
    )
    return f"{change.check} {before} -> {after}"

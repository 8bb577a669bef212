"""The pytest hooks, each a line or two that delegates.

pytest imports this module in every session of every project that has the plugin installed, so it imports only the
standard library and pytest; where nothing is to be graded it adds options and a marker and nothing else.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpulab.devices.system.threads import with_one_thread

from . import options
from .items import GRADING_SESSION, MARKER, CudaFile, CudaFolder, place_skip, tell_of_errors, usage_errors
from .session import GradingSession
from .settings import ClassSettings, ReportFile, Settings, SettingsError, shown

if TYPE_CHECKING:
    from pytest_gpulab.reports.context import Context


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and ini keys."""
    options.add_to(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Keep pytest from configuring itself out of the folders that students hand in."""
    known = early_config.known_args_namespace
    given = known.file_or_dir
    unwanted = known.noconftest
    if options.is_grading_asked_for(early_config, known):
        _refuse_foreign_configuration(early_config)
        # Else pytest imports the conftest.py of every path that is named, and those of folders called test*.
        known.file_or_dir = _own_conftest(early_config)
        known.noconftest = unwanted or not known.file_or_dir
    try:
        return (yield)
    finally:
        known.file_or_dir, known.noconftest = given, unwanted


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and, with the flag, the hooks that grade."""
    config.addinivalue_line("markers", f"{MARKER}: a check of a CUDA kernel, one of pytest-gpulab's")
    if config.getoption("help"):
        return
    with usage_errors():
        if not options.is_grading_asked_for(config, config.option):
            options.refuse_alone(config)
            return
        hooks = GradingHooks(config)
        # Where warnings are errors, a read-only folder would end the run with a traceback after everything is graded.
        config.addinivalue_line("filterwarnings", "default:could not create cache path:pytest.PytestCacheWarning")
    config.pluginmanager.register(hooks, "gpulab-grading")
    for more in hooks.further:
        config.pluginmanager.register(more)


class GradingHooks:
    """The hooks that are there only where grading is asked for; one instance a session."""

    def __init__(self, config: pytest.Config) -> None:
        os.environ.update(with_one_thread(os.environ))  # before anything here loads NumPy
        from pytest_gpulab.reports.gradebook import Gradebook

        self.config = config
        self.gradebook = Gradebook()
        self.written: list[ReportFile] = []
        self.write_errors: list[str] = []
        self.calibration: list[str] = []
        self.is_at_end = False
        self.is_worker = hasattr(config, "workerinput")
        settings = Settings.read(
            config.getoption,
            config.getini,
            _course_folder(config),
            config.invocation_params.dir,
            getattr(config, "workerinput", {}).get("gpulab"),
        )
        self.started = datetime.now(timezone.utc)
        self._check_reports(settings)
        self.bench = config.stash[GRADING_SESSION] = GradingSession.prepare(settings)
        self.further = tuple(self._further(settings.course))
        if not settings.course.submissions:
            self._choose_paths()

    @property
    def settings(self) -> Settings:
        """What was asked for."""
        return self.bench.settings

    def _further(self, course: ClassSettings) -> Iterator[object]:
        from .summary import SummaryHooks

        summary = SummaryHooks(self.config)
        yield from (summary, summary.inside)
        if course.is_asked_for:
            from .parallel_run import JobHooks

            yield JobHooks(self.config, self.gradebook)
        if course.submissions:
            from .class_run import ClassHooks

            yield ClassHooks(self.config, course, self.bench.catalogue, self.gradebook)

    def _check_reports(self, settings: Settings) -> None:
        from pytest_gpulab.reports import formats
        from pytest_gpulab.reports.context import ReportError

        for report in settings.reports if not self.is_worker else ():
            try:
                formats.check(report.format, report.path, self._context())
            except ReportError as error:
                raise SettingsError(str(error)) from None

    def _context(self, interrupted: bool = False) -> Context:
        from pytest_gpulab.reports.context import Context

        return Context(interrupted, self.started, datetime.now(timezone.utc), os.environ)

    def _choose_paths(self) -> None:
        """Without a path grade the student's own copies, whatever `testpaths` says."""
        given: list[str] = self.config.getoption("file_or_dir")
        self.bench.check_arguments(self.config.invocation_params.dir / path.split("::")[0] for path in given)
        if not given:
            self.config.args = [str(path) for path in self.bench.catalogue.own_copies()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give pytest-xdist's workers the seed, the exercises and the device of this process."""
        node.workerinput["gpulab"] = self.settings.shared(self.bench.device_spec)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, error: object) -> None:
        """End the run where a worker cannot do what was asked for: pytest-xdist would start another, and another."""
        _, refused, why = str(error).rpartition("UsageError: ")
        if refused:
            raise pytest.UsageError(why.strip())

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Let one worker grade all of a file: its checks share what was compiled and run."""
        from xdist.scheduler import LoadFileScheduling

        return LoadFileScheduling(config, log) if config.getoption("dist") == "load" else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Open the device; pytest-xdist's controller merely looks whether it is there."""
        if self.config.getoption("collectonly"):
            return
        is_controller = self.config.getoption("dist", "no") != "no" and not self.is_worker
        with usage_errors():
            self.bench.open_device(will_grade=not is_controller)
        if is_controller:
            self.bench.close_device()

    def pytest_report_header(self) -> list[str]:
        """Say which device grades, why that one, the seed, and what is known of the device."""
        first, *more = self.bench.device_lines
        return [f"gpulab: {first}; seed {self.settings.seed}", *(f"gpulab: {line}" for line in more)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Collect nothing but `.cu` files: Python tests in a submission would be code of the student's that runs."""
        return True if collection_path.is_file() and collection_path.suffix != ".cu" else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector:
        """Search folders without importing anything from them."""
        name = "." if isinstance(parent, pytest.Session) else path.name  # -k matches names, but not the root's
        return CudaFolder.from_parent(parent, name=name, path=path)

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Take submissions, and neither baselines nor an exercise's other `.cu` files."""
        is_submission = file_path.suffix == ".cu" and self.bench.catalogue.is_submission(file_path)
        if not is_submission:
            return None
        root = self.config.rootpath  # outside of it, pytest would call two students' files alike
        nodeid = None if file_path.is_relative_to(root) else Path(os.path.relpath(file_path, root)).as_posix()
        return CudaFile.from_parent(parent, path=file_path, nodeid=nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Note that the run came to its regular end."""
        result = yield
        self.is_at_end = True
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let a skipped check point at the submission."""
        return place_skip(item, (yield))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the result of a check, whichever process graded it."""
        if report.when == "call" or report.failed:
            self.gradebook.add(report.user_properties, is_expected=hasattr(report, "wasxfail"))

    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        """Give a missed bonus its own category: it is neither a pass nor a failure."""
        from pytest_gpulab.reports.gradebook import is_missed_bonus

        is_missed = report.when == "call" and report.passed and is_missed_bonus(report.user_properties)
        return ("bonus missed", "b", ("BONUS MISSED", {"yellow": True})) if is_missed else None

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report files, of a run that was stopped as well, and give the device back."""
        self.bench.close_device()
        if self.is_worker or self.config.getoption("collectonly") or exitstatus == pytest.ExitCode.USAGE_ERROR:
            return  # nothing was graded: the reports of the last run stay as they are
        # The exit status does not tell: a second Ctrl-C leaves it as if nothing had happened.
        interrupted = not self.is_at_end or bool(session.shouldfail or session.shouldstop)
        self.write_errors = self._write_reports(interrupted)
        if self.settings.calibrate:
            self.write_errors += self._write_calibration(interrupted)
        if not interrupted:
            self.write_errors += self._unscored()
        if self.write_errors:
            tell_of_errors(session)

    def _write_reports(self, interrupted: bool) -> list[str]:
        from pytest_gpulab.reports import formats
        from pytest_gpulab.reports.context import ReportError

        errors, context = [], self._context(interrupted)
        for report in self.settings.reports:
            try:
                formats.write(report.format, report.path, self.gradebook, context)
                self.written.append(report)
            except ReportError as error:
                errors.append(str(error))
        return errors

    def _unscored(self) -> list[str]:
        """Return why submissions have no score: a run that grades nothing must not look like one that passed."""
        from pytest_gpulab.reports.students import unscored

        return unscored(self.gradebook.grades)

    def _write_calibration(self, interrupted: bool) -> list[str]:
        from pytest_gpulab.reports.files import calibration

        if interrupted:
            self.calibration = ["The run was stopped: no calibration was written."]
            return []
        expected, folder = self.bench.expectations.for_path, self.config.rootpath
        self.calibration, problems = calibration.written(
            self.bench.thresholds,
            self.bench.catalogue,
            self.gradebook.grades,
            lambda grade: expected(folder / grade.submission),
            self.settings.fraction,
        )
        return problems

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the tables, the findings and how to repeat the run."""
        if self.config.getoption("collectonly"):
            return
        from pytest_gpulab.reports.terminal.annotated import listing_sections
        from pytest_gpulab.reports.terminal.sections import footnotes, sections

        more = [("gpulab: calibration", self.calibration)] if self.calibration else []
        more += listing_sections(self.gradebook.grades) if self.config.getoption("gpulab_annotate") else []
        asked = (self.config.get_verbosity(), self.settings.course.submissions is not None)
        for title, lines in (*sections(self.gradebook, *asked), *more):
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.line(line)
        for line in (*footnotes(self.gradebook, *asked), f"Repeat this run with --gpulab-seed={self.settings.seed}."):
            terminalreporter.line(line)
        if self.written:
            terminalreporter.line(f"gpulab: wrote {', '.join(map(self._named, self.written))}")
        for line in self.write_errors:
            terminalreporter.line(f"ERROR: {line}", red=True)

    def _named(self, report: ReportFile) -> str:
        from pytest_gpulab.reports.pages.feedback import readers

        if report.format != "feedback":
            return shown(report.path)
        pages = len(readers(self.gradebook))
        return f"{pages} {'page' if pages == 1 else 'pages'} in {shown(report.path)}/"


def _course_folder(config: pytest.Config) -> Path:
    """Return rootdir; but where pytest guesses it from the paths given, which students fill, the working folder."""
    is_certain = config.inipath is not None or config.getoption("rootdir") is not None
    return config.rootpath if is_certain else config.invocation_params.dir


def _own_conftest(config: pytest.Config) -> list[str]:
    """Return the conftest.py of the working folder or, if it has none, of the nearest one above it up to rootdir."""
    here = config.invocation_params.dir
    above = here.parents if here.is_relative_to(config.rootpath) else ()
    folders = (folder for folder in (here, *above) if folder.is_relative_to(config.rootpath) or folder == here)
    return [str(folder / "conftest.py") for folder in folders if (folder / "conftest.py").is_file()][:1]


def _refuse_foreign_configuration(config: pytest.Config) -> None:
    """A pytest.ini beside a submission would be found before the instructor's: only take one from here or above.

    Raises:
        pytest.UsageError: pytest picked a file from elsewhere, and nobody named it with `-c`; or a class is graded from
            within its own submissions.
    """
    found, here = config.inipath, config.invocation_params.dir
    submissions = config.known_args_namespace.gpulab_submissions
    if submissions and here.resolve().is_relative_to((here / submissions).resolve()):
        raise pytest.UsageError(
            f"{here} is among the submissions, from where nothing is taken for configuration or code: "
            "run from the course's folder"
        )
    if submissions and config.rootpath.resolve().is_relative_to((here / submissions).resolve()):
        raise pytest.UsageError(
            f"{config.rootpath} is not taken for rootdir, as it is among the submissions: "
            "write --gpulab-submissions=DIR, with an equals sign"
        )
    if found and not _is_named(config) and found.parent not in (here, *here.parents):
        raise pytest.UsageError(
            f"{found} is not taken for configuration, as it may be a student's: "
            "run from the course's folder, or name the file with -c"
        )


def _is_named(config: pytest.Config) -> bool:
    """Say whether whoever started pytest named its configuration; what stands in a file found could do so, too."""
    given = [*config.invocation_params.args, *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]
    return any(str(word).startswith(("-c", "--config-file")) for word in given)

"""The pytest hooks: each delegates, and the package implements each of them once.

The one exception is `pytest_terminal_summary`: `summary` wraps it twice, around pytest's own implementation and inside
of it.

pytest imports this module in every session of every project that has the plugin installed. It imports only the standard
library and pytest. Where nothing is graded it adds options and a marker and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpulab.devices.system.threads import with_one_thread

from . import configuration, options
from .items import GRADING_SESSION, MARKER, CudaFile, CudaFolder, place_skip, usage_errors
from .session import GradingSession
from .settings import Settings

if TYPE_CHECKING:
    from .class_run import ClassRun
    from .parallel_run import ParallelRun

TestStatus = tuple[str, str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and ini keys."""
    options.add_to(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Keep pytest from configuring itself out of the folders that students hand in."""
    with configuration.trusted_only(early_config):
        return (yield)


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
    for part in hooks.summary.parts:
        config.pluginmanager.register(part)


class GradingHooks:
    """The hooks of a run that grades; one instance per session.

    Where several parts have something to do in a hook, the order of the lines is the order in which they do it.
    """

    def __init__(self, config: pytest.Config) -> None:
        os.environ.update(with_one_thread(os.environ))  # before anything here loads NumPy
        from pytest_gpulab.reports.gradebook import Gradebook

        from .report_files import ReportFiles
        from .summary import Summary

        self.config = config
        self.is_worker = hasattr(config, "workerinput")
        self.is_at_end = False
        self.gradebook = Gradebook()
        self.summary = Summary(config)
        self.files = ReportFiles(self.gradebook)
        settings = Settings.read(
            config.getoption,
            config.getini,
            configuration.course_folder(config),
            config.invocation_params.dir,
            getattr(config, "workerinput", {}).get("gpulab"),
        )
        if not self.is_worker:
            self.files.check(settings)
        self.session = config.stash[GRADING_SESSION] = GradingSession.prepare(settings)
        self.parallel = self._parallel_run()
        self.class_run = self._class_run()
        if self.class_run is None:
            self._choose_paths()

    def _parallel_run(self) -> ParallelRun | None:
        if not self.session.settings.course.is_asked_for:
            return None
        from .parallel_run import ParallelRun

        return ParallelRun(self.config, self.gradebook)

    def _class_run(self) -> ClassRun | None:
        course = self.session.settings.course
        if course.submissions is None:
            return None
        from .class_run import ClassRun

        return ClassRun(self.config, course, self.session.catalogue, self.gradebook)

    def _choose_paths(self) -> None:
        """Without a path grade the student's own copies, whatever `testpaths` says."""
        given: list[str] = self.config.getoption("file_or_dir")
        self.session.check_arguments(self.config.invocation_params.dir / path.split("::")[0] for path in given)
        if not given:
            self.config.args = [str(path) for path in self.session.catalogue.own_copies()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give pytest-xdist's workers the seed, the exercises and the device of this process."""
        node.workerinput["gpulab"] = self.session.settings.shared(self.session.device_spec)

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
        """Open the device and start what grades."""
        if self.class_run is not None:
            self.class_run.quieten()
        if self.config.getoption("collectonly"):
            return
        is_controller = self.config.getoption("dist", "no") != "no" and not self.is_worker
        with usage_errors():
            self.session.open_device(will_grade=not is_controller)
            if is_controller:  # pytest-xdist's controller merely looks whether the device is there
                self.session.close_device()
            if self.parallel is not None:
                self.parallel.start()

    def pytest_report_header(self) -> list[str]:
        """Show the device, the reason why it was chosen, the seed, and what grades."""
        first, *more = self.session.device_lines
        lines = [f"{first}; seed {self.session.settings.seed}", *more]
        lines += [] if self.parallel is None else self.parallel.header()
        lines += [] if self.class_run is None else [self.class_run.header()]
        return [f"gpulab: {line}" for line in lines]

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Collect nothing but `.cu` files: Python tests in a submission would be code of the student's that runs."""
        return True if collection_path.is_file() and collection_path.suffix != ".cu" else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector:
        """Search folders without importing anything from them; collect the class in place of the root."""
        if self.class_run is not None:
            return self.class_run.collector(parent, path)
        name = "." if isinstance(parent, pytest.Session) else path.name  # -k matches names, but not the root's
        folder: CudaFolder = CudaFolder.from_parent(parent, name=name, path=path)
        return folder

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Take submissions, and neither baselines nor an exercise's other `.cu` files."""
        is_submission = file_path.suffix == ".cu" and self.session.catalogue.is_submission(file_path)
        if not is_submission:
            return None
        root = self.config.rootpath  # outside of it, pytest would call two students' files alike
        nodeid = None if file_path.is_relative_to(root) else Path(os.path.relpath(file_path, root)).as_posix()
        return CudaFile.from_parent(parent, path=file_path, nodeid=nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what the command line names of a class."""
        if self.class_run is not None:
            self.class_run.select(items)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note that only a part of the class is graded."""
        if self.class_run is not None and items:
            self.class_run.is_whole = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which students are graded."""
        if self.class_run is not None:
            self.class_run.note_chosen(session.items)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Grade in other processes meanwhile; note that the run came to its regular end."""
        if self.parallel is None:
            result = yield
        else:
            with self.parallel.running(session):
                result = yield
        self.is_at_end = True
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Wait for the grade of an item's submission."""
        if self.parallel is not None:
            self.parallel.await_grade(item)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let a skipped check point at the submission; note whether the findings say all of a failure."""
        report = place_skip(item, (yield))
        self.summary.note(report, call)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the result of a check, from whichever process."""
        if report.when == "call" or report.failed:
            self.gradebook.add(report.user_properties, is_expected=hasattr(report, "wasxfail"))

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, TestStatus, TestStatus]:
        """Give a missed bonus its own category: it is neither a pass nor a failure. Leave out the signs of a class."""
        from pytest_gpulab.reports.gradebook import is_missed_bonus

        status = yield
        if report.when == "call" and report.passed and is_missed_bonus(report.user_properties):
            status = ("bonus missed", "b", ("BONUS MISSED", {"yellow": True}))
        is_quiet = self.class_run is not None and self.class_run.is_quiet
        return (status[0], "", "") if is_quiet else status

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report files, of a run that was stopped as well, and give the device back."""
        # A second Ctrl-C leaves the exit status as if nothing had happened.
        interrupted = not self.is_at_end or bool(session.shouldfail or session.shouldstop)
        if self.class_run is not None:
            self.class_run.finish()
        if self.parallel is not None:
            self.parallel.finish()
        self.session.close_device()
        is_usage_error = exitstatus == pytest.ExitCode.USAGE_ERROR
        if not (self.is_worker or is_usage_error or self.config.getoption("collectonly")):
            # Else nothing was graded: the reports of the last run stay as they are.
            self.files.write(self.session, self.config.rootpath, interrupted)
        if self._errors and session.exitstatus != pytest.ExitCode.INTERRUPTED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @property
    def _errors(self) -> list[str]:
        return [*self.files.errors, *(() if self.parallel is None else self.parallel.errors)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print how far a parallel run came, the tables, the findings, and how to repeat the run."""
        for line in () if self.parallel is None else self.parallel.summary():
            terminalreporter.write_line(f"gpulab: {line}")
        if not self.config.getoption("collectonly"):
            self._print_results(terminalreporter)
        for line in self._errors:
            terminalreporter.line(f"ERROR: {line}", red=True)

    def _print_results(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_gpulab.reports.terminal.annotated import listing_sections
        from pytest_gpulab.reports.terminal.sections import footnotes, sections

        more = [("gpulab: calibration", self.files.calibration)] if self.files.calibration else []
        more += listing_sections(self.gradebook.grades) if self.config.getoption("gpulab_annotate") else []
        asked = (self.config.get_verbosity(), self.class_run is not None)
        for title, lines in (*sections(self.gradebook, *asked), *more):
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.line(line)
        repeat = f"Repeat this run with --gpulab-seed={self.session.settings.seed}."
        for line in (*footnotes(self.gradebook, *asked), repeat, *self.files.written_lines()):
            terminalreporter.line(line)

    def pytest_unconfigure(self) -> None:
        """Leave the cluster and remove unpacked archives, also where nothing came of the session."""
        if self.parallel is not None:
            self.parallel.leave_cluster()
        if self.class_run is not None:
            self.class_run.clean_up()

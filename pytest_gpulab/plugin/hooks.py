"""The pytest hooks: each delegates, and the package implements each of them once.

The one exception is `pytest_terminal_summary`: `summary` wraps it twice, around pytest's own implementation and inside
of it.

pytest imports this module in every session of every project that has the plugin installed. It imports only the standard
library and pytest. Without `--gpulab` it adds only options and a marker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import datetime, timezone
from functools import cached_property
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpulab.devices.system.processes import freeze, with_one_thread

from . import configuration
from .items import GRADING_SESSION, MARKER, CheckItem, CudaFile, CudaFolder, note_explained, place_skip, usage_errors
from .session import GradingSession
from .settings import Settings

if TYPE_CHECKING:
    from .class_run import ClassRun
    from .parallel_run import ParallelRun
    from .report_files import ReportFiles

TestStatus = tuple[str, str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and ini keys."""
    configuration.add_to(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Prevent pytest from reading its configuration from students' folders."""
    with configuration.trusted_only(early_config):
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and, with the flag, the hooks that grade."""
    config.addinivalue_line("markers", f"{MARKER}: a check of a CUDA kernel, one of pytest-gpulab's")
    if config.getoption("help"):
        return
    with usage_errors():
        if not configuration.is_grading_asked_for(config, config.option):
            configuration.refuse_alone(config)
            return
        numpy = PathFinder.find_spec("numpy")
        if numpy is not None and numpy.submodule_search_locations is None:
            raise pytest.UsageError(
                f"{numpy.origin} hides the package `numpy`: rename it, or start pytest in another folder"
            )
        hooks = GradingHooks(config)
        # If warnings are errors, a read-only folder would end the run with a traceback after everything is graded.
        config.addinivalue_line("filterwarnings", "default:could not create cache path:pytest.PytestCacheWarning")
    config.pluginmanager.register(hooks, "gpulab-grading")
    if not hooks.is_worker:
        configuration.stop_as_by_ctrl_c(config)


EXERCISES_MISTAKE, NOT_WRITTEN = 10, 11
"""Exit codes of a class run: an exercise has a mistake; a grade or a report could not be written."""


class GradingHooks:
    """The hooks of a grading run; one instance per session.

    The lines of a hook are in the order in which its parts must run.
    """

    def __init__(self, config: pytest.Config) -> None:
        os.environ.update(with_one_thread(os.environ))  # before anything here loads NumPy
        from pytest_gpulab.reports.gradebook import Gradebook

        self.config = config
        self.started = datetime.now(timezone.utc)
        self.is_worker = hasattr(config, "workerinput")
        self.is_at_end = False
        self._not_begun: list[str] = []  # submissions without a result, because the run was stopped
        self._is_stopped = False  # by Ctrl-C or a request to end
        self.running: dict[str, None] = {}  # ids of checks that have begun and not ended, in order
        self.exercises_mistakes = 0  # checks that are not gradable because of the exercise
        self.gradebook = Gradebook(root=config.rootpath)
        settings = Settings.read(
            config.getoption,
            config.getini,
            configuration.course_folder(config),
            config.invocation_params.dir,
            getattr(config, "workerinput", {}).get("gpulab"),
        )
        if settings.reports and not self.is_worker:
            self.files.check(settings)
        self.session = config.stash[GRADING_SESSION] = GradingSession.prepare(settings)
        self.gradebook.weights = settings.weights
        self.parallel = self._parallel_run()
        self.class_run = self._class_run()
        if self.class_run is None:
            self._choose_paths()

    @cached_property
    def files(self) -> ReportFiles:
        """The report files: needed at the end, or if the command line asks for some."""
        from .report_files import ReportFiles

        return ReportFiles(self.gradebook, self.started)

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
        """Select the student's own copies if no path is given; `testpaths` is ignored."""
        given: list[str] = self.config.getoption("file_or_dir")
        self.session.check_arguments(self.config.invocation_params.dir / path.split("::")[0] for path in given)
        if not given:
            self.config.args = [str(path) for path in self.session.catalogue.own_copies()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the seed, the exercises and the device of this process to pytest-xdist's workers."""
        node.workerinput["gpulab"] = self.session.settings.shared(self.session.device_spec)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, error: object) -> None:
        """End the run if a worker refuses its settings: pytest-xdist would replace it again and again."""
        _, refused, why = str(error).rpartition("UsageError: ")
        if refused:
            raise pytest.UsageError(why.strip())

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Assign all checks of a file to one worker, because they share compilations and runs."""
        from xdist.scheduler import LoadFileScheduling

        return LoadFileScheduling(config, log) if config.getoption("dist") == "load" else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Open the device, and start the parallel run if there is one."""
        if self.class_run is not None:
            self.class_run.quieten()
        if self.config.getoption("collectonly"):
            return
        is_controller = self.config.getoption("dist", "no") != "no" and not self.is_worker
        with usage_errors():
            self.session.open_device(will_grade=not is_controller)
            if is_controller:  # pytest-xdist's controller only checks that the device is available
                self.session.close_device()
            if self.parallel is not None:
                self.parallel.start()
        freeze()  # what is loaded stays: pytest's own collections at the end would scan it all, repeatedly

    def pytest_report_header(self) -> list[str]:
        """Show the device with the reason for it, the seed, and the grading processes."""
        from pytest_gpulab.reports.terminal.text import as_wide_as, wrapped

        first, *more = self.session.device_lines
        lines = [first, f"seed {self.session.settings.seed}", *more]
        lines += [] if self.parallel is None else self.parallel.header()
        lines += [] if self.class_run is None else [self.class_run.header()]
        with as_wide_as(self._columns()):
            return [part for line in lines for part in wrapped(f"gpulab: {line}")]

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Collect only `.cu` files: a Python test in a submission would be executed."""
        return True if collection_path.is_file() and collection_path.suffix != ".cu" else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector:
        """Search folders without importing from them; replace the root by the class."""
        if self.class_run is not None:
            return self.class_run.collector(parent, path)
        name = "." if isinstance(parent, pytest.Session) else path.name  # -k must not match the root's name
        folder: CudaFolder = CudaFolder.from_parent(parent, name=name, path=path)
        return folder

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect submissions, but no baselines and no other `.cu` files of an exercise."""
        is_submission = file_path.suffix == ".cu" and self.session.catalogue.is_submission(file_path)
        if not is_submission:
            return None
        root = self.config.rootpath  # for files outside of it, pytest would give two students' files the same id
        nodeid = None if file_path.is_relative_to(root) else Path(os.path.relpath(file_path, root)).as_posix()
        return CudaFile.from_parent(parent, path=file_path, nodeid=nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the submissions of a class that the command line names."""
        if self.class_run is not None:
            self.class_run.select(items)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Record that only a part of the class is graded."""
        if self.class_run is not None and items:
            self.class_run.is_whole = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Record the graded students."""
        if self.class_run is not None:
            self.class_run.note_chosen(session.items)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Grade in other processes during the loop; record that the run ended regularly."""
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
        """Report a skipped check at its submission; record whether the findings explain a failure completely."""
        if call.excinfo is None:
            return note_explained(place_skip(item, (yield)), call)
        from pytest_gpulab.reports.terminal.text import as_wide_as

        with as_wide_as(self._columns()):
            report = yield
        return note_explained(place_skip(item, report), call)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record that a check begins, in this or another process."""
        self.running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Record that a check has ended."""
        self.running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the result of a check, from this or another process."""
        from pytest_gpulab.reports.gradebook import is_exercises_mistake

        if report.when == "call" or report.failed:
            self.exercises_mistakes += is_exercises_mistake(report.user_properties)
            self.gradebook.add(report.user_properties, is_expected=hasattr(report, "wasxfail"))

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> Generator[None, TestStatus, TestStatus]:
        """Return categories for a missed bonus and for a mistake of the exercise; omit the signs of a class."""
        from pytest_gpulab.reports.gradebook import is_exercises_mistake, is_missed_bonus

        status = yield
        if report.when == "call" and report.passed and is_missed_bonus(report.user_properties):
            status = ("bonus missed", "b", ("BONUS MISSED", {"yellow": True}))
        if report.when == "call" and report.failed and is_exercises_mistake(report.user_properties):
            status = ("error", "E", ("ERROR", {"red": True}))
        is_quiet = self.class_run is not None and self.class_run.is_quiet
        return (status[0], "", "") if is_quiet else status

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Record that the run was stopped; pytest also calls this after errors in collection."""
        self._is_stopped = not isinstance(excinfo.value, pytest.Session.Interrupted)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the report files, also of a stopped run, and release the device."""
        # After a second Ctrl-C, pytest passes the exit status of a run without problems.
        interrupted = not self.is_at_end or bool(session.shouldfail or session.shouldstop)
        if self.class_run is not None:
            self.class_run.finish()
        if self.parallel is not None:
            self.parallel.finish()
        self.session.close_device()
        is_usage_error = exitstatus == pytest.ExitCode.USAGE_ERROR
        if not (self.is_worker or is_usage_error or self.config.getoption("collectonly")):
            # Otherwise nothing was graded, and the reports of the last run are kept.
            self.files.write(self.session, self.config.rootpath, interrupted, self._located(session.items))
        session.exitstatus = self._exit_status(session)
        if interrupted:
            graded = {grade.submission for grade in self.gradebook.grades}
            labels = dict.fromkeys(item.parent.label for item in session.items if isinstance(item, CheckItem))
            self._not_begun = [label for label in labels if label not in graded]
        if session.testsfailed:
            from .summary import hide_explained

            hide_explained(self.config)

    def _located(self, items: Sequence[pytest.Item]) -> Callable[[str, Path], Path]:
        """Return a function that finds the file of a submission by its label."""
        files = {item.parent.label: item.parent for item in items if isinstance(item, CheckItem)}

        def located(label: str, folder: Path) -> Path:  # pytest-xdist's controller collects no items
            return files[label].located(folder) if label in files else self.config.rootpath / label

        return located

    def _exit_status(self, session: pytest.Session) -> int:
        """Return the exit status: that of a class tells a student's failing work from other causes."""
        regular = session.exitstatus
        if regular == pytest.ExitCode.OK and not self.gradebook.grades and configuration.is_to_grade(session):
            return pytest.ExitCode.NO_TESTS_COLLECTED
        if regular == pytest.ExitCode.INTERRUPTED:
            return regular
        is_class = self.class_run is not None
        if self.exercises_mistakes and is_class:
            return EXERCISES_MISTAKE
        if self._errors:
            return NOT_WRITTEN if is_class else pytest.ExitCode.TESTS_FAILED
        return regular

    @property
    def _errors(self) -> list[str]:
        return [*self.files.errors, *(() if self.parallel is None else self.parallel.errors)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the progress of a parallel run, the tables, the findings, and the seed to repeat the run."""
        from pytest_gpulab.reports.terminal.text import as_wide_as

        for line in () if self.parallel is None else self.parallel.summary():
            terminalreporter.write_line(f"gpulab: {line}")
        if not self.config.getoption("collectonly"):
            with as_wide_as(self._columns()):
                self._print_results(terminalreporter)
        for line in self._errors:
            terminalreporter.line(f"ERROR: {line}", red=True)

    def _columns(self) -> int:
        """Return the columns for the report: those of the terminal, or of COLUMNS, if there is one."""
        from pytest_gpulab.reports.terminal.text import WIDTH

        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        is_known = (reporter is not None and reporter.isatty) or "COLUMNS" in os.environ
        return self.config.get_terminal_writer().fullwidth if is_known else WIDTH

    def _print_results(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_gpulab.reports.terminal.sections import footnotes, sections
        from pytest_gpulab.reports.terminal.text import wrapped

        from .colours import Painter

        more = [("gpulab: calibration", self.files.calibration)] if self.files.calibration else []
        if self.config.getoption("gpulab_annotate"):
            from pytest_gpulab.reports.terminal.annotated import listing_sections

            more += listing_sections(self.gradebook.grades)
        detail = (self.config.get_verbosity(), self.class_run is not None)
        painter = Painter(self.config.get_terminal_writer().markup)
        shows_output = self.config.getoption("capture", "") == "no"
        for title, lines in (*sections(self.gradebook, *detail, shows_output), *more):
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.line(painter.painted(line))
        notes = (part for line in (*footnotes(self.gradebook, *detail), *self._last_words()) for part in wrapped(line))
        for line in (*notes, *self.files.written_lines()):
            terminalreporter.line(line)

    def _last_words(self) -> Iterator[str]:
        """Yield the checks that a stopped run has left out, and the seed to repeat a run with checks."""
        from pytest_gpulab.reports.terminal.reasons import MAX_NAMED
        from pytest_gpulab.reports.terminal.text import abridged

        if self.running:
            yield f"The run was stopped in {', '.join(self.running)}: no result."
        elif self._not_begun and (self.gradebook.grades or self._is_stopped):
            yield f"The run was stopped before {abridged(self._not_begun, MAX_NAMED)}."
        elif self._is_stopped and not self.gradebook.grades:
            yield "The run was stopped before the first check."
        if self.gradebook.grades or self.gradebook.ungraded or self.running:
            yield f"Repeat this run with --gpulab-seed={self.session.settings.seed}."

    def pytest_unconfigure(self) -> None:
        """Disconnect from the cluster and remove unpacked archives, also if the session did not start."""
        if self.parallel is not None:
            self.parallel.leave_cluster()
        if self.class_run is not None:
            self.class_run.clean_up()

"""The pytest hooks, each a line or two that delegates.

pytest imports this module in every session of every project that has the plugin installed, so it imports only the
standard library and pytest; without `--gpulab` it adds options and a marker and nothing else.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_gpulab.collect import MARKER, WORKBENCH, CudaFile, CudaFolder, Workbench, place_skip
from pytest_gpulab.settings import Settings, SettingsError


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and ini keys."""
    group = parser.getgroup("gpulab", "grading of CUDA kernels")
    group.addoption(
        "--gpulab", action="store_true", help="grade .cu files below PATHS; without PATHS your own in exercises/"
    )
    group.addoption("--gpulab-device", metavar="DEVICE", help="auto (default), cuda, cuda:N or sim")
    group.addoption("--gpulab-exercises", metavar="DIR", help="the instructor's exercises (default: ROOTDIR/exercises)")
    group.addoption("--gpulab-seed", metavar="N", help="seed of all random inputs (default: a fresh one, printed)")
    group.addoption("--gpulab-gpu", metavar="NAME", help="the GPU that the simulated one describes (default: h200)")
    group.addoption(
        "--gpulab-arch", metavar="sm_XX", help="what the simulated GPU tells occupancy for (default: the described GPU)"
    )
    group.addoption(
        "--gpulab-timeout", metavar="S", help="seconds that a check may take in a process of its own (default: 120)"
    )
    group.addoption(
        "--gpulab-sanitizer", action="store_true", help="run what fails on a GPU under compute-sanitizer as well"
    )
    group.addoption(
        "--gpulab-ncu", action="store_true", help="count what timed kernels do on a GPU with Nsight Compute's ncu"
    )
    _add_calibration_options(group)
    group.addoption("--gpulab-annotate", action="store_true", help="list the source with what each line does and costs")
    group.addoption(
        "--gpulab-report",
        metavar="FORMAT:PATH",
        action="append",
        default=[],
        help="write a file: the grades (json), or the annotated listings as a page (html)",
    )
    _add_ini_keys(parser)


def _add_calibration_options(group: pytest.OptionGroup) -> None:
    group.addoption(
        "--gpulab-calibration",
        metavar="PATH",
        help="this GPU's thresholds: auto (default) looks in EXERCISES/calibration, none leaves the exercises' own",
    )
    group.addoption(
        "--gpulab-calibrate", action="store_true", help="make that file from the graded ladders of solutions"
    )
    group.addoption(
        "--gpulab-calibrate-fraction",
        metavar="F",
        help="of its reference solution's speedup that a tier is to ask for (default: 0.85)",
    )


def _add_ini_keys(parser: pytest.Parser) -> None:
    parser.addini("gpulab_device", "as --gpulab-device", default="")
    parser.addini("gpulab_exercises", "as --gpulab-exercises, relative to rootdir", default="")
    parser.addini("gpulab_seed", "as --gpulab-seed", default="")
    parser.addini("gpulab_gpu", "as --gpulab-gpu", default="")
    parser.addini("gpulab_arch", "as --gpulab-arch", default="")
    parser.addini("gpulab_timeout", "as --gpulab-timeout", default="")
    parser.addini("gpulab_calibration", "as --gpulab-calibration, relative to rootdir", default="")
    parser.addini("gpulab_expected", "TOML files of expected verdicts", type="paths", default=[])


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, Any, Any]:
    """Keep pytest from configuring itself out of the folders that students hand in."""
    known = early_config.known_args_namespace
    given = known.file_or_dir
    if known.gpulab:
        _refuse_foreign_configuration(early_config)
        known.file_or_dir = []  # else pytest imports the conftest.py of every path that is named
    try:
        return (yield)
    finally:
        known.file_or_dir = given


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and, with the flag, the hooks that grade."""
    config.addinivalue_line("markers", f"{MARKER}: a check of a CUDA kernel, one of pytest-gpulab's")
    if config.getoption("gpulab") and not config.getoption("help"):
        with _usage_errors():
            config.pluginmanager.register(GradingHooks(config), "gpulab-grading")


class GradingHooks:
    """The hooks that are there under `--gpulab` only; one instance a session."""

    def __init__(self, config: pytest.Config) -> None:
        from pytest_gpulab.reports.gradebook import Gradebook

        self.config = config
        self.gradebook = Gradebook()
        self.write_errors: list[str] = []
        self.calibration: list[str] = []
        self.is_worker = hasattr(config, "workerinput")
        self.settings = Settings.read(
            config.getoption,
            config.getini,
            _course_folder(config),
            config.invocation_params.dir,
            getattr(config, "workerinput", {}).get("gpulab"),
        )
        self.bench = config.stash[WORKBENCH] = Workbench.prepare(self.settings)
        self._choose_paths()

    def _choose_paths(self) -> None:
        """Without a path grade the student's own copies, whatever `testpaths` says."""
        given: list[str] = self.config.getoption("file_or_dir")
        self.bench.check_arguments(self.config.invocation_params.dir / path.split("::")[0] for path in given)
        if not given:
            self.config.args = [str(path) for path in self.bench.catalogue.own_copies()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give pytest-xdist's workers the seed and the exercises of this process."""
        node.workerinput["gpulab"] = self.settings.shared

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
        with _usage_errors():
            self.bench.open_device()
        if self.config.getoption("dist", "no") != "no" and not self.is_worker:
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
        return CudaFile.from_parent(parent, path=file_path) if is_submission else None

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
        """Write the report files, after Ctrl-C too, and give the device back."""
        self.bench.close_device()
        if self.is_worker or self.config.getoption("collectonly"):
            return
        interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
        self.write_errors = self._write_reports(interrupted)
        if self.settings.calibrate:
            self.write_errors += self._write_calibration(interrupted)
        if self.write_errors:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _write_reports(self, interrupted: bool) -> list[str]:
        from pytest_gpulab.reports import annotated_html, jsonfile

        errors = []
        for report in self.settings.reports:
            try:
                if report.format == "json":
                    jsonfile.write(report.path, self.gradebook, interrupted)
                else:
                    annotated_html.write(report.path, self.gradebook.grades)
            except OSError as error:
                errors.append(f"cannot write the report {report.path}: {error.strerror}")
        return errors

    def _write_calibration(self, interrupted: bool) -> list[str]:
        from pytest_gpulab.reports import calibration

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
        from pytest_gpulab.reports.annotated import listing_sections
        from pytest_gpulab.reports.terminal import footnotes, sections

        more = [("gpulab: calibration", self.calibration)] if self.calibration else []
        more += listing_sections(self.gradebook.grades) if self.config.getoption("gpulab_annotate") else []
        for title, lines in (*sections(self.gradebook, self.config.get_verbosity()), *more):
            terminalreporter.section(title)
            for line in lines:
                terminalreporter.line(line)
        for line in (*footnotes(self.gradebook), f"Repeat this run with --gpulab-seed={self.settings.seed}."):
            terminalreporter.line(line)
        for line in self.write_errors:
            terminalreporter.line(f"ERROR: {line}", red=True)


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except SettingsError as error:
        raise pytest.UsageError(str(error)) from None


def _course_folder(config: pytest.Config) -> Path:
    """Return rootdir; but where pytest guesses it from the paths given, which students fill, the working folder."""
    is_certain = config.inipath is not None or config.getoption("rootdir") is not None
    return config.rootpath if is_certain else config.invocation_params.dir


def _refuse_foreign_configuration(config: pytest.Config) -> None:
    """A pytest.ini beside a submission would be found before the instructor's: only take one from here or above.

    Raises:
        pytest.UsageError: pytest picked a file from elsewhere, and nobody named it with `-c`.
    """
    found, here = config.inipath, config.invocation_params.dir
    if found and not config.known_args_namespace.inifilename and found.parent not in (here, *here.parents):
        raise pytest.UsageError(
            f"{found} is not taken for configuration, as it may be a student's: "
            "run from the course's folder, or name the file with -c"
        )

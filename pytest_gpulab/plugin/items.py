"""The pytest nodes: folders are searched for `.cu` files, each of which yields its exercise's checks as items.

They are thin: `grading` runs the checks, and `reports` words the findings. Both are imported on first use, so that the
plugin does not slow down the start of pytest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_gpulab import UserError

from .session import GradingSession

if TYPE_CHECKING:
    from pytest_gpulab.grading.catalogue import Loaded
    from pytest_gpulab.grading.checks import Check, CheckGrader
    from pytest_gpulab.grading.grade import CheckResult, Finding

MARKER = "gpulab"
PRINTF = "printf"
"""The title of the report section with the kernels' output."""
IS_EXPLAINED = "gpulab_is_explained"
"""The attribute of a report that the findings explain completely."""


GRADING_SESSION: pytest.StashKey[GradingSession] = pytest.StashKey()


class CheckFailed(Exception):
    """A failed check: a mistake of the student, which `repr_failure` explains without a traceback."""

    def __init__(self, findings: tuple[Finding, ...], note: str = "", is_explained: bool = True) -> None:
        """Store the findings for `repr_failure`; `is_explained` if the report shows them completely."""
        super().__init__("; ".join(finding.what for finding in findings))
        self.findings, self.note, self.is_explained = findings, note, is_explained


class ExpectedFailure(CheckFailed):
    """A check that failed with the finding that the instructor expects."""


class ExercisesMistake(CheckFailed):
    """A check that cannot be graded because of the exercise: an error of the run, never a skip."""


class CudaFolder(pytest.Collector):
    """A folder that is searched for `.cu` files and further folders.

    Not a `pytest.Directory`: pytest would import its `conftest.py`, and submissions are data.
    """

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield the folder's files and folders, sorted, without those that pytest ignores."""
        for path in sorted(self.path.iterdir()):
            if not self.session.isinitpath(path, with_parents=path.is_dir()) and self._is_passed_over(path):
                continue
            if path.is_dir():
                folder = self.ihook.pytest_collect_directory(path=path, parent=self)
                yield from [folder] if folder is not None else []
            elif path.is_file():
                yield from self.ihook.pytest_collect_file(file_path=path, parent=self)

    def _is_passed_over(self, path: Path) -> bool:
        is_possible_loop = path.is_symlink() and path.is_dir()
        return is_possible_loop or bool(self.ihook.pytest_ignore_collect(collection_path=path, config=self.config))


class CudaFile(pytest.File):
    """A `.cu` file, perhaps of a student or of a sweep; its grader keeps compilations and runs until its last check."""

    swept: Mapping[str, int] = MappingProxyType({})

    def __init__(self, *, student: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.student = student
        self.shown: set[Finding] = set()
        self._grader: CheckGrader | None = None

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """Yield one item per check, or one item with the reason why there are none."""
        from pytest_gpulab.grading.catalogue import BrokenExercise, LoadedExercise
        from pytest_gpulab.grading.checks import checks_of

        catalogue = self.grading.catalogue
        name = self.exercise_name
        if name is None:
            yield UnmappedItem.from_parent(self, name="mapping")
            return
        try:
            exercise = catalogue.load(name)
        except BrokenExercise as error:
            yield BrokenItem.from_parent(self, name="exercise", exercise_name=name, explanation=error.traceback_text)
            return
        checks = checks_of(exercise.exercise)
        if self.grading.settings.sweep:
            from .sweep_items import swept_files

            if isinstance(exercise, LoadedExercise):  # a program has no tunables
                yield from swept_files(self, exercise, checks)
            return
        yield from self._expectation_mistakes({check.name for check in checks})
        for position, check in enumerate(checks):
            # The id is given as text: pytest 9 parses the brackets in its cache of failures, but not those in a name.
            nodeid = f"{self.nodeid}::{check.name}"
            yield CheckItem.from_parent(
                self, name=check.name, nodeid=nodeid, exercise=exercise, check=check, position=position, of=len(checks)
            )

    def _expectation_mistakes(self, names: set[str]) -> Iterator[pytest.Item]:
        expectation = self.grading.expectation(self.path)
        if expectation is None or expectation.later:
            return
        unknown = [name for name in expectation.fails if "*" not in name and name not in names]
        if unknown:
            explanation = f"expected verdicts name checks that the exercise does not have: {', '.join(unknown)}"
            yield BrokenItem.from_parent(self, name="expected", explanation=explanation)

    @property
    def grading(self) -> GradingSession:
        """The exercises, the device and the settings of the session."""
        return self.config.stash[GRADING_SESSION]

    @property
    def exercise_name(self) -> str | None:
        """The exercise of the file."""
        return self.grading.catalogue.exercise_of(self.path)

    @property
    def label(self) -> str:
        """The file's name in reports: relative to rootdir, as in the ids of its checks."""
        return str(self.nodeid)

    @property
    def filename(self) -> str:
        """The name that compilers show in messages."""
        return self.path.name

    def source(self) -> bytes:
        """Return the contents of the file, or raise OSError."""
        from pytest_gpulab.grading.compilation.includes import read_source

        return read_source(self.path)

    def located(self, folder: Path) -> Path:
        """Return a file with the contents; one that must be made is in `folder`."""
        return self.path

    def use(self, grader: CheckGrader) -> None:
        """Use the results of this grader instead of grading in this process."""
        self._grader = grader

    def grader(self, exercise: Loaded) -> CheckGrader:
        """Return the grader of this file, created on first use."""
        if self._grader is None:
            self._grader = self.grading.grader(exercise, self.path, self.label)
        return self._grader

    def teardown(self) -> None:
        """Free modules, arrays and the grader's process after the last check of the file."""
        grader, self._grader = self._grader, None
        if grader is not None:
            grader.close()


class GradingItem(pytest.Item):
    """Base of all items: shows findings as text."""

    parent: CudaFile

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_marker(MARKER)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the item's location, and its name in pytest's headings."""
        return self.path, 0, f"{self.parent.label}: {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the findings as text; any other exception is a bug and gets its traceback."""
        from pytest_gpulab.reports.terminal.sections import failure_text

        if not isinstance(excinfo.value, CheckFailed):
            excinfo.traceback = excinfo.traceback.cut(path=__file__)
            return super().repr_failure(excinfo, style)
        text = failure_text(excinfo.value.findings, self.parent.shown)
        return f"{text}\n{excinfo.value.note}".rstrip()


class CheckItem(GradingItem):
    """One check of one submission."""

    def __init__(self, *, exercise: Loaded, check: Check, position: int, of: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.exercise, self.check, self.position, self.of = exercise, check, position, of
        self.is_graded = False
        expectation = self.parent.grading.expectation(self.path)
        # A calibration measures speeds, so a missed one is no failure.
        is_asked = self.parent.grading.settings.calibrate and check.kind == "speedup"
        self.expected_code = expectation.fails.get(check.name) if expectation and not is_asked else None
        if self.expected_code:
            reason = f"the instructor expects {self.expected_code}"
            self.add_marker(pytest.mark.xfail(raises=ExpectedFailure, strict=True, reason=reason))

    def runtest(self) -> None:
        """Grade the check, and convert the verdict to an outcome of pytest."""
        result = self.noted(self.parent.grader(self.exercise).run(self.check))
        if result.printed:
            self.add_report_section("call", PRINTF, result.printed)
        self._raise_unless_passed(result)

    def noted(self, result: CheckResult) -> CheckResult:
        """Return the result of the check, and record it for the reports."""
        from pytest_gpulab.grading.grade import Grade
        from pytest_gpulab.reports.gradebook import result_properties

        provenance = self.parent.grader(self.exercise).provenance
        parent = self.parent
        grade = Grade(parent.label, self.exercise.name, (result,), provenance, parent.student, parent.swept)
        self.user_properties += result_properties(grade, self.position, self.of)
        self.is_graded = True
        return result

    def is_expected(self, result: CheckResult) -> bool:
        """Return whether this is the failure that the instructor expects."""
        from pytest_gpulab.grading.expected import is_met

        has_failed = result.verdict in ("failed", "missed")
        codes = [finding.code for finding in result.findings]
        return has_failed and self.expected_code is not None and is_met(self.expected_code, codes)

    def _raise_unless_passed(self, result: CheckResult) -> None:
        if result.verdict == "passed":
            return
        from pytest_gpulab.reports.terminal.sections import result_reason, threshold_note

        if result.is_exercises_mistake:
            raise ExercisesMistake(result.findings)
        if result.verdict in ("inconclusive", "not gradable", "not started"):
            pytest.skip(result_reason(result))
        if self.is_expected(result):
            raise ExpectedFailure(result.findings)
        if result.verdict in ("failed", "missed") and self.expected_code:
            note = f"the instructor expects another finding: {self.expected_code}"
            raise CheckFailed(result.findings, note, is_explained=False)
        if result.verdict == "failed":
            raise CheckFailed(result.findings, threshold_note(result))


class UnmappedItem(GradingItem):
    """The one item of a `.cu` file that belongs to no exercise: it always fails."""

    def runtest(self) -> None:
        """Fail with the names of the exercises."""
        from pytest_gpulab.grading.grade import Finding
        from pytest_gpulab.reports.gradebook import ungraded_properties

        names = ", ".join(self.parent.grading.catalogue.names) or "none"
        finding = Finding(
            "no-exercise",
            f"{self.path.name} belongs to no exercise",
            hint=f"Name the file or its folder after an exercise: {names}",
        )
        self.user_properties += ungraded_properties(self.parent.label, finding)
        raise CheckFailed((finding,))


class BrokenItem(GradingItem):
    """The one item of a file that cannot be graded because the exercise is broken: an error, not a failure."""

    def __init__(self, *, explanation: str, exercise_name: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.explanation, self.exercise_name = explanation.rstrip(), exercise_name

    def setup(self) -> None:
        """Fail with the explanation, once in full: pytest reports a failing set-up as an error."""
        from pytest_gpulab.grading.grade import Finding
        from pytest_gpulab.reports.gradebook import ungraded_properties

        if self.exercise_name:
            what = f"the exercise {self.exercise_name} cannot be loaded; tell your instructor"
            self.user_properties += ungraded_properties(self.parent.label, Finding("broken-exercise", what))
        explained = self.parent.grading.explained
        text = f"{self.explanation.splitlines()[-1]} (as above)" if self.explanation in explained else self.explanation
        explained.add(self.explanation)
        pytest.fail(text, pytrace=False)

    def runtest(self) -> None:
        """Never reached: `setup` fails."""
        raise AssertionError


@contextmanager
def usage_errors() -> Iterator[None]:
    """Convert an error of the user to a usage error of pytest."""
    try:
        yield
    except UserError as error:
        raise pytest.UsageError(str(error)) from None


def note_explained(report: pytest.TestReport, call: pytest.CallInfo[None]) -> pytest.TestReport:
    """Record in a report, which may travel to another process, whether the findings explain it completely."""
    error = call.excinfo.value if call.excinfo else None
    is_explained = isinstance(error, CheckFailed) and error.is_explained
    setattr(report, IS_EXPLAINED, is_explained and all(f" {PRINTF} " in name for name, _ in report.sections))
    return report


def place_skip(item: pytest.Item, report: pytest.TestReport) -> pytest.TestReport:
    """Return the report of a skipped check with the submission as its place, instead of this module."""
    if isinstance(item, GradingItem) and report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (str(item.path), 1, report.longrepr[2])
    return report

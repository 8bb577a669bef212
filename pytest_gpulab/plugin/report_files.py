"""The report files of a run: checked before grading, written after it. Knows no pytest."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gpulab.grading.catalogue import BrokenExercise
from pytest_gpulab.grading.grade import NOT_ENABLED, Grade
from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.students import unscored

from .session import GradingSession
from .settings import ReportFile, Settings, shown

if TYPE_CHECKING:
    from .figures import Located


class ReportFiles:
    """The requested report files, reasons why some were not written, and lines on the calibration that was measured."""

    def __init__(self, gradebook: Gradebook, started: datetime) -> None:
        self._gradebook, self._started = gradebook, started
        self.written: list[ReportFile] = []
        self.errors: list[str] = []
        self.calibration: list[str] = []

    def check(self, settings: Settings) -> None:
        """Raise ReportError if a report cannot be written."""
        for report in settings.reports:
            formats.check(report.format, report.path, self._context())

    def write(self, session: GradingSession, rootdir: Path, interrupted: bool, located: Located) -> None:
        """Write all files; collect errors instead of raising them. `located` finds the submissions for figures."""
        if session.settings.reports:
            self._write_reports(session, interrupted, located)
        if session.settings.calibrate:
            self._write_calibration(session, rootdir, interrupted)
        if not interrupted:  # a run that grades nothing must not look like one that passed
            self.errors += unscored(_asked_for(self._gradebook.grades))

    def _write_reports(self, session: GradingSession, interrupted: bool, located: Located) -> None:
        self._gradebook.title = session.settings.title
        self._gradebook.titles = _titles(session, {grade.exercise for grade in self._gradebook.grades})
        context = self._context(interrupted)
        page = next((report.path for report in session.settings.reports if report.format == "explain"), None)
        if page is not None:
            from .figures import drawings

            self._gradebook.drawings = drawings(session, self._gradebook.grades, located, page, interrupted)
        for report in session.settings.reports:
            try:
                formats.write(report.format, report.path, self._gradebook, context)
                self.written.append(report)
            except ReportError as error:
                self.errors.append(str(error))

    def _write_calibration(self, session: GradingSession, rootdir: Path, interrupted: bool) -> None:
        from pytest_gpulab.reports.files import calibration

        if interrupted:
            self.calibration = ["The run was stopped: no calibration was written."]
            return
        assert session.thresholds is not None, "a device is opened before anything is graded"
        self.calibration, problems = calibration.written(
            session.thresholds,
            session.catalogue,
            self._gradebook.grades,
            lambda grade: session.expectation(rootdir / grade.submission),
            session.settings.fraction,
        )
        self.errors += problems

    def _context(self, interrupted: bool = False) -> Context:
        return Context(interrupted, self._started, datetime.now(timezone.utc), os.environ)

    def written_lines(self) -> Iterator[str]:
        """Yield the line that names the files that were written, and one about missing figures."""
        if self.written:
            yield f"gpulab: wrote {', '.join(map(self._named, self.written))}"
        left_out = self._gradebook.drawings.left_out if self._gradebook.drawings else ()
        if left_out:
            from pytest_gpulab.grading.findings import counted

            yield f"gpulab: {counted(len(left_out), 'figure')} left out; the page of figures says which"

    def _named(self, report: ReportFile) -> str:
        from pytest_gpulab.grading.findings import counted
        from pytest_gpulab.reports.pages.feedback import readers

        if report.format != "feedback":
            return shown(report.path)
        return f"{counted(len(readers(self._gradebook)), 'page')} in {shown(report.path)}/"


def _asked_for(grades: Sequence[Grade]) -> Sequence[Grade]:
    """Return the grades without those that need an option which is not given, unless all do."""
    codes = [{found.code for check in grade.checks for found in check.findings} for grade in grades]
    return [grade for grade, of in zip(grades, codes, strict=True) if NOT_ENABLED not in of] or grades


def _titles(session: GradingSession, exercises: set[str]) -> dict[str, str]:
    titles = {}
    for name in exercises:
        with suppress(KeyError, BrokenExercise):
            titles[name] = session.catalogue.load(name).exercise.title
    return titles

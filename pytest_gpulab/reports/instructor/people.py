"""The rows of the report's table of students, with names and anchors."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.reports.pages.views import GradeView
from pytest_gpulab.reports.standings import Standing, share_of
from pytest_gpulab.reports.students import Row
from pytest_gpulab.reports.terminal.table import overall_verdict, short_names

from .flags import Flag


@dataclass(frozen=True)
class Cell:
    """A result in one exercise."""

    points: float
    verdict: str
    share: float | None = None

    @property
    def level(self) -> int:
        """The share of the points in tenths, for the shade of the cell."""
        return round(10 * (self.share or 0.0))


@dataclass(frozen=True)
class Person:
    """A row of the table, with its folded details."""

    standing: Standing
    place: str  # its anchor on the page
    called: str  # the displayed name
    cells: tuple[Cell | str, ...]  # one per exercise, or the reason why there is none
    flags: tuple[Flag, ...]
    words: str  # further search terms
    expected: Collection[tuple[str, str]]

    def views(self) -> Iterable[GradeView]:
        """Yield the grades for a template, one at a time to save memory."""
        return (GradeView(grade, self.expected) for grade in self.standing.row.grades)


def people(
    everyone: Sequence[Standing],
    exercises: Sequence[str],
    found: Iterable[Flag],
    expected: Collection[tuple[str, str]],
    interrupted: bool,
) -> list[Person]:
    """Return the rows of the table; the exercises are in the order of its columns."""
    flags: dict[str, list[Flag]] = {}
    for flag in found:
        for submission in flag.submissions:
            flags.setdefault(submission, []).append(flag)
    names, persons = _names([each.row for each in everyone]), []
    for number, standing in enumerate(everyone, start=1):
        row = standing.row
        grades = {grade.exercise: grade for grade in row.grades}
        cells = tuple(_cell(row, name, grades.get(name), interrupted) for name in exercises)
        own = tuple(flag for grade in row.grades for flag in flags.get(grade.submission, ()))
        counted = (check for grade in row.grades for check in grade.checks if check.verdict != "missed")
        words = {found.code for check in counted for found in check.findings} | {flag.kind for flag in own}
        words |= {cell.verdict for cell in cells if isinstance(cell, Cell)} | {found.code for _, found in row.ungraded}
        text = " ".join(sorted(words))
        persons.append(Person(standing, f"r{number}", names[row.student.id], cells, own, text, expected))
    return persons


def _names(rows: Sequence[Row]) -> dict[str, str]:
    """Return the displayed names; submissions without a student show their paths without the common part."""
    unassigned = [grade.submission for row in rows for grade in row.grades if not grade.student]
    short = dict(zip(unassigned, short_names(unassigned), strict=True))
    ids = [row.student.id for row in rows]
    return {id: row.student.name or short.get(id, id) for id, row in zip(ids, rows, strict=True)}


def _cell(row: Row, exercise: str, grade: Grade | None, interrupted: bool) -> Cell | str:
    if grade is not None:
        return Cell(grade.points, overall_verdict(grade), share_of(grade))
    if exercise in row.adjusted:
        return Cell(max(0.0, row.adjusted[exercise].points), "adjusted")
    return row.gap(exercise, interrupted)

"""`--gpulab-report=csv:PATH`: a table with a row per student, and beside it one with a row per check.

docs/gradebooks.md describes the columns. The same grades give the same bytes: the files hold no times. They are UTF-8
with a byte order mark, which spreadsheets need to read names correctly. Sums are of the points as they are; each figure
is then rounded to four digits after the point.

A text that a spreadsheet could take for a formula gets an apostrophe before the sign that makes it one: students choose
the names of folders, and a cell `=HYPERLINK(...)` would run on the computer that opens the file.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from pytest_gpulab.grading.grade import Adjustment, CheckResult, Grade
from pytest_gpulab.reports import students
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.formats import check_file, write_text
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.terminal.text import visible

DETAILS = "-details"
ADJUSTMENT = "adjustment"
_DETAIL_COLUMNS = (
    "student", "name", "exercise", "submission", "check", "hidden", "required",
    "verdict", "points", "max_points", "findings",
)  # fmt: skip
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
# At the start, and after what separates cells in other countries' spreadsheets; full-width signs count as well.
_FORMULA = re.compile(r"""(^|[,;|])(\s*["']*\s*)([=+\-@＝＋－＠])""")

Cells = Sequence[str]


def details_path(path: Path) -> Path:
    """Return the path of the table of checks: `grades-details.csv` beside `grades.csv`."""
    return path.with_name(f"{path.stem}{DETAILS}{path.suffix}")


def check(path: Path, context: Context) -> None:
    """Check that both files can be written."""
    check_file(path, context)
    check_file(details_path(path), context)


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write both files."""
    table = students.rows(gradebook)
    write_text(details_path(path), _csv(check_lines(table)), "utf-8-sig")
    write_text(path, _csv(student_lines(table, context.interrupted)), "utf-8-sig")  # last, so that its details exist


def _csv(lines: Iterable[Cells]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([harmless(cell) for cell in line] for line in lines)
    return text.getvalue()


def student_lines(table: Sequence[students.Row], interrupted: bool = False) -> Iterator[Cells]:
    """Yield the cells of the table of students, headers first; rows of a stopped run say so."""
    names = ((*(grade.exercise for grade in row.grades), *row.adjusted, *(row.exercises or ())) for row in table)
    exercises = sorted(set(chain.from_iterable(names)))
    yield "student", "name", *exercises, "total", "not_gradable", "note"
    for row in table:
        grades = {grade.exercise: grade for grade in row.grades}
        points = students.Points.total(map(students.Points.of_grade, row.grades))
        scored = row._replace(grades=tuple(grade for grade in row.grades if not students.unscored([grade])))
        total = students.points_text(scored.points.earned) if students.graded_points(scored) else ""
        cells = [_exercise_cell(grades.get(exercise), row.adjusted.get(exercise)) for exercise in exercises]
        ungraded = students.points_text(points.ungraded) if points.ungraded else ""
        notes = "; ".join((*_notes_of_run(row, interrupted), *_notes(row, exercises, interrupted)))
        yield row.student.id, row.student.name, *cells, total, ungraded, notes


def check_lines(table: Iterable[students.Row]) -> Iterator[Cells]:
    """Yield the cells of the table of checks, headers first."""
    yield _DETAIL_COLUMNS
    for row in table:
        for grade in row.grades:
            for check in grade.checks:
                yield (row.student.id, row.student.name, grade.exercise, grade.submission, *_check_cells(check))
        for exercise, each in row.notes_of_adjustments:
            named = (row.student.id, row.student.name, exercise, "", ADJUSTMENT, "", "")
            yield *named, "adjusted", students.points_text(each.points), "0", each.comment
        for submission, finding in row.ungraded:
            yield (row.student.id, row.student.name, "", submission, "", "", "", "not graded", "", "", finding.code)


def _check_cells(check: CheckResult) -> Cells:
    points = "" if check.verdict == "not gradable" else students.points_text(check.points)
    codes = " ".join(dict.fromkeys(finding.code for finding in check.findings))
    said = ("yes" if flag else "no" for flag in (check.hidden, check.required))
    return check.name, *said, check.verdict, points, students.points_text(check.max_points), codes


def _exercise_cell(grade: Grade | None, adjusted: Adjustment | None) -> str:
    if grade is None:
        return "" if adjusted is None else students.points_text(max(0.0, adjusted.points))
    return students.earned_text(grade)


def _notes_of_run(row: students.Row, interrupted: bool) -> Iterator[str]:
    if interrupted:
        yield "the run was stopped"  # and so checks are missing, selected or not
    elif row.is_part:
        yield students.ONLY_SOME_CHECKS


def _notes(row: students.Row, exercises: Iterable[str], interrupted: bool) -> Iterator[str]:
    yield from (f"{exercise}: {each.text}" for exercise, each in row.notes_of_adjustments)
    if row.absent:
        yield "handed in nothing"
        return
    graded = {grade.exercise: grade for grade in row.grades}
    gaps = []
    for exercise in exercises:
        if exercise in graded:
            yield from _notes_of_grade(graded[exercise])
            continue
        gaps.append(row.gap(exercise, interrupted))
        if gaps[-1] == students.NOT_HANDED_IN or not interrupted:  # else it is said already
            yield f"{exercise}: {gaps[-1]}"
    left_out = row.left_out.items() if students.NOT_HANDED_IN in gaps else ()  # it may be what is missing
    for name, finding in (*row.ungraded, *left_out):
        yield f"{name}: {finding.what.removesuffix('.')}"


def _notes_of_grade(grade: Grade) -> Iterator[str]:
    ungraded = students.Points.of_grade(grade).ungraded
    if ungraded:
        no_score = ", so there is no score" if students.unscored([grade]) else ""
        yield f"{grade.exercise}: {students.points_text(ungraded)} points not gradable{no_score}"
    if any(check.verdict == "not started" for check in grade.checks):
        yield f"{grade.exercise}: not started"


def harmless(text: str) -> str:
    """Return a cell's text on one line, escaped so that no spreadsheet reads it as a formula; numbers stay."""
    if _NUMBER.fullmatch(text):
        return text
    return _FORMULA.sub(r"\1\2'\3", visible(text))

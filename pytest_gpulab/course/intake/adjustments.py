"""Adjustments of an instructor: points that are added to a student's exercise, or taken away, with a comment.

The file is a CSV table with the columns `student`, `exercise`, `points` and `comment`.
"""

import math
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from pytest_gpulab import UserError
from pytest_gpulab.grading.grade import Adjustment

from .entries import printable
from .tables import TableMistake, header_of, in_lines, key_of, records, text_of

COLUMNS = ("student", "exercise", "points", "comment")

Adjustments = dict[tuple[str, str], Adjustment]


class AdjustmentsError(UserError):
    """Adjustments that cannot be used; the message has a line per mistake, with its line in the file."""


def read_adjustments(path: Path, exercises: Collection[str], student_of: Callable[[str], str | None]) -> Adjustments:
    """Return the adjustments by the student's id and the exercise, or raise AdjustmentsError for a wrong table or line.

    `student_of` returns the student's id for a cell of the column `student`; None if there is no such student.
    """
    found, lines, mistakes = Adjustments(), dict[tuple[str, str], int](), list[str]()
    try:
        text = text_of(path)
        (header_line, header), separator = header_of(text, lambda title: key_of(title) in COLUMNS)
        columns = _columns(header_line, header)
        for line, cells in records(text, separator):
            if line <= header_line:
                continue
            try:
                if any(cells[len(header) :]):
                    raise TableMistake("there are more cells than columns; quote a comment that contains a separator")
                chosen = [cells[at] if at < len(cells) else "" for at in columns]
                key, adjustment = _adjustment(chosen, exercises, student_of)
                if lines.setdefault(key, line) != line:
                    raise TableMistake(f"{key[0]} and {key[1]} are already on line {lines[key]}: add up their points")
                found[key] = adjustment
            except TableMistake as mistake:
                mistakes.append(f"line {line}: {mistake}")
    except TableMistake as mistake:
        mistakes.append(str(mistake))
    if mistakes:
        raise AdjustmentsError(in_lines(path, mistakes))
    return found


def _columns(line: int, header: list[str]) -> list[int]:
    """Return the indices of `COLUMNS`."""
    titles = [key_of(cell) for cell in header]
    if wrong := [name for name in COLUMNS if titles.count(name) != 1]:
        what = f"the columns must be {', '.join(COLUMNS)}; there are: {', '.join(map(printable, header)) or 'none'}"
        raise TableMistake(f"line {line}: not one column is called {wrong[0]}: {what}")
    return [titles.index(name) for name in COLUMNS]


def _adjustment(
    cells: Iterable[str], exercises: Collection[str], student_of: Callable[[str], str | None]
) -> tuple[tuple[str, str], Adjustment]:
    name, exercise, points, comment = cells
    student = student_of(name)
    if student is None:
        raise TableMistake(f"there is no student {printable(name)!r}: neither on the roster nor with a submission")
    if exercise not in exercises:
        raise TableMistake(f"there is no exercise {printable(exercise)!r}; exercises: {', '.join(sorted(exercises))}")
    try:
        number = float(points)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise TableMistake(f"the points {printable(points)!r} are no number; write them as 5 or -2.5")
    return (student, exercise), Adjustment(number, printable(comment))

"""Standings: points earned and possible per student. A submission without a known student has its own row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpulab.grading.grade import Grade

from .gradebook import Gradebook
from .students import Points, Row, rows, unscored


@dataclass(frozen=True)
class Standing:
    """A student's row of the class list.

    Attributes:
        row: the student with the grades.
        earned: points of all exercises.
        possible: points of all exercises, also of those not handed in; without checks that the machine could not grade
            and without submissions that this run did not grade.
    """

    row: Row
    earned: float
    possible: float

    @property
    def share(self) -> float | None:
        """Earned share of the possible points, 0 to 1; None where too little could be graded."""
        is_score = self.possible > 0 and not unscored(self.row.grades)
        return min(1.0, self.earned / self.possible) if is_score else None


def exercises_of(grades: Iterable[Grade]) -> dict[str, float]:
    """Return each exercise with its full points, also those of checks that the machine could not grade."""
    most: dict[str, float] = {}
    for grade in grades:
        points = math.fsum(float(check.max_points) for check in grade.checks)
        most[grade.exercise] = max(most.get(grade.exercise, 0.0), points)
    return dict(sorted(most.items()))


def share_of(grade: Grade) -> float | None:
    """Return the earned share of the possible points, 0 to 1; None where nothing could be graded."""
    return Points.of(grade.checks).share


def standings(gradebook: Gradebook, grades: Sequence[Grade]) -> list[Standing]:
    """Return every student with a submission, sorted by id in natural order.

    Args:
        gradebook: of the class.
        grades: the gradebook's.
    """
    most = exercises_of(grades)
    named = {student.id for student in gradebook.roster} | {grade.student for grade in grades}
    named |= set(gradebook.owners.values())
    return [_standing(row, most if row.student.id in named else {}) for row in rows(gradebook) if row.handed_in]


def _standing(row: Row, most: Mapping[str, float]) -> Standing:
    points = Points.of(row.checks)
    there = {grade.exercise for grade in row.grades}
    there |= {exercise for exercise, is_gradable in (row.exercises or {}).items() if is_gradable}
    missing = math.fsum(possible for exercise, possible in most.items() if exercise not in there)
    return Standing(row, points.earned, points.graded + missing)

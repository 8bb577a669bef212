"""Standings: points earned and possible per student. A submission without a known student has its own row."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pytest_gpulab.grading.grade import Grade

from .gradebook import Gradebook
from .students import Points, Row, rows, unscored

FULL_POINTS = 100.0
"""Points of an exercise that this run has not graded."""


@dataclass(frozen=True)
class Standing:
    """A student's row of the class list."""

    row: Row  # the student with the grades
    earned: float  # points of all exercises
    # points of all exercises, also of those not handed in; without checks that the machine could not grade and without
    # submissions that this run did not grade. Both are weighted
    possible: float

    @property
    def share(self) -> float | None:
        """Earned share of the possible points, above 1 with extra points; None where too little could be graded."""
        is_score = self.possible > 0 and not unscored(self.row.grades)
        return self.earned / self.possible if is_score else None


def exercises_of(grades: Iterable[Grade], gradebook: Gradebook | None = None) -> dict[str, float]:
    """Return each exercise with its full points, also those of checks that the machine could not grade.

    A gradebook adds exercises with a submission that this run does not grade, and those that only have adjustments.
    """
    most: dict[str, float] = {}
    for grade in grades:
        points = math.fsum(float(check.max_points) for check in grade.checks)
        most[grade.exercise] = max(most.get(grade.exercise, 0.0), points)
    if gradebook:
        others = (exercise for _, exercise in gradebook.adjustments)
        for exercise in chain(others, *(gradebook.handed_in or {}).values()):
            most.setdefault(exercise, FULL_POINTS)
    return dict(sorted(most.items()))


def share_of(grade: Grade) -> float | None:
    """Return the earned share of the possible points; None where nothing could be graded."""
    return Points.of_grade(grade).share


def standings(gradebook: Gradebook, grades: Sequence[Grade]) -> list[Standing]:
    """Return every student with a submission or an adjustment, sorted by id in natural order."""
    most = exercises_of(grades, gradebook)
    named = {student.id for student in gradebook.roster} | {grade.student for grade in grades}
    named |= set(gradebook.owners.values()) | {student for student, _ in gradebook.adjustments}
    return [_standing(row, most if row.student.id in named else {}) for row in rows(gradebook) if row.has_result]


def _standing(row: Row, most: Mapping[str, float]) -> Standing:
    points = row.points
    there = {grade.exercise for grade in row.grades}
    there |= {exercise for exercise, is_gradable in (row.exercises or {}).items() if is_gradable}
    missing = math.fsum(
        possible * row.weights.get(exercise, 1) for exercise, possible in most.items() if exercise not in there
    )
    return Standing(row, points.earned, points.graded + missing)

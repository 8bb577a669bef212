"""Grades by student: a row per student who handed something in or is on the roster."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import NamedTuple

from pytest_gpulab.grading.grade import NEEDS_A_GPU, Adjustment, CheckResult, Finding, Grade, Student

from .context import Context, ReportError
from .gradebook import Gradebook, natural_sort_key
from .visibility import for_student

NOT_HANDED_IN = "not handed in"
NOT_GRADED = "not graded in this run"
ONLY_SOME_CHECKS = "only some of the checks were graded"

SMALL_SHARE = 0.1
"""Share of an exercise's points: if the machine could not grade more there is no score."""

_GRADERS_FAULTS = ("broken-exercise", "unreadable")
_DIGITS = 4  # hides rounding errors of sums
_SAFE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}", re.ASCII)
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.ASCII)  # Windows has devices of these names
_HASHED = re.compile(r".*-[0-9a-f]{16}", re.DOTALL)
_HASH_DIGITS = 16  # 64 bits, so that names are unique
_LONGEST = 24


class Row(NamedTuple):
    """A student with all grades, or a submission without a known student."""

    student: Student  # the student's id; the submission's name if no student is known
    grades: tuple[Grade, ...] = ()  # one per exercise, by its name
    ungraded: tuple[tuple[str, Finding], ...] = ()  # submissions that could not be graded, with the reason
    absent: bool = False  # whether the student handed in nothing
    # exercises with a submission, and the number of those that can be graded; None if unknown
    exercises: Mapping[str, int] | None = None
    # files that count for no exercise, by name, with the reason
    left_out: Mapping[str, Finding] = {}
    is_part: bool = False  # whether an exercise with a grade lacks checks, or one of several submissions
    # the instructor's adjustments of exercises without a grade
    adjusted: Mapping[str, Adjustment] = {}
    weights: Mapping[str, float] = {}  # exercise to its weight in totals; 1 for others

    @property
    def has_result(self) -> bool:
        """True if the student handed in anything, or has points from the instructor."""
        return bool(self.grades or self.ungraded or self.adjusted)

    @property
    def points(self) -> Points:
        """The weighted points of all exercises with a grade or an adjustment."""
        parts = [(Points.of_grade(grade), grade.exercise) for grade in self.grades]
        parts += [(Points(max(0.0, each.points), 0, 0), exercise) for exercise, each in self.adjusted.items()]
        return Points.total(points.times(self.weights.get(exercise, 1)) for points, exercise in parts)

    @property
    def notes_of_adjustments(self) -> list[tuple[str, Adjustment]]:
        """All adjustments with their exercises."""
        graded = [(grade.exercise, grade.adjustment) for grade in self.grades if grade.adjustment]
        return sorted([*graded, *self.adjusted.items()], key=lambda entry: entry[0])

    def gap(self, exercise: str, interrupted: bool = False) -> str:
        """Return the reason why there is no grade for an exercise, as far as a stopped run knows it."""
        is_there = interrupted if self.exercises is None else exercise in self.exercises
        return NOT_GRADED if is_there else NOT_HANDED_IN

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """Checks of all grades."""
        return tuple(check for grade in self.grades for check in grade.checks)


class Points(NamedTuple):
    """Sums over checks."""

    earned: float  # points
    graded: float  # points that could be earned in the checks that could be graded
    ungraded: float  # points of checks that could not be graded
    # those of `ungraded` that the submission's own code makes ungradable, so that students could choose them
    chosen: float = 0.0

    @classmethod
    def of(cls, checks: Iterable[CheckResult]) -> Points:
        """Add up."""
        checks = list(checks)
        graded = [check for check in checks if check.verdict != "not gradable"]
        ungraded = [check for check in checks if check.verdict == "not gradable"]
        chosen = [check for check in ungraded if any(found.code in NEEDS_A_GPU for found in check.findings)]
        return cls(
            math.fsum(float(check.points) for check in graded),
            *(math.fsum(float(check.max_points) for check in part) for part in (graded, ungraded, chosen)),
        )

    @classmethod
    def of_grade(cls, grade: Grade) -> Points:
        """Add up a grade's checks and its adjustment, at least 0.

        An adjustment settles a grade of which too little could be graded: the instructor has graded it by hand.
        """
        points = cls.of(grade.checks)
        if grade.adjustment is None:
            return points
        earned = max(0.0, points.earned + grade.adjustment.points)
        if points.is_score:
            return points._replace(earned=earned)
        return cls(earned, points.graded + points.ungraded, 0)

    @classmethod
    def total(cls, parts: Iterable[Points]) -> Points:
        """Return the sum."""
        parts = list(parts)
        return cls(*(math.fsum(getattr(part, name) for part in parts) for name in cls._fields))

    def times(self, weight: float) -> Points:
        """Return the points multiplied."""
        return Points(self.earned * weight, self.graded * weight, self.ungraded * weight, self.chosen * weight)

    @property
    def is_score(self) -> bool:
        """True if all but a small share of the points could be graded, and students could not choose that share."""
        is_small = self.ungraded <= SMALL_SHARE * (self.graded + self.ungraded)
        return self.graded > 0 and is_small and not self.chosen

    @property
    def share(self) -> float | None:
        """Earned share of the graded points, above 1 with extra points; None where too few could be graded."""
        return self.earned / self.graded if self.is_score else None


def rows(gradebook: Gradebook) -> list[Row]:
    """Return the rows, sorted by student id in natural order."""
    names = {student.id: student for student in (*gradebook.roster, *gradebook.absent)}
    grades: dict[str, list[Grade]] = {}
    for grade in gradebook.grades:
        grades.setdefault(grade.student or grade.submission, []).append(grade)
    ungraded: dict[str, list[tuple[str, Finding]]] = {}
    for submission, finding in sorted(gradebook.ungraded.items()):
        ungraded.setdefault(gradebook.owners.get(submission, submission), []).append((submission, finding))
    absent = {student.id for student in gradebook.absent}
    adjusted = {student for student, _ in gradebook.adjustments}
    keys = sorted({*names, *gradebook.chosen, *grades, *ungraded, *adjusted}, key=natural_sort_key)
    return [
        Row(
            names.get(key, Student(key)),
            best := best_of_each_exercise(grades.get(key, ())),
            of_student := tuple(ungraded.get(key, ())),
            key in absent,
            exercises=None if gradebook.handed_in is None else gradebook.handed_in.get(key, {}),
            left_out={
                name: why for name, why in gradebook.left_out.get(key, {}).items() if name not in dict(of_student)
            },
            is_part=_is_part(gradebook, key, grades.get(key, ())),
            adjusted=_without_a_grade(gradebook, key, {grade.exercise for grade in best}),
            weights=gradebook.weights,
        )
        for key in keys
    ]


def _is_part(gradebook: Gradebook, student: str, grades: Collection[Grade]) -> bool:
    numbers, handed_in = Counter(grade.exercise for grade in grades), (gradebook.handed_in or {}).get(student, {})
    is_any_missing = any(number < handed_in.get(exercise, 0) for exercise, number in numbers.items())
    return is_any_missing or any(map(gradebook.is_part, grades))


def _without_a_grade(gradebook: Gradebook, student: str, graded: Collection[str]) -> dict[str, Adjustment]:
    """Return a student's adjustments of exercises for which nothing gradable was handed in.

    A run that grades none of a student's submissions has no row for the student.
    """
    to_be_graded = {name for name, gradable in (gradebook.handed_in or {}).get(student, {}).items() if gradable}
    if to_be_graded and not graded:
        return {}
    return {
        exercise: adjustment
        for (owner, exercise), adjustment in gradebook.adjustments.items()
        if owner == student and exercise not in {*graded, *to_be_graded}
    }


def best_of_each_exercise(grades: Iterable[Grade]) -> tuple[Grade, ...]:
    """Return one grade per exercise: of several submissions the one with the most points."""
    return tuple(sorted(_best(grades, lambda grade: grade.exercise), key=lambda grade: grade.exercise))


def counting_grades(gradebook: Gradebook) -> tuple[Grade, ...]:
    """Return the grades that count: each student's best per exercise, and all grades without a known student."""
    return tuple(_best(gradebook.grades, lambda grade: (grade.student or grade.submission, grade.exercise)))


def _best(grades: Iterable[Grade], key: Callable[[Grade], Hashable]) -> Iterable[Grade]:
    """Return the grade with the most points of each key; of equal ones the first."""
    best: dict[Hashable, Grade] = {}
    for grade in grades:
        best[key(grade)] = max(best.get(key(grade), grade), grade, key=lambda each: each.points)
    return best.values()


def refuse_a_part(gradebook: Gradebook, context: Context) -> None:
    """Refuse to report a part of the points as a student's result.

    Raises ReportError if the run was stopped, or graded only some submissions of a student or some checks of one.
    """
    context.refuse_if_interrupted()
    for row in rows(gradebook):
        gaps = {name for name, gradable in (row.exercises or {}).items() if gradable}
        gaps -= {grade.exercise for grade in row.grades}
        if row.is_part or (row.grades and gaps):
            what = ONLY_SOME_CHECKS if row.is_part else f"{min(gaps)} of {row.student.id} was {NOT_GRADED}"
            raise ReportError(f"{what}, and a part of the points is no result")


def the_only_row(gradebook: Gradebook) -> Row:
    """Return the row of a run that graded one student; submissions without a known student are that one's.

    Raises ReportError if there are several students, or several submissions to one exercise without a known student, or
    nothing was graded.
    """
    grades = gradebook.grades
    named = {grade.student for grade in grades} | set(gradebook.owners.values())
    exercises = [grade.exercise for grade in grades]
    if len(named) > 1 or len(set(exercises)) < len(exercises):
        raise ReportError("it holds the result of one student, and more than one was graded")
    if not grades and not gradebook.ungraded:
        raise ReportError("nothing was graded")
    student = next(iter(named), "")
    known = next((each for each in gradebook.roster if each.id == student), Student(student))
    adjusted = _without_a_grade(gradebook, student, exercises)
    return Row(known, grades, tuple(sorted(gradebook.ungraded.items())), adjusted=adjusted, weights=gradebook.weights)


def graded_points(row: Row) -> Points | None:
    """Return the points of a row, or None if too little of a grade in it could be graded (see `Points.is_score`).

    A student with nothing but files for no exercise has earned no point.
    """
    points = row.points
    if unscored(row.grades):
        return None
    faults = {finding.code for _, finding in row.ungraded}
    is_students_fault = bool(faults) and faults.isdisjoint(_GRADERS_FAULTS)
    has_points = points.graded > 0 or bool(row.adjusted)
    return points if has_points or (not row.grades and is_students_fault) else None


def why_no_score(row: Row) -> str:
    """Return the reason why `graded_points` of a row is None, for an instructor."""
    return "; ".join(unscored(row.grades)) if Points.of(row.checks).graded else "nothing could be graded"


def unscored(grades: Iterable[Grade]) -> list[str]:
    """Return a sentence per grade without a score: too many of its points could not be graded."""
    found = ((grade, Points.of_grade(grade)) for grade in grades)
    return [
        f"{grade.submission}: {points_text(points.ungraded)} of {points_text(points.graded + points.ungraded)} points "
        "could not be graded, so there is no score; see the findings"
        for grade, points in found
        if points.ungraded and not points.is_score
    ]


def shown_checks(row: Row) -> list[tuple[str, CheckResult]]:
    """Return the checks as the student may see them by name, prefixed by the exercise's if there are several."""
    prefixes = {grade.exercise: f"{grade.exercise}: " if len(row.grades) > 1 else "" for grade in row.grades}
    return [
        (prefixes[grade.exercise] + check.name, check)
        for grade in map(for_student, row.grades)
        for check in grade.checks
    ]


def earned_text(grade: Grade) -> str:
    """Return the points of a grade as text; empty if too little could be graded for a score."""
    points = Points.of_grade(grade)
    return points_text(points.earned) if points.graded and not unscored([grade]) else ""


def weights_text(weights: Mapping[str, float]) -> str:
    """Return the weights other than 1 as a sentence; empty if there are none."""
    others = [f"{exercise} x {weight:g}" for exercise, weight in sorted(weights.items()) if weight != 1]
    return f"Weights in the total: {', '.join(others)}." if others else ""


def points_text(points: float) -> str:
    """Return a number of points with at most four digits after the point, none of them a zero at the end."""
    return f"{round(float(points), _DIGITS):.{_DIGITS}f}".rstrip("0").rstrip(".")


def file_name(student: str) -> str:
    """Return the name of a student's own file without its suffix: the id, if that is a safe name.

    Other ids lose unsafe characters and gain a part of their hash: no two students share a file, not even on file
    systems that ignore case.
    """
    if _SAFE.fullmatch(student) and not (_RESERVED.fullmatch(student) or _HASHED.fullmatch(student)):
        return student
    readable = re.sub(r"[^a-z0-9]+", "-", student.lower())[:_LONGEST].strip("-") or "student"
    digest = hashlib.sha256(student.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{readable}-{digest[:_HASH_DIGITS]}"

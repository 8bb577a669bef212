"""Summary of a class for the terminal: scores per exercise, most common findings, points per student.

It fits a screen or two for any number of students; report files and `-v` have the rest.
"""

from collections.abc import Iterator, Sequence

from pytest_gpulab.grading.findings import counted
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.reports.class_statistics import check_rates, commonest, hardest, scores
from pytest_gpulab.reports.gradebook import Gradebook, SimilarPair, natural_sort_key
from pytest_gpulab.reports.standings import Standing, exercises_of, standings
from pytest_gpulab.reports.students import Row, counting_grades, earned_text, graded_points, points_text, weights_text

from .sections import Section, section
from .table import WORST_FIRST, laid_out, overall_verdict
from .text import wrapped

MAX_STUDENTS = 60
"""Most rows of the table of students without `-v`."""
MAX_LINES = 10
ABSENT = "handed in nothing"


def class_sections(gradebook: Gradebook) -> Iterator[Section]:
    """Yield the summary's sections, each a title and its lines, at most `width()` columns wide but for long names."""
    grades = counting_grades(gradebook)
    everyone = standings(gradebook, grades)
    yield from section("gpulab: class", _exercises(grades, everyone))
    yield from section("gpulab: checks with most failures", _hardest(grades))
    yield from section("gpulab: most common findings", _findings(grades))
    yield from section("gpulab: submissions", _shortened(gradebook.problems))
    yield from section("gpulab: near-identical sources", _alike(gradebook.duplicates))
    yield from section("gpulab: no submission", _shortened([_name(each.id, each.name) for each in gradebook.absent]))
    if len(everyone) <= MAX_STUDENTS:
        yield from section("gpulab: students", _students(everyone, list(exercises_of(grades, gradebook))))
    yield from section("gpulab: adjusted points", _shortened(_adjustments(gradebook)))
    yield from section("gpulab: weights", list(filter(None, [weights_text(gradebook.weights)])))
    yield from section("gpulab: changed points", list(gradebook.changes))


def last_line(gradebook: Gradebook) -> str:
    """Return the numbers of students by verdict, such as `13 students: 9 passed, 3 failed, 1 handed in nothing`."""
    everyone = standings(gradebook, counting_grades(gradebook))
    absent = {student.id for student in gradebook.absent}  # with adjusted points, some have a row
    verdicts = [_verdict(standing.row) for standing in everyone if standing.row.student.id not in absent]
    verdicts += [ABSENT] * len(gradebook.absent)
    counts = [
        f"{verdicts.count(verdict)} {verdict}" for verdict in ("passed", *WORST_FIRST, ABSENT) if verdict in verdicts
    ]
    return ": ".join((counted(len(verdicts), "student"), *([", ".join(counts)] if counts else [])))


def _students(everyone: Sequence[Standing], exercises: Sequence[str]) -> list[str]:
    if not everyone:
        return []
    rows = [_student_row(standing, exercises) for standing in everyone]
    return laid_out(("student", "verdict", *exercises, "total"), rows)


def _student_row(standing: Standing, exercises: Sequence[str]) -> tuple[str, ...]:
    row = standing.row
    points = {grade.exercise: earned_text(grade) or "n/a" for grade in row.grades}
    points |= {exercise: points_text(max(0.0, each.points)) for exercise, each in row.adjusted.items()}
    cells = (points.get(exercise, "-") for exercise in exercises)
    return _name(row.student.id, row.student.name), _verdict(row), *cells, _total(standing)


def _verdict(row: Row) -> str:
    worst = {overall_verdict(grade) for grade in row.grades}
    without_grades = "failed" if row.ungraded else "-"
    return next((verdict for verdict in WORST_FIRST if verdict in worst), "passed" if row.grades else without_grades)


def _total(standing: Standing) -> str:
    if graded_points(standing.row) is None:
        verdicts = {check.verdict for check in standing.row.checks}
        has_no_points = verdicts and "not gradable" not in verdicts
        return "n/a" if has_no_points else "not gradable"
    return f"{points_text(standing.earned)}/{points_text(standing.possible)}"


def _adjustments(gradebook: Gradebook) -> list[str]:
    adjustments = sorted(gradebook.adjustments.items(), key=lambda entry: natural_sort_key(" ".join(entry[0])))
    return [f"{student}, {exercise}: {each.text}" for (student, exercise), each in adjustments]


def _exercises(grades: Sequence[Grade], everyone: Sequence[Standing]) -> list[str]:
    """Return a table of scores, in percent of the points."""
    rows = []
    for score in scores(grades, everyone):
        shares = (f"{share:.0%}" for share in (score.mean, *score.quartiles))
        counts = (str(score.full), str(score.below_half))
        rows.append((score.title, points_text(score.max_points), str(len(score.shares)), *shares, *counts))
    headers = ("exercise", "points", "graded", "mean", "25 %", "median", "75 %", "all points", "below half")
    return laid_out(headers, rows) if rows else []


def _hardest(grades: Sequence[Grade]) -> list[str]:
    required = (rate for rate in check_rates(grades) if rate.required)
    found = hardest(required, MAX_LINES)
    return [f"{rate.exercise}::{rate.name}: {rate.passed} of {rate.decided} passed" for rate in found]


def _findings(grades: Sequence[Grade]) -> list[str]:
    lines = []
    for found in commonest(grades, MAX_LINES):
        lines += wrapped(f"{found.submissions} x {found.code}, such as: {found.example}")
    return lines


def _alike(duplicates: Sequence[SimilarPair]) -> list[str]:
    """Return the most similar pairs: questions, never verdicts."""
    closest = sorted(duplicates, key=lambda pair: (-pair.similarity, pair.exercise, pair.submissions))
    shown = _shortened([pair.text for pair in closest], MAX_LINES)
    return [line for text in shown for line in wrapped(text)]


def _shortened(lines: Sequence[str], limit: int = MAX_STUDENTS) -> list[str]:
    more = len(lines) - limit
    return [*lines[:limit], f"and {more} more"] if more > 0 else list(lines)


def _name(identifier: str, name: str) -> str:
    return f"{identifier} ({name})" if name and name != identifier else identifier

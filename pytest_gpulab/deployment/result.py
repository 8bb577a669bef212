"""The platform's result file, from the grades or from the reason why there are none."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_gpulab.course.intake.student_files import Unusable
from pytest_gpulab.course.intake.submissions import Collection
from pytest_gpulab.grading.catalogue import BrokenExercise, Catalogue, Loaded
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.findings import OUT_OF_TIME, finding
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade
from pytest_gpulab.reports.gradebook import Gradebook, result_properties, ungraded_properties
from pytest_gpulab.reports.students import Row, graded_points, points_text, the_only_row
from pytest_gpulab.reports.visibility import for_student

from .child import Ended
from .weights import weights_of_package

MISSING = "nothing-handed-in"


class NotGraded(Exception):
    """There is no grade, by no fault of the student: `text` is for the student, `log` for the instructor."""

    def __init__(self, text: str, log: str = "") -> None:
        super().__init__(text)
        self.text, self.log = text, log


def gradebook(
    report: Path, ended: Ended, limit_s: float, files: Collection, catalogue: Catalogue, exercises: Sequence[str]
) -> Gradebook:
    """Return the grades of a student, with a note per file that is not graded.

    An exercise without a file has earned no point of its checks, and a check that was not run in time none. Raises
    NotGraded if the process wrote no report, an exercise is broken, or too little could be graded for a score.
    """
    data = _read(report, ended, limit_s)
    book, there = Gradebook(weights=weights_of_package(catalogue.folder)), {each.exercise for each in files.submissions}
    unusable = {each.exercise: each for each in files.problems if each.exercise and each.verdict == "failed"}
    grades = list(map(Grade.from_dict, data["grades"]))
    if data["interrupted"]:
        grades = [_completed(grades, _loaded(catalogue, name, ended), limit_s) for name in exercises]
    for grade in grades:
        of = grade if grade.exercise in there else _missing(grade, unusable.get(grade.exercise))
        for position, check in enumerate(of.checks):
            book.add(result_properties(replace(of, checks=(check,)), position, len(of.checks)))
    for record in data["ungraded"]:
        found = Finding.from_dict(record)
        if found.code == "broken-exercise":
            raise NotGraded(f"{found.what}.", ended.log)
        book.add(ungraded_properties(record["submission"], found))
    book.problems = tuple(each.note for each in files.submissions if each.note)
    if data["interrupted"]:
        book.problems += (f"grading was stopped after {limit_s:g} s; checks without a result earn no points",)
    for problem in (each for each in files.problems if each not in unusable.values()):
        _note(book, problem.label, problem.finding, exercises)
    if graded_points(row := the_only_row(book)) is None:
        raise NotGraded(_why_no_score(row), ended.log)
    return book


def _read(report: Path, ended: Ended, limit_s: float) -> Mapping[str, Any]:
    try:
        data = json.loads(report.read_bytes())
    except (OSError, ValueError):
        data = {"interrupted": True, "grades": []}
    if not data["interrupted"] or (ended.code is None and any(grade["max_points"] for grade in data["grades"])):
        usable: Mapping[str, Any] = data
        return usable
    if ended.code is None:
        text = f"Grading took longer than {limit_s:g} s and was stopped. A very slow kernel may be the reason."
    elif ended.lacked_memory:
        text = "The grader ran out of memory and was stopped. A kernel with very large arrays may be the reason."
    elif ended.code < 0:
        text = f"The grader was killed (signal {-ended.code})."
    else:
        text = f"The grader failed (exit code {ended.code})."
    raise NotGraded(text, ended.log)


def _loaded(catalogue: Catalogue, name: str, ended: Ended) -> Loaded:
    try:
        return catalogue.load(name)
    except BrokenExercise as error:
        raise NotGraded(f"The exercise {name} cannot be loaded; tell your instructor.", ended.log) from error


def _completed(grades: Sequence[Grade], loaded: Loaded, limit_s: float) -> Grade:
    """Return an exercise's grade, in which checks that were not run have failed."""
    unknown = replace(grades[0].provenance, exercise_version=loaded.exercise.version, source_sha256="")
    nothing = Grade(f"{loaded.name}.cu", loaded.name, (), unknown)
    grade = next((each for each in grades if each.exercise == loaded.name), nothing)
    first = finding(OUT_OF_TIME, f"No result: grading was stopped after {limit_s:g} s.")
    late: list[CheckResult] = []
    for check in checks_of(loaded.exercise)[len(grade.checks) :]:
        found = replace(first, because=late[0].name) if late else first
        late.append(check.result("failed" if check.required else "missed", (found,)))
    return replace(grade, checks=(*grade.checks, *late))


def _why_no_score(row: Row) -> str:
    """Return the reason for a student: the first finding of a check that could not be graded."""
    checks = [check for grade in map(for_student, row.grades) for check in grade.checks]
    first = next(check.findings[0] for check in checks if check.verdict == "not gradable")
    points = row.points
    of_all = f"{points_text(points.ungraded)} of {points_text(points.graded + points.ungraded)} points"
    return f"{of_all} could not be graded. {first.what.rstrip('.')}. {first.hint}"


def _missing(grade: Grade, unusable: Unusable | None) -> Grade:
    """Return the grade of a stand-in as that of an exercise without a file, or with one that cannot be used."""
    name = f"{grade.exercise}.cu"
    found = Finding(MISSING, f"There is no file {name}.", hint=f"Hand in {name}.")
    if unusable is not None:
        found = replace(unusable.finding, what=f"{unusable.label}: {unusable.finding.what}")
    first, *others = (replace(check, findings=(found,), verdict="failed", points=0.0) for check in grade.checks)
    because = (replace(found, because=first.name),)
    return replace(grade, checks=(first, *(replace(check, findings=because) for check in others)))


def _note(book: Gradebook, label: str, finding: Finding, exercises: Iterable[str]) -> None:
    """Add a file that is not graded, or raise NotGraded if the machine cannot read it."""
    if finding.code == MISSING:
        return
    if finding.code == "unreadable":
        raise NotGraded(f"{label}: {finding.what}")
    names = " or ".join(f"{name}.cu" for name in exercises)
    hint = f"Name the file after its exercise: {names}." if finding.code in _OF_NAMES else finding.hint
    book.add(ungraded_properties(label, replace(finding, hint=hint)))


_OF_NAMES = ("no-source", "wrong-ending", "no-exercise")

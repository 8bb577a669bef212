"""The platform's result file, from the grades or from the reason why there are none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from pytest_gpulab.course.intake.submissions import Collection
from pytest_gpulab.grading.grade import Finding, Grade
from pytest_gpulab.reports.gradebook import Gradebook, result_properties, ungraded_properties

from .child import Ended

MISSING = "nothing-handed-in"


class NotGraded(Exception):
    """There is no grade: the machine's, the exercise's or the grader's fault.

    Attributes:
        text: one or two sentences for the student.
        log: lines for the instructor.
    """

    def __init__(self, text: str, log: str = "") -> None:
        super().__init__(text)
        self.text, self.log = text, log


def gradebook(report: Path, ended: Ended, limit_s: float, files: Collection, exercises: Iterable[str]) -> Gradebook:
    """Return the grades of a student, with a note per file that is not graded.

    An exercise without a file has earned no point of its checks.

    Raises:
        NotGraded: the process wrote no complete report, or an exercise is broken.
    """
    data = _read(report, ended, limit_s)
    book, there = Gradebook(), {each.exercise for each in files.submissions}
    for grade in map(Grade.from_dict, data["grades"]):
        of = grade if grade.exercise in there else _missing(grade)
        for position, check in enumerate(of.checks):
            book.add(result_properties(replace(of, checks=(check,)), position, len(of.checks)))
    for record in data["ungraded"]:
        known = {item.name for item in fields(Finding)}
        found = Finding(**{name: value for name, value in record.items() if name in known})
        if found.code == "broken-exercise":
            raise NotGraded(f"{found.what}.", ended.log)
        book.add(ungraded_properties(record["submission"], found))
    book.problems = tuple(each.note for each in files.submissions if each.note)
    for problem in files.problems:
        _note(book, problem.label, problem.finding, exercises)
    return book


def _read(report: Path, ended: Ended, limit_s: float) -> Mapping[str, Any]:
    try:
        data = json.loads(report.read_bytes())
    except (OSError, ValueError):
        data = {"interrupted": True}
    if not data["interrupted"]:
        complete: Mapping[str, Any] = data
        return complete
    if ended.code is None:
        text = f"Grading took longer than {limit_s:g} s and was stopped. A very slow kernel may be the reason."
    elif ended.lacked_memory:
        text = "The grader ran out of memory and was stopped. A kernel with very large arrays may be the reason."
    elif ended.code < 0:
        text = f"The grader was killed (signal {-ended.code})."
    else:
        text = f"The grader failed (exit code {ended.code})."
    raise NotGraded(text, ended.log)


def _missing(grade: Grade) -> Grade:
    """Return the grade of an empty file as that of an exercise without a file."""
    name = f"{grade.exercise}.cu"
    found = Finding(MISSING, f"There is no file {name}.", hint=f"Hand in {name}.")
    first, *others = (replace(check, findings=(found,), verdict="failed", points=0.0) for check in grade.checks)
    because = (replace(found, because=first.name),)
    return replace(grade, checks=(first, *(replace(check, findings=because) for check in others)))


def _note(book: Gradebook, label: str, finding: Finding, exercises: Iterable[str]) -> None:
    """Add a file that is not graded.

    Raises:
        NotGraded: the machine cannot read it.
    """
    if finding.code == MISSING:
        return
    if finding.code == "unreadable":
        raise NotGraded(f"{label}: {finding.what}")
    names = " or ".join(f"{name}.cu" for name in exercises)
    hint = f"Name the file after its exercise: {names}." if finding.code in _OF_NAMES else finding.hint
    book.add(ungraded_properties(label, replace(finding, hint=hint)))


_OF_NAMES = ("no-source", "wrong-ending", "no-exercise")

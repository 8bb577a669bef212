"""`--gpulab-report=prairielearn:PATH`: `results.json` of a PrairieLearn external grader, for one student.

The score is the earned share of the gradable points, so that the machine's faults cost nothing. Where nothing
could be graded, or too little, the result is `"gradable": false`, for which PrairieLearn charges no attempt. A kernel
that does not compile is gradable: it is wrong.
"""

import html
import json
from pathlib import Path
from typing import Any

from pytest_gpulab.grading.grade import Adjustment, CheckResult
from pytest_gpulab.reports import students
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.formats import write_text
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.terminal.check_text import MEANING, check_text, cleaned, finding_text

from .json_report import json_text

MAX_BYTES = 1_000_000
"""PrairieLearn's limit for the file."""
CUT = "\n(cut: PrairieLearn takes 1 MB)"
TELL = "Tell your instructor."
_OUTPUT_LIMITS = (40_000, 10_000, 2_500, 600, 150, 0)


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write the file of one student with a grade of every check."""
    students.refuse_a_part(gradebook, context)
    write_text(path, json_text(fitted(document(students.the_only_row(gradebook)))))


def document(row: students.Row) -> dict[str, Any]:
    """Return the results in PrairieLearn's format, builtins only, of any length."""
    points = students.graded_points(row)
    if points is None:
        return {"gradable": False, "format_errors": _why_not(row)}
    return {
        "gradable": True,
        "score": min(1.0, points.share or 0.0),
        "message": " ".join(filter(None, (_message(points), students.weights_text(row.weights)))),
        "output": "\n".join(f"{cleaned(name)}\n{finding_text(finding)}" for name, finding in row.ungraded),
        "tests": [
            *(_test(name, check) for name, check in students.shown_checks(row)),
            *(_adjustment(exercise, each) for exercise, each in row.notes_of_adjustments),
        ],
    }


def not_graded(text: str, context: Context) -> str:
    """Return the file for a submission without a grade, as HTML: PrairieLearn may show it as such."""
    note = (
        f"Not graded, by no fault of yours. {html.escape(cleaned(text))} No attempt is charged. Tell your instructor."
    )
    return json_text({"gradable": False, "format_errors": [note]})


def _why_not(row: students.Row) -> list[str]:
    """Return the failures in the grader's own words only: PrairieLearn may show them as HTML."""
    exercises = sorted({grade.exercise for grade in row.grades})
    codes = {finding.code for check in row.checks for finding in check.findings}
    codes |= {finding.code for _, finding in row.ungraded}
    graded = f" of {', '.join(exercises)}" if exercises else ""
    why = f" ({', '.join(sorted(codes))})" if codes else ""
    points = row.points
    much = f"{students.points_text(points.ungraded)} of {students.points_text(points.graded + points.ungraded)} points"
    if points.graded:
        text = f"{much}{graded} could not be graded{why}, so there is no score."
        return [f"{text} {TELL} No attempt is charged."]
    return [f"The grader failed{why}: nothing{graded} could be graded, by no fault of yours. No attempt is charged."]


def _message(points: students.Points) -> str:
    text = f"{students.points_text(points.earned)} of {students.points_text(points.graded)} points."
    if points.ungraded:
        text += f" Checks for {students.points_text(points.ungraded)} more could not be graded, by no fault of yours."
    return text


def _test(name: str, check: CheckResult) -> dict[str, Any]:
    is_graded = check.verdict != "not gradable"
    return {
        "name": cleaned(name),
        "points": float(check.points) if is_graded else 0.0,
        "max_points": float(check.max_points) if is_graded else 0.0,
        "message": MEANING[check.verdict],
        "output": check_text(check),
    }


def _adjustment(exercise: str, adjustment: Adjustment) -> dict[str, Any]:
    name, message = f"{exercise}: adjustment", "Adjusted by the instructor."
    points = {"points": float(adjustment.points), "max_points": 0.0}
    return {"name": name, **points, "message": message, "output": cleaned(adjustment.text)}


def fitted(results: dict[str, Any]) -> dict[str, Any]:
    """Return the results with texts cut, the longest first, until they fit PrairieLearn's limit."""
    for limit in _OUTPUT_LIMITS:
        if len(json_text(results)) <= MAX_BYTES:
            break
        results = results | {"output": _cut(results["output"], limit)}
        results["tests"] = [test | {"output": _cut(test["output"], limit)} for test in results["tests"]]
    return results


def _cut(text: str, limit: int) -> str:
    """Return text cut to that many bytes of JSON, plus a note that it was cut."""
    kept = text.removesuffix(CUT)
    while len(json.dumps(kept)) > limit + 2 and kept:
        kept = kept[: min(len(kept) - 1, limit * len(kept) // len(json.dumps(kept)))]
    return text if kept == text else kept + CUT

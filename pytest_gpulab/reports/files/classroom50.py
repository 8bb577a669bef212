"""`--gpulab-report=classroom50:PATH`: `result.json` of a Classroom 50 autograder, schema `classroom50/result/v1`.

Scores are whole numbers there; fractional points are multiplied by ten or a hundred. No score exceeds its maximum:
extra points are cut off. Checks that the machine could not
grade count neither in the score nor in the maximum. For Classroom 50, an exit status other than 0 is a failure
of its infrastructure, but pytest's is 1 if a check fails. So the autograder must end with 0 if and only if this file
was written, which requires a gradable check.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.reports import students
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.formats import check_file, write_text
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.terminal.check_text import check_text, cleaned, finding_text

from .json_report import json_text

SCHEMA = "classroom50/result/v1"
VARIABLES: Mapping[str, str] = {
    "classroom": "CLASSROOM",
    "assignment": "ASSIGNMENT",
    "submission": "SUBMISSION_TAG",
    "commit": "COMMIT_URL",
    "release": "RELEASE_URL",
}
OPTIONAL_VARIABLES: Mapping[str, str] = {"owner": "OWNER", "assignment_type": "ASSIGNMENT_TYPE"}
"""Keys that the runner writes as well."""
_FACTORS = (1, 10, 100)  # scores must be whole numbers


def check(path: Path, context: Context) -> None:
    """Check that the runner's variables exist and the file can be written."""
    missing = [name for name in VARIABLES.values() if not context.environment.get(name)]
    if missing:
        raise ReportError(f"Classroom 50's runner sets {', '.join(missing)}, missing here")
    check_file(path, context)


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write the file of one student with a grade of every check."""
    students.refuse_a_part(gradebook, context)
    write_text(path, json_text(document(students.the_only_row(gradebook), context)))


def document(row: students.Row, context: Context) -> dict[str, Any]:
    """Return the result in Classroom 50's schema, builtins only, or raise ReportError if there is no score."""
    if students.graded_points(row) is None:
        raise ReportError(students.why_no_score(row))
    tests, factor = _tests(row), factor_of(row)
    score, most = (sum(test[key] for test in tests) for key in ("score", "max-score"))
    if row.notes_of_adjustments or row.weights:
        score, most = round(row.points.earned * factor), round(row.points.graded * factor)
    return {**_heading(context), "score": min(score, most), "max-score": most, "tests": tests}


def not_graded(text: str, context: Context) -> str:
    """Return the file for a submission without a grade: 0 of 0 points."""
    message = f"Not graded, by no fault of yours. {cleaned(text)}"
    test = {"test-name": "not graded", "passed": False, "score": 0, "max-score": 0, "message": message}
    return json_text({**_heading(context), "score": 0, "max-score": 0, "tests": [test]})


def _heading(context: Context) -> dict[str, Any]:
    environment = context.environment
    given = {key: environment[name] for key, name in OPTIONAL_VARIABLES.items() if environment.get(name)}
    return {
        "schema": SCHEMA,
        **{key: environment[name] for key, name in VARIABLES.items()},
        **given,
        "review": environment.get("REVIEW_URL") or environment["COMMIT_URL"],
        "datetime": context.finished.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _tests(row: students.Row) -> list[dict[str, Any]]:
    factor = factor_of(row)
    tests = [
        _test(name, check, factor) for name, check in students.shown_checks(row) if check.verdict != "not gradable"
    ]
    notes = [(f"{exercise}: adjustment", True, cleaned(each.text)) for exercise, each in row.notes_of_adjustments]
    notes += [(name, False, finding_text(finding)) for name, finding in row.ungraded]
    notes += [("weights", True, weights)] if (weights := students.weights_text(row.weights)) else []
    return tests + [
        {"test-name": cleaned(name), "passed": passed, "score": 0, "max-score": 0, "message": text}
        for name, passed, text in notes
    ]


def _test(name: str, check: CheckResult, factor: int) -> dict[str, Any]:
    return {
        "test-name": cleaned(name),
        "passed": check.verdict in ("passed", "inconclusive"),
        "score": round(min(float(check.points), float(check.max_points)) * factor),
        "max-score": round(float(check.max_points) * factor),
        "message": check_text(check),
    }


def factor_of(row: students.Row) -> int:
    """Return the factor that makes all points whole, or nearly so."""
    points = [float(each) for check in row.checks for each in (check.points, check.max_points)]
    points += [row.points.earned, row.points.graded] if row.weights or row.notes_of_adjustments else []
    exact = (factor for factor in _FACTORS if all(abs(p * factor - round(p * factor)) < 1e-6 for p in points))
    return next(exact, _FACTORS[-1])

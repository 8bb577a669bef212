"""`--gpulab-report=gradescope:PATH`: results for Gradescope's autograder, as its specification describes them.

A PATH that ends in `.json` is one student's `results.json`; any other is a folder that gets a file for each student.
Students see this file, so hidden cases tell only the kind of a mistake and a hint, and only once grades are published:
until then Gradescope shows neither them nor a total from which their points could be told.

Extra points and adjustments are tests with a maximum of 0 points.

Gradescope compares the score with a fixed total. So that checks which the machine could not grade neither earn nor cost
points, the score is the share of the points that could be graded, times all points. Where more than a small share of an
exercise could not be graded no file is written, which Gradescope takes for what it is: a failure of the autograder.
"""

from pathlib import Path
from typing import Any

from pytest_gpulab.grading.grade import Adjustment, CheckResult, Finding, Grade
from pytest_gpulab.reports import students
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.formats import check_file, check_folder, write_text
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.terminal.check_text import check_text, cleaned, finding_text

from .json_report import json_text

UNTIL_PUBLISHED = "after_published"


def check(path: Path, context: Context) -> None:
    """Check that the file, or files in the folder, can be written."""
    if is_file(path):
        check_file(path, context)
        return
    check_folder(path)


def is_file(path: Path) -> bool:
    """Return whether a path names one student's file; any other path names a folder."""
    return path.suffix == ".json"


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write the file of one student, or a file per student; all checks must be graded, and something must count."""
    students.refuse_a_part(gradebook, context)
    if is_file(path):
        row = students.the_only_row(gradebook)
        if not _is_written(path, row):
            raise ReportError(students.why_no_score(row))
        return
    path.mkdir(exist_ok=True)
    with_result = [row for row in students.rows(gradebook) if row.has_result]
    missing = [row for row in with_result if not _is_written(path / f"{students.file_name(row.student.id)}.json", row)]
    if missing:
        raise ReportError("; ".join(f"{row.student.id}: {students.why_no_score(row)}" for row in missing))


def _is_written(path: Path, row: students.Row) -> bool:
    points = students.graded_points(row)
    if points is None:
        path.unlink(missing_ok=True)  # that of an earlier run
        return False
    write_text(path, json_text(document(row, points)))
    return True


def document(row: students.Row, points: students.Points) -> dict[str, Any]:
    """Return a student's results in Gradescope's format, builtins only."""
    tests = [_test(name, check) for name, check in students.shown_checks(row)]
    tests += [_adjustment(exercise, each) for exercise, each in row.notes_of_adjustments]
    tests += [_ungraded(submission, finding) for submission, finding in row.ungraded]
    return {
        "score": score(points),
        "execution_time": round(sum(float(check.duration_s) for check in row.checks), 3),
        "output": _summary(row, points),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "stdout_visibility": "hidden",
        "extra_data": {"gpulab": [_origin(grade) for grade in row.grades]},
        "tests": tests,
    }


def not_graded(text: str, context: Context) -> str:
    """Return the file for a submission without a grade; Gradescope accepts none without a score."""
    note = "The score of 0 means that there is no score. Your instructor must run the autograder again."
    output = f"NOT GRADED, by no fault of yours. {cleaned(text)}\n{note}"
    return json_text({"score": 0.0, "output": output, "output_format": "text", "stdout_visibility": "hidden"})


def score(points: students.Points) -> float:
    """Return the points earned, scaled up if the machine could not grade everything."""
    if not points.ungraded:
        return points.earned
    return (points.share or 0.0) * (points.graded + points.ungraded)


def _summary(row: students.Row, points: students.Points) -> str:
    """Return the device as text, without points: Gradescope shows this before hidden cases are published."""
    lines = [cleaned(f"{grade.exercise}, graded on the {grade.provenance.device}.") for grade in row.grades]
    if points.ungraded:
        lines += [
            f"Checks for {students.points_text(points.ungraded)} points could not be graded, by no fault of yours. "
            "They neither earn nor cost points: the score scales the points of the others up to all points."
        ]
    if weights := students.weights_text(row.weights):
        lines.append(weights)
    return "\n".join(lines)


def _test(name: str, check: CheckResult) -> dict[str, Any]:
    shows_hidden = check.hidden or any(finding.hidden for finding in check.findings)
    test: dict[str, Any] = {
        "name": cleaned(name),
        "output": check_text(check),
        "visibility": UNTIL_PUBLISHED if shows_hidden else "visible",
        "tags": [check.kind],
        "extra_data": {"verdict": check.verdict, "findings": [finding.code for finding in check.findings]},
    }
    if check.verdict == "not gradable":  # without a score it is shown, and counts nothing
        return test
    is_full = check.verdict in ("passed", "inconclusive")
    scores = {"score": float(check.points), "max_score": float(check.max_points)}
    return test | scores | {"status": "passed" if is_full else "failed"}


def _adjustment(exercise: str, adjustment: Adjustment) -> dict[str, Any]:
    named = {"name": f"{exercise}: adjustment", "output": cleaned(adjustment.text), "visibility": "visible"}
    return named | {"score": adjustment.points, "max_score": 0.0}


def _ungraded(submission: str, finding: Finding) -> dict[str, Any]:
    return {"name": cleaned(submission), "status": "failed", "output": finding_text(finding), "visibility": "visible"}


def _origin(grade: Grade) -> dict[str, Any]:
    source = grade.provenance
    return {
        "exercise": grade.exercise,
        "exercise_version": source.exercise_version,
        "plugin_version": source.plugin_version,
        "device": source.device,
        "source_sha256": source.source_sha256,
    }

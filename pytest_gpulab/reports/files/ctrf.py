"""`--gpulab-report=ctrf:PATH`: all checks in the Common Test Report Format, for dashboards and CI. For instructors.

CTRF knows passed, failed, skipped, pending and other. Missed bonuses, inconclusive and not gradable checks and
expected failures are `other`; work that is not started is `skipped`. `rawStatus` has this package's own word.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest_gpulab
from pytest_gpulab.grading.grade import Adjustment, CheckResult, Finding, Grade, Verdict
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.formats import write_text
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.terminal.check_text import check_text, cleaned

from .json_report import json_text

SPEC_VERSION = "0.0.0"
"""Version of the working draft of 2025-11-24, the newest one."""
TOOL = "pytest-gpulab"
STATUSES = ("passed", "failed", "skipped", "pending", "other")
_STATUS: Mapping[Verdict, str] = {
    "passed": "passed",
    "failed": "failed",
    "missed": "other",
    "inconclusive": "other",
    "not gradable": "other",
    "not started": "skipped",
}


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write the file."""
    write_text(path, json_text(document(gradebook, context)))


def document(gradebook: Gradebook, context: Context) -> dict[str, Any]:
    """Return the report, builtins only."""
    tests = list(_tests(gradebook))
    counts = Counter(test["status"] for test in tests)
    start, stop = milliseconds(context.started), milliseconds(context.finished)
    return {
        "reportFormat": "CTRF",
        "specVersion": SPEC_VERSION,
        "timestamp": context.finished.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "generatedBy": TOOL,
        "results": {
            "tool": {"name": TOOL, "version": pytest_gpulab.__version__},
            "summary": {
                "tests": len(tests),
                **{status: counts[status] for status in STATUSES},
                "start": start,
                "stop": stop,
                "duration": stop - start,
                "extra": {"interrupted": context.interrupted},
            },
            "tests": tests,
        },
    }


def milliseconds(moment: datetime) -> int:
    """Return milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


def _tests(gradebook: Gradebook) -> Iterator[dict[str, Any]]:
    for grade in gradebook.grades:
        for check in grade.checks:
            yield _test(grade, check, (grade.submission, check.name) in gradebook.expected)
    for (student, exercise), adjustment in sorted(gradebook.adjustments.items()):
        yield _adjustment(student, exercise, adjustment)
    for submission, finding in sorted(gradebook.ungraded.items()):
        yield _ungraded(submission, finding)


def _test(grade: Grade, check: CheckResult, is_expected: bool) -> dict[str, Any]:
    test: dict[str, Any] = {
        "name": cleaned(f"{grade.submission}::{check.name}"),
        "status": "other" if is_expected else _STATUS[check.verdict],
        "rawStatus": f"{check.verdict} as expected" if is_expected else check.verdict,
        "duration": round(float(check.duration_s) * 1000),
        "suite": [cleaned(grade.exercise), cleaned(grade.submission)],
        "type": check.kind,
        "filePath": cleaned(grade.submission),
        "extra": {
            "student": cleaned(grade.student),
            "points": float(check.points),
            "maxPoints": float(check.max_points),
            "required": check.required,
            "hidden": check.hidden,
            "findings": [finding.code for finding in check.findings],
        },
    }
    if check.findings:
        test |= {"message": cleaned(check.findings[0].what), "trace": check_text(check)}
    if check.printed:
        test["stdout"] = [cleaned(line) for line in check.printed.split("\n")]
    return test


def _adjustment(student: str, exercise: str, adjustment: Adjustment) -> dict[str, Any]:
    return {
        "name": cleaned(f"{student}/{exercise}::adjustment"),
        "status": "other",
        "rawStatus": "adjusted",
        "duration": 0,
        "suite": [cleaned(exercise)],
        "message": cleaned(adjustment.text),
        "extra": {"student": cleaned(student), "points": float(adjustment.points), "maxPoints": 0.0},
    }


def _ungraded(submission: str, finding: Finding) -> dict[str, Any]:
    return {
        "name": cleaned(submission),
        "status": "other" if finding.code == "broken-exercise" else "failed",
        "rawStatus": "not graded",
        "duration": 0,
        "filePath": cleaned(submission),
        "message": cleaned(finding.what),
        "extra": {"findings": [finding.code]},
    }

"""Small grades by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from any_grades import PROVENANCE, book

from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Verdict
from pytest_gpulab.reports.gradebook import Gradebook

WRONG = Finding(
    "wrong-result", "`out`: 2 of 1023 elements are wrong.", "scan.cu:7", ("out[3] is 1, expected 42",), "Think."
)
LOST = Finding("no-memory", "There is not enough memory to grade this check.")
UNSUPPORTED = Finding("cannot-simulate", "The simulated GPU does not support redux.", "scan.cu:9")
ENVIRONMENT = {
    "CLASSROOM": "gpu-2026",
    "ASSIGNMENT": "scan",
    "SUBMISSION_TAG": "submit/2026-11-20T10-00-00Z-abc",
    "COMMIT_URL": "https://example.org/commit/abc",
    "RELEASE_URL": "https://example.org/release/abc",
}


def check(name: str, verdict: Verdict = "passed", points: float = 10, **more: Any) -> CheckResult:
    earned = points if verdict in ("passed", "inconclusive") else 0.0
    found = {"passed": (), "not gradable": (LOST,)}.get(verdict, (WRONG,))
    given = {"kind": "correct", "findings": found} | more
    return CheckResult(name, verdict=verdict, points=earned, max_points=points, **given)


def hidden(name: str = "correct[n=1023]", verdict: Verdict = "failed", **more: Any) -> CheckResult:
    return replace(check(name, verdict, **more), hidden=True)


def grade(*checks: CheckResult, student: str = "s1", exercise: str = "scan") -> Grade:
    return Grade(f"{student or 'handed_in'}/{exercise}.cu", exercise, checks, PROVENANCE, student)


def only(*checks: CheckResult) -> Gradebook:
    """A gradebook of one student's one grade."""
    return book(grade(*checks))

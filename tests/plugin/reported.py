"""Gradebooks for the tests of reports, and the text of their terminal report."""

from __future__ import annotations

from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Measurement, Provenance, Verdict
from pytest_gpulab.reports.gradebook import Gradebook, result_properties
from pytest_gpulab.reports.terminal.sections import footnotes, sections

PROVENANCE = Provenance("simulated GPU", "simulated", "sm_90", "NVRTC 13", 7, "1", "0.1.0", "0" * 64)
TOO_SLOW = Finding("too-slow", "1.10x over naive.cu.", evidence=("interval 1.09 to 1.11",), hint="Mind the addresses.")
NO_COMPILE = Finding("compile-error", "does not compile", "x.cu:4", ("x.cu(4): error: expected a ;",), "Read it.")


def speed(
    elapsed_ms: float,
    verdict: Verdict = "passed",
    threshold: float = 1.5,
    required: bool = True,
    estimated: bool = True,
    bandwidth_gb_s: float | None = 414.0,
    baseline: str = "naive.cu",
) -> CheckResult:
    points = 20.0 if verdict == "passed" else 0.0
    findings = () if verdict == "passed" else (TOO_SLOW,)
    speedup = 0.64 / elapsed_ms
    figures = (elapsed_ms, 0.64, speedup, threshold, estimated, bandwidth_gb_s and bandwidth_gb_s * speedup)
    measurement = Measurement("n=65536", *figures, occupancy=0.5, registers=16, baseline=baseline)
    name = f"speedup[{threshold:g}x]"
    return CheckResult(name, "speedup", verdict, points, 20.0, findings, measurement, required)


def correct(name: str = "correct[n=1]", verdict: Verdict = "passed", finding: Finding | None = None) -> CheckResult:
    points = 10.0 if verdict == "passed" else 0.0
    return CheckResult(name, "correct", verdict, points, 10.0, (finding,) if finding else ())


def book(*grades: tuple[str, list[CheckResult]], expected: tuple[str, ...] = (), exercise: str = "sum") -> Gradebook:
    gradebook = Gradebook()
    for submission, checks in grades:
        for position, check in enumerate(checks):
            properties = result_properties(Grade(submission, exercise, (check,), PROVENANCE), position)
            gradebook.add(properties, is_expected=check.name in expected)
    return gradebook


def report(gradebook: Gradebook, verbosity: int = 0) -> str:
    parts = (line for title, lines in sections(gradebook, verbosity) for line in (f"== {title}", *lines))
    return "\n".join((*parts, *footnotes(gradebook)))

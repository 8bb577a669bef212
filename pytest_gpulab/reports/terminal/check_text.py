"""One check's result as plain text, for programs that show a text a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_gpulab.grading.grade import CheckResult, Finding, Verdict

from .annotated import visible
from .sections import failure_text

MEANING: Mapping[Verdict, str] = {
    "passed": "Passed.",
    "failed": "Failed.",
    "missed": "Missed: a bonus.",
    "inconclusive": "Inconclusive: noise decides here, so the points are given.",
    "not gradable": "Not gradable: the grader's fault, not the kernel's. These points are left out.",
    "not started": "Not started: a GPULAB_TODO is left.",
}


def check_text(check: CheckResult) -> str:
    """Return verdict, time, findings and what the kernel printed; signs that cannot be seen are question marks."""
    return _cleaned_lines("\n".join(_parts(check)))


def finding_text(finding: Finding) -> str:
    """Return what is to be said of a file that could not be graded."""
    return _cleaned_lines(failure_text([finding], set()))


def _cleaned_lines(text: str) -> str:
    return "\n".join(map(cleaned, text.split("\n")))


def cleaned(text: str) -> str:
    """Return text of one line without what could turn it round, hide it or break it, or is no valid Unicode."""
    return visible(text.expandtabs(4))


def _parts(check: CheckResult) -> Iterator[str]:
    yield MEANING[check.verdict]
    if check.measurement is not None:
        yield _timing(check)
    if check.findings:
        yield failure_text(check.findings, set())
    if check.printed:
        yield f"The kernel printed:\n{check.printed}"


def _timing(check: CheckResult) -> str:
    measured = check.measurement
    assert measured is not None
    estimated = " (estimated)" if measured.estimated else ""
    speedup = f"{measured.speedup:.2f}x over {measured.baseline}, {measured.threshold:g}x asked for"
    return f"{measured.elapsed_ms:.3g} ms at {measured.size}{estimated}: {speedup}."

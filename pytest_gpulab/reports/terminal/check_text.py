"""One check's result as plain text, for platforms that show one text per test."""

from collections.abc import Iterator, Mapping

from pytest_gpulab.grading.grade import CheckResult, Finding, Verdict

from .sections import failure_text
from .text import visible

MEANING: Mapping[Verdict, str] = {
    "passed": "Passed.",
    "failed": "Failed.",
    "missed": "Missed a bonus.",
    "inconclusive": "Inconclusive: the noise is larger than the margin, so the points are given.",
    "not gradable": "Not gradable: the machine's fault, not the kernel's. These points do not count.",
    "not started": "Not started: the file still has its GPULAB_TODO line.",
}


def check_text(check: CheckResult) -> str:
    """Return verdict, time, findings and the kernel's output; invisible characters become question marks."""
    return _cleaned_lines("\n".join(_parts(check)))


def finding_text(finding: Finding) -> str:
    """Return the text for a file that could not be graded."""
    return _cleaned_lines(failure_text([finding], set()))


def _cleaned_lines(text: str) -> str:
    return "\n".join(map(cleaned, text.split("\n")))


def cleaned(text: str) -> str:
    """Return text as one line without control characters and invalid Unicode."""
    return visible(text.expandtabs(4))


def _parts(check: CheckResult) -> Iterator[str]:
    yield MEANING[check.verdict]
    if check.measurement is not None:
        yield _timing(check)
    if check.findings:
        yield failure_text(check.findings, set())
    if check.printed:
        yield f"Output:\n{check.printed}"


def _timing(check: CheckResult) -> str:
    measured = check.measurement
    assert measured is not None
    tilde, estimated = ("~", " (estimated)") if measured.estimated else ("", "")
    speedup = f"{tilde}{measured.speedup:.2f}x over {measured.baseline}, {measured.threshold:g}x required"
    return f"{tilde}{measured.elapsed_ms:.3g} ms at {measured.size}{estimated}: {speedup}."

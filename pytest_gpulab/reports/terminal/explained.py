"""A drawn trial as text: the input, the result, the findings."""

from collections.abc import Iterator, Sequence

from pytest_gpulab.grading.correctness.trials import Trial, given_words, wrong_words
from pytest_gpulab.grading.diagnosis.coincidence import are_zeros_and_ones
from pytest_gpulab.grading.diagnosis.simple_inputs import shown
from pytest_gpulab.grading.explanation.drawing import Drawn
from pytest_gpulab.grading.findings import HINTS
from pytest_gpulab.grading.grade import Finding

from .sections import failure_text
from .text import WIDEST, as_wide_as, wrapped


def drawn_lines(drawn: Drawn) -> Iterator[str]:
    """Yield the lines of a trial, and of mistakes that its outputs do not show."""
    yield from _trial_lines(drawn.trial)
    if drawn.hidden:
        yield from _failure_lines(drawn.hidden)


def page_lines(drawn: Drawn) -> list[str]:
    """Return the lines of a page, which breaks them itself."""
    with as_wide_as(WIDEST):
        return list(drawn_lines(drawn))


def wrong_lines(drawn: Drawn, file: str) -> frozenset[int]:
    """Return the lines of a file that the findings name."""
    places = (found.where.rpartition(":") for found in (*drawn.trial.outcome.findings, *drawn.hidden))
    return frozenset(int(line) for name, _, line in places if name == file)


def _trial_lines(trial: Trial) -> Iterator[str]:
    yield from wrapped(given_words(trial.problem, trial.prepared, trial.names))
    if trial.outcome.verdict == "passed":
        for name, values in trial.telling_run.outputs.items():
            yield from wrapped(f"{name} is {shown(values)}, as it should be")
        return
    if wrong := wrong_words(trial):
        yield from wrapped(wrong)
    is_small = are_zeros_and_ones(trial.prepared.inputs)
    findings = [_without_guess(found, is_small) for found in trial.outcome.findings]
    yield from _failure_lines(findings)


def _failure_lines(findings: Sequence[Finding]) -> Iterator[str]:
    for line in failure_text(findings, set()).splitlines():
        yield from [line] if line.startswith(" ") else wrapped(line)


def _without_guess(found: Finding, is_small: bool) -> Finding:
    """Return a finding without a hint that compares cases, or one from the places of a small input's wrong values."""
    is_guess = found.code == "wrong-result" and not found.where and is_small
    return found.without({found.hint} if is_guess else {HINTS["wrong-result"]})

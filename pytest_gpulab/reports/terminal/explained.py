"""One trial of a submission as text: the input, the result, the findings."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_gpulab.grading.correctness.trials import Trial, given_words, wrong_words
from pytest_gpulab.grading.diagnosis.simple_inputs import shown

from .sections import failure_text
from .text import wrapped


def trial_lines(trial: Trial) -> Iterator[str]:
    """Yield the lines of a trial."""
    yield from wrapped(given_words(trial.problem, trial.prepared, trial.names))
    if trial.outcome.verdict == "passed":
        for name, values in trial.telling_run.outputs.items():
            yield from wrapped(f"{name} is {shown(values)}, as it should be")
        return
    if wrong := wrong_words(trial):
        yield from wrapped(wrong)
    yield from failure_text(trial.outcome.findings, set()).splitlines()

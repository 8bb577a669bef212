"""Verdicts on replays: comparison of the outputs with the expected ones, and of two replays with each other."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pytest_gpulab.grading.diagnosis.compare import compare, mismatches
from pytest_gpulab.grading.findings import finding, of_error
from pytest_gpulab.grading.grade import Finding, Verdict
from pytest_gpulab.grading.plans.prepare import Prepared
from pytest_gpulab.grading.plans.replay import FIRST, Repetition, Run

if TYPE_CHECKING:
    from pytest_gpulab.grading.diagnosis.patterns import RunContext


def judged(run: Run, prepared: Prepared, repetition: Repetition) -> tuple[Verdict, tuple[Finding, ...]]:
    """Return the verdict on one replay, and its findings."""
    if run.error is not None:
        verdict, found = of_error(run.error)
        return verdict, (found,)
    findings = wrong_with(run, prepared, repetition)
    if findings and repetition is not FIRST:
        findings = (_not_repeatable(findings, repetition),)
    return ("failed", findings) if findings else ("passed", ())


def wrong_with(run: Run, prepared: Prepared, repetition: Repetition) -> tuple[Finding, ...]:
    """Return the findings of wrong outputs and overwritten inputs."""
    return (*overwritten(run), *_mismatches(run, prepared, repetition))


def overwritten(run: Run) -> tuple[Finding, ...]:
    """Return the findings of inputs that a replay must not change, but did."""
    return tuple(
        finding("input-changed", f"`{name}`: {_were(count)} overwritten; an input must not change.")
        for name, count in run.changed.items()
    )


def _were(count: int) -> str:
    return "1 element was" if count == 1 else f"{count} elements were"


def _mismatches(run: Run, prepared: Prepared, repetition: Repetition) -> tuple[Finding, ...]:
    expected = prepared.expected
    context = partial(_context, prepared)
    found = (
        compare(
            name, actual, expected.values[name], expected.tolerance.get(name, 0), repetition.poison, context=context
        )
        for name, actual in run.outputs.items()
    )
    return tuple(finding for finding in found if finding is not None)


def _context(prepared: Prepared) -> RunContext:
    from pytest_gpulab.grading.diagnosis.patterns import RunContext

    return RunContext(prepared.plan, prepared.inputs, prepared.tunables, prepared.known)


def _not_repeatable(findings: tuple[Finding, ...], repetition: Repetition) -> Finding:
    """Return the finding of a result that is correct in the first run and wrong in a repetition."""
    what = f"The result depends on luck: correct {FIRST.how}, wrong {repetition.how}."
    evidence = (line for found in findings for line in (found.what, *found.evidence))
    return finding("not-repeatable", what, evidence=evidence)


def differ(one: Run, other: Run, prepared: Prepared) -> bool:
    """Return True if two wrong results differ by more than the tolerance."""
    tolerance = prepared.expected.tolerance
    return any(
        one.outputs[name].tobytes() != other.outputs[name].tobytes()
        and mismatches(other.outputs[name], one.outputs[name], tolerance.get(name, 0)).any()
        for name in one.outputs
    )


def same(first: Run, second: Run) -> tuple[Verdict, tuple[Finding, ...]]:
    """Return the verdict on two correct results, which must be equal bit by bit."""
    names = [name for name in first.outputs if first.outputs[name].tobytes() != second.outputs[name].tobytes()]
    what = "Two runs on the same input gave different results, each within the tolerance."
    evidence = (f"they differ in `{name}`" for name in names)
    return ("failed", (finding("not-repeatable", what, evidence=evidence),)) if names else ("passed", ())

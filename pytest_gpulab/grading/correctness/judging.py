"""Judge replays: by what a kernel left in memory, and by whether two replays left the same."""

from __future__ import annotations

from pytest_gpulab.grading.diagnosis.compare import compare, mismatches
from pytest_gpulab.grading.diagnosis.patterns import RunContext
from pytest_gpulab.grading.findings import finding, of_error
from pytest_gpulab.grading.grade import Finding, Verdict
from pytest_gpulab.grading.plans.prepare import Prepared
from pytest_gpulab.grading.plans.replay import FIRST, Repetition, Run


def judged(run: Run, prepared: Prepared, repetition: Repetition) -> tuple[Verdict, tuple[Finding, ...]]:
    """Return the verdict on one replay, and what is wrong with it."""
    if run.error is not None:
        verdict, found = of_error(run.error)
        return verdict, (found,)
    findings = wrong_with(run, prepared, repetition)
    if findings and repetition is not FIRST:
        findings = (_not_repeatable(findings, repetition),)
    return ("failed", findings) if findings else ("passed", ())


def wrong_with(run: Run, prepared: Prepared, repetition: Repetition) -> tuple[Finding, ...]:
    """Return what is wrong with the memory that a replay left behind."""
    return (*overwritten(run), *_mismatches(run, prepared, repetition))


def overwritten(run: Run) -> tuple[Finding, ...]:
    """Return which inputs that must stay as they are a replay changed."""
    return tuple(
        finding("input-changed", f"`{name}`: {_were(count)} overwritten; this input must stay as it is.")
        for name, count in run.changed.items()
    )


def _were(count: int) -> str:
    return "1 element was" if count == 1 else f"{count} elements were"


def _mismatches(run: Run, prepared: Prepared, repetition: Repetition) -> tuple[Finding, ...]:
    expected = prepared.expected
    context = RunContext(prepared.plan, prepared.inputs, prepared.tunables, prepared.known)
    found = (
        compare(
            name, actual, expected.values[name], expected.tolerance.get(name, 0), repetition.poison, context=context
        )
        for name, actual in run.outputs.items()
    )
    return tuple(finding for finding in found if finding is not None)


def _not_repeatable(findings: tuple[Finding, ...], repetition: Repetition) -> Finding:
    """Explain a result that was right at first."""
    what = f"The result depends on luck: correct {FIRST.how}, wrong {repetition.how}."
    evidence = (line for found in findings for line in (found.what, *found.evidence))
    return finding("not-repeatable", what, evidence=evidence)


def differ(one: Run, other: Run, prepared: Prepared) -> bool:
    """Return whether two wrong results differ by more than what the tolerance allows right ones."""
    tolerance = prepared.expected.tolerance
    return any(
        one.outputs[name].tobytes() != other.outputs[name].tobytes()
        and mismatches(other.outputs[name], one.outputs[name], tolerance.get(name, 0)).any()
        for name in one.outputs
    )


def same(first: Run, second: Run) -> tuple[Verdict, tuple[Finding, ...]]:
    """Compare two correct results bit for bit."""
    names = [name for name in first.outputs if first.outputs[name].tobytes() != second.outputs[name].tobytes()]
    what = "Two runs on the same input gave different results, each within the tolerance."
    evidence = (f"they differ in `{name}`" for name in names)
    return ("failed", (finding("not-repeatable", what, evidence=evidence),)) if names else ("passed", ())

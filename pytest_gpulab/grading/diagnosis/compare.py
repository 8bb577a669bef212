"""Comparison of outputs with the expected ones, within a tolerance, and of replays with each other; their verdicts.

The verdicts on the replays of a case are its outcome.
"""

from typing import NamedTuple

import numpy as np

from pytest_gpulab.devices.protocol import Hazard, KernelFault
from pytest_gpulab.exercise import Array
from pytest_gpulab.grading.findings import finding, of_error, plain
from pytest_gpulab.grading.grade import Finding, Verdict
from pytest_gpulab.grading.plans.prepare import Prepared
from pytest_gpulab.grading.plans.replay import FIRST, Poison, Repetition, Run

WRONG_RESULTS = ("wrong-result", "not-repeatable", "not-written")
"""Codes of findings of wrong outputs."""

MAX_PRINTED_CHARS = 4000
CHUNK = 2**15  # elements to compare at a time, so that the arrays stay in the CPU's cache


def compare(
    name: str,
    actual: Array,
    expected: Array,
    tolerance: float | Array,
    poison: Poison,
    only_written: bool = False,
    reads_garbage: bool = False,
    prepared: Prepared | None = None,
) -> Finding | None:
    """Return the finding of an output that differs by more than the absolute `tolerance` (0: at all), or None.

    A wrong element that still holds `poison`, the contents before the launch, was never written; with `only_written`
    such elements are ignored, because only a part of the blocks ran. If the kernel `reads_garbage`, see `Run`, they may
    be a result. `prepared` has the plan, the inputs and the tunables, to find the likely cause.
    """
    expected = np.asarray(expected)
    wrong = mismatches(actual, expected, tolerance)
    if not wrong.any():
        return None
    from .patterns import RunContext, WrongValue
    from .wrong_output import never_written, wrong_output  # correct outputs need no search for patterns

    known = RunContext()
    if prepared is not None:
        known = RunContext(prepared.plan, prepared.inputs, prepared.tunables, prepared.known)
    poisoned = poison.remaining(actual).reshape(actual.shape)
    if only_written:
        wrong &= ~poisoned
    if not wrong.any():
        return None
    allowed = np.broadcast_to(tolerance, actual.shape)
    unwritten = wrong & poisoned
    if unwritten.any() and not _adds_to(poison, actual, expected, wrong & ~poisoned):
        return never_written(WrongValue(name, actual, expected, allowed, unwritten, known), not reads_garbage)
    return wrong_output(WrongValue(name, actual, expected, allowed, wrong, known), is_complete=not only_written)


def _adds_to(poison: Poison, actual: Array, expected: Array, wrong: Array) -> bool:
    """Return whether wrong integers are the expected ones plus poison; elements with the sum 0 still hold poison."""
    if actual.dtype.kind not in "iu" or not wrong.any():
        return False
    garbage = poison.filled(actual.shape, actual.dtype)[wrong]
    return bool((actual[wrong] - garbage == expected[wrong].astype(actual.dtype)).all())


def mismatches(actual: Array, expected: Array, tolerance: float | Array) -> Array:
    """Return which elements are wrong (bool, of the same shape): NaN always is, an infinity equals itself."""
    if actual.dtype.kind == "b":
        actual, expected = actual.view(np.uint8), expected.astype(np.uint8)  # True is the byte 1 and no other
    if actual.dtype.kind in "iu" and expected.dtype.kind in "iu" and not np.any(tolerance):
        return np.asarray(actual != expected)
    wrong = np.empty(actual.size, bool)
    got, wanted = actual.reshape(-1), np.broadcast_to(expected, actual.shape).reshape(-1)
    allowed = np.broadcast_to(tolerance, (actual.size,)) if np.ndim(tolerance) == 0 else np.reshape(tolerance, -1)
    for begin in range(0, actual.size, CHUNK):
        chunk = slice(begin, begin + CHUNK)
        wrong[chunk] = _outside(got[chunk], wanted[chunk], allowed[chunk])
    return wrong.reshape(actual.shape)


def _outside(actual: Array, expected: Array, tolerance: Array) -> Array:
    wide = np.result_type(np.float64, expected.dtype)
    with np.errstate(invalid="ignore", over="ignore"):  # poison is a signaling NaN
        same: Array = actual == expected
        if same.all():  # the difference below takes many times as long
            return ~same
        error = np.abs(actual.astype(wide) - expected.astype(wide))
        return np.asarray(~(same | (error <= tolerance)))


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
    return (*overwritten(run), *_wrong_outputs(run, prepared, repetition))


def overwritten(run: Run) -> tuple[Finding, ...]:
    """Return the findings of inputs that a replay must not change, but did."""
    return tuple(
        finding("input-changed", f"`{name}`: {_were(count)} overwritten; an input must not change.")
        for name, count in run.changed.items()
    )


def _were(count: int) -> str:
    return "1 element was" if count == 1 else f"{count} elements were"


def _wrong_outputs(run: Run, prepared: Prepared, repetition: Repetition) -> tuple[Finding, ...]:
    expected = prepared.expected
    found = (
        compare(
            name,
            actual,
            expected.values[name],
            expected.tolerance.get(name, 0),
            repetition.poison,
            reads_garbage=run.reads_garbage,
            prepared=prepared,
        )
        for name, actual in run.outputs.items()
    )
    return tuple(finding for finding in found if finding is not None)


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


class Repeats(NamedTuple):
    """The runs of an input pattern after the first one, in lockstep."""

    # False to leave out other orders of warps and other garbage in memory; a right result is `inconclusive` if these
    # could change it
    orders: bool = True
    luck: bool = True  # False to leave out the run that finds out whether a wrong result depends on luck


ALL_REPEATS = Repeats()


class CaseOutcome(NamedTuple):
    """The outcome of a case."""

    verdict: Verdict  # `passed`, `failed`, `not gradable`, or that of a failed build
    findings: tuple[Finding, ...] = ()  # the reasons if it did not pass
    runs: tuple[Run, ...] = ()  # its replays, without outputs
    pattern: str = ""  # the input pattern that did not pass; empty if all passed

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """The hazards of all replays."""
        return tuple(hazard for run in self.runs for hazard in run.hazards)

    @property
    def faults(self) -> tuple[KernelFault, ...]:
        """The faults that ended replays."""
        return tuple(run.error for run in self.runs if isinstance(run.error, KernelFault))

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Accesses that the race check skipped, in words; each once."""
        return tuple(dict.fromkeys(what for run in self.runs for profile in run.profiles for what in profile.unchecked))

    @property
    def printed(self) -> str:
        """The output of the first replay that printed anything, capped."""
        return capped(next((run.printed for run in self.runs if run.printed), ""))


def capped(text: str, more: int = 0) -> str:
    """Return the output of kernels, cut to a readable length and without control sequences.

    `more` is the number of characters that were dropped after the text.
    """
    text = plain(text)
    over = len(text) - MAX_PRINTED_CHARS + more
    return text if over <= 0 else f"{text[:MAX_PRINTED_CHARS]}\n... and {over} more characters"

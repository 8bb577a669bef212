"""A calibration from the grades of a run: the file, a table per exercise, and the problems."""

from collections.abc import Callable, Sequence

from pytest_gpulab.grading.calibration.choice import DeviceThresholds
from pytest_gpulab.grading.calibration.file import CalibrationError
from pytest_gpulab.grading.calibration.fit import Ladder, Proposal, Step, ladders
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.expected import Expectation
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.reports.terminal.table import laid_out

_HEADERS = ("tier", "slowest that must reach", "at", "fastest that must not", "at", "own", "threshold")
_MAX_NAME = 28


def written(
    thresholds: DeviceThresholds,
    catalogue: Catalogue,
    grades: Sequence[Grade],
    expectations: Callable[[Grade], Expectation | None],
    fraction: float,
) -> tuple[list[str], list[str]]:
    """Write the calibration to the thresholds' path; return lines about it, and lines about problems.

    `expectations` returns the expected verdict of a grade; for the fraction see `fit.proposals`.
    """
    measured = ladders(grades, catalogue, expectations, fraction)
    if not measured:
        return [], ["no calibration was written: none of the files has expected verdicts and a speed that was measured"]
    try:
        name = thresholds.write({ladder.name: ladder.table for ladder in measured})
    except CalibrationError as error:
        return lines(measured, fraction), [str(error)]
    except OSError as error:
        return lines(measured, fraction), [f"cannot write the calibration {error.filename}: {error.strerror}"]
    return [*lines(measured, fraction), f"Written to {name}."], problems(measured)


def lines(measured: Sequence[Ladder], fraction: float) -> list[str]:
    """Return a table per exercise, a row per tier: slowest solution that must reach it, fastest that must not."""
    shown = []
    for ladder in measured:
        rows = [_row(proposal) for proposal in ladder.proposals if proposal.steps]
        left_out = [f"left out: {name}: {why}" for name, why in ladder.left_out.items()]
        shown += [f"{ladder.name}:", *laid_out(_HEADERS, rows), *left_out, ""]
    notes = (
        f"at: the less favourable end of the interval; threshold: {fraction:g} of the slowest that must reach it.",
        "own: the exercise's threshold, with an exclamation mark if it does not separate the steps on this GPU.",
    )
    return [*shown, *notes]


def problems(measured: Sequence[Ladder]) -> list[str]:
    """Return a line per tier without a threshold, with the reason."""
    return [
        f"{ladder.name}: no threshold for speedup[{proposal.tier.name}]: {proposal.problem}"
        for ladder in measured
        for proposal in ladder.proposals
        if proposal.problem
    ]


def _row(proposal: Proposal) -> tuple[str, ...]:
    tier, threshold = proposal.tier, proposal.threshold
    return (
        tier.name,
        *_step(proposal.reference, lambda step: step.low(tier)),
        *_step(proposal.below, lambda step: step.high(tier)),
        f"{tier.threshold:g}x" + ("" if proposal.own_holds else "!"),
        "-" if threshold is None else f"{threshold:g}x",
    )


def _step(step: Step | None, speedup: Callable[[Step], float]) -> tuple[str, str]:
    if step is None:
        return "-", "-"
    name = step.name.removesuffix(".cu")
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 2]}..", f"{speedup(step):.2f}x"

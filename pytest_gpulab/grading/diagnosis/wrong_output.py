"""The findings of an output with wrong or unwritten elements: how many, the first ones, and patterns in them."""

from dataclasses import replace

import numpy as np

from pytest_gpulab.devices.errors import with_axes
from pytest_gpulab.exercise import Array
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding

from . import causes
from .coincidence import CERTAIN, LEAST_BITS
from .counter_patterns import counters_of
from .error_location import pitch_of, place_of
from .missing_terms import missing_terms_of
from .patterns import Pattern, WrongValue, number
from .value_patterns import NEARLY_RIGHT, pattern_of

MAX_ELEMENTS_SHOWN = 5
MAX_EXAMINED = 1 << 22  # elements to search for a pattern in their values; more would take seconds and gigabytes


def never_written(output: WrongValue, is_certain: bool) -> Finding:
    """Return the finding of elements that no thread wrote, or perhaps that got the poison that a thread had read."""
    place = pitch_of(output.wrong) or place_of(output.wrong, output.tiling)
    words = "never written" if is_certain else "the garbage from before the launch"
    what = f"`{output.name}`: {_share(output.wrong)} {words}{_colon(place)}."
    hint = _UNWRITTEN.get(place.cause, place.cause) if place else NOTHING_WRITTEN if output.wrong.all() else ""
    found = finding("not-written", what, evidence=(_first_indices(output.wrong),), hint=hint or None)
    return replace(found, bits=_weight(place))


def _weight(pattern: Pattern | None) -> int:
    return int(min(pattern.bits, CERTAIN)) if pattern and pattern.cause else 0


NOTHING_WRITTEN = (
    "Does any thread get to the assignment? Check the condition around it, and that it changes the output, not a copy "
    "or another array."
)
UNREACHED = (
    "Usual cause: an index that does not reach the {0} edge, or a bounds check that is too strict. Which {1} has the "
    "last thread?"
)
LEFT_OUT = (
    "Usual cause: an index or a condition with a factor or a remainder in it. Which threads take these elements, and "
    "do they write them?"
)
_UNWRITTEN = {
    causes.ALL_BUT_FIRST: (
        "Usual cause: all threads write the same element. What is the index made of, and does it stay so?"
    ),
    causes.FIRST_OF_BLOCK: "Usual cause: only one thread of each block writes, or all write to the same place.",
    causes.FROM_INDEX_ON: causes.TOO_SHORT,
    causes.LANE: LEFT_OUT,
    causes.STRIDED: LEFT_OUT,
    causes.OTHER_WARPS: causes.IN_EACH_BLOCK,
    causes.LAST_COLUMNS: UNREACHED.format("right", "x"),
    causes.LAST_ROWS: UNREACHED.format("lower", "y"),
}
"""Causes of wrong values to those of unwritten elements at the same places."""


def wrong_output(output: WrongValue, is_complete: bool) -> Finding:
    """Return the finding of wrong elements: their positions and their values; the stronger pattern gives the hint.

    Without `is_complete` only a part of the blocks ran, so the positions of wrong elements mean nothing.
    """
    place = place_of(output.wrong, output.tiling) if is_complete and not _are_all_but_constant(output) else None
    common = _in_common(output)
    what = f"`{output.name}`: {_share(output.wrong)} wrong{_colon(place)}."
    evidence = [_element(output, tuple(index)) for index in np.argwhere(output.wrong)[:MAX_ELEMENTS_SHOWN].tolist()]
    if common and common.what:
        evidence.append(common.what)
    # elements at equal distances that are nearly right have been processed, in another way; other places may be chance
    may_mislead = place is not None and (place.cause == causes.STRIDED or place.bits < LEAST_BITS)
    is_near = common is not None and common.cause == NEARLY_RIGHT and may_mislead
    by_weight = (common, place) if common and (common.shows_cause or is_near) else (place, common)
    best = next((pattern for pattern in by_weight if pattern and pattern.cause), None)
    found = finding("wrong-result", what, evidence=evidence, hint=best.cause if best else None)
    return replace(found, bits=_weight(place if is_near else best))


def _are_all_but_constant(output: WrongValue) -> bool:
    """Return True if the correct elements are those of one value, such as 0, that most have: most mistakes keep it."""
    return output.at.size < output.wrong.size and bool(
        (output.wrong == (output.expected != np.median(output.expected))).all()
    )


def _in_common(output: WrongValue) -> Pattern | None:
    if output.actual.size > MAX_EXAMINED or output.actual.dtype.kind not in "iufb":
        return None
    with np.errstate(all="ignore"):  # wrong values may be anything
        return missing_terms_of(output) or counters_of(output) or pattern_of(output)


def _colon(pattern: Pattern | None) -> str:
    return f": {pattern.what}" if pattern else ""


def _share(mask: Array) -> str:
    count = int(mask.sum())
    if mask.size == 1:
        return "the only element is"
    if count == mask.size:
        return f"all {count} elements are"
    return f"{count} of {mask.size} elements {'is' if count == 1 else 'are'}"


def _element(output: WrongValue, at: tuple[int, ...]) -> str:
    allowed = output.tolerance[at]
    bound = f" (allowed error {float(allowed):.3g})" if allowed else ""
    got, wanted = number(output.actual[at]), number(output.expected[at])
    return f"{output.name}[{with_axes(at)}] is {got}, expected {wanted}{bound}"


def _first_indices(mask: Array) -> str:
    indices = [_index(tuple(int(i) for i in index)) for index in np.argwhere(mask)[:MAX_ELEMENTS_SHOWN]]
    more = ", ..." if mask.sum() > len(indices) else ""
    return f"at index {', '.join(indices)}{more}"


def _index(at: tuple[int, ...]) -> str:
    return with_axes(at) if len(at) == 1 else f"({with_axes(at)})"

"""Is an output what was expected? If not: how many elements, the first ones, and what the wrong ones have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.replay import Poison

from .coincidence import CERTAIN
from .error_location import ALL_BUT_FIRST, FIRST_OF_BLOCK, place_of
from .missing_terms import missing_terms_of
from .patterns import Pattern, RunContext, WrongValue
from .value_patterns import number, pattern_of

Array = npt.NDArray[Any]
MAX_ELEMENTS_SHOWN = 5
MAX_EXAMINED = 1 << 22  # elements whose values are searched for a pattern; more would take seconds and gigabytes
CHUNK = 2**15  # elements that are compared at a time, because the CPU's cache holds them
UNKNOWN = RunContext()


def compare(
    name: str,
    actual: Array,
    expected: Array,
    tolerance: float | Array,
    poison: Poison,
    only_written: bool = False,
    around: RunContext = UNKNOWN,
) -> Finding | None:
    """Return what is wrong with an output, or None.

    Args:
        name: the output buffer's.
        actual: what the device left there.
        expected: the reference, of the same shape.
        tolerance: the largest absolute error allowed, one number or one an element; 0 asks for equality.
        poison: what the buffer held before: an element that is wrong and still holds it was never written.
        only_written: look at no such elements, because only a part of the blocks ran.
        around: the plan, the inputs and the tunables, from which the usual cause may be told.
    """
    expected = np.asarray(expected)
    wrong = mismatches(actual, expected, tolerance)
    if not wrong.any():
        return None  # before all that takes its time where something is
    poisoned = poison.remaining(actual).reshape(actual.shape)
    if only_written:
        wrong &= ~poisoned
    if not wrong.any():
        return None
    allowed = np.broadcast_to(tolerance, actual.shape)
    unwritten = wrong & poisoned
    if unwritten.any():
        return _never_written(WrongValue(name, actual, expected, allowed, unwritten, around))
    mistake = WrongValue(name, actual, expected, allowed, wrong, around)
    return _wrong(mistake, None if only_written else place_of(wrong, mistake.tiling))


def _never_written(mistake: WrongValue) -> Finding:
    place = place_of(mistake.wrong, mistake.tiling)
    what = f"`{mistake.name}`: {_share(mistake.wrong)} never written{_colon(place)}."
    hint = _UNWRITTEN.get(place.cause, place.cause) if place else ""
    found = finding("not-written", what, evidence=(_first_indices(mistake.wrong),), hint=hint or None)
    return replace(found, bits=_weight(place))


def _weight(pattern: Pattern | None) -> int:
    return int(min(pattern.bits, CERTAIN)) if pattern and pattern.cause else 0


_UNWRITTEN = {
    ALL_BUT_FIRST: "Usual cause: all threads write the same element. What is the index made of, and does it stay so?",
    FIRST_OF_BLOCK: "Usual cause: only one thread of each block writes, or all write to the same place.",
}
"""Causes of wrong values to those of unwritten elements at the same places."""


def _wrong(mistake: WrongValue, place: Pattern | None) -> Finding:
    """Say where the elements are and what they have in common; the more telling of the two gives the hint."""
    common = _in_common(mistake)
    what = f"`{mistake.name}`: {_share(mistake.wrong)} wrong{_colon(place)}."
    evidence = [_element(mistake, tuple(index)) for index in np.argwhere(mistake.wrong)[:MAX_ELEMENTS_SHOWN].tolist()]
    if common:
        evidence.append(common.what)
    by_weight = (common, place) if common and common.telling else (place, common)
    told = next((pattern for pattern in by_weight if pattern and pattern.cause), None)
    found = finding("wrong-result", what, evidence=evidence, hint=told.cause if told else None)
    return replace(found, bits=_weight(told))


def _in_common(mistake: WrongValue) -> Pattern | None:
    if mistake.actual.size > MAX_EXAMINED or mistake.actual.dtype.kind not in "iufb":
        return None
    with np.errstate(all="ignore"):  # wrong values may be anything
        return missing_terms_of(mistake) or pattern_of(mistake)


def _colon(pattern: Pattern | None) -> str:
    return f": {pattern.what}" if pattern else ""


def mismatches(actual: Array, expected: Array, tolerance: float | Array) -> Array:
    """Return where an element is wrong (bool, of the same shape): NaN always is, an infinity equals itself."""
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
        error = np.abs(actual.astype(wide) - expected.astype(wide))
        wrong: Array = ~((actual == expected) | (error <= tolerance))
    return wrong


def _share(mask: Array) -> str:
    count = int(mask.sum())
    if mask.size == 1:
        return "the only element is"
    if count == mask.size:
        return f"all {count} elements are"
    return f"{count} of {mask.size} elements {'is' if count == 1 else 'are'}"


def _element(mistake: WrongValue, at: tuple[int, ...]) -> str:
    allowed = mistake.tolerance[at]
    bound = f" (allowed error {float(allowed):.3g})" if allowed else ""
    got, wanted = number(mistake.actual[at]), number(mistake.expected[at])
    return f"{mistake.name}[{_index(at)}] is {got}, expected {wanted}{bound}"


def _first_indices(mask: Array) -> str:
    indices = [_index(tuple(int(i) for i in index)) for index in np.argwhere(mask)[:MAX_ELEMENTS_SHOWN]]
    more = ", ..." if mask.sum() > len(indices) else ""
    return f"at index {', '.join(indices)}{more}"


def _index(at: tuple[int, ...]) -> str:
    return ", ".join(map(str, at)) if len(at) == 1 else f"({', '.join(map(str, at))})"

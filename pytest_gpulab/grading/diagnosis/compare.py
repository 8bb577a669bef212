"""Is an output what was expected? If not: how many elements, the first ones, and what the wrong ones have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.replay import Poison

from .patterns import RunContext, WrongValue

Array = npt.NDArray[Any]
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
        return None
    from .wrong_output import never_written, wrong_output  # correct outputs need no search for patterns

    poisoned = poison.remaining(actual).reshape(actual.shape)
    if only_written:
        wrong &= ~poisoned
    if not wrong.any():
        return None
    allowed = np.broadcast_to(tolerance, actual.shape)
    unwritten = wrong & poisoned
    if unwritten.any():
        return never_written(WrongValue(name, actual, expected, allowed, unwritten, around))
    return wrong_output(WrongValue(name, actual, expected, allowed, wrong, around), is_complete=not only_written)


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

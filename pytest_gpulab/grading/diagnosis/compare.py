"""Comparison of an output with the expected values, within a tolerance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.replay import Poison

if TYPE_CHECKING:
    from .patterns import RunContext

Array = npt.NDArray[Any]
WRONG_RESULTS = ("wrong-result", "not-repeatable", "not-written")
"""Codes of findings of wrong outputs."""

CHUNK = 2**15  # elements to compare at a time, so that the arrays stay in the CPU's cache


def compare(
    name: str,
    actual: Array,
    expected: Array,
    tolerance: float | Array,
    poison: Poison,
    only_written: bool = False,
    context: Callable[[], RunContext] | None = None,
) -> Finding | None:
    """Return the finding of an output with wrong elements, or None.

    Args:
        name: the output buffer's name.
        actual: the device's result.
        expected: the reference's result, of the same shape.
        tolerance: the largest absolute error allowed, one number or one per element; 0 requires equality.
        poison: the buffer's contents before the launch; a wrong element that still holds it was never written.
        only_written: ignore such elements, because only a part of the blocks ran.
        context: returns the plan, the inputs and the tunables, to find the likely cause.
    """
    expected = np.asarray(expected)
    wrong = mismatches(actual, expected, tolerance)
    if not wrong.any():
        return None
    from .patterns import RunContext, WrongValue
    from .wrong_output import never_written, wrong_output  # correct outputs need no search for patterns

    known = RunContext() if context is None else context()
    poisoned = poison.remaining(actual).reshape(actual.shape)
    if only_written:
        wrong &= ~poisoned
    if not wrong.any():
        return None
    allowed = np.broadcast_to(tolerance, actual.shape)
    unwritten = wrong & poisoned
    if unwritten.any():
        return never_written(WrongValue(name, actual, expected, allowed, unwritten, known))
    return wrong_output(WrongValue(name, actual, expected, allowed, wrong, known), is_complete=not only_written)


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
        error = np.abs(actual.astype(wide) - expected.astype(wide))
        wrong: Array = ~((actual == expected) | (error <= tolerance))
    return wrong

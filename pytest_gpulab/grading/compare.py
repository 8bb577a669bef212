"""Is an output what was expected? If not: how many elements, the first ones, and a pattern in words where one shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.replay import Poison

Array = npt.NDArray[Any]
MAX_ELEMENTS_SHOWN = 5
CHUNK = 2**15  # elements that are compared at a time, because the CPU's cache holds them


def compare(
    name: str,
    actual: Array,
    expected: Array,
    tolerance: float | Array,
    poison: Poison,
    only_written: bool = False,
) -> Finding | None:
    """Return what is wrong with an output, or None.

    Args:
        name: the output buffer's.
        actual: what the device left there.
        expected: the reference, of the same shape.
        tolerance: the largest absolute error allowed, one number or one an element; 0 asks for equality.
        poison: what the buffer held before: an element that is wrong and still holds it was never written.
        only_written: look at no such elements, because only a part of the blocks ran.
    """
    expected = np.asarray(expected)
    wrong = mismatches(actual, expected, tolerance)
    if only_written:
        wrong &= ~poison.remaining(actual).reshape(actual.shape)
    if not wrong.any():
        return None
    unwritten = wrong & poison.remaining(actual).reshape(actual.shape)
    if unwritten.any():
        what = f"`{name}`: {_share(unwritten)} never written."
        return finding("not-written", what, evidence=(_first_indices(unwritten), *_words(_region(unwritten))))
    shown = [_element(name, actual, expected, tolerance, index) for index in np.argwhere(wrong)[:MAX_ELEMENTS_SHOWN]]
    words = _words(_sameness(actual), _shift(actual, expected, tolerance), _region(wrong))
    return finding("wrong-result", f"`{name}`: {_share(wrong)} wrong.", evidence=(*shown, *words))


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


def _element(name: str, actual: Array, expected: Array, tolerance: float | Array, index: Array) -> str:
    at = tuple(int(i) for i in index)
    allowed = np.broadcast_to(tolerance, actual.shape)[at]
    bound = f" (allowed error {float(allowed):.3g})" if allowed else ""
    return f"{name}[{_index(at)}] is {_number(actual[at])}, expected {_number(expected[at])}{bound}"


def _first_indices(mask: Array) -> str:
    indices = [_index(tuple(int(i) for i in index)) for index in np.argwhere(mask)[:MAX_ELEMENTS_SHOWN]]
    more = ", ..." if mask.sum() > len(indices) else ""
    return f"at index {', '.join(indices)}{more}"


def _index(at: tuple[int, ...]) -> str:
    return ", ".join(map(str, at)) if len(at) == 1 else f"({', '.join(map(str, at))})"


def _number(value: Any) -> str:
    return f"{float(value):.9g}" if isinstance(value, float | np.floating) else str(value)


def _words(*patterns: str) -> tuple[str, ...]:
    return next(((pattern,) for pattern in patterns if pattern), ())


def _sameness(actual: Array) -> str:
    flat = actual.reshape(-1)
    if flat.size > 1 and (flat == flat[0]).all():
        return f"every element is {_number(flat[0])}"
    if flat.size > 1 and flat.dtype.kind == "f" and np.isnan(flat).all():
        return "every element is NaN"
    return ""


def _shift(actual: Array, expected: Array, tolerance: float | Array) -> str:
    """Recognise an inclusive scan where an exclusive one was asked for, and the like."""
    if actual.ndim != 1 or actual.size < 3:
        return ""
    bound = np.broadcast_to(tolerance, actual.shape)
    if not mismatches(actual[1:], expected[:-1], bound[:-1]).any():
        return "it would be right if every element stood one place earlier"
    if not mismatches(actual[:-1], expected[1:], bound[1:]).any():
        return "it would be right if every element stood one place later"
    return ""


def _region(mask: Array) -> str:
    """Describe where the elements of the mask lie, if they lie together or at equal distances."""
    flat = mask.reshape(-1)
    at = np.flatnonzero(flat)
    if at.size < 2 or at.size == flat.size:
        return ""
    first, last, step = int(at[0]), int(at[-1]), int(at[1] - at[0])
    if (np.diff(at) != step).any():
        return ""
    if step > 1:
        return f"these lie {step} elements apart, from index {first} on" if at.size > 2 else ""
    if last == flat.size - 1:
        return f"these are the last {at.size} elements, from index {first} on"
    if first == 0:
        return f"these are the first {at.size} elements, up to index {last}"
    return f"these are the elements {first} to {last}"

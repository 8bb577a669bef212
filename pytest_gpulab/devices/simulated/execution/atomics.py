"""Atomic read-modify-write on a flat array: the lanes act one after the other, block by block, thread by thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.arithmetic.halves import halves

Array = npt.NDArray[Any]
FLUSHED_ADD = "add.ftz"
"""Addition of float32 in global memory: denormal operands and results are zeros there, unlike in shared memory."""
_TINY = float(np.finfo(np.float32).tiny)


def _inc(old: Any, limit: Any) -> Any:
    return np.where(old >= limit, 0, old + old.dtype.type(1)).astype(old.dtype)


def _flushed(value: Any) -> Any:
    return np.where(np.abs(value) < _TINY, np.copysign(np.float32(0), value), value)


def _dec(old: Any, limit: Any) -> Any:
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)).astype(old.dtype)


_NEW: dict[str, Callable[..., Any]] = {
    "add": lambda old, value: old + value,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, value: value,
    FLUSHED_ADD: lambda old, value: _flushed(_flushed(old) + _flushed(value)),
    "add.f16x2": lambda old, value: halves("f16x2", np.add, old, value),
    "add.bf16": lambda old, value: halves("bf16", np.add, old, value),
    "add.bf16x2": lambda old, value: halves("bf16x2", np.add, old, value),
    "inc": _inc,
    "dec": _dec,
    "cas": lambda old, compare, value: np.where(old == compare, value, old),
}
_UNORDERED = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
              "xor": np.bitwise_xor}  # fmt: skip


def apply(view: Array, index: Array, operation: str, operands: list[Array], wanted: bool) -> Array | None:
    """Carry out an operation for every lane.

    Args:
        view: the memory as elements of the operation's dtype.
        index: of each lane's element; all arrays are one-dimensional and in the order of the lanes.
        operation: PTX name, `FLUSHED_ADD`, or an addition with its 16-bit float type.
        operands: one or (for `cas`) two values a lane.
        wanted: whether to return what each lane found.
    """
    if operation == FLUSHED_ADD and not (_near_zero(operands[0]) or _near_zero(view[index])):
        operation = "add"
    if not wanted and operation in _UNORDERED:
        _UNORDERED[operation].at(view, index, operands[0])
        return None
    if len(np.unique(index)) == len(index):
        old = view[index]
        view[index] = _NEW[operation](old, *operands)
        return old
    if operation == "add" and view.dtype.kind in "iu":
        return _running_sums(view, index, operands[0])
    return _one_by_one(view, index, operation, operands)


def _near_zero(values: Array) -> bool:
    """Whether a sum of these may be denormal: not so if all are multiples of 2**-125."""
    size = np.abs(values)
    return bool(((size < 2.0**-102) & (size > 0)).any())


def _running_sums(view: Array, index: Array, values: Array) -> Array:
    """Integer additions that meet: what a lane finds is the start plus the sum of those before it."""
    order = np.argsort(index, kind="stable")
    place, value = index[order], values[order]
    total = np.cumsum(value, dtype=view.dtype)
    first = np.flatnonzero(np.concatenate(([True], place[1:] != place[:-1])))
    before = total - value
    start = np.repeat(before[first], np.diff(np.append(first, len(place))))
    old = np.empty_like(value)
    old[order] = view[place] + (before - start)
    np.add.at(view, index, values)
    return old


def _one_by_one(view: Array, index: Array, operation: str, operands: list[Array]) -> Array:
    new = _NEW[operation]
    old = np.empty(len(index), view.dtype)
    for lane, place in enumerate(index):
        old[lane] = view[place]
        view[place] = new(view[place], *(operand[lane] for operand in operands))
    return old

"""Atomic read-modify-write on a flat array. Lanes are serialized block by block, thread by thread."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.arithmetic.halves import halves
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value, starts_of

Array = npt.NDArray[Any]
Operation = str | Callable[..., Any]
"""PTX name, `FLUSHED_ADD`, addition with its 16-bit type, or a function of the old value and operands."""
FLUSHED_ADD = "add.ftz"
"""Addition of float32 in global memory, which flushes denormals to zero; shared memory does not."""
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
_STEPS: dict[str, Callable[..., int]] = {
    "cas": lambda old, compare, value: value if old == compare else old,
    "min": min,
    "max": max,
    "and": int.__and__,
    "or": int.__or__,
    "xor": int.__xor__,
    "inc": lambda old, limit: 0 if old >= limit else old + 1,
    "dec": lambda old, limit: limit if old == 0 or old > limit else old - 1,
}
"""Integer operations on Python's int. Additions are missing: they may overflow."""
_UNORDERED = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
              "xor": np.bitwise_xor}  # fmt: skip


def apply_in_order(
    lanes: Lanes, view: Array, index: Value, operation: Operation, values: list[Value], wanted: bool
) -> Value:
    """Apply an atomic in the order of blocks, then threads; lanes that want no results may have another order."""
    every = index, *values
    if lanes.n > 1:
        every = tuple(np.broadcast_to(value, lanes.shape) for value in every)
    flat, *operands = (value.ravel(order="F") for value in every)
    order = lanes.by_block[0] if lanes.flat and wanted else slice(None)
    found = apply(view, flat[order], operation, [operand[order] for operand in operands], wanted)
    if found is None:
        return np.zeros((), view.dtype)[()]
    found[order] = found.copy()
    return np.ascontiguousarray(found.reshape(lanes.shape, order="F"))


def apply(view: Array, index: Array, operation: Operation, operands: list[Array], returns: bool) -> Array | None:
    """Execute an operation per lane; return the old values.

    `view` is the memory as elements of the operation's dtype, `index` each lane's element. All arrays are
    one-dimensional and in the order of the lanes. `operands` has one array, or two for `cas`. Without `returns`, the
    result is None.
    """
    if operation == FLUSHED_ADD and not (_near_zero(operands[0]) or _near_zero(view[index])):
        operation = "add"
    if not returns and operation in _UNORDERED:
        _UNORDERED[operation].at(view, index, operands[0])
        return None
    new = operation if callable(operation) else _NEW[operation]
    if len(index) == 1:
        old = view[index]
        view[index] = new(old, *operands)
        return old
    if operation == "cas" and _is_one(index) and _is_one(operands[0]):
        return _uniform_swaps(view, index[0], *operands)
    order = np.argsort(index, kind="stable")
    address = index[order]
    if (address[1:] != address[:-1]).all():
        old = view[index]
        view[index] = new(old, *operands)
        return old
    if callable(operation) and (found := _sums(view, address, order, operation, operands)) is not None:
        return found
    if operation == "exch":
        return _exchange(view, address, order, operands[0])
    if operation == "cas" and (found := _alike_swaps(view, address, order, *operands)) is not None:
        return found
    if view.dtype.kind in "iu" and operation in _STEPS:
        return _one_by_one(view, index, _STEPS[operation], operands)
    return _by_rank(view, address, order, operation, operands)


def outcome(
    operation: Operation, found: Array, operands: list[Array]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_] | None]:
    """Return masks of the lanes that changed nothing, and of those with a failed compare-and-swap (or None)."""
    new = operation if callable(operation) else _NEW[operation]
    unchanged = np.broadcast_to(new(found, *operands) == found, found.shape)
    return unchanged, found != operands[0] if operation == "cas" else None


def _is_one(values: Array) -> bool:
    return bool(values[0] == values[-1] and (values == values[0]).all())


def _uniform_swaps(view: Array, address: Any, compare: Array, values: Array) -> Array:
    """Compare-and-swap of lanes that all expect the same value at one address, as in a lock or a retry loop.

    At most one lane changes the value. Lanes before it change nothing, and lanes after it find another value.
    """
    old = np.full(len(values), view[address])
    if old[0] == compare[0] and len(changing := np.flatnonzero(values != compare)):
        view[address] = old[changing[0] + 1 :] = values[changing[0]]
    return old


def _alike_swaps(view: Array, address: Array, order: Array, compare: Array, values: Array) -> Array | None:
    """Compare-and-swap of lanes that expect the same value as all others at their address, as in retry loops.

    Per address it is as in `_uniform_swaps`. Return None if two lanes at an address expect different values.
    """
    count, compare, values = len(address), compare[order], values[order]
    if not ((address[1:] != address[:-1]) | (compare[1:] == compare[:-1])).all():
        return None
    starts = starts_of(address)
    lengths = np.diff(np.append(starts, count))
    where = np.arange(count)
    changing = np.minimum.reduceat(np.where(values != compare, where, count), starts)
    before = view[address[starts]]
    changes = (before == compare[starts]) & (changing < starts + lengths)
    after = np.where(changes, values[np.minimum(changing, count - 1)], before)
    view[address[starts]] = after
    is_after = where > np.repeat(np.where(changes, changing, count), lengths)
    old = np.empty(count, view.dtype)
    old[order] = np.where(is_after, np.repeat(after, lengths), np.repeat(before, lengths))
    return old


def _sums(view: Array, address: Array, order: Array, update: Callable[..., Any], operands: list[Array]) -> Array | None:
    """Execute a function that adds; return None if the lanes of an address show that it does more."""
    operands = [operand[order] for operand in operands]
    old = view[address]
    added = update(old, *operands) - old
    is_first = np.concatenate(([True], address[1:] != address[:-1]))
    before = np.cumsum(added, dtype=added.dtype) - added  # wraps around, as the additions do
    old += before - before[np.maximum.accumulate(np.where(is_first, np.arange(len(address)), 0))]
    left = update(old, *operands)
    if not (is_first[1:] | (left[:-1] == old[1:])).all():
        return None
    view[address] = left  # NumPy keeps the last value of an index
    found = np.empty_like(old)
    found[order] = old
    return found


def _near_zero(values: Array) -> bool:
    """Return True if a sum of these may be denormal; it is not if all are multiples of 2**-125."""
    size = np.abs(values)
    return bool(((size < 2.0**-102) & (size > 0)).any())


def _exchange(view: Array, address: Array, order: Array, values: Array) -> Array:
    """Execute exchanges: a lane finds the value of the lane before it at the same address."""
    given = values[order]
    found = np.where(np.concatenate(([False], address[1:] == address[:-1])), np.roll(given, 1), view[address])
    view[address] = given  # NumPy keeps the last value of an index
    old = np.empty_like(found)
    old[order] = found
    return old


def _one_by_one(view: Array, index: Array, step: Callable[..., int], operands: list[Array]) -> Array:
    """Execute integer operations lane by lane. Python's int is several times faster here than NumPy scalars."""
    addresses, values = np.unique(index), view[np.unique(index)].tolist()
    memory = dict(zip(addresses.tolist(), values, strict=True))
    old = []
    for address, *given in zip(index.tolist(), *(operand.tolist() for operand in operands), strict=True):
        found = memory[address]
        old.append(found)
        memory[address] = step(found, *given)
    view[addresses] = [memory[address] for address in addresses.tolist()]
    return np.array(old, view.dtype)


def _by_rank(view: Array, address: Array, order: Array, operation: Operation, operands: list[Array]) -> Array:
    """Execute an operation in NumPy: additions address by address if there are few addresses, else rank by rank.

    Rank n is the n-th lane of each address, so each step has at most one lane per address. `order` sorts the lanes by
    address.
    """
    starts = starts_of(address)
    lengths = np.diff(np.append(starts, len(address)))
    old = np.empty(len(address), view.dtype)
    if operation == "add" and len(starts) < lengths.max():
        for start, end in zip(starts, starts + lengths, strict=True):
            lanes = order[start:end]
            sums = np.add.accumulate(np.concatenate((view[address[start : start + 1]], operands[0][lanes])))
            old[lanes], view[address[start]] = sums[:-1], sums[-1]
        return old
    new = operation if callable(operation) else _NEW[operation]
    for rank in range(lengths.max()):
        lanes = order[starts[lengths > rank] + rank]
        here = address[starts[lengths > rank]]
        old[lanes] = view[here]
        view[here] = new(old[lanes], *(operand[lanes] for operand in operands))
    return old

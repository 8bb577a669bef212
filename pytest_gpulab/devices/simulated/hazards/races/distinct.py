"""Long stretches of accesses made short where fences may order one thread and not the next one: no race is lost.

Of accesses by one instruction to one word, those that nothing can tell apart go, but for the first and the last one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import IndexArray
from pytest_gpulab.devices.simulated.hazards.accesses import Access, chosen
from pytest_gpulab.devices.simulated.hazards.classes import Who

Apart = Callable[[Who], Sequence[IndexArray]]
"""Returns numbers for accesses: those with the same ones cannot be told apart."""


def by_thread(moments: Sequence[int]) -> Apart:
    """Tell threads from each other, and what is before and after a moment at which something may order threads."""
    return lambda who: (who.thread, np.searchsorted(np.asarray(moments), who.time))


def distinct(accesses: Sequence[Access], apart: Apart) -> list[Access]:
    """Return accesses that stand for all, in order.

    Args:
        accesses: with those to shared memory standing for all blocks of their wave where these do the same.
        apart: which of them may be told apart.
    """
    alike: dict[object, list[Access]] = defaultdict(list)
    for access in accesses:
        alike[access.memory, access.site.index, bool(access.values)].append(access)
    kept = [access for some in alike.values() for access in _distinct(some, apart)]
    return sorted(kept, key=lambda access: access.time)


def _distinct(accesses: list[Access], apart: Apart) -> list[Access]:
    is_shared = accesses[0].memory is None
    one_block = is_shared and all(access.same_in_all_blocks for access in accesses)
    shapes = [(access.lanes.shape[0], 1 if one_block else access.lanes.shape[1]) for access in accesses]
    place = _laid_out([access.address for access in accesses], shapes)
    lanes = [access.lanes for access in accesses]
    column = _laid_out([np.zeros((1, 1), np.intp) if one_block else each.column for each in lanes], shapes)
    ends = np.cumsum([rows * columns for rows, columns in shapes])
    source = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    block = _laid_out(
        [np.zeros((1, 1), np.intp) if one_block else each.wave.block_ids[each.column] for each in lanes], shapes
    )
    time = np.array([access.time for access in accesses])[source]
    who = Who(block, _laid_out([each.threads.reshape(-1, 1) for each in lanes], shapes), time)
    values = [_laid_out([access.values[k] for access in accesses], shapes) for k in range(len(accesses[0].values))]
    mask = _edges([*apart(who), *([column, block] if is_shared else []), *map(_as_bits, values), place])
    masks = np.split(mask, ends[:-1])
    return [
        kept
        for access, shape, mine in zip(accesses, shapes, masks, strict=True)
        for kept in chosen(access, mine.reshape(shape))
    ]


def _laid_out(values: Sequence[npt.NDArray[np.generic]], shapes: Sequence[tuple[int, int]]) -> IndexArray:
    """Return what each lane of some accesses has, end to end."""
    return np.concatenate([_spread(value, shape).ravel() for value, shape in zip(values, shapes, strict=True)])


def _spread(value: npt.NDArray[np.generic], shape: tuple[int, int]) -> npt.NDArray[np.generic]:
    return np.broadcast_to(value[:, :1] if value.ndim and value.shape[1] > shape[1] else value, shape)


def _as_bits(values: npt.NDArray[np.generic]) -> IndexArray:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.int64)


def _edges(columns: Sequence[IndexArray]) -> npt.NDArray[np.bool_]:
    """Return which rows are the first or the last one with their numbers."""
    order = np.lexsort(columns)
    new = np.ones(len(order) + 1, np.bool_)
    new[1:-1] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
    edges = np.zeros(len(order), np.bool_)
    edges[order[new[:-1] | new[1:]]] = True
    return edges

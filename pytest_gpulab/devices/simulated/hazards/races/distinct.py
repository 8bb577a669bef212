"""Shorten long sequences of accesses if fences may order single threads, without losing races.

Of equivalent accesses by one instruction to one word, only the first and the last one are kept.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import IndexArray
from pytest_gpulab.devices.simulated.hazards.accesses import MemoryAccess, chosen, edges
from pytest_gpulab.devices.simulated.hazards.classes import Accessors

PART_LANES = 1 << 18  # of the accesses that are sorted at once, so that the time limit holds: about 0.2 s

ClassKeys = Callable[[Accessors], Sequence[IndexArray]]
"""A function that returns keys of accesses: those with equal keys are equivalent."""


def by_thread(times: Sequence[int]) -> ClassKeys:
    """Return keys that differ between threads, and between the intervals of the given times."""
    return lambda accessors: (accessors.thread, np.searchsorted(np.asarray(times), accessors.time))


def distinct(
    accesses: Sequence[MemoryAccess], class_keys: ClassKeys, check_time: Callable[[], None]
) -> list[MemoryAccess]:
    """Return accesses that represent all, in order; one to shared memory represents all blocks that do the same."""
    similar: dict[object, list[MemoryAccess]] = defaultdict(list)
    for access in accesses:
        similar[access.memory, access.site.index, bool(access.values)].append(access)
    kept: list[MemoryAccess] = []
    for some in similar.values():
        parts = _parts(some)
        if len(parts) > 1:  # usually, far fewer of each part are left
            some = []
            for part in parts:
                check_time()
                some += _distinct(part, class_keys)
        check_time()
        kept += _distinct(some, class_keys)
    return sorted(kept, key=lambda access: access.time)


def _parts(accesses: list[MemoryAccess]) -> list[list[MemoryAccess]]:
    """Return parts of a sequence that take a moment each."""
    lanes = np.cumsum([access.lanes.shape[0] * access.lanes.shape[1] for access in accesses])
    pairs = groupby(zip(accesses, lanes // PART_LANES, strict=True), key=lambda pair: pair[1])
    return [[access for access, _ in part] for _, part in pairs]


def _distinct(accesses: list[MemoryAccess], class_keys: ClassKeys) -> list[MemoryAccess]:
    is_shared = accesses[0].memory is None
    one_block = is_shared and all(access.same_in_all_blocks for access in accesses)
    shapes = [(access.lanes.shape[0], 1 if one_block else access.lanes.shape[1]) for access in accesses]
    address = _laid_out([access.address for access in accesses], shapes)
    lanes = [access.lanes for access in accesses]
    column = _laid_out([np.zeros((1, 1), np.intp) if one_block else each.column for each in lanes], shapes)
    ends = np.cumsum([rows * columns for rows, columns in shapes])
    source = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    block = _laid_out(
        [np.zeros((1, 1), np.intp) if one_block else each.wave.block_ids[each.column] for each in lanes], shapes
    )
    time = np.array([access.time for access in accesses])[source]
    accessors = Accessors(block, _laid_out([each.threads.reshape(-1, 1) for each in lanes], shapes), time)
    values = [_laid_out([access.values[k] for access in accesses], shapes) for k in range(len(accesses[0].values))]
    mask = edges([*class_keys(accessors), *([column, block] if is_shared else []), *map(_as_bits, values), address])
    masks = np.split(mask, ends[:-1])
    return [
        kept
        for access, shape, mine in zip(accesses, shapes, masks, strict=True)
        for kept in chosen(access, mine.reshape(shape))
    ]


def _laid_out(values: Sequence[npt.NDArray[np.generic]], shapes: Sequence[tuple[int, int]]) -> IndexArray:
    """Return the values of each lane of some accesses as one flat array."""
    return np.concatenate([_spread(value, shape).ravel() for value, shape in zip(values, shapes, strict=True)])


def _spread(value: npt.NDArray[np.generic], shape: tuple[int, int]) -> npt.NDArray[np.generic]:
    return np.broadcast_to(value[:, :1] if value.ndim and value.shape[1] > shape[1] else value, shape)


def _as_bits(values: npt.NDArray[np.generic]) -> IndexArray:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.int64)

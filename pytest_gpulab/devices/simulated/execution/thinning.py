"""Long stretches of accesses made short: of each instruction and word only as much is kept as a race can need.

Whoever comes later races with an instruction's accesses to a word if it races with two of them, by different owners
(threads, or blocks where only those matter): at least one of the two is not its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.execution.accesses import Access
from pytest_gpulab.devices.simulated.execution.lanes import IndexArray, Lanes
from pytest_gpulab.devices.simulated.execution.memory import Allocation

MAX_LANES = 1 << 22
"""So many addresses are remembered before they are thinned."""
SELF_LANES = 64
"""As many addresses take the memory of an access without its addresses."""


def thinned(accesses: Sequence[Access], by_block: bool) -> list[Access]:
    """Return as many accesses as instructions that stand for all, in the order of their first ones.

    Args:
        accesses: between which nothing orders threads.
        by_block: whether owners are blocks, to which one memory is common; else threads, within each block.
    """
    alike: dict[tuple[int, Allocation | None], list[Access]] = defaultdict(list)
    for access in accesses:
        alike[access.site.index, access.memory].append(access)
    return [_representative(some, by_block) for some in alike.values()]


def _representative(accesses: list[Access], by_block: bool) -> Access:
    first = accesses[0]
    if len(accesses) == 1:
        return first
    pieces = [_flat(access) for access in accesses]
    address, thread, column, block = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    wave = first.lanes.wave
    place = address // first.site.nbytes
    key = place if by_block else _from_lowest(place, column, wave.columns) * wave.columns + column
    chosen = _two_owners(key, block if by_block else thread)
    values = [np.concatenate([_spread(access, k) for access in accesses])[chosen].reshape(-1, 1)
              for k in range(len(first.values))]  # fmt: skip
    column = column[chosen]
    if by_block:  # the lanes may come from several waves: number their blocks anew
        ids, column = np.unique(block[chosen], return_inverse=True)
        wave = type(wave)(wave.grid, wave.block, ids)
    lanes = Lanes(wave, thread[chosen], column, True)
    kept = address[chosen].astype(first.address.dtype).reshape(-1, 1)
    return first._replace(lanes=lanes, address=kept, values=values)


def _from_lowest(place: IndexArray, column: IndexArray, columns: int) -> IndexArray:
    """Return the distance of each place from its block's lowest: blocks far apart would make huge tables."""
    lowest: IndexArray = np.full(columns, place.max())
    np.minimum.at(lowest, column, place)
    distance: IndexArray = place - lowest[column]
    return distance


def _two_owners(key: IndexArray, owner: IndexArray) -> IndexArray:
    """Return where, for each key, the last owner stands and one that differs from it, if there is one."""
    order = np.arange(len(key))
    last = np.full(int(key.max()) + 1, -1, np.intp)
    last[key] = order
    differs = np.flatnonzero(owner != owner[last[key]])
    other = np.full(len(last), -1, np.intp)
    other[key[differs]] = differs
    both = np.concatenate([last[last >= 0], other[other >= 0]])
    both.sort()
    return both


def _flat(access: Access) -> tuple[npt.NDArray[np.int64], IndexArray, IndexArray, IndexArray]:
    """Return address, thread, column and block of each lane."""
    lanes = access.lanes
    address = np.broadcast_to(access.address, lanes.shape).ravel().astype(np.int64)
    thread = np.broadcast_to(lanes.threads.reshape(-1, 1), lanes.shape).ravel()
    column = np.broadcast_to(lanes.column, lanes.shape).ravel()
    return address, thread, column, lanes.wave.block_ids[column]


def _spread(access: Access, k: int) -> npt.NDArray[np.generic]:
    return np.broadcast_to(access.values[k], access.lanes.shape).ravel()

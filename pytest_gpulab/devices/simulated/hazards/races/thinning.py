"""Shorten long sequences of accesses without fences: keep two accesses per word and kind.

The two are by different owners (threads, or warps or blocks if only those matter). A later access is not of the same
owner as at least one of them, so it races with one of the two if it races with any. So the kept accesses grow with the
memory that a kernel uses, not with the number of its accesses.
"""

from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Lanes
from pytest_gpulab.devices.simulated.hazards.accesses import MemoryAccess, numbered, small_keys


class Owner(Enum):
    """The unit within which accesses do not race with each other."""

    thread = "thread"
    warp = "warp"
    block = "block"


def thinned(accesses: Sequence[MemoryAccess], owner: Owner, shared_counts: bool = True) -> list[MemoryAccess]:
    """Return accesses that represent all, in order; there is no synchronisation between them.

    Two accesses must differ in their `owner` to race. Words that several blocks use are dropped unless `shared_counts`.
    """
    similar: dict[object, list[MemoryAccess]] = defaultdict(list)
    for access in accesses:
        similar[access.memory, access.site.modifies, access.site.order, access.site.nbytes].append(access)
    kept: list[MemoryAccess] = []
    for some in similar.values():
        drops = not shared_counts and some[0].memory is not None and some[0].site.order == "weak"
        kept += _representatives(some, owner, drops) if len(some) > 1 else some
    return sorted(kept, key=lambda access: access.time)


class _Lot(NamedTuple):
    """The lanes of several accesses as flat arrays; `source` is the number of each lane's access."""

    address: npt.NDArray[np.int64]
    thread: IndexArray
    column: IndexArray
    block: IndexArray
    source: IndexArray


def _representatives(accesses: list[MemoryAccess], owner: Owner, drops_shared: bool) -> list[MemoryAccess]:
    first = accesses[0]
    one_block = first.memory is None and all(access.same_in_all_blocks for access in accesses)
    cells = [_cells(access, owner is Owner.block, one_block) for access in accesses]
    lots = [_lot(access, number, *at) for number, (access, at) in enumerate(zip(accesses, cells, strict=True))]
    lot = _Lot(*(np.concatenate(arrays) for arrays in zip(*lots, strict=True)))
    del lots  # as many bytes as the rest
    has_values = all(access.values for access in accesses)
    values = [
        np.concatenate([_at(access.values[k], access.lanes, *at) for access, at in zip(accesses, cells, strict=True)])
        for k in range(len(first.values) if has_values else 0)
    ]
    address = lot.address // first.site.nbytes
    if owner is Owner.block or one_block:
        key = address
    else:
        key = _from_lowest(address, lot.column, first.lanes.wave.columns) * first.lanes.wave.columns + lot.column
    owners = {Owner.thread: lot.thread, Owner.warp: lot.thread // WARP, Owner.block: lot.block}[owner]
    chosen = _two_owners(small_keys(key), owners, values)
    if drops_shared:
        chosen = chosen[~_is_shared(small_keys(address), lot.column)[chosen]]
    return [
        _kept(accesses, lot, mine, values, owner, one_block)
        for sites in _by_site(accesses).values()
        if len(mine := chosen[np.isin(lot.source[chosen], sites)])
    ]


def _by_site(accesses: list[MemoryAccess]) -> dict[int, list[int]]:
    numbers: dict[int, list[int]] = defaultdict(list)
    for number, access in enumerate(accesses):
        numbers[access.site.index].append(number)
    return numbers


def _kept(
    accesses: list[MemoryAccess],
    lot: _Lot,
    chosen: IndexArray,
    values: list[npt.NDArray[np.generic]],
    owner: Owner,
    one_block: bool,
) -> MemoryAccess:
    """Return some lanes of one instruction as one access."""
    model = accesses[int(lot.source[chosen[0]])]
    wave, column = model.lanes.wave, lot.column[chosen]
    if one_block:
        lanes = Lanes(wave, lot.thread[chosen], np.arange(wave.columns), False)
    else:
        if owner is Owner.block:  # the lanes may be of several waves, so their blocks are renumbered
            ids, column = numbered(lot.block[chosen])
            wave = type(wave)(wave.grid, wave.block, ids)
        lanes = Lanes(wave, lot.thread[chosen], column, True)
    address = lot.address[chosen].astype(model.address.dtype).reshape(-1, 1)
    return model._replace(lanes=lanes, address=address, values=[value[chosen].reshape(-1, 1) for value in values])


def _cells(access: MemoryAccess, by_block: bool, one_block: bool) -> tuple[IndexArray, IndexArray]:
    """Return rows and columns (broadcastable) of the lanes to keep: the outermost if all read one word, else all."""
    lanes, address = access.lanes, access.address
    rows, columns = lanes.shape
    across = np.arange(1 if one_block else columns).reshape(1, -1)
    down = np.arange(rows).reshape(-1, 1)
    if access.values or lanes.n == 1:
        return down, across
    if lanes.flat:
        if by_block and address.size == 1:
            down = np.unique([lanes.columns.argmin(), lanes.columns.argmax()]).reshape(-1, 1)
        return down, across
    if address.ndim == 0 or address.shape[0] == 1:
        down = down[-1:] if by_block else np.array([[lanes.threads.argmin()], [lanes.threads.argmax()]])
    if by_block and (address.ndim == 0 or address.shape[1] == 1):
        across = across[:, [0, -1]]
    return down, across


def _at(value: npt.NDArray[np.generic], lanes: Lanes, down: IndexArray, across: IndexArray) -> npt.NDArray[np.generic]:
    return np.broadcast_to(value, lanes.shape)[down, across].ravel()


def _lot(access: MemoryAccess, number: int, down: IndexArray, across: IndexArray) -> _Lot:
    lanes = access.lanes
    address = _at(access.address, lanes, down, across).astype(np.int64)
    thread = np.broadcast_to(lanes.threads[down], (len(down), across.shape[1])).ravel()
    column = np.broadcast_to(lanes.columns[down if lanes.flat else across], (len(down), across.shape[1])).ravel()
    return _Lot(address, thread, column, lanes.wave.block_ids[column], np.full(len(address), number))


def _from_lowest(address: IndexArray, column: IndexArray, columns: int) -> IndexArray:
    """Return the distance of each address from its block's lowest, because distant blocks would need huge tables."""
    lowest: IndexArray = np.full(columns, address.max())
    np.minimum.at(lowest, column, address)
    distance: IndexArray = address - lowest[column]
    return distance


def _two_owners(key: IndexArray, owner: IndexArray, values: list[npt.NDArray[np.generic]]) -> IndexArray:
    """Return the rows of two owners per key: the last, and another one, with another value if there is one."""
    order = np.arange(len(key), dtype=np.int32)
    last = np.full(int(key.max()) + 1, -1, np.int32)
    last[key] = order
    latest = last[key]
    differs = owner != owner[latest]
    other = np.full(len(last), -1, np.int32)
    other[key[differs]] = order[differs]
    for value in values:
        unlike = differs & (value != value[latest])
        other[key[unlike]] = order[unlike]
    chosen = np.zeros(len(key), np.bool_)
    chosen[latest] = True
    chosen[other[key[differs]]] = True
    return np.flatnonzero(chosen)


def _is_shared(address: IndexArray, column: IndexArray) -> npt.NDArray[np.bool_]:
    """Return a mask of the lanes with an address that another block accesses, too."""
    owner = np.zeros(int(address.max()) + 1, np.int32)
    owner[address] = column
    several = np.zeros(len(owner), np.bool_)
    several[address[owner[address] != column]] = True
    shared: npt.NDArray[np.bool_] = several[address]
    return shared

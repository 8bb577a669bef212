"""Long stretches without fences made short: of each word only as much is kept as a race can need.

A later access to a word races with accesses of one kind if it races with two of them, by different owners (threads, or
warps or blocks where only those matter): at least one of the two is not its own. So what is kept grows with the memory
that a kernel uses, not with how often it does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Lanes
from pytest_gpulab.devices.simulated.hazards.accesses import WORD_BYTES, Access

MAX_LANES = 1 << 21
"""Lanes of accesses that are remembered before they are thinned: some 100 MiB while they are compared."""
MAX_KEPT = 1 << 22
"""Lanes of accesses that are kept after thinning, about as many words as that; beyond, they are forgotten."""
SELF_LANES = 64
"""As many addresses take the memory of an access without its addresses."""
MAX_TABLE = 1 << 24
"""Entries of a table that are always few enough."""
_DENSE = 4  # entries of a table for each key, up to which a table is faster than sorting the keys


class Owner(Enum):
    """Whose accesses do not race with each other."""

    thread = "thread"
    warp = "warp"
    block = "block"


def weight(access: Access, one_block: bool = False) -> int:
    """Return what an access counts: the words of its lanes, of one block's if that stands for all."""
    lanes = len(access.lanes.threads) if one_block else access.lanes.n
    return SELF_LANES + lanes * max(1, access.site.nbytes // WORD_BYTES)


def thinned(accesses: Sequence[Access], owner: Owner, shared_counts: bool = True) -> list[Access]:
    """Return accesses that stand for all, in order.

    Args:
        accesses: between which nothing orders threads.
        owner: what two accesses must differ in to race; threads and warps are those of one block.
        shared_counts: whether words that several blocks use matter (`owner` is no block).
    """
    alike: dict[object, list[Access]] = defaultdict(list)
    for access in accesses:
        alike[access.memory, access.site.modifies, access.site.order, access.site.nbytes].append(access)
    kept: list[Access] = []
    for some in alike.values():
        drops = not shared_counts and some[0].memory is not None and some[0].site.order == "weak"
        kept += _representatives(some, owner, drops) if len(some) > 1 else some
    return sorted(kept, key=lambda access: access.time)


class _Lot(NamedTuple):
    """Lanes of accesses laid end to end; `source` is the number of each one's access."""

    address: npt.NDArray[np.int64]
    thread: IndexArray
    column: IndexArray
    block: IndexArray
    source: IndexArray


def _representatives(accesses: list[Access], owner: Owner, drops_shared: bool) -> list[Access]:
    first = accesses[0]
    one_block = first.memory is None and all(access.same_in_all_blocks for access in accesses)
    cells = [_cells(access, owner is Owner.block, one_block) for access in accesses]
    lots = [_lot(access, number, *at) for number, (access, at) in enumerate(zip(accesses, cells, strict=True))]
    lot = _Lot(*(np.concatenate(arrays) for arrays in zip(*lots, strict=True)))
    has_values = all(access.values for access in accesses)
    values = [
        np.concatenate([_at(access.values[k], access.lanes, *at) for access, at in zip(accesses, cells, strict=True)])
        for k in range(len(first.values) if has_values else 0)
    ]
    place = lot.address // first.site.nbytes
    if owner is Owner.block or one_block:
        key = place
    else:
        key = _from_lowest(place, lot.column, first.lanes.wave.columns) * first.lanes.wave.columns + lot.column
    owners = {Owner.thread: lot.thread, Owner.warp: lot.thread // WARP, Owner.block: lot.block}[owner]
    chosen = _two_owners(numbered(key), owners, values)
    if drops_shared:
        chosen = chosen[~_is_shared(numbered(place), lot.column)[chosen]]
    return [
        _kept(accesses, lot, mine, values, owner, one_block)
        for sites in _by_site(accesses).values()
        if len(mine := chosen[np.isin(lot.source[chosen], sites)])
    ]


def _by_site(accesses: list[Access]) -> dict[int, list[int]]:
    numbers: dict[int, list[int]] = defaultdict(list)
    for number, access in enumerate(accesses):
        numbers[access.site.index].append(number)
    return numbers


def _kept(
    accesses: list[Access],
    lot: _Lot,
    chosen: IndexArray,
    values: list[npt.NDArray[np.generic]],
    owner: Owner,
    one_block: bool,
) -> Access:
    """Return some lanes, all of one instruction, as one access."""
    model = accesses[int(lot.source[chosen[0]])]
    wave, column = model.lanes.wave, lot.column[chosen]
    if one_block:
        lanes = Lanes(wave, lot.thread[chosen], np.arange(wave.columns), False)
    else:
        if owner is Owner.block:  # the lanes may come from several waves: number their blocks anew
            ids, column = _ranked(lot.block[chosen])
            wave = type(wave)(wave.grid, wave.block, ids)
        lanes = Lanes(wave, lot.thread[chosen], column, True)
    address = lot.address[chosen].astype(model.address.dtype).reshape(-1, 1)
    return model._replace(lanes=lanes, address=address, values=[value[chosen].reshape(-1, 1) for value in values])


def _cells(access: Access, by_block: bool, one_block: bool) -> tuple[IndexArray, IndexArray]:
    """Return rows and columns (broadcastable) of the lanes that matter: where all read one word, the outermost ones."""
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


def _lot(access: Access, number: int, down: IndexArray, across: IndexArray) -> _Lot:
    lanes = access.lanes
    address = _at(access.address, lanes, down, across).astype(np.int64)
    thread = np.broadcast_to(lanes.threads[down], (len(down), across.shape[1])).ravel()
    column = np.broadcast_to(lanes.columns[down if lanes.flat else across], (len(down), across.shape[1])).ravel()
    return _Lot(address, thread, column, lanes.wave.block_ids[column], np.full(len(address), number))


def numbered(key: IndexArray) -> IndexArray:
    """Return small numbers for keys: these themselves where a table of all of them is not much larger than they are."""
    if int(key.max()) < max(_DENSE * len(key), MAX_TABLE):
        return key
    numbers: IndexArray = np.unique(key, return_inverse=True)[1]
    return numbers


def _ranked(values: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Return distinct values in order, and the place of each value among them."""
    here = np.zeros(int(values.max()) + 1, np.bool_)
    here[values] = True
    return np.flatnonzero(here), (np.cumsum(here) - 1)[values]


def _from_lowest(place: IndexArray, column: IndexArray, columns: int) -> IndexArray:
    """Return the distance of each place from its block's lowest: blocks far apart would make huge tables."""
    lowest: IndexArray = np.full(columns, place.max())
    np.minimum.at(lowest, column, place)
    distance: IndexArray = place - lowest[column]
    return distance


def _two_owners(key: IndexArray, owner: IndexArray, values: list[npt.NDArray[np.generic]]) -> IndexArray:
    """Return where, for each key, the last owner stands and one that differs from it, in its value if any does."""
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


def _is_shared(place: IndexArray, column: IndexArray) -> npt.NDArray[np.bool_]:
    """Return which lanes access a place that another block accesses, too."""
    owner = np.zeros(int(place.max()) + 1, np.int32)
    owner[place] = column
    several = np.zeros(len(owner), np.bool_)
    several[place[owner[place] != column]] = True
    shared: npt.NDArray[np.bool_] = several[place]
    return shared

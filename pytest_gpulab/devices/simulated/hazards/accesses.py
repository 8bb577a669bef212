"""Events of a launch for the hazard checks: memory accesses, and synchronisations of the threads of a block.

Arrays in these events are values of the running kernel. Values never change, so events refer to them without copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import IndexArray, Lanes, Value
from pytest_gpulab.devices.simulated.memory.spaces import Allocation
from pytest_gpulab.devices.simulated.translation.sites import Site

Mask = npt.NDArray[np.bool_]
WORD_BYTES = 4
_SPREAD = 8  # range of values per value, up to which marking is faster than sorting
MAX_LANES = 1 << 21
"""Lanes of accesses before they are thinned: about 100 MiB during the comparison."""
MAX_KEPT = 1 << 22
"""Lanes of accesses that are kept after thinning, about one word each; more are discarded."""
SELF_LANES = 64
"""The size of an access without its addresses, in lanes."""
MAX_TABLE = 1 << 24
"""Entries of a table that is always small enough."""
_DENSE = 4  # entries of a table per key, up to which a table is faster than sorting the keys


class MemoryAccess(NamedTuple):
    """One memory instruction of a group of lanes."""

    site: Site
    lanes: Lanes
    address: Value  # bytes from the start of shared memory or of the allocation
    values: list[Value]  # empty for reads, atomics, and writes that were repeated with other values
    memory: Allocation | None  # None for shared memory
    time: int  # logical time; it grows from one event of a launch to the next
    announces: bool = False  # True for a write after a fence, which makes earlier accesses of its thread visible

    @property
    def same_in_all_blocks(self) -> bool:
        """True if every block of the wave has the same event."""
        return self.lanes.alike(self.address)


class WarpSync(NamedTuple):
    """`bar.warp.sync`; `mask` has the lanes of the warp for which each lane has waited, as bits."""

    lanes: Lanes
    mask: Value
    time: int

    @property
    def same_in_all_blocks(self) -> bool:
        """True if every block of the wave has the same event."""
        return self.lanes.alike(self.mask)


class NamedBarrierEvent(NamedTuple):
    """Threads that arrive at a named barrier for a part of the block, or leave it (`leaving`), all at once."""

    lanes: Lanes
    number: int
    leaving: bool
    time: int
    same_in_all_blocks: bool = False


class MbarrierEvent(NamedTuple):
    """Threads at mbarriers of their blocks."""

    lanes: Lanes
    address: Value  # of the barrier in shared memory; for `complete` and `wait` with the phase, see `in_phase`
    what: str  # `arrive`; `complete`: a phase ends, with one lane per block; `wait`: a wait for a phase ends
    time: int

    @property
    def same_in_all_blocks(self) -> bool:
        """True if every block of the wave has the same event."""
        return self.lanes.alike(self.address)


Event = MemoryAccess | WarpSync | NamedBarrierEvent | MbarrierEvent
CLUSTER_BARRIER = np.uint32(0xFFFFFFF8)  # the address in events of the barrier of a cluster, which has none
PHASES = 8  # phase numbers per mbarrier, modulo: threads wait for one of the last two phases
_ADDRESS_BITS = 32


def in_phase(address: Value, phase: Value) -> Value:
    """Return addresses of mbarriers combined with phase numbers."""
    return address.astype(np.uint64) | phase.astype(np.uint64) << np.uint64(_ADDRESS_BITS)


def split_phase(barrier: int) -> tuple[int, int]:
    """Return address and phase from a result of `in_phase`."""
    phase, address = divmod(barrier, 1 << _ADDRESS_BITS)
    return address, phase


class AccessPiece(NamedTuple):
    """One unit (1, 2 or 4 bytes) of each lane's access, as flat arrays over the lanes."""

    position: int  # of the access in the list of events
    access: MemoryAccess
    nth: int  # number of the unit in the lane's access
    unit: IndexArray  # address in units
    thread: IndexArray  # the lane's thread in its block
    column: IndexArray  # the block's column in the wave
    lane: IndexArray  # index of the lane in the flattened group

    def where(self, chosen: Mask | IndexArray) -> AccessPiece:
        """Return the piece for the lanes where a mask is True, or for lanes by number, which may be repeated."""
        return AccessPiece(
            self.position, self.access, self.nth, self.unit[chosen], self.thread[chosen], self.column[chosen],
            self.lane[chosen],
        )  # fmt: skip

    def values(self, unit_bytes: int) -> npt.NDArray[np.uint32] | None:
        """Return the bits that each lane writes, or None if they are unknown (atomics)."""
        if not self.access.values:
            return None
        size = self.access.values[0].dtype.itemsize
        which, inner = divmod(self.nth * unit_bytes, size)
        value = np.broadcast_to(self.access.values[which], self.access.lanes.shape).ravel()[self.lane]
        bits = np.ascontiguousarray(value).view(np.uint8).reshape(-1, size)[:, inner : inner + unit_bytes]
        wide = np.zeros((len(bits), WORD_BYTES), np.uint8)
        wide[:, :unit_bytes] = bits
        return wide.view(np.uint32)[:, 0]


def numbered(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IndexArray]:
    """Return the distinct values in order, and the index of each value among them.

    Dense values are marked in a table: `np.unique` sorts them, which takes several times longer.
    """
    span = int(values.max()) - int(values.min()) if len(values) else 0
    if span >= _SPREAD * len(values):
        return np.unique(values, return_inverse=True)
    lowest = values.min()
    places = values - lowest
    marks = np.zeros(span + 1, np.bool_)
    marks[places] = True
    return marks.nonzero()[0] + lowest, (marks.cumsum() - 1)[places]


def restricted(access: MemoryAccess, mask: npt.NDArray[np.bool_]) -> MemoryAccess:
    """Return an access for the lanes of a mask."""
    if mask.all():
        return access
    subset = access.lanes.subset(mask)
    values = [subset.take(value) for value in access.values]
    return access._replace(lanes=subset.lanes, address=subset.take(access.address), values=values)


def chosen(access: MemoryAccess, mask: npt.NDArray[np.bool_]) -> Iterator[MemoryAccess]:
    """Yield an access for the lanes of a mask, if there are any."""
    if mask.any():
        yield restricted(access, mask)


def edges(columns: Sequence[IndexArray]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that are the first or the last one with their keys."""
    order = np.lexsort(columns)
    new = np.ones(len(order) + 1, np.bool_)
    new[1:-1] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
    found = np.zeros(len(order), np.bool_)
    found[order[new[:-1] | new[1:]]] = True
    return found


def unit_of(accesses: Sequence[MemoryAccess]) -> int:
    """Return the largest unit in bytes, at most a word, that divides the size of every access."""
    return min(WORD_BYTES, min(access.site.nbytes for access in accesses))


def pieces_of(accesses: Sequence[tuple[int, MemoryAccess]], unit_bytes: int, one_block: bool) -> Iterator[AccessPiece]:
    """Yield the pieces of accesses, given with their positions; only of the wave's first block, if `one_block`."""
    for position, access in accesses:
        lanes = access.lanes
        shift = access.address.dtype.type(unit_bytes.bit_length() - 1)
        first = (access.address >> shift).astype(np.intp)
        if one_block:
            thread = lanes.threads
            column, lane = np.zeros(len(thread), np.intp), np.arange(len(thread)) * lanes.shape[1]
            unit = np.broadcast_to(first, (len(thread), 1)).ravel()
        else:
            thread, column, lane = lanes.each
            unit = (first if first.size == lanes.n else np.broadcast_to(first, lanes.shape)).ravel()
        for nth in range(access.site.nbytes // unit_bytes):
            yield AccessPiece(position, access, nth, unit + nth if nth else unit, thread, column, lane)


def in_batches(pieces: list[AccessPiece], most: int) -> Iterator[list[AccessPiece]]:
    """Split pieces by address into batches of about `most` words, or of a single word."""
    if sum(len(piece.unit) for piece in pieces) <= most:
        yield from [pieces] if pieces else []
        return
    units = np.sort(np.concatenate([piece.unit for piece in pieces]))
    for low, high in pairwise([*np.unique(units[::most]), units[-1] + 1]):
        inside = ((piece, (piece.unit >= low) & (piece.unit < high)) for piece in pieces)
        yield [piece.where(mask) for piece, mask in inside if mask.any()]


def spread(
    accesses: Sequence[MemoryAccess], unit_bytes: int, one_block: bool, by_block: bool
) -> tuple[IndexArray, npt.NDArray[np.int32]]:
    """Return the units of `pieces_of` as arrays, in its order: a key of each unit, and a number of its thread.

    With `by_block`, the same unit of two blocks has two keys.
    """
    wave = accesses[0].lanes.wave
    addresses, numbers, columns = [], [], []
    for access in accesses:
        lanes = access.lanes
        shape = (len(lanes.threads), 1) if one_block else lanes.shape
        address = access.address
        if address.shape != shape:
            address = np.broadcast_to(address, shape)
        for nth in range(access.site.nbytes // unit_bytes):
            addresses.append((address + address.dtype.type(nth * unit_bytes) if nth else address).reshape(-1))
            numbers.append(lanes.threads if one_block else lanes.position.reshape(-1))
            if by_block:
                columns.append(lanes.each[1])
    unit = np.concatenate(addresses).astype(np.intp) >> (unit_bytes.bit_length() - 1)
    key = unit * wave.columns + np.concatenate(columns) if by_block else unit
    return key, np.concatenate(numbers, dtype=np.int32, casting="unsafe")


def weight(access: MemoryAccess, one_block: bool = False) -> int:
    """Return the weight of an access: the words of its lanes, or only of one block's lanes."""
    lanes = len(access.lanes.threads) if one_block else access.lanes.n
    return SELF_LANES + lanes * max(1, access.site.nbytes // WORD_BYTES)


class Repeats:
    """Accesses since the last synchronisation: repetitions cause no further races, and are dropped."""

    def __init__(self) -> None:
        self._known: dict[object, MemoryAccess] = {}
        self._lanes = 0

    def clear(self) -> None:
        """Discard all accesses."""
        self._known.clear()
        self._lanes = 0

    def has(self, access: MemoryAccess) -> bool:
        """Return True if an access repeats an earlier one, else record it.

        If the repetition writes other values, the values of the recorded access become unknown.
        """
        address = access.address
        key = (access.site.index, id(access.lanes), id(access.memory), address.shape, address.item(0), address.item(-1))
        earlier = self._known.get(key)
        if earlier is not None and (earlier.address is address or np.array_equal(earlier.address, address)):
            pairs = zip(earlier.values, access.values, strict=False)
            if not all(one is other or np.array_equal(one, other) for one, other in pairs):
                earlier.values.clear()
            return True
        if self._lanes > MAX_LANES:
            self.clear()
        self._known[key] = access
        self._lanes += address.size + SELF_LANES
        return False


def small_keys(key: IndexArray) -> IndexArray:
    """Return small numbers for keys: the keys themselves if a table of them is not much larger than the keys."""
    if int(key.max()) < max(_DENSE * len(key), MAX_TABLE):
        return key
    numbers: IndexArray = np.unique(key, return_inverse=True)[1]
    return numbers

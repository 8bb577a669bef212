"""What the hazard checks remember of a run: who accessed what, and what put threads of a block in order.

Arrays in these records are values of the running kernel, which never change, so that remembering costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import IndexArray, Lanes, Value
from pytest_gpulab.devices.simulated.memory.spaces import Allocation
from pytest_gpulab.devices.simulated.translation.sites import Site

WORD_BYTES = 4


class Access(NamedTuple):
    """One memory instruction of a group of lanes.

    Attributes:
        address: bytes from the start of shared memory or of the allocation.
        values: what is written; empty for reads, atomics, and writes that were repeated with other values.
        memory: the allocation; None for shared memory.
        time: grows from one record of a launch to the next.
        announces: a write behind a fence, which tells others of what its thread did before.
    """

    site: Site
    lanes: Lanes
    address: Value
    values: list[Value]
    memory: Allocation | None
    time: int
    announces: bool = False

    @property
    def same_in_all_blocks(self) -> bool:
        """Whether every block of the wave does the same."""
        return self.lanes.all_columns and (self.address.ndim == 0 or self.address.shape[1] == 1)


class WarpSync(NamedTuple):
    """`bar.warp.sync`: for each lane, the lanes of its warp that it waited for, as bits."""

    lanes: Lanes
    mask: Value
    time: int

    @property
    def same_in_all_blocks(self) -> bool:
        """Whether every block of the wave does the same."""
        return self.lanes.all_columns and (self.mask.ndim == 0 or self.mask.shape[1] == 1)


class Arrival(NamedTuple):
    """Threads at a named barrier that is not for the whole block; `leaving` when they go on, all at once."""

    lanes: Lanes
    number: int
    leaving: bool
    time: int
    same_in_all_blocks: bool = False


class Phase(NamedTuple):
    """Threads at mbarriers of their blocks.

    Attributes:
        address: of the barrier in shared memory; behind an arrival with the number of the phase, see `in_phase`.
        what: `arrive`; `complete`, a phase of the barrier, with one lane for each block; `wait`, for that to have come.
    """

    lanes: Lanes
    address: Value
    what: str
    time: int

    @property
    def same_in_all_blocks(self) -> bool:
        """Whether every block of the wave does the same."""
        return self.lanes.all_columns and (self.address.ndim == 0 or self.address.shape[1] == 1)


Event = Access | WarpSync | Arrival | Phase
PHASES = 8  # of an mbarrier are told apart: threads wait for one of the last two
_ADDRESS_BITS = 32


def in_phase(address: Value, phase: Value) -> Value:
    """Return addresses of mbarriers together with numbers of their phases."""
    return address.astype(np.uint64) | phase.astype(np.uint64) << np.uint64(_ADDRESS_BITS)


def split_phase(place: int) -> tuple[int, int]:
    """Undo `in_phase`; return the address and the phase."""
    phase, address = divmod(place, 1 << _ADDRESS_BITS)
    return address, phase


@dataclass(frozen=True)
class Part:
    """One unit (1, 2 or 4 bytes) of every lane's access, lane by lane.

    Attributes:
        position: of the access in its list.
        unit: address in units.
        thread, column: of the lane, in its block and in the wave.
        lane: its index in the flattened group.
        nth: which unit of the lane's access.
    """

    position: int
    access: Access
    nth: int
    unit: IndexArray
    thread: IndexArray
    column: IndexArray
    lane: IndexArray

    def where(self, chosen: npt.NDArray[np.bool_]) -> Part:
        """Return the part's lanes at which a mask holds."""
        return Part(
            self.position, self.access, self.nth, self.unit[chosen], self.thread[chosen], self.column[chosen],
            self.lane[chosen],
        )  # fmt: skip

    def values(self, unit_bytes: int) -> npt.NDArray[np.uint32] | None:
        """Return the bits that each lane writes, or None where they are not known (atomics)."""
        if not self.access.values:
            return None
        size = self.access.values[0].dtype.itemsize
        which, inner = divmod(self.nth * unit_bytes, size)
        value = np.broadcast_to(self.access.values[which], self.access.lanes.shape).ravel()[self.lane]
        bits = np.ascontiguousarray(value).view(np.uint8).reshape(-1, size)[:, inner : inner + unit_bytes]
        wide = np.zeros((len(bits), WORD_BYTES), np.uint8)
        wide[:, :unit_bytes] = bits
        return wide.view(np.uint32)[:, 0]


def chosen(access: Access, mask: npt.NDArray[np.bool_]) -> Iterator[Access]:
    """Yield an access as the lanes of a mask see it, if there are any."""
    if mask.all():
        yield access
    elif mask.any():
        subset = access.lanes.subset(mask)
        values = [subset.take(value) for value in access.values]
        yield access._replace(lanes=subset.lanes, address=subset.take(access.address), values=values)


def unit_of(accesses: Sequence[Access]) -> int:
    """Return the largest unit in bytes, at most a word, that every one of the accesses is made of."""
    return min(WORD_BYTES, min(access.site.nbytes for access in accesses))


def parts_of(accesses: Sequence[tuple[int, Access]], unit_bytes: int, one_block: bool) -> Iterator[Part]:
    """Yield the units of accesses, given with their positions; of the wave's first block only, if `one_block`."""
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
            unit = (first if first.shape == lanes.shape else np.broadcast_to(first, lanes.shape)).ravel()
        for nth in range(access.site.nbytes // unit_bytes):
            yield Part(position, access, nth, unit + nth if nth else unit, thread, column, lane)


def in_pieces(parts: list[Part], most: int) -> Iterator[list[Part]]:
    """Yield parts cut by address, so that about as many words as given, or one, lie in each piece."""
    if sum(len(part.unit) for part in parts) <= most:
        yield from [parts] if parts else []
        return
    units = np.sort(np.concatenate([part.unit for part in parts]))
    for low, high in pairwise([*np.unique(units[::most]), units[-1] + 1]):
        inside = ((part, (part.unit >= low) & (part.unit < high)) for part in parts)
        yield [part.where(mask) for part, mask in inside if mask.any()]


def spread(
    accesses: Sequence[Access], unit_bytes: int, one_block: bool, by_block: bool
) -> tuple[IndexArray, npt.NDArray[np.int32]]:
    """Return what `parts_of` yields at once and in its order: a key of each unit, and a number of its thread.

    Args:
        by_block: whether the same unit of two blocks has two keys.
    """
    wave = accesses[0].lanes.wave
    addresses, whos, columns = [], [], []
    for access in accesses:
        lanes = access.lanes
        shape = (len(lanes.threads), 1) if one_block else lanes.shape
        address = access.address
        if address.shape != shape:
            address = np.broadcast_to(address, shape)
        for nth in range(access.site.nbytes // unit_bytes):
            addresses.append((address + address.dtype.type(nth * unit_bytes) if nth else address).reshape(-1))
            whos.append(lanes.threads if one_block else lanes.position.reshape(-1))
            if by_block:
                columns.append(lanes.each[1])
    unit = np.concatenate(addresses).astype(np.intp) >> (unit_bytes.bit_length() - 1)
    key = unit * wave.columns + np.concatenate(columns) if by_block else unit
    return key, np.concatenate(whos, dtype=np.int32, casting="unsafe")

"""Vector clocks of the threads of a block, advanced by warp syncs, named barriers and mbarriers."""

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Lanes, to_warps

from .accesses import PHASES, Event, Mask, MbarrierEvent, NamedBarrierEvent, WarpSync, split_phase


class VectorClock:
    """The vector clocks of all threads: the position up to which accesses of each other thread happen before.

    There are entries for all warps of a thread's block if `across_warps`, else for its own warp only.
    """

    def __init__(self, columns: int, warps: int, across_warps: bool) -> None:
        self._warps, self._across = warps, across_warps
        width = WARP * warps if across_warps else WARP
        self._table = np.full((columns, warps, WARP, width), -1, np.int32)
        self._arrived: dict[int, npt.NDArray[np.int32]] = {}
        # per mbarrier, the joined clocks of the arrivals in its phase, and of all arrivals up to the end of a phase
        self._arriving: dict[int, npt.NDArray[np.int32]] = {}
        self._complete: dict[tuple[int, int], npt.NDArray[np.int32]] = {}

    def of(self, column: IndexArray, thread: IndexArray, warps: IndexArray) -> npt.NDArray[np.int32]:
        """Return the clock entries of each thread for the 32 lanes of some warps (threads, n): (threads, n, 32)."""
        column, warp, lane = (each[:, None] for each in (column, thread // WARP, thread % WARP))
        if self._across:
            return self._table.reshape(*self._table.shape[:3], self._warps, WARP)[column, warp, lane, warps]
        return np.where((warps == warp)[..., None], self._table[column, warp, lane], np.int32(-1))

    def entry(self, column: IndexArray, thread: IndexArray, other: IndexArray) -> npt.NDArray[np.int32]:
        """Return the clock entry of each thread for one other thread."""
        warp, lane = thread // WARP, thread % WARP
        if self._across:
            return self._table[column, warp, lane, other]
        return np.where(other // WARP == warp, self._table[column, warp, lane, other % WARP], np.int32(-1))

    def warp_sync(self, bits: npt.NDArray[np.uint32], position: int) -> None:
        """Join the clocks of lanes that have waited for each other; `bits` (columns, warps, 32) has the masks."""
        # without an index, `np.unique` imports numpy.ma, which takes 20 ms
        for value in np.unique(bits[bits != 0], return_index=True)[0]:
            members = bits == value
            column, warp = np.nonzero(members.any(axis=2))  # few, if lanes of equal values wait for each other
            mine, table = members[column, warp][..., None], self._table[column, warp]
            joined = np.where(mine, table, -1).max(axis=1)
            own = joined.reshape(len(joined), -1, WARP)
            at = np.arange(len(joined)), warp if self._across else 0
            own[at] = np.where(mine[..., 0], position, own[at])
            self._table[column, warp] = np.where(mine, joined[:, None], table)

    def sync_all(self, position: int) -> None:
        """Advance all clocks: all lanes of every warp have waited for each other."""
        self._table[:] = position

    def by_all_others(self, threads: int) -> npt.NDArray[np.int32]:
        """Return the least clock entry for each thread in the other lanes of its warp: (columns, threads)."""
        columns, warps = self._table.shape[:2]
        lane = np.arange(warps * WARP).reshape(1, warps, WARP, 1)
        ignored = (lane % WARP == np.arange(WARP)) | (lane >= threads)
        least = np.where(ignored, np.iinfo(np.int32).max, self._table).min(axis=2)
        return np.asarray(least.reshape(columns, warps * WARP)[:, :threads])

    def barrier(self, members: Mask, number: int, leaving: bool, position: int) -> None:
        """Record an arrival at a named barrier, or join the clocks of all arrivals on leaving it."""
        before = self._arrived.pop(number, np.int32(-1))
        joined = np.maximum(np.where(members[..., None], self._table, -1).max(axis=(1, 2)), before)
        joined[members.reshape(len(members), -1)] = position
        if not leaving:
            self._arrived[number] = joined
            return
        spread = np.broadcast_to(joined[:, None, None], self._table.shape)
        self._table[members] = np.maximum(self._table, spread)[members]

    def phase(self, what: str, members: Mask, barrier: int, position: int) -> None:
        """Record an arrival at an mbarrier or the end of a phase, or join its arrivals' clocks after a wait."""
        address, phase = split_phase(barrier)
        nothing = np.full((len(members), self._table.shape[-1]), -1, np.int32)
        arriving = self._arriving.get(address, nothing)
        if what == "arrive":
            joined = np.where(members[..., None], self._table, -1).max(axis=(1, 2))
            joined[members.reshape(len(members), -1)] = position
            self._arriving[address] = np.maximum(arriving, joined)
        elif what == "complete":
            done = members.reshape(len(members), -1).any(axis=1, keepdims=True)
            earlier = self._complete.get((address, (phase - 1) % PHASES), nothing)
            before = self._complete.get((address, phase), nothing)
            self._complete[address, phase] = np.where(done, np.maximum(earlier, arriving), before)
            self._arriving[address] = np.where(done, np.int32(-1), arriving)
        else:
            complete = self._complete.get((address, phase), nothing)
            spread = np.broadcast_to(complete[:, None, None], self._table.shape)
            self._table[members] = np.maximum(self._table[members], spread[members])

    def known_to_all(self, threads: int) -> npt.NDArray[np.int32]:
        """Return the least clock entry for each thread in the other threads of its block: (columns, threads)."""
        columns, warps = self._table.shape[:2]
        table = self._table.reshape(columns, warps * WARP, -1)[:, :threads, :threads].copy()
        table[:, np.arange(threads), np.arange(threads)] = np.iinfo(np.int32).max
        return np.asarray(table.min(axis=1))


def sync_bits(event: WarpSync, columns: IndexArray, one_block: bool) -> npt.NDArray[np.uint32]:
    """Return a warp sync's masks as (columns, warps, 32), 0 for absent lanes."""
    bits = to_warps(event.lanes, np.asarray(event.mask, np.uint32), np.uint32(0))
    if bits.shape[2] > 1:
        return np.ascontiguousarray(bits[:, :, columns].transpose(2, 0, 1))
    here = np.isin(columns, event.lanes.columns) | one_block
    return np.where(here[:, None, None], bits[None, :, :, 0], np.uint32(0))


def members(lanes: Lanes, columns: IndexArray) -> Mask:
    """Return a mask of the threads of some lanes: (columns, warps, 32)."""
    wave = lanes.wave
    there = np.zeros((wave.warps * WARP, wave.columns), np.bool_)
    there[lanes.cells] = True
    return np.ascontiguousarray(there[:, columns].T).reshape(len(columns), wave.warps, WARP)


def advance(clocks: VectorClock, event: Event, position: int, columns: IndexArray, one_block: bool) -> None:
    """Advance the vector clocks of some columns of a wave by the event at a position in the list of events.

    With `one_block`, all blocks have the same events, and the clocks are those of the first column.
    """
    if isinstance(event, WarpSync):
        clocks.warp_sync(sync_bits(event, columns, one_block), position)
    elif isinstance(event, NamedBarrierEvent):
        clocks.barrier(members(event.lanes, columns), event.number, event.leaving, position)
    elif isinstance(event, MbarrierEvent):
        if event.address.size == 1:
            clocks.phase(event.what, members(event.lanes, columns), int(event.address.flat[0]), position)
            return
        addresses = np.broadcast_to(event.address, event.lanes.shape)
        for address in np.unique(event.address).tolist():
            mine = event.lanes.subset(np.ascontiguousarray(addresses == address)).lanes
            clocks.phase(event.what, members(mine, columns), address, position)

"""Polls: strong reads and atomics that repeat an earlier one before anything has changed.

A thread may read a flag many times until another thread sets it. A repetition counts as the same access if

- the same thread has made no other synchronisation since: no fence, barrier, strong write, and no other strong access
  that was recorded;
- no thread has made a strong write to that location since.

Then both read the same write, and know the same order before and after. So they race with the same accesses.

A compare-and-swap that fails changes nothing, so no thread can be ordered after it before its own thread's next
synchronisation. After one that failed, further ones of the same thread at the same location race with no other
accesses, whatever they read.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Shape
from pytest_gpulab.devices.simulated.memory.spaces import Allocation
from pytest_gpulab.devices.simulated.translation.sites import SHARED_WINDOW

from .accesses import MemoryAccess

MAX_WRITES = 64  # strong writes since the repeated access; with more, an access counts as new


class StrongWrites:
    """The last strong writes of a launch: time, allocation and addresses."""

    def __init__(self) -> None:
        self._last: deque[tuple[int, Allocation | None, npt.NDArray[np.uint64]]] = deque(maxlen=MAX_WRITES)
        self._forgotten = 0  # the time of the last write that is no longer kept

    def add(self, access: MemoryAccess) -> None:
        """Record a write or an atomic."""
        if len(self._last) == MAX_WRITES:
            self._forgotten = self._last[0][0]
        self._last.append((access.time, access.memory, access.address))

    def since(self, times: npt.NDArray[np.int64], access: MemoryAccess) -> npt.NDArray[np.bool_]:
        """Return a mask of the lanes with a write to their location after a time; True if unknown."""
        found, earliest = times < self._forgotten, int(times.min())
        for time, memory, addresses in reversed(self._last):
            if time <= earliest:
                break
            if memory is access.memory:
                found |= (times < time) & np.isin(access.address, addresses)
        return found


class Polls:
    """The strong accesses of one wave to global memory.

    Args:
        shape: the shape of the wave.
        writes: the strong writes of the launch.
    """

    def __init__(self, shape: Shape, writes: StrongWrites) -> None:
        self._lanes, self._writes = shape.threads * shape.columns, writes
        self._changed = np.zeros(self._lanes, np.int64)  # time of each lane's last synchronisation
        # per instruction and lane: address and time of the last access
        self._polled: dict[int, tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]] = {}

    def synchronised(self, lanes: Lanes, time: int) -> None:
        """Record a synchronisation by lanes."""
        self._changed[lanes.position] = time

    def new(self, access: MemoryAccess) -> MemoryAccess | None:
        """Return the lanes of an access that are no repetition; None if there are none."""
        where = access.lanes.position
        if access.site.modifies and (access.site.access == "write" or not _are_distinct(access)):
            return self._modified(access)
        if access.site.index not in self._polled:
            self._polled[access.site.index] = np.zeros(self._lanes, np.uint64), np.full(self._lanes, -1)
        addresses, times = self._polled[access.site.index]
        acquires = (times[where] < 0) | (addresses[where] != access.address)
        if not acquires.all():  # most accesses are no polls
            acquires |= self._writes.since(times[where], access)
        is_new = acquires | (times[where] < self._changed[where])
        addresses[where], times[where] = access.address, access.time
        if not is_new.any():
            return None
        if access.site.modifies:
            return self._modified(_chosen(access, is_new))
        self._changed[where[acquires]] = access.time
        return _chosen(access, is_new)

    def _modified(self, access: MemoryAccess) -> MemoryAccess:
        self.synchronised(access.lanes, access.time)
        self._writes.add(access)
        return access


class FailedSwaps:
    """The compare-and-swaps of one wave that failed.

    Args:
        shape: the shape of the wave.
    """

    def __init__(self, shape: Shape) -> None:
        self._lanes = shape.threads * shape.columns
        # per lane: the last failed swap since its last synchronisation, by instruction (-1: none) and location
        self._site = np.full(self._lanes, -1)
        self._location = np.zeros(self._lanes, np.uint64)

    def synchronised(self, lanes: Lanes) -> None:
        """Record a synchronisation by lanes."""
        self._site[lanes.position] = -1

    def racing(self, access: MemoryAccess, failed: npt.NDArray[np.bool_]) -> MemoryAccess | None:
        """Return the lanes of a compare-and-swap that may race with others than their last one; None if there are none.

        Args:
            access: the compare-and-swap.
            failed: mask of the lanes that found another value than the expected one.
        """
        base = SHARED_WINDOW if access.memory is None else access.memory.base
        where, location = access.lanes.position, access.address + np.uint64(base)
        is_new = (self._site[where] != access.site.index) | (self._location[where] != location)
        self._site[where] = np.where(failed, access.site.index, -1)
        self._location[where] = location
        return _chosen(access, is_new) if is_new.any() else None


def _are_distinct(access: MemoryAccess) -> bool:
    """Return whether each lane has a location of its own; else an atomic may read what another lane has written."""
    count = access.lanes.n
    return count == 1 or (access.address.size >= count and np.unique(access.address).size == count)


def _chosen(access: MemoryAccess, mask: npt.NDArray[np.bool_]) -> MemoryAccess:
    if mask.all():
        return access
    some = access.lanes.subset(mask)
    values = [some.take(value) for value in access.values]
    return access._replace(lanes=some.lanes, address=some.take(access.address), values=values)

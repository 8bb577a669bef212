"""Polls: strong reads and atomics that repeat an earlier one before anything has changed.

A thread may read a flag many times until another thread sets it. A repetition counts as the same access if

- the same thread has made no other synchronisation since: no fence, barrier, strong write, and no other strong access
  that was recorded;
- no thread has made a strong write to that location since.

Then both read the same write, and know the same order before and after. So they race with the same accesses.

A compare-and-swap that fails changes nothing, so no thread can be ordered after it before its own thread's next
synchronisation. After one that failed, further ones of the same thread at the same location race with no other
accesses, whatever they read.

An atomic that changes nothing and repeats the last access of its thread, as in a spin lock, is a read: what it could
publish, the one before has published. Only the last of such reads in a row counts, because it acquires as much as all
of them. So a lock that n threads wait for costs a record per owner, not n.
"""

from collections import defaultdict, deque

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Shape, Subset
from pytest_gpulab.devices.simulated.memory.spaces import Allocation
from pytest_gpulab.devices.simulated.translation.sites import SHARED_WINDOW

from .accesses import Mask, MemoryAccess, restricted
from .fences import Fences

MAX_WRITES = 64  # since the repeated access; with more, an access counts as new


class LastWrites:
    """The last writes of a launch, of a kind: time, allocation and addresses."""

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
        if found.all():
            return found
        for time, memory, addresses in reversed(self._last):
            if time <= earliest:
                break
            if memory is access.memory:
                is_there = access.address == addresses if addresses.ndim == 0 else np.isin(access.address, addresses)
                found |= (times < time) & is_there
        return found


class Polls:
    """The strong accesses of one wave to global memory; `writes` are the strong writes of the launch."""

    def __init__(self, shape: Shape, writes: LastWrites) -> None:
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
            return self._modified(restricted(access, is_new))
        self._changed[where[acquires]] = access.time
        return restricted(access, is_new)

    def _modified(self, access: MemoryAccess) -> MemoryAccess:
        self.synchronised(access.lanes, access.time)
        self._writes.add(access)
        return access


class FailedSwaps:
    """The compare-and-swaps of one wave that failed."""

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

        `failed` masks the lanes that found another value than the expected one.
        """
        base = SHARED_WINDOW if access.memory is None else access.memory.base
        where, location = access.lanes.position, access.address + np.uint64(base)
        is_new = (self._site[where] != access.site.index) | (self._location[where] != location)
        self._site[where] = np.where(failed, access.site.index, -1)
        self._location[where] = location
        return restricted(access, is_new) if is_new.any() else None


class Spins:
    """The strong reads and atomics of one wave at the same location as the last access of their thread.

    `strong` are the launch's strong writes, but for atomics that change nothing; `plain` its writes other than atomics.
    """

    def __init__(self, shape: Shape, fences: Fences, strong: LastWrites, plain: LastWrites) -> None:
        self._fences, self._strong, self._plain = fences, strong, plain
        lanes = shape.threads * shape.columns
        # per lane: location and time of its last access if that was a strong read or an atomic (location 0: it was not)
        self._location, self._time = np.zeros(lanes, np.uint64), np.zeros(lanes, np.int64)
        self._read = np.full(lanes, -1)  # per lane: time of the record if it was recorded as a read
        # per such record: the lanes that have not read again or gone on, and those that have gone on
        self._left: dict[int, int] = {}
        self._kept: dict[int, list[npt.NDArray[np.intp]]] = defaultdict(list)

    def interrupted(self, lanes: Lanes) -> None:
        """Record that lanes have executed something else."""
        times = self._read[lanes.position]
        if times.max() >= 0:
            self._leave(times.ravel(), lanes.position.ravel())
        self._location[lanes.position], self._read[lanes.position] = 0, -1

    def parts(self, access: MemoryAccess, unchanged: Mask) -> list[tuple[Subset | None, bool]]:
        """Return the lanes of an atomic (None: all) in the order in which they act; True for those that are reads.

        Lanes that read the same write as before are left out. `unchanged` masks the lanes that changed nothing.
        """
        where, shape = access.lanes.position, access.lanes.shape
        same = self._is_repeated(access)
        full = ~(same & unchanged)
        new = full
        if not full.all():  # strong writes to shared memory are not kept
            new = full | (access.memory is None) | self._strong.since(self._time[where], access)
        if not new.any():
            return []
        changing = same & full
        self._leave(self._read[where][changing])
        self._read[where[changing]] = -1
        if new.all() and (not full.any() or full.all()):
            return [(None, not full.any())]
        before, after = _around(_location(access), shape, full.ravel(order="F"))
        is_new = new.ravel(order="F")
        masks = (before & is_new, True), (~(before | after), False), (after & is_new, True)
        return [(access.lanes.subset(mask.reshape(shape, order="F")), reads) for mask, reads in masks if mask.any()]

    def _is_repeated(self, access: MemoryAccess) -> Mask:
        """Return a mask of the lanes with their last access here; atomics have made all changes since then."""
        where = access.lanes.position
        same: Mask = self._location[where] == _location(access)
        if same.any():
            same &= ~self._plain.since(self._time[where], access)
        return same

    def acted(self, access: MemoryAccess) -> None:
        """Record an atomic that changes memory; lanes at the same location will each read what another one wrote."""
        self._at(access, access.time if _are_distinct(access) else access.time - 1)

    def _at(self, access: MemoryAccess, time: int) -> None:
        self._location[access.lanes.position], self._time[access.lanes.position] = _location(access), time

    def read(self, access: MemoryAccess) -> None:
        """Record a strong read, or an atomic that is one, but for lanes that read the same write as before."""
        repeated, where = self._is_repeated(access), access.lanes.position
        again = repeated & (self._read[where] >= 0)
        if access.memory is not None and again.any():  # strong writes to shared memory are not kept
            is_new = ~again | self._strong.since(self._time[where], access)
            if not is_new.any():
                return
            access, repeated = restricted(access, is_new), repeated[is_new]
        self._leave(self._read[access.lanes.position].ravel()[repeated.ravel()])
        self._at(access, access.time)
        self._fences.add(access.time, "read", access.lanes, access.address, access.memory)
        self._read[access.lanes.position], self._left[access.time] = access.time, access.lanes.n

    def _leave(self, times: npt.NDArray[np.int64], where: npt.NDArray[np.intp] | None = None) -> None:
        """Remove lanes from records, or keep them by position. Once all have left, the rest is removed."""
        while len(times):  # most often all lanes have the same one
            time, mine = int(times[0]), times == times[0]
            if time >= 0:
                if where is not None:
                    self._kept[time].append(where[mine])
                self._left[time] -= np.count_nonzero(mine)
                if not self._left[time]:
                    del self._left[time]
                    self._fences.keep(time, self._kept.pop(time, []))
            times, where = times[~mine], None if where is None else where[~mine]


def _location(access: MemoryAccess) -> npt.NDArray[np.uint64]:
    """Return a number of each lane's location in global memory or in the shared memory of its block."""
    base: npt.NDArray[np.uint64] | np.uint64
    if access.memory is not None:
        base = np.uint64(access.memory.base)
    else:
        base = np.uint64(SHARED_WINDOW) * (np.uint64(2) + access.lanes.column.astype(np.uint64))
    return np.asarray(access.address + base)


def _around(location: npt.NDArray[np.uint64], shape: tuple[int, ...], chosen: Mask) -> tuple[Mask, Mask]:
    """Return masks of the lanes before the first chosen one at their location, and after the last one."""
    order = np.arange(len(chosen))
    if location.size == 1:
        mine = np.flatnonzero(chosen)
        return (order < mine[0], order > mine[-1]) if len(mine) else (order >= 0, order < 0)
    number = np.unique(np.broadcast_to(location, shape).ravel(order="F"), return_inverse=True)[1]
    first, last = np.full(len(order), len(order)), np.full(len(order), len(order))
    np.minimum.at(first, number[chosen], order[chosen])
    last[number[chosen]] = order[chosen]  # NumPy keeps the last value of an index
    return order < first[number], order > last[number]


def _are_distinct(access: MemoryAccess) -> bool:
    """Return whether each lane has a location of its own; else an atomic may read what another lane has written."""
    count = access.lanes.n
    return count == 1 or (access.address.size >= count and np.unique(access.address).size == count)

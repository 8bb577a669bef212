"""Equivalence classes of accesses: all accesses of a class have the same order relations to other accesses.

*Earlier* accesses: if the next record of a thread after an access is a barrier of its whole block (fences aside), then
no other thread is ordered after the access before the barrier, and the whole block is from the barrier on. So all such
accesses of a block before one barrier are equivalent.

*Later* accesses: a thread without records since its block's last barrier is ordered after the same accesses as its
block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import IndexArray, Lanes, Value
from pytest_gpulab.devices.simulated.memory.spaces import Allocation

_NEVER = np.iinfo(np.int64).max  # later than every event


class Record(NamedTuple):
    """A synchronisation by some lanes; strong accesses have an `address` and a `memory` (None: shared).

    `what` is one of:

    - `fence`, `block fence` (for its own block only);
    - `read`, `write`, `exchange`, `update` (an atomic with an unused old value);
    - `warps`, a warp sync; `threads`, a barrier of these threads; `blocks`, a barrier of all threads of the lanes'
      blocks;
    - `arrive`, `complete`, `wait` at an mbarrier (see `MbarrierEvent`).
    """

    time: int
    what: str
    lanes: Lanes
    address: Value
    memory: Allocation | None

    def by_block(self) -> Iterator[tuple[int, list[int], Any]]:
        """Yield block, threads and location of the lanes, in order; lanes of a block at one location at once."""
        threads = threads_of(self.lanes)
        first = self.address.flat[0]
        if self.address.size > 1 and not (self.address == first).all():
            for (block, thread), location in zip(threads.tolist(), self.locations(), strict=True):
                yield block, [thread], location
            return
        for block in dict.fromkeys(threads[:, 0].tolist()):
            base = -1 - block if self.memory is None else self.memory.base
            yield block, threads[threads[:, 0] == block, 1].tolist(), (base, int(first))

    def locations(self) -> list[Any]:
        """Return the location in memory of each lane."""
        offsets = np.broadcast_to(self.address, self.lanes.shape).ravel(order="F").tolist()
        if self.memory is not None:
            return [(self.memory.base, offset) for offset in offsets]
        return list(zip((-1 - threads_of(self.lanes)[:, 0]).tolist(), offsets, strict=True))


class Classes:
    """The classes of a launch's accesses, by its records of `Fences` so far, in order."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._span = 1 + (records[-1].time if records else 0)
        self._width = records[0].lanes.wave.threads if records else 1
        kinds: dict[str, list[npt.NDArray[np.int64]]] = {"fence": [], "block fence": [], "blocks": [], "own": []}
        for record in records:
            accessors = threads_of(record.lanes)
            owner = accessors[:, 0] if record.what == "blocks" else accessors[:, 0] * self._width + accessors[:, 1]
            kinds.get(record.what, kinds["own"]).append(owner * self._span + record.time)
        tables = {kind: _Timeline(keys, self._span) for kind, keys in kinds.items()}
        self._fences, self._inner = tables["fence"], tables["block fence"]
        self._barriers, self._own = tables["blocks"], tables["own"]
        self._any = _Timeline([*kinds["fence"], *kinds["block fence"], *kinds["own"]], self._span)

    def earlier(self, accessors: Accessors) -> tuple[IndexArray, IndexArray]:
        """Return the class of each access as the earlier of two, and the time before which no other thread follows."""
        thread = accessors.block * self._width + accessors.thread
        barrier, index = self._barriers.after(accessors.block, accessors.time)
        own, fence = self._own.after(thread, accessors.time)[0], self._fences.after(thread, accessors.time)[0]
        inner = self._inner.after(thread, accessors.time)[0]
        is_strong = self._own.has(thread, accessors.time)
        is_equivalent = (barrier < own) & ~is_strong
        equivalent = -1 - (index * 4 + 2 * (fence < barrier) + (inner < barrier))
        rest = (self._any.after(thread, accessors.time)[1] * self._threads(thread) + thread) * 2 + is_strong
        return np.where(is_equivalent, equivalent, rest), np.where(is_strong, 0, np.minimum(own, barrier))

    def later(self, accessors: Accessors) -> IndexArray:
        """Return the class of each access as the later of two."""
        thread = accessors.block * self._width + accessors.thread
        barrier, index = self._barriers.before(accessors.block, accessors.time)
        own, mine = self._own.before(thread, accessors.time)
        threads = self._threads(thread)
        return np.where(own > barrier, mine * threads + thread, -1 - (index * threads + accessors.block))

    def both(self, accessors: Accessors) -> tuple[IndexArray, IndexArray]:
        """Return the class of each access as the earlier and as the later of two."""
        return self.earlier(accessors)[0], self.later(accessors)

    @staticmethod
    def _threads(thread: IndexArray) -> int:
        return 1 + int(thread.max(initial=0))


class Accessors(NamedTuple):
    """The block, the thread in it and the time of accesses."""

    block: IndexArray
    thread: IndexArray
    time: IndexArray

    def at(self, chosen: npt.NDArray[np.generic]) -> Accessors:
        """Return a selection of the accesses."""
        return Accessors(self.block[chosen], self.thread[chosen], self.time[chosen])


class _Timeline:
    """The times of the records of many owners, as sorted keys `owner * span + time`."""

    def __init__(self, keys: Sequence[npt.NDArray[np.int64]], span: int) -> None:
        self._keys, self._span = np.sort(np.concatenate([*keys, np.zeros(0, np.int64)])), span

    def after(self, owner: IndexArray, time: IndexArray) -> tuple[IndexArray, IndexArray]:
        """Return the time of each owner's next record, and its index in the table."""
        index = np.searchsorted(self._keys, owner * self._span + np.minimum(time, self._span - 1), side="right")
        return self._time(index, owner, _NEVER), index

    def before(self, owner: IndexArray, time: IndexArray) -> tuple[IndexArray, IndexArray]:
        """Return the time of each owner's last record before (-1: none), and its index in the table."""
        index = np.searchsorted(self._keys, owner * self._span + np.minimum(time, self._span), side="left")
        return self._time(index - 1, owner, -1), index

    def has(self, owner: IndexArray, time: IndexArray) -> npt.NDArray[np.bool_]:
        """Return a mask of the owners that have a record at the time."""
        index = np.searchsorted(self._keys, owner * self._span + time)
        found: npt.NDArray[np.bool_] = (self._time(index, owner, -1) == time) & (time < self._span)
        return found

    def _time(self, index: IndexArray, owner: IndexArray, otherwise: int) -> IndexArray:
        inside = (index >= 0) & (index < len(self._keys))
        key = np.append(self._keys, -1)[np.where(inside, index, -1)]
        return np.where(inside & (key // self._span == owner), key % self._span, otherwise)


def threads_of(lanes: Lanes) -> npt.NDArray[np.int64]:
    """Return (block, thread in it) of each lane, block by block."""
    if lanes.n == 1:  # as in a lock
        return np.array([[lanes.wave.block_ids[lanes.columns[0]], lanes.threads.flat[0]]], np.int64)
    shape = lanes.shape
    block = np.broadcast_to(lanes.wave.block_ids[lanes.column], shape).ravel(order="F")
    thread = np.broadcast_to(lanes.threads.reshape(-1, 1), shape).ravel(order="F")
    return np.stack([block, thread], axis=1).astype(np.int64)

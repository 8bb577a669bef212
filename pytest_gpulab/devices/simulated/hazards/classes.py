"""Accesses that no fence, barrier or strong access can tell apart: they have one answer to every question of order.

A thread whose next record after an access is a barrier of its whole block, fences aside, tells nobody before it of the
access; from the barrier on the whole block knows of it. So all such accesses of a block before one barrier are alike. A
thread that has learned nothing by itself since its block's last barrier knows what its block knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import IndexArray, Lanes

if TYPE_CHECKING:
    from .fences import Record

_NEVER = np.iinfo(np.int64).max


class Classes:
    """The classes of a launch's accesses, by its records so far.

    Args:
        records: of `Fences`, in order.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._span = 1 + (records[-1].time if records else 0)
        self._width = records[0].lanes.wave.threads if records else 1
        kinds: dict[str, list[npt.NDArray[np.int64]]] = {"fence": [], "block fence": [], "blocks": [], "own": []}
        for record in records:
            who = threads_of(record.lanes)
            owner = who[:, 0] if record.what == "blocks" else who[:, 0] * self._width + who[:, 1]
            kinds.get(record.what, kinds["own"]).append(owner * self._span + record.time)
        tables = {kind: _Moments(keys, self._span) for kind, keys in kinds.items()}
        self._fences, self._inner = tables["fence"], tables["block fence"]
        self._meetings, self._own = tables["blocks"], tables["own"]
        self._any = _Moments([*kinds["fence"], *kinds["block fence"], *kinds["own"]], self._span)

    def earlier(self, who: Who) -> tuple[IndexArray, IndexArray]:
        """Return the class of each access as the earlier one of two, and until when no other thread knows of it."""
        thread = who.block * self._width + who.thread
        meeting, place = self._meetings.after(who.block, who.time)
        own, fence = self._own.after(thread, who.time)[0], self._fences.after(thread, who.time)[0]
        inner = self._inner.after(thread, who.time)[0]
        is_strong = self._own.has(thread, who.time)
        is_alike = (meeting < own) & ~is_strong
        alike = -1 - (place * 4 + 2 * (fence < meeting) + (inner < meeting))
        rest = (self._any.after(thread, who.time)[1] * self._threads(thread) + thread) * 2 + is_strong
        return np.where(is_alike, alike, rest), np.where(is_strong, 0, np.minimum(own, meeting))

    def later(self, who: Who) -> IndexArray:
        """Return the class of each access as the later one of two."""
        thread = who.block * self._width + who.thread
        meeting, place = self._meetings.before(who.block, who.time)
        own, mine = self._own.before(thread, who.time)
        threads = self._threads(thread)
        return np.where(own > meeting, mine * threads + thread, -1 - (place * threads + who.block))

    def both(self, who: Who) -> tuple[IndexArray, IndexArray]:
        """Return the class of each access as the earlier and as the later one of two."""
        return self.earlier(who)[0], self.later(who)

    @staticmethod
    def _threads(thread: IndexArray) -> int:
        return 1 + int(thread.max(initial=0))


class Who(NamedTuple):
    """Accesses: the block and the thread in it of each, and when it was."""

    block: IndexArray
    thread: IndexArray
    time: IndexArray

    def at(self, chosen: npt.NDArray[np.generic]) -> Who:
        """Return some of them."""
        return Who(self.block[chosen], self.thread[chosen], self.time[chosen])


class _Moments:
    """When each of many owners did something, as sorted keys `owner * span + time`."""

    def __init__(self, keys: Sequence[npt.NDArray[np.int64]], span: int) -> None:
        self._keys, self._span = np.sort(np.concatenate([*keys, np.zeros(0, np.int64)])), span

    def after(self, owner: IndexArray, time: IndexArray) -> tuple[IndexArray, IndexArray]:
        """Return when each owner did something next, and the place in the table."""
        place = np.searchsorted(self._keys, owner * self._span + np.minimum(time, self._span - 1), side="right")
        return self._time(place, owner, _NEVER), place

    def before(self, owner: IndexArray, time: IndexArray) -> tuple[IndexArray, IndexArray]:
        """Return when each owner did something last (-1: never), and the place in the table."""
        place = np.searchsorted(self._keys, owner * self._span + np.minimum(time, self._span), side="left")
        return self._time(place - 1, owner, -1), place

    def has(self, owner: IndexArray, time: IndexArray) -> npt.NDArray[np.bool_]:
        """Return whether each owner did something just then."""
        place = np.searchsorted(self._keys, owner * self._span + time)
        found: npt.NDArray[np.bool_] = (self._time(place, owner, -1) == time) & (time < self._span)
        return found

    def _time(self, place: IndexArray, owner: IndexArray, otherwise: int) -> IndexArray:
        inside = (place >= 0) & (place < len(self._keys))
        key = np.append(self._keys, -1)[np.where(inside, place, -1)]
        return np.where(inside & (key // self._span == owner), key % self._span, otherwise)


def threads_of(lanes: Lanes) -> npt.NDArray[np.int64]:
    """Return (block, thread in it) of each lane, in the order of `wave`: a block after the other."""
    shape = lanes.shape
    block = np.broadcast_to(lanes.wave.block_ids[lanes.column], shape).ravel(order="F")
    thread = np.broadcast_to(lanes.threads.reshape(-1, 1), shape).ravel(order="F")
    return np.stack([block, thread], axis=1).astype(np.int64)

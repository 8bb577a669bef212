"""Races within a block, exactly: goes through the accesses of some words in order and compares each with those before.

Two accesses of different threads to the same bytes, one of them a write, race unless the later thread knows that the
earlier access is over. It knows of accesses of its warp before the last `__syncwarp` of both, of those before a named
barrier of both, of those before an arrival in a phase of an mbarrier that it has waited for, and of all that those
threads knew. (Barriers of whole blocks order everything; what they part is
never given here together.) For each word the last write and the readers since then are held: see `Sweep` (after
FastTrack, Flanagan and Freund, 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray

from .accesses import Arrival, Event, Part, Phase
from .vector_clocks import Mask, VectorClock, learn

Positions = npt.NDArray[np.int32]
AT_ONCE = 1 << 16  # earlier accesses that are compared at once


class Race(NamedTuple):
    """What an access of some lanes met: for each of them, which access (by position) of which thread of its block.

    Attributes:
        part: the later access, at the lanes that race only.
        kind: `RAW`, `WAR` or `WAW`: the later access first.
        harmless: for each lane, whether both wrote the same value.
    """

    part: Part
    kind: str
    other: Positions
    thread: IndexArray
    harmless: Mask


class _AccessHistory:
    """Who accessed each word in one way, and when: the lanes of one warp, and the last thread of another one.

    That is enough where threads know of their own warp only: one of another warp stands for all others.
    """

    def __init__(self, words: int) -> None:
        self.at = np.full((words, WARP), -1, np.int32)  # of the warp, by lane
        self.warp = np.full(words, -1, np.intp)
        self.other_at = np.full(words, -1, np.int32)
        self.other_thread = np.zeros(words, np.intp)

    def add(self, part: Part, words: IndexArray) -> None:
        """Note an access."""
        warps = part.thread // WARP
        for warp in np.unique(warps):
            mine = warps == warp
            here, lane = words[mine], part.thread[mine] % WARP
            moved = np.unique(here[(self.warp[here] >= 0) & (self.warp[here] != warp)])
            self.other_at[moved] = self.at[moved].max(axis=1)
            self.other_thread[moved] = self.warp[moved] * WARP + self.at[moved].argmax(axis=1)
            self.at[moved] = -1
            self.warp[here] = warp
            self.at[here, lane] = part.position

    def forget(self, words: IndexArray) -> None:
        """Note that nobody accessed these."""
        self.at[words] = -1
        self.warp[words] = self.other_at[words] = -1

    def warps(self, words: IndexArray) -> Iterator[tuple[IndexArray, npt.NDArray[np.int32]]]:
        """Yield for each word some warps (-1: none) and when their lanes accessed it: (words, n), (words, n, 32)."""
        yield self.warp[words, None], self.at[words, None]

    def others(self, words: IndexArray) -> tuple[Positions, IndexArray]:
        """Return for each word when (-1: never) and by which thread another warp accessed it."""
        return self.other_at[words], self.other_thread[words]


class _AllDoers(_AccessHistory):
    """The last access of every thread to each word: where threads know of some other warps, none stands for another."""

    def __init__(self, words: int) -> None:
        self._places: dict[int, int] = {}  # of warps in the table
        self._at = np.full((words, 1, WARP), -1, np.int32)

    def add(self, part: Part, words: IndexArray) -> None:
        """Note an access."""
        warps = part.thread // WARP
        for warp in np.unique(warps).tolist():
            mine = warps == warp
            place = self._places.setdefault(warp, len(self._places))
            if place == self._at.shape[1]:
                self._at = np.concatenate([self._at, np.full_like(self._at, -1)], axis=1)
            self._at[words[mine], place, part.thread[mine] % WARP] = part.position

    def forget(self, words: IndexArray) -> None:
        """Note that nobody accessed these."""
        self._at[words] = -1

    def warps(self, words: IndexArray) -> Iterator[tuple[IndexArray, npt.NDArray[np.int32]]]:
        """Yield for each word some warps, and when their lanes accessed it: (words, n), (words, n, 32)."""
        warps = np.array([*self._places], np.intp)
        some = max(1, AT_ONCE // (len(words) * WARP))
        for start in range(0, len(warps), some):
            these = warps[start : start + some]
            yield np.broadcast_to(these, (len(words), len(these))), self._at[words, start : start + len(these)]

    def others(self, words: IndexArray) -> tuple[Positions, IndexArray]:
        """Return that there are no others."""
        return np.full(len(words), -1, np.int32), np.zeros(len(words), np.intp)


class _Write:
    """The last write to each word of one kind, or of any: when, by whom, and what."""

    def __init__(self, words: int) -> None:
        self.at = np.full(words, -1, np.int32)
        self.thread = np.zeros(words, np.intp)
        self.value = np.zeros(words, np.uint32)
        self.has_value = np.zeros(words, np.bool_)

    def note(self, part: Part, words: IndexArray, values: npt.NDArray[np.uint32] | None) -> None:
        """Note one."""
        self.at[words] = part.position
        self.thread[words] = part.thread
        self.has_value[words] = values is not None
        if values is not None:
            self.value[words] = values


class Sweep:
    """The words of one memory that more than one thread of a block uses, and what happened to them so far.

    Whoever is ordered after a weak write is ordered after all before it, or a race was found already. Not so after one
    that races with less: atomics need no order among each other. So what came before those is kept, too.

    Args:
        words: how many there are.
        any_strong: whether some accesses are not weak.
        strong: (positions and threads of earlier accesses, later access and its threads) to where the memory model lets
            both be.
        any_order: whether more than warp syncs orders threads: named barriers, or fences, which are asked about later.
    """

    def __init__(
        self,
        known: VectorClock,
        words: int,
        any_strong: bool,
        unit_bytes: int,
        strong: Callable[[Positions, IndexArray, Part, IndexArray], Mask],
        any_order: bool,
    ) -> None:
        self.known, self.unit_bytes, self.strong = known, unit_bytes, strong
        self._any_strong, strong_words = any_strong, words if any_strong else 0  # they take much memory
        self.write, self.weak_write = _Write(words), _Write(strong_words)
        doers, self._all = _AllDoers if any_order else _AccessHistory, any_order
        self.reads, self.strong_reads, self.strong_writes = doers(words), doers(strong_words), doers(strong_words)

    def access(self, part: Part, words: IndexArray, columns: IndexArray) -> Iterator[Race]:
        """Compare an access with those before, then note it; words and columns are numbered from 0."""
        site = part.access.site
        values = part.values(self.unit_bytes) if site.modifies else None
        yield from self._against_write(self.write, part, words, columns, values)
        if self._any_strong:
            older = np.where(self.weak_write.at[words] == self.write.at[words], np.int32(-1), self.weak_write.at[words])
            yield from self._against_write(self.weak_write, part, words, columns, values, older)
            kind = "WAW" if site.modifies else "RAW"
            yield from self._against(self.strong_writes, kind, part, words, columns)
        if site.modifies:
            yield from self._among_its_lanes(part, words, values)
            yield from self._against(self.reads, "WAR", part, words, columns)
            if self._any_strong:
                yield from self._against(self.strong_reads, "WAR", part, words, columns)
        self._note(part, words, values)

    # --- comparing ---------------------------------------------------------------------------------------

    def _unordered(self, columns: IndexArray, part: Part, at: Positions, thread: IndexArray) -> Mask:
        there: Mask = (at >= 0) & (thread != part.thread)
        if not there.any():
            return there
        known = self.known.of(columns, part.thread, (thread // WARP)[:, None])[np.arange(len(at)), 0, thread % WARP]
        there &= (known < at) & ~self.strong(at, thread, part, part.thread)
        return there

    def _against_write(
        self,
        write: _Write,
        part: Part,
        words: IndexArray,
        columns: IndexArray,
        values: npt.NDArray[np.uint32] | None,
        at: Positions | None = None,
    ) -> Iterator[Race]:
        at, thread = write.at[words] if at is None else at, write.thread[words]
        bad = self._unordered(columns, part, at, thread)
        if bad.any():
            same = np.zeros(len(bad), np.bool_)
            if values is not None:
                same = write.has_value[words] & (write.value[words] == values)
            kind = "WAW" if part.access.site.modifies else "RAW"
            yield Race(part.where(bad), kind, at[bad], thread[bad], same[bad])

    def _among_its_lanes(self, part: Part, words: IndexArray, values: npt.NDArray[np.uint32] | None) -> Iterator[Race]:
        """Lanes that write the same word in the same instruction."""
        if part.access.site.is_strong:
            return
        order = np.arange(len(words))
        last = np.zeros(len(self.write.at), np.intp)
        last[words] = order
        bad = last[words] != order
        if bad.any():
            winner = last[words][bad]
            same = np.zeros(len(winner), np.bool_) if values is None else values[winner] == values[bad]
            at = np.full(len(winner), part.position, np.int32)
            yield Race(part.where(bad), "WAW", at, part.thread[winner], same)

    def _against(
        self, doers: _AccessHistory, kind: str, part: Part, words: IndexArray, columns: IndexArray
    ) -> Iterator[Race]:
        """Compare with all that are noted, but for the last write, with which it was compared."""
        for warps, at in doers.warps(words):
            yield from self._against_warps(warps, at, kind, part, words, columns)
        at, thread = doers.others(words)
        at = np.where((at == self.write.at[words]) & (thread == self.write.thread[words]), np.int32(-1), at)
        bad = self._unordered(columns, part, at, thread)
        if bad.any():
            yield Race(part.where(bad), kind, at[bad], thread[bad], np.zeros(int(bad.sum()), np.bool_))

    def _against_warps(
        self,
        warps: IndexArray,
        at: npt.NDArray[np.int32],
        kind: str,
        part: Part,
        words: IndexArray,
        columns: IndexArray,
    ) -> Iterator[Race]:
        bad = at >= 0
        if not bad.any():
            return
        bad &= at > self.known.of(columns, part.thread, np.maximum(warps, 0))
        thread = (warps[..., None] * WARP + np.arange(WARP)).reshape(len(words), -1)
        at, bad = at.reshape(thread.shape), bad.reshape(thread.shape)
        bad &= thread != part.thread[:, None]
        bad &= (at != self.write.at[words][:, None]) | (thread != self.write.thread[words][:, None])
        rows, lanes = np.nonzero(bad)
        if len(rows):
            bad[rows, lanes] = ~self.strong(at[rows, lanes], thread[rows, lanes], part, part.thread[rows])
        while bad.any():
            any_bad = np.asarray(bad.any(axis=1))
            rows = np.flatnonzero(any_bad)
            which = np.where(bad, at, -1).argmax(axis=1)[rows]
            other, who = at[rows, which], thread[rows, which]
            yield Race(part.where(any_bad), kind, other, who, np.zeros(len(rows), np.bool_))
            if not self._all:
                return
            bad[rows, which] = False

    # --- noting -----------------------------------------------------------------------------------------------

    def _note(self, part: Part, words: IndexArray, values: npt.NDArray[np.uint32] | None) -> None:
        site = part.access.site
        is_weak = site.is_weak
        if not site.modifies:
            (self.reads if is_weak else self.strong_reads).add(part, words)
            return
        self.write.note(part, words, values)
        if not is_weak:
            self.strong_writes.add(part, words)
            return
        self.reads.forget(words)
        if self._any_strong:
            self.weak_write.note(part, words, values)
            self.strong_reads.forget(words)
            self.strong_writes.forget(words)


def races(
    events: Sequence[Event],
    parts: Sequence[Part],
    strong: Callable[[Positions, IndexArray, Part, IndexArray], Mask],
    unit_bytes: int,
    one_block: bool,
    any_order: bool,
) -> Iterator[Race]:
    """Yield the races among some accesses of one memory within blocks.

    Args:
        events: all since the last barrier of the whole block, in order.
        parts: the accesses to look at, in order.
        strong: see `Sweep`.
        unit_bytes: what a part is made of.
        one_block: whether the parts are those of one block that stands for all.
        any_order: see `Sweep`.
    """
    wave = parts[0].access.lanes.wave
    columns, numbered = np.unique(np.concatenate([part.column for part in parts]), return_inverse=True)
    keys = np.concatenate([part.unit for part in parts]) * len(columns) + numbered
    words, index = np.unique(keys, return_inverse=True)
    across = any(isinstance(event, Arrival | Phase) for event in events)
    known = VectorClock(len(columns), wave.warps, across)
    any_strong = any(not part.access.site.is_weak for part in parts)
    sweep = Sweep(known, len(words), any_strong, unit_bytes, strong, any_order)
    ends = np.cumsum([len(part.unit) for part in parts])
    at = 0
    for position, event in enumerate(events):
        learn(known, event, position, columns, one_block)
        while at < len(parts) and parts[at].position == position:
            span = slice(ends[at] - len(parts[at].unit), ends[at])
            if len(parts[at].unit):
                yield from sweep.access(parts[at], index[span], numbered[span])
            at += 1

"""Exact detection of races within a block: compare each access to a word with earlier ones (FastTrack).

Two accesses of different threads to the same bytes, one of them a write, race unless the earlier one happens before the
later one. The order comes from `__syncwarp`, named barriers and phases of mbarriers, and it is transitive: see
`vector_clocks`. Barriers of whole blocks order everything, so the accesses given here are between two of them.

Per word, the last write and the reads since then are kept: see `Sweep`. Source: Flanagan and Freund, "FastTrack", 2009.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray

from .accesses import AccessPiece, Event, Mask, MbarrierEvent, NamedBarrierEvent, numbered
from .vector_clocks import VectorClock, advance

Positions = npt.NDArray[np.int32]
Permitted = Callable[[Positions, IndexArray, AccessPiece, IndexArray], Mask]
"""A function of positions and threads of earlier accesses, the later access and its threads."""
AT_ONCE = 1 << 16  # earlier accesses per comparison


class RacingLanes(NamedTuple):
    """Lanes of an access that race, each with an earlier access of its block."""

    piece: AccessPiece  # the later access, for the racing lanes only
    kind: str  # `RAW`, `WAR` or `WAW`: the later access first
    other: npt.NDArray[Any]  # position of the earlier access, per lane
    thread: IndexArray  # its thread
    harmless: Mask  # True per lane if both write the same value


class _WarpHistory:
    """The last accesses of one kind to each word: those by the lanes of one warp, and one by another warp.

    This suffices if only warp syncs order threads. Then a thread races with all threads of other warps or with none, so
    one access of another warp represents all others.
    """

    def __init__(self, words: int) -> None:
        self.held = np.zeros(words, np.bool_)
        self.at = np.full((words, WARP), -1, np.int32)  # position per lane of the warp
        self.warp = np.full(words, -1, np.intp)
        self.other_at = np.full(words, -1, np.int32)
        self.other_thread = np.zeros(words, np.intp)

    def add(self, piece: AccessPiece, words: IndexArray) -> None:
        """Record an access."""
        self.held[words] = True
        warps, before = piece.thread // WARP, self.warp[words]
        self.warp[words] = warps
        if (self.warp[words] == warps).all():  # each word is accessed by one warp only
            self._add(piece, words, warps, before)
            return
        self.warp[words] = before
        for warp in np.unique(warps):
            mine = warps == warp
            before = self.warp[words[mine]]
            self.warp[words[mine]] = warp
            self._add(piece.where(mine), words[mine], warps[mine], before)

    def _add(self, piece: AccessPiece, words: IndexArray, warps: IndexArray, before: IndexArray) -> None:
        """Record the access of one warp per word; `before` has the warps with accesses until then, -1 for none."""
        is_moved = (before >= 0) & (before != warps)
        if is_moved.any():
            moved, first = np.unique(words[is_moved], return_index=True)
            self.other_at[moved] = self.at[moved].max(axis=1)
            self.other_thread[moved] = before[is_moved][first] * WARP + self.at[moved].argmax(axis=1)
            self.at[moved] = -1
        self.at[words, piece.thread % WARP] = piece.position

    def remove(self, words: IndexArray) -> None:
        """Remove all accesses to these words."""
        self.held[words] = False
        self.at[words] = -1
        self.warp[words] = self.other_at[words] = -1

    def warps(self, words: IndexArray) -> Iterator[tuple[IndexArray, npt.NDArray[np.int32]]]:
        """Yield some warps per word (-1: none) and the positions of their accesses: (words, n), (words, n, 32)."""
        yield self.warp[words, None], self.at[words, None]

    def others(self, words: IndexArray) -> tuple[Positions, IndexArray] | None:
        """Return the position (-1: none) and the thread of another warp's access to each word."""
        return self.other_at[words], self.other_thread[words]


class _ThreadHistory(_WarpHistory):
    """The last access of one kind to each word by every thread, for code that orders threads of several warps."""

    def __init__(self, words: int) -> None:
        self.held = np.zeros(words, np.bool_)
        self._indices: dict[int, int] = {}  # index of each warp in the table
        self._at = np.full((words, 1, WARP), -1, np.int32)

    def add(self, piece: AccessPiece, words: IndexArray) -> None:
        """Record an access."""
        self.held[words] = True
        warps, which = numbered(piece.thread // WARP)
        indices = [self._indices.setdefault(warp, len(self._indices)) for warp in warps.tolist()]
        while len(self._indices) > self._at.shape[1]:
            self._at = np.concatenate([self._at, np.full_like(self._at, -1)], axis=1)
        self._at[words, np.array(indices)[which], piece.thread % WARP] = piece.position

    def remove(self, words: IndexArray) -> None:
        """Remove all accesses to these words."""
        self.held[words] = False
        self._at[words] = -1

    def warps(self, words: IndexArray) -> Iterator[tuple[IndexArray, npt.NDArray[np.int32]]]:
        """Yield some warps per word, and the positions of their lanes' accesses: (words, n), (words, n, 32)."""
        warps = np.array([*self._indices], np.intp)
        some = max(1, AT_ONCE // (len(words) * WARP))
        for start in range(0, len(warps), some):
            these = warps[start : start + some]
            yield np.broadcast_to(these, (len(words), len(these))), self._at[words, start : start + len(these)]

    def others(self, words: IndexArray) -> None:
        """Return None: `warps` yields all accesses."""


class _Write:
    """The last write to each word: position, thread and value."""

    def __init__(self, words: int) -> None:
        self.at = np.full(words, -1, np.int32)
        self.thread = np.zeros(words, np.intp)
        self.value = np.zeros(words, np.uint32)
        self.has_value = np.zeros(words, np.bool_)

    def record(self, piece: AccessPiece, words: IndexArray, values: npt.NDArray[np.uint32] | None) -> None:
        """Record a write."""
        self.at[words] = piece.position
        self.thread[words] = piece.thread
        self.has_value[words] = values is not None
        if values is not None:
            self.value[words] = values


class Sweep:
    """The contested words of one memory, with their last accesses.

    An access after a weak write is also ordered after the accesses before that write, or a race was found already. So a
    weak write replaces earlier accesses. A strong write does not: atomics need no order among each other.

    `any_strong` is True if some accesses are not weak. `strong` returns a mask of the pairs which the memory model
    permits without an order. `any_order` is True if other synchronisations than warp syncs may order threads.
    """

    def __init__(
        self,
        clocks: VectorClock,
        words: int,
        any_strong: bool,
        unit_bytes: int,
        strong: Permitted,
        any_order: bool,
    ) -> None:
        self.clocks, self.unit_bytes, self.strong = clocks, unit_bytes, strong
        self._any_strong = any_strong
        strong_words = words if any_strong else 0  # unused tables are empty, because they are large
        self.write, self.weak_write = _Write(words), _Write(strong_words)
        history, self._all = _ThreadHistory if any_order else _WarpHistory, any_order
        self.reads, self.strong_reads, self.strong_writes = history(words), history(strong_words), history(strong_words)

    def access(self, piece: AccessPiece, words: IndexArray, columns: IndexArray) -> Iterator[RacingLanes]:
        """Compare an access with earlier ones, then record it; words and columns are numbered from 0."""
        site = piece.access.site
        values = piece.values(self.unit_bytes) if site.modifies else None
        yield from self._against_write(self.write, piece, words, columns, values)
        if self._any_strong:
            older = np.where(self.weak_write.at[words] == self.write.at[words], np.int32(-1), self.weak_write.at[words])
            yield from self._against_write(self.weak_write, piece, words, columns, values, older)
            kind = "WAW" if site.modifies else "RAW"
            yield from self._against(self.strong_writes, kind, piece, words, columns)
        if site.modifies:
            yield from self._among_its_lanes(piece, words, values)
            yield from self._against(self.reads, "WAR", piece, words, columns)
            if self._any_strong:
                yield from self._against(self.strong_reads, "WAR", piece, words, columns)
        self._record(piece, words, values)

    # --- comparison ---------------------------------------------------------------------------------------

    def _unordered(self, columns: IndexArray, piece: AccessPiece, at: Positions, thread: IndexArray) -> Mask:
        there: Mask = (at >= 0) & (thread != piece.thread)
        if not there.any():
            return there
        there &= (self.clocks.entry(columns, piece.thread, thread) < at) & ~self.strong(at, thread, piece, piece.thread)
        return there

    def _against_write(
        self,
        write: _Write,
        piece: AccessPiece,
        words: IndexArray,
        columns: IndexArray,
        values: npt.NDArray[np.uint32] | None,
        at: Positions | None = None,
    ) -> Iterator[RacingLanes]:
        at, thread = write.at[words] if at is None else at, write.thread[words]
        bad = self._unordered(columns, piece, at, thread)
        if bad.any():
            same = np.zeros(len(bad), np.bool_)
            if values is not None:
                same = write.has_value[words] & (write.value[words] == values)
            kind = "WAW" if piece.access.site.modifies else "RAW"
            yield RacingLanes(piece.where(bad), kind, at[bad], thread[bad], same[bad])

    def _among_its_lanes(
        self, piece: AccessPiece, words: IndexArray, values: npt.NDArray[np.uint32] | None
    ) -> Iterator[RacingLanes]:
        """Yield races of lanes that write the same word in the same instruction."""
        if piece.access.site.is_strong:
            return
        order = np.arange(len(words))
        last = np.zeros(len(self.write.at), np.intp)
        last[words] = order
        bad = last[words] != order
        if bad.any():
            winner = last[words][bad]
            same = np.zeros(len(winner), np.bool_) if values is None else values[winner] == values[bad]
            at = np.full(len(winner), piece.position, np.int32)
            yield RacingLanes(piece.where(bad), "WAW", at, piece.thread[winner], same)

    def _against(
        self, history: _WarpHistory, kind: str, piece: AccessPiece, words: IndexArray, columns: IndexArray
    ) -> Iterator[RacingLanes]:
        """Compare with the recorded accesses except the last write, which `_against_write` has compared."""
        if not history.held[words].any():
            return
        for warps, at in history.warps(words):
            yield from self._against_warps(warps, at, kind, piece, words, columns)
        if (others := history.others(words)) is None:
            return
        at, thread = others
        at = np.where((at == self.write.at[words]) & (thread == self.write.thread[words]), np.int32(-1), at)
        bad = self._unordered(columns, piece, at, thread)
        if bad.any():
            yield RacingLanes(piece.where(bad), kind, at[bad], thread[bad], np.zeros(int(bad.sum()), np.bool_))

    def _against_warps(
        self,
        warps: IndexArray,
        at: npt.NDArray[np.int32],
        kind: str,
        piece: AccessPiece,
        words: IndexArray,
        columns: IndexArray,
    ) -> Iterator[RacingLanes]:
        bad = at >= 0
        if not bad.any():
            return
        bad &= at > self.clocks.of(columns, piece.thread, np.maximum(warps, 0))
        thread = (warps[..., None] * WARP + np.arange(WARP)).reshape(len(words), -1)
        at, bad = at.reshape(thread.shape), bad.reshape(thread.shape)
        bad &= thread != piece.thread[:, None]
        bad &= (at != self.write.at[words][:, None]) | (thread != self.write.thread[words][:, None])
        rows, lanes = np.nonzero(bad)
        if len(rows):
            bad[rows, lanes] = ~self.strong(at[rows, lanes], thread[rows, lanes], piece, piece.thread[rows])
        if not bad.any():
            return
        if self._all:
            rows, lanes = np.nonzero(bad)
        else:
            rows = np.flatnonzero(bad.any(axis=1))
            lanes = np.where(bad, at, -1).argmax(axis=1)[rows]
        harmless = np.zeros(len(rows), np.bool_)
        yield RacingLanes(piece.where(rows), kind, at[rows, lanes], thread[rows, lanes], harmless)

    # --- recording -----------------------------------------------------------------------------------------------

    def _record(self, piece: AccessPiece, words: IndexArray, values: npt.NDArray[np.uint32] | None) -> None:
        site = piece.access.site
        is_weak = site.is_weak
        if not site.modifies:
            (self.reads if is_weak else self.strong_reads).add(piece, words)
            return
        self.write.record(piece, words, values)
        if not is_weak:
            self.strong_writes.add(piece, words)
            return
        self.reads.remove(words)
        if self._any_strong:
            self.weak_write.record(piece, words, values)
            self.strong_reads.remove(words)
            self.strong_writes.remove(words)


def races(
    events: Sequence[Event],
    pieces: Sequence[AccessPiece],
    strong: Permitted,
    unit_bytes: int,
    one_block: bool,
    any_order: bool,
    check_time: Callable[[], None],
) -> Iterator[RacingLanes]:
    """Yield the races within blocks among the accesses of some pieces, in order, of `unit_bytes` each.

    `events` are all since the last barrier of the whole block. With `one_block`, all blocks have the same accesses, and
    the pieces are those of one. For the other parameters see `Sweep` and `LaunchHazardChecker`.
    """
    wave = pieces[0].access.lanes.wave
    columns, column = numbered(np.concatenate([piece.column for piece in pieces]))
    words, index = numbered(np.concatenate([piece.unit for piece in pieces]) * len(columns) + column)
    across = any(isinstance(event, NamedBarrierEvent | MbarrierEvent) for event in events)
    clocks = VectorClock(len(columns), wave.warps, across)
    any_strong = any(not piece.access.site.is_weak for piece in pieces)
    sweep = Sweep(clocks, len(words), any_strong, unit_bytes, strong, any_order)
    ends = np.cumsum([len(piece.unit) for piece in pieces])
    at = 0
    for position, event in enumerate(events):
        check_time()
        advance(clocks, event, position, columns, one_block)
        while at < len(pieces) and pieces[at].position == position:
            span = slice(ends[at] - len(pieces[at].unit), ends[at])
            if len(pieces[at].unit):
                yield from sweep.access(pieces[at], index[span], column[span])
            at += 1

"""Pairs of accesses by different threads to the same word that race unless fences order them.

An access after a weak write is also ordered after the accesses before that write, or a race was found already. So each
access is compared with the last weak write before it and the next one after it. Between two weak writes, weak reads
conflict with strong writes. The first and the last access of an equivalence class represent the class: an access in
between is compared with one before it and one after it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray
from pytest_gpulab.devices.simulated.hazards.accesses import AccessPiece, MemoryAccess, edges, pieces_of, unit_of
from pytest_gpulab.devices.simulated.hazards.classes import Accessors, Classes
from pytest_gpulab.devices.simulated.hazards.reporting import Pairs
from pytest_gpulab.devices.simulated.translation.sites import Site

MAX_PAIRS = 1 << 22
"""The maximum of pairs of weak reads and strong writes in some words; further words are skipped."""
_Marks = npt.NDArray[np.bool_]
Scope = Literal["grid", "block", "warp"]
_IS_WEAK: dict[Scope, Callable[[Site], bool]] = {
    "grid": lambda site: site.is_weak_between_blocks,
    "block": lambda site: site.is_weak,
    "warp": lambda site: not site.is_strong,  # within a warp, `volatile` orders nothing
}


class Pairing:
    """Pieces of accesses, sorted by word, of `unit_bytes`, and then by time.

    `scope` is `grid` for pairs of different blocks, `block` or `warp` for pairs of threads of one block or warp.
    """

    def __init__(self, pieces: Sequence[AccessPiece], unit_bytes: int, classes: Classes, scope: Scope = "grid") -> None:
        self.is_complete = True  # False if `pairs` has skipped some
        self._across = scope == "grid"
        self._pieces, self._classes = pieces, classes
        unit, thread = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("unit", "thread"))
        wave = pieces[0].access.lanes.wave
        if not self._across:  # each block has words of its own
            unit = unit * wave.columns + np.concatenate([piece.column for piece in pieces])
        if scope == "warp":
            unit = unit * wave.warps + thread // WARP
        order = np.argsort(unit, kind="stable")
        self._word, self._piece = unit[order], np.repeat(np.arange(len(pieces)), [len(p.unit) for p in pieces])[order]
        block = np.concatenate([wave.block_ids[piece.column] for piece in pieces])
        time = np.array([piece.access.time for piece in pieces])[self._piece]
        self._accessors = Accessors(block[order], thread[order], time)
        self._bits = np.concatenate([_bits(piece, unit_bytes) for piece in pieces])[order]
        sites = [piece.access.site for piece in pieces]
        self._writes = np.array([site.modifies for site in sites])[self._piece]
        self._weak = np.array(list(map(_IS_WEAK[scope], sites)))[self._piece]
        self._site = np.array([site.index for site in sites])[self._piece]
        self._number()

    def _number(self) -> None:
        """Number the simultaneous weak writes to a word, and the stretches that they start."""
        weak_writes = self._weak & self._writes
        starts = np.ones(len(weak_writes), np.bool_)
        starts[1:] = self._word[1:] != self._word[:-1]
        same = ~starts
        same[1:] &= weak_writes[:-1] & (self._piece[1:] == self._piece[:-1])
        self._stretch = np.cumsum(starts | (weak_writes & ~same))
        self._weak_writes = weak_writes

    def pairs(self) -> Iterator[Pairs]:
        """Yield all conflicting pairs of accesses."""
        yield from self._of(*self._with_weak_writes())
        yield from self._of(*self._between())

    def _with_weak_writes(self) -> tuple[IndexArray, IndexArray]:
        """Return (earlier, later) rows: each access and the last weak write before it, or the next one after it."""
        rows = np.arange(len(self._word))
        last = np.full(int(self._stretch[-1]) + 2, -1)  # the weak write at the start of each stretch
        last[self._stretch[self._weak_writes]] = rows[self._weak_writes]
        opener, closer = last[self._stretch], last[self._stretch + 1]
        before = np.where(self._weak_writes, last[self._stretch - 1], opener)
        among = self._weak_writes & (opener != rows)
        first = np.concatenate([before, rows[~self._weak_writes], rows[among]])
        second = np.concatenate([rows, closer[~self._weak_writes], opener[among]])
        there = (first >= 0) & (second >= 0)
        there[there] = self._word[first[there]] == self._word[second[there]]
        return first[there], second[there]

    def _between(self) -> tuple[IndexArray, IndexArray]:
        """Return (earlier, later) rows: weak reads and strong writes of the same stretch."""
        reads, writes = self._weak & ~self._writes, self._writes & ~self._weak
        both = np.intersect1d(self._stretch[reads], self._stretch[writes])
        reads, writes = (self._distinct(kind & np.isin(self._stretch, both)) for kind in (reads, writes))
        starts = np.searchsorted(self._stretch[writes], self._stretch[reads], side="left")
        counts = np.searchsorted(self._stretch[writes], self._stretch[reads], side="right") - starts
        fits = np.cumsum(counts) <= MAX_PAIRS
        self.is_complete &= bool(fits.all())
        reads, starts, counts = reads[fits], starts[fits], counts[fits]
        one = np.repeat(reads, counts)
        within = np.arange(len(one)) - np.repeat(np.cumsum(counts) - counts, counts)
        other = writes[np.repeat(starts, counts) + within]
        return np.minimum(one, other), np.maximum(one, other)

    def _distinct(self, mask: _Marks) -> IndexArray:
        """Return the first and the last row per stretch, instruction and class."""
        rows = np.flatnonzero(mask)
        return rows[edges([*self._classes.both(self._accessors.at(rows)), self._site[rows], self._stretch[rows]])]

    def _of(self, first: IndexArray, second: IndexArray) -> Iterator[Pairs]:
        """Yield pairs of rows, grouped by instruction."""
        who = self._accessors.block if self._across else self._accessors.thread
        apart = who[first] != who[second]
        first, second = first[apart], second[apart]
        harmless = self._writes[first] & self._writes[second] & (self._bits[first] == self._bits[second])
        harmless &= self._bits[first] >= 0
        for rows in _runs(self._site[first], self._site[second], harmless):
            one, other = (self._pieces[int(self._piece[of[rows[0]]])].access for of in (first, second))
            kind = ("WAW" if one.site.modifies else "WAR") if other.site.modifies else "RAW"
            accessors = self._accessors.at(second[rows]), self._accessors.at(first[rows])
            yield Pairs(kind, "global", other.site, one.site, other.lanes.wave, *accessors, bool(harmless[rows[0]]))


def flag_reads(accesses: Sequence[MemoryAccess], across_blocks: bool) -> Iterator[Pairs]:
    """Yield strong reads of another thread's strong write that rely on its value, across blocks or warps of one block.

    A value and the flag that announces it, both volatile, do not race. But without a fence between the two writes
    another thread may see the flag before the value.
    """
    reads = [(at, a) for at, a in enumerate(accesses) if a.site.access == "read" and _is_used(a)]
    writes = [(at, a) for at, a in enumerate(accesses) if _may_announce(a)]
    if not reads or not writes:
        return
    unit = unit_of(accesses)
    pieces = list(pieces_of(sorted(reads + writes, key=lambda entry: entry[0]), unit, one_block=False))
    block = np.concatenate([piece.access.lanes.wave.block_ids[piece.column] for piece in pieces])
    thread, word = (np.concatenate([getattr(piece, name) for piece in pieces]) for name in ("thread", "unit"))
    of = np.repeat(np.arange(len(pieces)), [len(piece.unit) for piece in pieces])
    if accesses[0].memory is None:
        word = word * (1 + int(block.max())) + block
    order = np.argsort(word, kind="stable")
    is_write = np.array([piece.access.site.modifies for piece in pieces])[of[order]]
    last = np.maximum.accumulate(np.where(is_write, np.arange(len(order)), -1))
    rows = np.flatnonzero(~is_write & (last >= 0))
    second, first = order[rows], order[last[rows]]
    is_met = (word[first] == word[second]) & ((block[first] != block[second]) == across_blocks)
    is_met &= across_blocks | (thread[first] // WARP != thread[second] // WARP)
    second, first = second[is_met], first[is_met]
    for rows in _runs(of[first], of[second]):
        write, read = pieces[int(of[first[rows[0]]])].access, pieces[int(of[second[rows[0]]])].access
        if write.memory is not None or write.announces or read.site.is_strong:  # other pairs race: see `racecheck`
            accessors = (
                Accessors(block[mine], thread[mine], np.full(len(mine), access.time))
                for mine, access in ((second[rows], read), (first[rows], write))
            )
            space = "shared" if read.memory is None else "global"
            yield Pairs(
                "RAW", space, read.site, write.site, read.lanes.wave, next(accessors), next(accessors), both_strong=True
            )


def _may_announce(access: MemoryAccess) -> bool:
    """Return True for a strong write that may not race with its readers."""
    is_allowed = access.memory is not None or access.announces or access.site.is_strong
    return access.site.modifies and not access.site.is_weak and is_allowed


def _is_used(access: MemoryAccess) -> bool:
    """Return True for a strong read that is more than a wait for a value."""
    return not access.site.is_weak and not access.site.is_awaited and not access.site.is_guess


def _bits(piece: AccessPiece, unit_bytes: int) -> npt.NDArray[np.int64]:
    """Return the written bits, -1 if unknown."""
    values = piece.values(unit_bytes) if piece.access.site.modifies else None
    return np.full(len(piece.unit), -1, np.int64) if values is None else values.astype(np.int64)


def _runs(*columns: npt.NDArray[np.generic]) -> list[IndexArray]:
    """Return groups of rows with equal keys."""
    order = np.lexsort(columns)
    edges = np.flatnonzero(np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)) + 1
    return np.split(order, edges) if len(order) else []

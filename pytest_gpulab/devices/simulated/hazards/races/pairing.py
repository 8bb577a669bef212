"""Pairs of accesses that race unless fences have put them in order: all of different blocks to the same words.

Whoever is ordered after a weak write is ordered after all before it, or a race was found already. So each access is
compared with the last weak write before it and with the next one behind it. Between two of these, weak reads and strong
writes race with each other. Of accesses that fences cannot tell apart the first and the last one stand for all: another
access that lies between accesses of such a class is compared with one before it and one behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray
from pytest_gpulab.devices.simulated.hazards.accesses import Access, Part, parts_of, unit_of
from pytest_gpulab.devices.simulated.hazards.classes import Classes, Who
from pytest_gpulab.devices.simulated.hazards.reporting import Pairs

MAX_PAIRS = 1 << 22
"""Pairs of weak reads and strong writes in some words; beyond, further words are not looked at."""
_Marks = npt.NDArray[np.bool_]


class Pairing:
    """The accesses of some parts, by word and then in order.

    Attributes:
        is_complete: whether all pairs were looked at, once they have been.
    """

    def __init__(self, parts: Sequence[Part], unit_bytes: int, classes: Classes) -> None:
        self.is_complete = True
        self._parts, self._classes = parts, classes
        unit = np.concatenate([part.unit for part in parts])
        order = np.argsort(unit, kind="stable")
        self._word, self._part = unit[order], np.repeat(np.arange(len(parts)), [len(p.unit) for p in parts])[order]
        block = np.concatenate([part.access.lanes.wave.block_ids[part.column] for part in parts])
        thread = np.concatenate([part.thread for part in parts])
        time = np.array([part.access.time for part in parts])[self._part]
        self._who = Who(block[order], thread[order], time)
        self._bits = np.concatenate([_bits(part, unit_bytes) for part in parts])[order]
        sites = [part.access.site for part in parts]
        self._writes = np.array([site.modifies for site in sites])[self._part]
        self._weak = np.array([site.is_weak for site in sites])[self._part]
        self._site = np.array([site.index for site in sites])[self._part]
        self._number()

    def _number(self) -> None:
        """Number the groups of weak writes to a word at once, and the stretches between them."""
        erases = self._weak & self._writes
        starts = np.ones(len(erases), np.bool_)
        starts[1:] = self._word[1:] != self._word[:-1]
        same = ~starts
        same[1:] &= erases[:-1] & (self._part[1:] == self._part[:-1])
        self._stretch = np.cumsum(starts | (erases & ~same))
        self._erases = erases

    def pairs(self) -> Iterator[Pairs]:
        """Yield all pairs of accesses that conflict."""
        yield from self._of(*self._with_erasers())
        yield from self._of(*self._between())

    def _with_erasers(self) -> tuple[IndexArray, IndexArray]:
        """Return (earlier, later) rows: each access and the last weak write before it, or the next behind it."""
        rows = np.arange(len(self._word))
        last = np.full(int(self._stretch[-1]) + 2, -1)  # of each stretch: the weak write that opens it
        last[self._stretch[self._erases]] = rows[self._erases]
        opener, closer = last[self._stretch], last[self._stretch + 1]
        before = np.where(self._erases, last[self._stretch - 1], opener)
        among = self._erases & (opener != rows)
        first = np.concatenate([before, rows[~self._erases], rows[among]])
        second = np.concatenate([rows, closer[~self._erases], opener[among]])
        there = (first >= 0) & (second >= 0)
        there[there] = self._word[first[there]] == self._word[second[there]]
        return first[there], second[there]

    def _between(self) -> tuple[IndexArray, IndexArray]:
        """Return (earlier, later) rows: weak reads and strong writes between the same weak writes."""
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
        """Return the first and the last row of each stretch, instruction and class."""
        rows = np.flatnonzero(mask)
        columns = (*self._classes.both(self._who.at(rows)), self._site[rows], self._stretch[rows])
        order = np.lexsort(columns)
        new = np.ones(len(rows) + 1, np.bool_)
        new[1:-1] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
        return np.sort(rows[order[new[:-1] | new[1:]]])

    def _of(self, first: IndexArray, second: IndexArray) -> Iterator[Pairs]:
        """Yield pairs of rows by their instructions."""
        apart = self._who.block[first] != self._who.block[second]
        first, second = first[apart], second[apart]
        harmless = self._writes[first] & self._writes[second] & (self._bits[first] == self._bits[second])
        harmless &= self._bits[first] >= 0
        for rows in _runs(self._site[first], self._site[second], harmless):
            one, other = (self._parts[int(self._part[of[rows[0]]])].access for of in (first, second))
            kind = ("WAW" if one.site.modifies else "WAR") if other.site.modifies else "RAW"
            whos = self._who.at(second[rows]), self._who.at(first[rows])
            yield Pairs(kind, "global", other.site, one.site, other.lanes.wave, *whos, bool(harmless[rows[0]]))


def relied_on(accesses: Sequence[Access], across_blocks: bool) -> Iterator[Pairs]:
    """Yield strong reads that see another thread's strong write, and rely on it.

    A value and the flag that announces it, both volatile, race with nothing. But without a fence between the two
    writes another thread may see the flag, and not the value.

    Args:
        accesses: to one memory, in order.
        across_blocks: whether to look at different blocks, else at different warps of one block.
    """
    reads = [(at, a) for at, a in enumerate(accesses) if a.site.access == "read" and _is_used(a)]
    writes = [(at, a) for at, a in enumerate(accesses) if _may_announce(a)]
    if not reads or not writes:
        return
    unit = unit_of(accesses)
    parts = list(parts_of(sorted(reads + writes, key=lambda entry: entry[0]), unit, one_block=False))
    block = np.concatenate([part.access.lanes.wave.block_ids[part.column] for part in parts])
    thread, word = (np.concatenate([getattr(part, name) for part in parts]) for name in ("thread", "unit"))
    of = np.repeat(np.arange(len(parts)), [len(part.unit) for part in parts])
    if accesses[0].memory is None:
        word = word * (1 + int(block.max())) + block
    order = np.argsort(word, kind="stable")
    is_write = np.array([part.access.site.modifies for part in parts])[of[order]]
    last = np.maximum.accumulate(np.where(is_write, np.arange(len(order)), -1))
    rows = np.flatnonzero(~is_write & (last >= 0))
    second, first = order[rows], order[last[rows]]
    is_met = (word[first] == word[second]) & ((block[first] != block[second]) == across_blocks)
    is_met &= across_blocks | (thread[first] // WARP != thread[second] // WARP)
    second, first = second[is_met], first[is_met]
    for rows in _runs(of[first], of[second]):
        write, read = parts[int(of[first[rows[0]]])].access, parts[int(of[second[rows[0]]])].access
        if write.memory is not None or write.announces or read.site.is_strong:  # else they race, see `racecheck`
            whos = (
                Who(block[mine], thread[mine], np.full(len(mine), access.time))
                for mine, access in ((second[rows], read), (first[rows], write))
            )
            space = "shared" if read.memory is None else "global"
            yield Pairs("RAW", space, read.site, write.site, read.lanes.wave, next(whos), next(whos), hearsay=True)


def _may_announce(access: Access) -> bool:
    """Whether an access writes and need not race with who reads that."""
    is_allowed = access.memory is not None or access.announces or access.site.is_strong
    return access.site.modifies and not access.site.is_weak and is_allowed


def _is_used(access: Access) -> bool:
    """Whether a read of what others write is more than a look whether it is time to go on."""
    return not access.site.is_weak and not access.site.is_awaited and not access.site.is_guess


def _bits(part: Part, unit_bytes: int) -> npt.NDArray[np.int64]:
    """Return what is written, -1 where that is not known."""
    values = part.values(unit_bytes) if part.access.site.modifies else None
    return np.full(len(part.unit), -1, np.int64) if values is None else values.astype(np.int64)


def _runs(*columns: npt.NDArray[np.generic]) -> list[IndexArray]:
    """Return the rows that have the same numbers."""
    order = np.lexsort(columns)
    edges = np.flatnonzero(np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)) + 1
    return np.split(order, edges) if len(order) else []

"""Races between blocks: accesses of one launch to the same bytes of global memory by different blocks.

Nothing but fences orders blocks within a launch, so that the order of accesses does not matter for finding candidates.
An allocation that nobody changes is never looked at; one of which every block changes a stretch of its own, which no
other block touches, is looked at only so far.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import IndexArray
from pytest_gpulab.devices.simulated.hazards.accesses import Access, Part, in_pieces, parts_of, unit_of
from pytest_gpulab.devices.simulated.hazards.fences import Fences
from pytest_gpulab.devices.simulated.hazards.reporting import Others, Reporter
from pytest_gpulab.devices.simulated.hazards.vector_clocks import Mask
from pytest_gpulab.devices.simulated.memory.spaces import Allocation

from .distinct import distinct
from .pairing import Pairing, relied_on
from .repeats import Repeats
from .thinning import MAX_KEPT, MAX_LANES, Owner, numbered, thinned, weight

MAX_WORDS = 1 << 18  # that are swept at once
_WEAK, _CHANGED = np.uint8(1), np.uint8(2)


class InterBlockRaceDetector:
    """The accesses of one launch to global memory.

    Args:
        reporter: of the launch.
    """

    def __init__(self, reporter: Reporter) -> None:
        self.reporter, self.repeats = reporter, Repeats()
        self._accesses: list[Access] = []
        self._lanes, self._limit = 0, MAX_LANES

    def add(self, access: Access) -> None:
        """Remember an access."""
        if access.lanes.wave.grid == (1, 1, 1) or self.reporter.is_enough or self.repeats.has(access):
            return
        self._accesses.append(access)
        self._lanes += weight(access)
        if self._lanes > self._limit:
            self._thin()

    def _thin(self) -> None:
        self.repeats.clear()
        if self.reporter.fences is None:
            self._accesses = thinned(self._accesses, Owner.block)
        else:
            self._accesses = distinct(self._accesses, self.reporter.fences.classes().both)
        self._lanes = sum(map(weight, self._accesses))
        self._limit = max(MAX_LANES, 2 * self._lanes)
        if self._lanes > MAX_KEPT:
            self.judge()
            self.reporter.cut_short("accesses of different blocks to the same array")

    def judge(self) -> None:
        """Report what there is, and forget it."""
        by_memory: dict[Allocation | None, list[Access]] = defaultdict(list)
        for access in self._accesses:
            by_memory[access.memory].append(access)
        self._accesses, self._lanes, self._limit = [], 0, MAX_LANES
        fences = self.reporter.fences
        for accesses in by_memory.values():
            if any(access.site.modifies for access in accesses) and not _apart(accesses):
                if fences is None:
                    self._judge(accesses)
                    continue
                self._judge_each(accesses, fences)
                for pairs in relied_on(accesses, across_blocks=True):
                    self.reporter.pairs(pairs)

    def _judge_each(self, accesses: list[Access], fences: Fences) -> None:
        """Compare each access with all that fences may or may not have put before it."""
        unit, is_complete = unit_of(accesses), True
        contested = _contested(list(parts_of(list(enumerate(accesses)), unit, one_block=False)))
        for parts in in_pieces(contested, MAX_WORDS):
            pairing = Pairing(parts, unit, fences.classes())
            for pairs in pairing.pairs():
                self.reporter.pairs(pairs)
            is_complete &= pairing.is_complete
        if not is_complete:
            self.reporter.cut_short("all pairs of accesses of different blocks to the same array")

    def _judge(self, accesses: list[Access]) -> None:
        unit = unit_of(accesses)
        contested = _contested(list(parts_of(list(enumerate(accesses)), unit, one_block=False)))
        for parts in in_pieces(contested, MAX_WORDS):
            if self.reporter.is_enough:
                return
            words, index = np.unique(np.concatenate([part.unit for part in parts]), return_inverse=True)
            sweep = _Sweep(accesses, len(words), unit)
            ends = np.cumsum([len(part.unit) for part in parts])
            for part, end in zip(parts, ends, strict=True):
                for kind, bad, at, blocks, threads, same in sweep.access(part, index[end - len(part.unit) : end]):
                    others = Others(accesses, at[bad], blocks[bad], threads[bad])
                    self.reporter.races(kind, part.where(bad), _block_of(part)[bad], others, same[bad])


def _block_of(part: Part) -> IndexArray:
    blocks: IndexArray = part.access.lanes.wave.block_ids[part.column]
    return blocks


def _apart(accesses: Sequence[Access]) -> bool:
    """Whether no block comes near what another one accesses: by the lowest and highest address of each block."""
    grid = accesses[0].lanes.wave.grid
    low = np.full(grid[0] * grid[1] * grid[2], np.iinfo(np.int64).max)
    high = np.zeros(len(low), np.int64)
    for alike in _by_blocks(accesses):
        lanes, nbytes = alike[0].lanes, alike[0].site.nbytes
        table = [np.atleast_2d(access.address) for access in alike]
        blocks = lanes.wave.block_ids[lanes.columns]
        if lanes.flat:
            np.minimum.at(low, blocks, table[0][:, 0].astype(np.int64))
            np.maximum.at(high, blocks, table[0][:, 0].astype(np.int64) + nbytes)
        else:
            lowest, highest = (f.reduce([f.reduce(each) for each in table]) for f in (np.minimum, np.maximum))
            low[blocks] = np.minimum(low[blocks], lowest.astype(np.int64))
            high[blocks] = np.maximum(high[blocks], highest.astype(np.int64) + nbytes)
    order = np.argsort(low, kind="stable")
    order = order[high[order] > 0]
    return bool((low[order][1:] >= np.maximum.accumulate(high[order])[:-1]).all())


def _by_blocks(accesses: Sequence[Access]) -> Iterable[list[Access]]:
    """Put those together that rectangles of the same blocks did alike."""
    alike: dict[object, list[Access]] = {}
    for number, access in enumerate(accesses):
        lanes = access.lanes
        kind = (id(lanes.wave), access.site.nbytes, access.address.shape[1:])
        alike.setdefault(kind if lanes.all_columns else number, []).append(access)
    return alike.values()


def _contested(parts: list[Part]) -> list[Part]:
    """Return what touches a word that several blocks use and one changes, not all of them strongly."""
    units = np.concatenate([part.unit for part in parts])
    ends = np.cumsum([len(part.unit) for part in parts])
    words = np.split(numbered(units - units.min()), ends[:-1])
    size = max(int(mine.max()) for mine in words) + 1
    owner, flags, met = np.empty(size, np.int32), np.zeros(size, np.uint8), np.zeros(size, np.bool_)
    for part, mine in zip(parts, words, strict=True):
        owner[mine] = _block_of(part)
    for part, mine in zip(parts, words, strict=True):
        met[mine[owner[mine] != _block_of(part)]] = True
    if not met.any():
        return []
    for part, mine in zip(parts, words, strict=True):
        site = part.access.site
        flags[mine] |= _WEAK * site.is_weak | _CHANGED * site.modifies
    hot = met & (flags == _WEAK | _CHANGED)
    return [part.where(mask) for part, mine in zip(parts, words, strict=True) if (mask := hot[mine]).any()]


class _Slot:
    """For each word, an access that is remembered: its position, block and thread."""

    def __init__(self, words: int) -> None:
        self.at, self.block = np.full(words, -1, np.intp), np.zeros(words, np.intp)
        self.thread, self.value = np.zeros(words, np.intp), np.zeros(words, np.int64)

    def set(self, words: IndexArray, at: IndexArray | int, block: IndexArray, thread: IndexArray) -> None:
        self.at[words], self.block[words], self.thread[words] = at, block, thread


Met = tuple[str, Mask, IndexArray, IndexArray, IndexArray, Mask]


class _AccessHistory:
    """For each word, the last accesses of one kind by two different blocks."""

    def __init__(self, words: int) -> None:
        self._last, self._other = _Slot(words), _Slot(words)

    def __iter__(self) -> Iterator[_Slot]:
        yield from (self._last, self._other)

    def note(self, part: Part, words: IndexArray, bits: npt.NDArray[np.int64] | None = None) -> None:
        """Note an access, and the bits that it wrote."""
        block, thread, at = _block_of(part), part.thread, part.position
        values = np.full(len(words), -1, np.int64) if bits is None else bits
        last, other = self._last, self._other
        moved = words[(last.at[words] >= 0) & (last.block[words] != block)]
        other.set(moved, last.at[moved], last.block[moved], last.thread[moved])
        other.value[moved] = last.value[moved]
        last.set(words, at, block, thread)
        last.value[words] = values
        lost = last.block[words] != block  # another block does the same by the same instruction
        other.set(words[lost], at, block[lost], thread[lost])
        other.value[words[lost]] = -1


class _Sweep:
    """Goes through accesses in order; holds the last weak write, and of all else what `_AccessHistory` does.

    What is strong races with less, so that it takes the place of nothing that is weak.
    """

    def __init__(self, accesses: Sequence[Access], words: int, unit_bytes: int) -> None:
        self.weak = np.array([access.site.is_weak for access in accesses])
        self.unit_bytes = unit_bytes
        strong_words = 0 if self.weak.all() else words
        self.write, self.reads = _Slot(words), _AccessHistory(words)
        self.strong_writes, self.strong_reads = (_AccessHistory(strong_words) for _ in range(2))
        self.any_strong = bool(strong_words)

    def access(self, part: Part, words: IndexArray) -> Iterator[Met]:
        """Yield kind, mask of lanes, and what each lane met: position, block, thread, whether harmless."""
        site = part.access.site
        values = part.values(self.unit_bytes) if site.modifies else None
        bits = np.full(len(words), -1, np.int64) if values is None else values.astype(np.int64)
        for slot in (self.write, *(self.strong_writes if self.any_strong else ())):
            same = (slot.value[words] == bits) & (bits >= 0)
            yield from self._against(slot, "WAW" if site.modifies else "RAW", part, words, same)
        is_weak = site.is_weak
        if not site.modifies:
            (self.reads if is_weak else self.strong_reads).note(part, words)
            return
        never = np.zeros(len(words), np.bool_)
        for slot in (*self.reads, *(self.strong_reads if self.any_strong else ())):
            yield from self._against(slot, "WAR", part, words, never)
        if not is_weak:
            self.strong_writes.note(part, words, bits)
            return
        self.write.set(words, part.position, _block_of(part), part.thread)
        self.write.value[words] = bits
        yield from self._among(part, words, bits)

    def _against(self, slot: _Slot, kind: str, part: Part, words: IndexArray, same: Mask) -> Iterator[Met]:
        at, block = slot.at[words], slot.block[words]
        bad = (at >= 0) & (block != _block_of(part))
        if not part.access.site.is_weak:
            bad &= self.weak[at]
        if bad.any():
            yield kind, bad, at, block, slot.thread[words], same

    def _among(self, part: Part, words: IndexArray, bits: npt.NDArray[np.int64]) -> Iterator[Met]:
        """Lanes of several blocks that write the same word by the same instruction."""
        block = self.write.block[words]
        bad = block != _block_of(part)
        if bad.any():
            at = np.full(len(words), part.position)
            yield "WAW", bad, at, block, self.write.thread[words], self.write.value[words] == bits

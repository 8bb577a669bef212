"""Races between blocks: accesses of one launch to the same bytes of global memory by different blocks.

Only fences order blocks within a launch. So candidates are found regardless of the order of accesses. Allocations that
the launch does not change are skipped, and also those of which each block accesses a range of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import IndexArray
from pytest_gpulab.devices.simulated.hazards.accesses import (
    MAX_KEPT,
    MAX_LANES,
    AccessPiece,
    Mask,
    MemoryAccess,
    Repeats,
    in_batches,
    pieces_of,
    small_keys,
    unit_of,
    weight,
)
from pytest_gpulab.devices.simulated.hazards.sweep import RacingLanes
from pytest_gpulab.devices.simulated.memory.spaces import Allocation

if TYPE_CHECKING:  # imported by kernels with fences
    from pytest_gpulab.devices.simulated.hazards.checker import LaunchHazardChecker
    from pytest_gpulab.devices.simulated.hazards.fences import Fences

MAX_WORDS = 1 << 18  # words per sweep
Batches = Iterator[list[AccessPiece]]


class InterBlockRaceDetector:
    """The accesses of one launch to global memory."""

    def __init__(self, launch: LaunchHazardChecker) -> None:
        self._launch, self.repeats = launch, Repeats()
        self._accesses: list[MemoryAccess] = []
        self._lanes, self._limit = 0, MAX_LANES

    def add(self, access: MemoryAccess) -> None:
        """Record an access."""
        if self._launch.is_saturated or self.repeats.has(access):
            return
        self._accesses.append(access)
        self._lanes += weight(access)
        if self._lanes > self._limit:
            self._thin()

    def _thin(self) -> None:
        self.repeats.clear()
        if self._launch.fences is None:
            from .thinning import Owner, thinned

            self._accesses = thinned(self._accesses, Owner.block)
        else:
            from .distinct import distinct

            self._accesses = distinct(self._accesses, self._launch.fences.classes().both, self._launch.check_time)
        self._lanes = sum(map(weight, self._accesses))
        self._limit = max(MAX_LANES, 2 * self._lanes)
        if self._lanes > MAX_KEPT:
            self.check()
            self._launch.add_unchecked("accesses of different blocks to the same array")

    def check(self) -> None:
        """Report the races among the recorded accesses, and discard these."""
        by_memory: dict[Allocation | None, list[MemoryAccess]] = defaultdict(list)
        for access in self._accesses:
            by_memory[access.memory].append(access)
        self._accesses, self._lanes, self._limit = [], 0, MAX_LANES
        fences = self._launch.fences
        for accesses in by_memory.values():
            kinds = {"write" if access.site.in_block else access.site.access for access in accesses}
            if kinds not in ({"read"}, {"atomic"}) and not _apart(accesses):
                unit = unit_of(accesses)
                contested = _contested(list(pieces_of(list(enumerate(accesses)), unit, one_block=False)))
                batches = in_batches(contested, MAX_WORDS)
                if fences is None:
                    self._check(accesses, unit, batches)
                else:
                    self._check_each(accesses, unit, batches, fences)

    def _check_each(self, accesses: list[MemoryAccess], unit: int, batches: Batches, fences: Fences) -> None:
        """Compare each access with the earlier ones that fences may or may not have ordered."""
        from .pairing import Pairing, flag_reads

        is_complete = True
        for pieces in batches:
            self._launch.check_time()
            pairing = Pairing(pieces, unit, fences.classes())
            for pairs in pairing.pairs():
                self._launch.reporter.pairs(pairs)
            is_complete &= pairing.is_complete
        if not is_complete:
            self._launch.add_unchecked("all pairs of accesses of different blocks to the same array")
        for pairs in flag_reads(accesses, across_blocks=True):
            self._launch.reporter.pairs(pairs)

    def _check(self, accesses: list[MemoryAccess], unit: int, batches: Batches) -> None:
        for pieces in batches:
            if self._launch.is_saturated:
                return
            words, index = np.unique(np.concatenate([piece.unit for piece in pieces]), return_inverse=True)
            sweep = _BlockSweep(accesses, len(words), unit)
            ends = np.cumsum([len(piece.unit) for piece in pieces])
            for piece, end in zip(pieces, ends, strict=True):
                self._launch.check_time()
                for kind, bad, at, blocks, threads, same in sweep.access(piece, index[end - len(piece.unit) : end]):
                    race = RacingLanes(piece.where(bad), kind, at[bad], threads[bad], same[bad])
                    self._launch.reporter.races(race, blocks[bad], accesses)


def _block_of(piece: AccessPiece) -> IndexArray:
    blocks: IndexArray = piece.access.lanes.wave.block_ids[piece.column]
    return blocks


def _apart(accesses: Sequence[MemoryAccess]) -> bool:
    """Return True if the address ranges of the blocks are disjoint."""
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


def _by_blocks(accesses: Sequence[MemoryAccess]) -> Iterable[list[MemoryAccess]]:
    """Return groups of similar accesses by rectangles of the same blocks."""
    alike: dict[object, list[MemoryAccess]] = {}
    for number, access in enumerate(accesses):
        lanes = access.lanes
        kind = (lanes.wave, access.site.nbytes, access.address.shape[1:])
        alike.setdefault(kind if lanes.all_columns else number, []).append(access)
    return alike.values()


def _contested(pieces: list[AccessPiece]) -> list[AccessPiece]:
    """Return the pieces that access a word used by several blocks, changed by one, and accessed weakly by one."""
    units = np.concatenate([piece.unit for piece in pieces])
    counts = [len(piece.unit) for piece in pieces]
    word, block = small_keys(units - units.min()), np.concatenate([_block_of(piece) for piece in pieces])
    size = int(word.max()) + 1
    owner, contested = np.empty(size, np.int32), np.zeros(size, np.bool_)
    owner[word] = block
    contested[word[owner[word] != block]] = True
    if not contested.any():
        return []
    for flag in ("is_weak_between_blocks", "modifies"):
        has_flag = np.zeros(size, np.bool_)
        has_flag[word[np.repeat([getattr(piece.access.site, flag) for piece in pieces], counts)]] = True
        contested &= has_flag
    masks = np.split(contested[word], np.cumsum(counts)[:-1])
    return [piece.where(mask) for piece, mask in zip(pieces, masks, strict=True) if mask.any()]


class _Slot:
    """One access per word: its position, block, thread and value."""

    def __init__(self, words: int) -> None:
        self.at, self.block = np.full(words, -1, np.intp), np.zeros(words, np.intp)
        self.thread, self.value = np.zeros(words, np.intp), np.zeros(words, np.int64)

    def set(self, words: IndexArray, at: IndexArray | int, block: IndexArray, thread: IndexArray) -> None:
        self.at[words], self.block[words], self.thread[words] = at, block, thread


Conflict = tuple[str, Mask, IndexArray, IndexArray, IndexArray, Mask]


class _BlockHistory:
    """The last accesses of one kind to each word by two different blocks."""

    def __init__(self, words: int) -> None:
        self._last, self._other = _Slot(words), _Slot(words)

    def __iter__(self) -> Iterator[_Slot]:
        yield from (self._last, self._other)

    def record(self, piece: AccessPiece, words: IndexArray, bits: npt.NDArray[np.int64] | None = None) -> None:
        """Record an access and the written bits."""
        block, thread, at = _block_of(piece), piece.thread, piece.position
        values = np.full(len(words), -1, np.int64) if bits is None else bits
        last, other = self._last, self._other
        moved = words[(last.at[words] >= 0) & (last.block[words] != block)]
        other.set(moved, last.at[moved], last.block[moved], last.thread[moved])
        other.value[moved] = last.value[moved]
        last.set(words, at, block, thread)
        last.value[words] = values
        lost = last.block[words] != block  # another block accesses the word by the same instruction
        other.set(words[lost], at, block[lost], thread[lost])
        other.value[words[lost]] = -1


class _BlockSweep:
    """The contested words, with the last weak write and the `_BlockHistory` of other accesses.

    Strong accesses race with fewer others, so they never replace weak ones.
    """

    def __init__(self, accesses: Sequence[MemoryAccess], words: int, unit_bytes: int) -> None:
        self.weak = np.array([access.site.is_weak_between_blocks for access in accesses])
        self.unit_bytes = unit_bytes
        strong_words = 0 if self.weak.all() else words
        self.write, self.reads = _Slot(words), _BlockHistory(words)
        self.strong_writes, self.strong_reads = (_BlockHistory(strong_words) for _ in range(2))
        self.any_strong = bool(strong_words)

    def access(self, piece: AccessPiece, words: IndexArray) -> Iterator[Conflict]:
        """Yield the conflicts of an access: kind, mask of lanes; earlier position, block and thread; harmless."""
        site = piece.access.site
        values = piece.values(self.unit_bytes) if site.modifies else None
        bits = np.full(len(words), -1, np.int64) if values is None else values.astype(np.int64)
        for slot in (self.write, *(self.strong_writes if self.any_strong else ())):
            same = (slot.value[words] == bits) & (bits >= 0)
            yield from self._against(slot, "WAW" if site.modifies else "RAW", piece, words, same)
        is_weak = site.is_weak_between_blocks
        if not site.modifies:
            (self.reads if is_weak else self.strong_reads).record(piece, words)
            return
        never = np.zeros(len(words), np.bool_)
        for slot in (*self.reads, *(self.strong_reads if self.any_strong else ())):
            yield from self._against(slot, "WAR", piece, words, never)
        if not is_weak:
            self.strong_writes.record(piece, words, bits)
            return
        self.write.set(words, piece.position, _block_of(piece), piece.thread)
        self.write.value[words] = bits
        yield from self._among(piece, words, bits)

    def _against(self, slot: _Slot, kind: str, piece: AccessPiece, words: IndexArray, same: Mask) -> Iterator[Conflict]:
        at, block = slot.at[words], slot.block[words]
        bad = (at >= 0) & (block != _block_of(piece))
        if not piece.access.site.is_weak_between_blocks:
            bad &= self.weak[at]
        if bad.any():
            yield kind, bad, at, block, slot.thread[words], same

    def _among(self, piece: AccessPiece, words: IndexArray, bits: npt.NDArray[np.int64]) -> Iterator[Conflict]:
        """Yield conflicts of lanes of several blocks that write the same word by the same instruction."""
        block = self.write.block[words]
        bad = block != _block_of(piece)
        if bad.any():
            at = np.full(len(words), piece.position)
            yield "WAW", bad, at, block, self.write.thread[words], (self.write.value[words] == bits) & (bits >= 0)

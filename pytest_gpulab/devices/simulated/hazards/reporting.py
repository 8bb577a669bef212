"""The reported hazards of a launch: one per kind and source lines, with the number of threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Access as OtherAccess
from pytest_gpulab.devices.protocol import Hazard
from pytest_gpulab.devices.simulated.groups.lanes import (
    WARP,
    IndexArray,
    Lanes,
    Shape,
    Value,
    first_index,
    first_lane,
    lane_of,
)
from pytest_gpulab.devices.simulated.translation.sites import ASYNC_COPY, Site

from .accesses import Event, MemoryAccess, numbered
from .classes import Accessors
from .fences import Fences, Questions
from .sweep import RacingLanes

if TYPE_CHECKING:  # imported with the first race
    from .checker import LaunchHazardChecker

MAX_QUESTIONS = 1 << 20  # about the order by fences, before they are answered
_HAZARDS = {"RAW": "read-after-write (RAW)", "WAR": "write-after-read (WAR)", "WAW": "write-after-write (WAW)"}


NO_FENCE = "no fence between the value and the flag that announces it"
NO_WAIT = "without a wait for the asynchronous copy and a barrier between"
IN_ITS_BLOCK = "atomic within one block only"
IN_ONE_WARP = "in one warp, no __syncwarp() between"


class Reporter:
    """The reported hazards of one launch; `hazards` holds them by kind, sentence and location."""

    def __init__(self, launch: LaunchHazardChecker, hazards: dict[Any, Hazard]) -> None:
        self._launch, self._hazards = launch, hazards
        self._deferred: list[Pairs] = []  # races unless fences order them
        self._threads: dict[Any, _Threads] = defaultdict(_Threads)
        self._questions = 0

    def race(self, race: RacingLanes, events: Sequence[Event], blocks_alike: bool) -> None:
        """Report races within blocks; if `blocks_alike`, each occurs in all blocks of the wave."""
        self.races(race, race.piece.access.lanes.wave.block_ids[race.piece.column], events, blocks_alike)

    def races(
        self, race: RacingLanes, other_blocks: IndexArray, events: Sequence[Event], blocks_alike: bool = False
    ) -> None:
        """Report that lanes of an access race with earlier ones among events, one hazard per pair of lines."""
        piece, harmless = race.piece, race.harmless
        positions, which = numbered(race.other)
        earlier = [event for at in positions if isinstance(event := events[at], MemoryAccess)]
        blocks = piece.access.lanes.wave.block_ids[piece.column]
        sites, times = (np.array(of)[which] for of in ([a.site.index for a in earlier], [a.time for a in earlier]))
        wave, space = piece.access.lanes.wave, "global" if piece.access.memory else "shared"
        everywhere = wave.block_ids if blocks_alike else None
        for key in dict.fromkeys(zip(sites.tolist(), harmless.tolist(), strict=True)):
            mine = np.flatnonzero((sites == key[0]) & (harmless == key[1]))
            other = earlier[which[mine[0]]].site
            second = Accessors(blocks[mine], piece.thread[mine], np.full(len(mine), piece.access.time))
            first = Accessors(other_blocks[mine], race.thread[mine], times[mine])
            self.pairs(Pairs(race.kind, space, piece.access.site, other, wave, second, first, key[1], everywhere))

    def pairs(self, pairs: Pairs) -> None:
        """Report that accesses race. If the program has fences, the decision is deferred to the end of the launch."""
        if self._launch.fences is None:
            self._found(pairs)
            self._launch.racing += 0 if pairs.harmless else len(pairs.second.time)
            return
        self._deferred.append(pairs.in_all_blocks())
        self._questions += len(self._deferred[-1].second.time)
        if self._questions > MAX_QUESTIONS:
            self.settle()

    def settle(self) -> None:
        """Report the deferred races that the launch's fences so far do not order."""
        deferred, self._deferred, self._questions = self._deferred, [], 0
        fences = self._launch.fences
        if fences is None or not deferred:
            return
        first, second = (Accessors(*map(np.concatenate, zip(*of, strict=True)))
                         for of in ([p.first for p in deferred], [p.second for p in deferred]))  # fmt: skip
        both_strong = np.concatenate([np.full(len(pairs.second.time), pairs.both_strong) for pairs in deferred])
        is_unordered = ~_are_ordered(fences, Questions(first, second, both_strong))
        if fences.is_overflown:
            self._launch.add_unchecked("the order that its fences establish")
        ends = np.cumsum([len(pairs.second.time) for pairs in deferred])
        for pairs, end in zip(deferred, ends.tolist(), strict=True):
            mine = np.flatnonzero(is_unordered[end - len(pairs.second.time) : end])
            if len(mine):
                self._found(pairs.at(mine))

    def _found(self, pairs: Pairs) -> None:
        """Report races; the example is a pair from two warps, if there is one."""
        second, first, wave = pairs.second, pairs.first, pairs.wave
        alike = second.thread // WARP == first.thread // WARP
        i = int(np.lexsort((second.thread, second.block, alike))[0])
        block, thread, other_block, other_thread = (
            int(of[i]) for of in (second.block, second.thread, first.block, first.thread)
        )
        missing = NO_FENCE if pairs.both_strong else _missing((pairs.site, pairs.other), block == other_block)
        relation = _relation(block == other_block, thread // WARP == other_thread // WARP, missing)
        what = f"potential {_HAZARDS[pairs.kind]} hazard on __{pairs.space}__ memory {relation}"
        if pairs.harmless:
            what += ", but both write the same value"
        where, met = pairs.site.where, pairs.other.where
        other_access = OtherAccess(described(pairs.other), met, lane_of(wave, other_block, other_thread))
        key = ("race", "order" if pairs.both_strong else pairs.kind, where, met, pairs.harmless)
        hazard = Hazard("race", what, where, lane_of(wave, block, thread), 1, other_access, pairs.harmless)
        blocks = second.block if pairs.everywhere is None else pairs.everywhere
        self.add(key, hazard, _ThreadList(blocks, second.thread, pairs.everywhere is not None))

    def uninitialised(self, site: Site, space: str, lanes: Lanes, address: Value, bad: npt.NDArray[np.bool_]) -> None:
        """Report that lanes of an access (mask of their shape) read unwritten memory."""
        what = f"uninitialized __{space}__ memory read of size {bytes_of(site)}"
        key, location = ("uninitialised", space, site.where), None
        if key not in self._hazards:  # only the first one is located
            first = np.broadcast_to(address, lanes.shape).flat[first_index(lanes, bad)]
            location = self._launch.locate(site, space, int(first))
        thread, column, number = lanes.each
        mine = number[np.broadcast_to(bad, lanes.shape).ravel()]
        threads = _ThreadList(lanes.wave.block_ids[column[mine]], thread[mine])
        self.add(key, Hazard("uninitialised", what, site.where, first_lane(lanes, bad), location=location), threads)

    def add(self, key: Any, hazard: Hazard, threads: _ThreadList) -> None:
        """Add a hazard, or count more threads of a known one. A pair from two warps replaces one from a single warp."""
        known = self._hazards.get(key)
        if known is not None and not (IN_ONE_WARP in known.what and IN_ONE_WARP not in hazard.what):
            hazard = known
        self._hazards[key] = replace(hazard, count=self._threads[key].add(threads))


class Pairs(NamedTuple):
    """Conflicting accesses of two instructions, in pairs to the same word by two threads."""

    kind: str  # `RAW`, `WAR` or `WAW`: the later access first
    space: str  # `global` or `shared`
    site: Site  # the instruction of the later accesses
    other: Site  # and of the earlier ones
    wave: Shape
    second: Accessors  # the later accesses
    first: Accessors  # the earlier ones
    harmless: bool = False  # True if both write the same value
    everywhere: IndexArray | None = None  # all blocks that have these accesses, if only those of one block are listed
    both_strong: bool = False  # True for strong reads of a strong write, which need no order; see `Questions`

    def at(self, chosen: IndexArray) -> Pairs:
        """Return a selection of the pairs."""
        return self._replace(second=self.second.at(chosen), first=self.first.at(chosen))

    def in_all_blocks(self) -> Pairs:
        """Return the pairs of all blocks one by one, because fences may differ between blocks."""
        if self.everywhere is None:
            return self
        count = len(self.everywhere)
        blocks = np.repeat(self.everywhere, len(self.second.time))
        second, first = (
            Accessors(blocks, np.tile(of.thread, count), np.tile(of.time, count)) for of in (self.second, self.first)
        )
        return self._replace(second=second, first=first, everywhere=None)


class _ThreadList(NamedTuple):
    """Threads by block and number; if `alike`, all these threads in each of these blocks."""

    blocks: IndexArray
    threads: IndexArray
    alike: bool = False


_ROWS = 1024  # blocks per mask, which has at most 1 MiB


class _Threads:
    """Distinct threads of a launch, as a bit set per block."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        self._count = 0

    def add(self, threads: _ThreadList) -> int:
        """Add threads; return the number of distinct threads."""
        blocks, numbers, alike = threads
        if alike:
            bits = _bit_set(numbers)
            for block in blocks.tolist():
                self._add(block, bits)
            return self._count
        each, row = numbered(blocks)
        for low in range(0, len(each), _ROWS):
            mine = slice(None) if len(each) <= _ROWS else (low <= row) & (row < low + _ROWS)
            mask = np.zeros((len(each[low : low + _ROWS]), int(numbers.max()) + 1), np.bool_)
            mask[row[mine] - low, numbers[mine]] = True
            for block, bits in zip(each[low:].tolist(), np.packbits(mask, 1, "little"), strict=False):
                self._add(block, int.from_bytes(bits.tobytes(), "little"))
        return self._count

    def _add(self, block: int, bits: int) -> None:
        known = self._bits.get(block, 0)
        self._bits[block] = known | bits
        self._count += (bits & ~known).bit_count()


def _bit_set(threads: IndexArray) -> int:
    mask = np.zeros(int(threads.max()) + 1, np.bool_)
    mask[threads] = True
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _are_ordered(fences: Fences, questions: Questions) -> npt.NDArray[np.bool_]:
    """Return the answer to each question; see `Fences.answers`. Blocks that synchronise alike have the same answers."""
    reduced, alike = fences.of_different_blocks()
    ordered = np.zeros(len(questions.both_strong), np.bool_)
    possible = np.arange(len(ordered))
    if alike is not None:  # then nothing orders different blocks
        possible = np.flatnonzero(questions.first.block == questions.second.block)
        blocks = alike[questions.first.block]
        questions = questions._replace(
            first=questions.first._replace(block=blocks), second=questions.second._replace(block=blocks)
        )
    strong = possible[questions.both_strong[possible]]
    ordered[strong] = ~reduced.exposed(questions.first.at(strong), questions.second.at(strong))
    open_questions = possible[~ordered[possible]]
    ordered[open_questions] = reduced.answers(questions.at(open_questions))
    fences.is_overflown |= reduced.is_overflown
    return ordered


def _missing(sites: Sequence[Site], same_block: bool) -> str:
    """Return what is missing between two accesses if it is no barrier."""
    if any(site.kind == ASYNC_COPY for site in sites):
        return NO_WAIT
    return IN_ITS_BLOCK if not same_block and any(site.in_block for site in sites) else ""


def _relation(same_block: bool, same_warp: bool, missing: str) -> str:
    """Return the relation of the two threads and the missing synchronisation, in words."""
    if missing or not same_block:
        return ("in one block" if same_block else "by different blocks") + (f", {missing}" if missing else "")
    return IN_ONE_WARP if same_warp else "in one block, no barrier between"


def described(site: Site) -> str:
    """Return the access of an instruction in words, such as `write of 4 bytes`."""
    what = "atomic operation" if site.access == "atomic" else site.access
    return f"{what} of {bytes_of(site)}"


def bytes_of(site: Site) -> str:
    """Return the size of an access per lane, such as `4 bytes`."""
    return f"{site.nbytes} byte" + ("s" if site.nbytes > 1 else "")

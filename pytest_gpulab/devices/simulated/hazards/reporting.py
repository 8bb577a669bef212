"""Hazards of a launch as they are found: the same thing at the same lines once, with how many threads did it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Access as Party
from pytest_gpulab.devices.protocol import Hazard, Location
from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Lanes, Shape, Value
from pytest_gpulab.devices.simulated.memory.spaces import first_index, first_lane, lane_of
from pytest_gpulab.devices.simulated.translation.sites import Site

from .accesses import Access, Event, Part
from .classes import Who
from .fences import Fences, Questions
from .sweep import Race

MAX_RACING = 1 << 18  # lanes that race, after which no more of them are looked for
MAX_QUESTIONS = 1 << 20  # to what fences put in order, that are answered at once
_HAZARDS = {
    "RAW": "read-after-write (RAW)",
    "WAR": "write-after-read (WAR)",
    "WAW": "write-after-write (WAW)",
}


Locate = Callable[[Site, str, int], Location | None]
NO_FENCE = "no fence between the value and the flag that announces it"
IN_ONE_WARP = "in one warp, no __syncwarp() between"


class Reporter:
    """Collects the hazards of one launch.

    Args:
        hazards: where they go, by kind, sentence and place.
        fences: the launch's record, None if its program has no fences.
        locate: finds the array of an instruction's access from its memory space and address.
    """

    def __init__(self, hazards: dict[Any, Hazard], fences: Fences | None, locate: Locate) -> None:
        self.hazards, self.fences, self.locate = hazards, fences, locate
        self.unseen: list[str] = []
        """What was forgotten although it might have raced with what came later; each once."""
        self._open: list[Pairs] = []  # races unless fences put them in order
        self._threads: dict[Any, _Threads] = defaultdict(_Threads)
        self._asked = self._racing = 0

    @property
    def is_enough(self) -> bool:
        """Whether races are certain, and so many that further ones tell nothing new."""
        return self.fences is None and self._racing > MAX_RACING

    def cut_short(self, unseen: str) -> None:
        """Note that something could not be looked at."""
        if unseen not in self.unseen:
            self.unseen.append(unseen)

    @property
    def moments(self) -> list[int]:
        """When fences may have put threads in order."""
        return [] if self.fences is None else self.fences.moments

    def race(self, race: Race, events: Sequence[Event], blocks_alike: bool) -> None:
        """Report races within blocks; each stands for those of all blocks of the wave if they are alike."""
        blocks = race.part.access.lanes.wave.block_ids[race.part.column]
        others = Others(events, race.other, blocks, race.thread)
        self.races(race.kind, race.part, blocks, others, race.harmless, blocks_alike)

    def races(
        self,
        kind: str,
        part: Part,
        blocks: IndexArray,
        others: Others,
        harmless: npt.NDArray[np.bool_],
        blocks_alike: bool = False,
    ) -> None:
        """Report that lanes of an access race with others, one hazard for each pair of lines."""
        for at in np.unique(others.at):
            for mild in (False, True):
                mine = np.flatnonzero((others.at == at) & (harmless == mild))
                if not len(mine):
                    continue
                other = others.access(int(mine[0]))
                second = Who(blocks[mine], part.thread[mine], np.full(len(mine), part.access.time))
                first = Who(others.blocks[mine], others.threads[mine], np.full(len(mine), other.time))
                everywhere = part.access.lanes.wave.block_ids if blocks_alike else None
                wave, space = part.access.lanes.wave, "global" if part.access.memory else "shared"
                self.pairs(Pairs(kind, space, part.access.site, other.site, wave, second, first, mild, everywhere))

    def pairs(self, pairs: Pairs) -> None:
        """Report that accesses race, unless fences have put them in order: that is left to the end of the launch."""
        if self.fences is None:
            self._found(pairs)
            self._racing += 0 if pairs.harmless else len(pairs.second.time)
            return
        self._open.append(pairs.in_all_blocks())
        self._asked += len(self._open[-1].second.time)
        if self._asked > MAX_QUESTIONS:
            self.settle()

    def settle(self) -> None:
        """Report what the fences of the launch so far have left without an order."""
        asked, self._open, self._asked = self._open, [], 0
        if self.fences is None or not asked:
            return
        first, second = (Who(*map(np.concatenate, zip(*of, strict=True)))
                         for of in ([pairs.first for pairs in asked], [pairs.second for pairs in asked]))  # fmt: skip
        hearsay = np.concatenate([np.full(len(pairs.second.time), pairs.hearsay) for pairs in asked])
        is_open = np.ones(len(hearsay), np.bool_)
        is_open[hearsay] = self.fences.exposed(first.at(hearsay), second.at(hearsay))
        unsure = np.flatnonzero(is_open)
        questions = Questions(first.at(unsure), second.at(unsure), hearsay[unsure])
        is_open[unsure] = ~self.fences.answers(questions)
        if self.fences.is_overflown:
            self.cut_short("which accesses its fences put in order")
        ends = np.cumsum([len(pairs.second.time) for pairs in asked])
        for pairs, end in zip(asked, ends.tolist(), strict=True):
            mine = np.flatnonzero(is_open[end - len(pairs.second.time) : end])
            if len(mine):
                self._found(pairs.at(mine))

    def _found(self, pairs: Pairs) -> None:
        """Report races; parties of two warps tell more than those of one."""
        second, first, wave = pairs.second, pairs.first, pairs.wave
        alike = second.thread // WARP == first.thread // WARP
        i = int(np.lexsort((second.thread, second.block, alike))[0])
        block, thread, other, who = (int(of[i]) for of in (second.block, second.thread, first.block, first.thread))
        missing = NO_FENCE if pairs.hearsay else ""
        relation = _relation(block == other, thread // WARP == who // WARP, missing)
        what = f"potential {_HAZARDS[pairs.kind]} hazard on __{pairs.space}__ memory {relation}"
        if pairs.harmless:
            what += ", but both write the same value"
        where, met = pairs.site.where, pairs.other.where
        party = Party(said(pairs.other), met, lane_of(wave, other, who))
        key = ("race", "order" if pairs.hearsay else pairs.kind, where, met, pairs.harmless)
        hazard = Hazard("race", what, where, lane_of(wave, block, thread), 1, party, pairs.harmless)
        blocks = second.block if pairs.everywhere is None else pairs.everywhere
        self.add(key, hazard, _Who(blocks, second.thread, pairs.everywhere is not None))

    def uninitialised(self, site: Site, space: str, lanes: Lanes, address: Value, bad: npt.NDArray[np.bool_]) -> None:
        """Report that lanes of an access (mask of their shape) read memory that was never written."""
        what = f"uninitialized __{space}__ memory read of size {bytes_of(site)}"
        key, location = ("uninitialised", space, site.where), None
        if key not in self.hazards:  # the first one is told of
            first = np.broadcast_to(address, lanes.shape).flat[first_index(lanes, bad)]
            location = self.locate(site, space, int(first))
        thread, column, number = lanes.each
        mine = number[np.broadcast_to(bad, lanes.shape).ravel()]
        who = _Who(lanes.wave.block_ids[column[mine]], thread[mine])
        self.add(key, Hazard("uninitialised", what, site.where, first_lane(lanes, bad), location=location), who)

    def add(self, key: Any, hazard: Hazard, who: _Who) -> None:
        """Note a hazard, or count further threads of one that is known; parties of two warps tell more than of one."""
        known = self.hazards.get(key)
        if known is not None and not (IN_ONE_WARP in known.what and IN_ONE_WARP not in hazard.what):
            hazard = known
        self.hazards[key] = replace(hazard, count=self._threads[key].add(who))


class Pairs(NamedTuple):
    """Accesses of one instruction, each with an earlier one by another thread of another instruction to the same word.

    Attributes:
        kind: `RAW`, `WAR` or `WAW`: the later access first.
        space: `global` or `shared`.
        site, other: the instructions of the later and of the earlier accesses.
        wave: of any block.
        second, first: the later and the earlier accesses.
        harmless: both write the same value.
        everywhere: the blocks that all do so, if the accesses of one block stand for all.
        hearsay: the later ones see the value of the others, and may without an order; see `Questions`.
    """

    kind: str
    space: str
    site: Site
    other: Site
    wave: Shape
    second: Who
    first: Who
    harmless: bool = False
    everywhere: IndexArray | None = None
    hearsay: bool = False

    def at(self, chosen: IndexArray) -> Pairs:
        """Return some of them."""
        return self._replace(second=self.second.at(chosen), first=self.first.at(chosen))

    def in_all_blocks(self) -> Pairs:
        """Return what all blocks do, one by one: fences may not be the same in all."""
        if self.everywhere is None:
            return self
        count = len(self.everywhere)
        blocks = np.repeat(self.everywhere, len(self.second.time))
        second, first = (
            Who(blocks, np.tile(of.thread, count), np.tile(of.time, count)) for of in (self.second, self.first)
        )
        return self._replace(second=second, first=first, everywhere=None)


class _Who(NamedTuple):
    """Threads: the block of each and its number there; if `alike`, these threads of each of these blocks."""

    blocks: IndexArray
    threads: IndexArray
    alike: bool = False


class _Threads:
    """Distinct threads of a launch: a bit set for each block."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        self._count = 0

    def add(self, who: _Who) -> int:
        """Add threads; return how many there are."""
        blocks, threads, alike = who
        if alike:
            bits = _bit_set(threads)
            for block in blocks.tolist():
                self._add(block, bits)
            return self._count
        order = np.argsort(blocks, kind="stable")
        starts = np.flatnonzero(np.diff(blocks[order], prepend=-1))
        for mine in np.split(order, starts[1:]):
            self._add(int(blocks[mine[0]]), _bit_set(threads[mine]))
        return self._count

    def _add(self, block: int, bits: int) -> None:
        known = self._bits.get(block, 0)
        self._bits[block] = known | bits
        self._count += (bits & ~known).bit_count()


def _bit_set(threads: IndexArray) -> int:
    mask = np.zeros(int(threads.max()) + 1, np.bool_)
    mask[threads] = True
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


class Others:
    """The other parties of races: accesses by position, their blocks and threads."""

    def __init__(self, events: Sequence[Event], at: npt.NDArray[Any], blocks: IndexArray, threads: IndexArray) -> None:
        self._events, self.at, self.blocks, self.threads = events, at, blocks, threads

    def access(self, i: int) -> Access:
        """Return the access that the i-th race met."""
        event = self._events[int(self.at[i])]
        assert isinstance(event, Access)
        return event


def _relation(same_block: bool, same_warp: bool, missing: str) -> str:
    """Return whose accesses these are and what there is not between them."""
    if missing or not same_block:
        return ("in one block" if same_block else "by different blocks") + (f", {missing}" if missing else "")
    return IN_ONE_WARP if same_warp else "in one block, no barrier between"


def said(site: Site) -> str:
    """Return what an instruction does, as in `write of 4 bytes`."""
    what = "atomic operation" if site.access == "atomic" else site.access
    return f"{what} of {bytes_of(site)}"


def bytes_of(site: Site) -> str:
    """Return how much a lane accesses, as in `4 bytes`."""
    return f"{site.nbytes} byte" + ("s" if site.nbytes > 1 else "")

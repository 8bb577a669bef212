"""Hazards of a launch as they are found: the same thing at the same lines once, with how many threads did it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Access as Party
from pytest_gpulab.devices.protocol import Hazard, Location
from pytest_gpulab.devices.simulated.execution.accesses import Access, Event, Part
from pytest_gpulab.devices.simulated.execution.fences import Fences, Question
from pytest_gpulab.devices.simulated.execution.lanes import WARP, IndexArray, Lanes, Value
from pytest_gpulab.devices.simulated.execution.memory import first_index, first_lane, lane_of
from pytest_gpulab.devices.simulated.execution.sweep import Race
from pytest_gpulab.devices.simulated.translation.sites import Site

MAX_RACING = 1 << 18  # lanes that race, after which no more of them are looked for
MAX_QUESTIONS = 4096  # of one pair of instructions, to what fences put in order
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
        self._open: list[tuple[Question, Any, Hazard, _Who]] = []  # races unless fences put them in order
        self._threads: dict[Any, _Threads] = defaultdict(_Threads)
        self._asked: Counter[Any] = Counter()
        self._racing = 0

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

    def race(self, race: Race, events: Sequence[Event], blocks_alike: int) -> None:
        """Report races within blocks; each stands for as many as there are blocks alike."""
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
        blocks_alike: int = 1,
    ) -> None:
        """Report that lanes of an access race with others, one hazard for each pair of lines."""
        for at in np.unique(others.at):
            for mild in (False, True):
                mine = np.flatnonzero((others.at == at) & (harmless == mild))
                everywhere = part.access.lanes.wave.block_ids if blocks_alike > 1 else None
                if len(mine) and self.fences is not None:
                    self._ask(kind, part, blocks, others, mine, mild, everywhere)
                elif len(mine):
                    alike = part.thread[mine] // WARP == others.threads[mine] // WARP
                    first = mine[np.lexsort((part.thread[mine], blocks[mine], alike))[0]]
                    who = _Who(
                        blocks[mine] if everywhere is None else everywhere, part.thread[mine], everywhere is not None
                    )
                    self.add(*self._hazard(kind, part, blocks, others, int(first), mild), who)
                    self._racing += 0 if mild else len(mine)

    def _ask(
        self,
        kind: str,
        part: Part,
        blocks: IndexArray,
        others: Others,
        mine: IndexArray,
        harmless: bool,
        everywhere: IndexArray | None,
    ) -> None:
        """Leave it to the end of the launch whether fences have put these in order."""
        for i in mine.tolist():
            key, hazard = self._hazard(kind, part, blocks, others, i, harmless)
            self._asked[key] += 1
            if self._asked[key] > MAX_QUESTIONS:
                return
            first, second = (int(others.blocks[i]), int(others.threads[i])), (int(blocks[i]), int(part.thread[i]))
            question = Question(first, others.access(i).time, second, part.access.time)
            mine_of = blocks[i : i + 1] if everywhere is None else everywhere
            who = _Who(mine_of, part.thread[i : i + 1], everywhere is not None)
            self._open.append((question, key, hazard, who))

    def unannounced(self, part: Part, i: int, blocks: IndexArray, other: tuple[Access, int, int]) -> None:
        """Leave it to the end whether a lane relies on a write that no fence separates from what announces it."""
        access, block, thread = other
        mine = int(blocks[i]), int(part.thread[i])
        where, met = part.access.site.where, access.site.where
        key = ("race", "order", where, met)
        self._asked[key] += 1
        if self._asked[key] > MAX_QUESTIONS:
            return
        shape = part.access.lanes.wave
        party = Party(said(access.site), met, lane_of(shape, block, thread))
        what = f"potential {_HAZARDS['RAW']} hazard on __global__ memory by different blocks, {NO_FENCE}"
        hazard = Hazard("race", what, where, lane_of(shape, *mine), 1, party)
        question = Question((block, thread), access.time, mine, part.access.time, True)
        self._open.append((question, key, hazard, _Who(blocks[i : i + 1], part.thread[i : i + 1])))

    def settle(self) -> None:
        """Report what the fences of the launch, which is over, have left without an order."""
        if self.fences is not None and self._open:
            if self.fences.is_overflown:
                self.cut_short("which accesses its fences put in order")
            answers = self.fences.answers([question for question, *_ in self._open])
            for (_, key, hazard, who), is_ordered in zip(self._open, answers, strict=True):
                if not is_ordered:
                    self.add(key, hazard, who)

    @staticmethod
    def _hazard(
        kind: str, part: Part, blocks: IndexArray, others: Others, i: int, harmless: bool
    ) -> tuple[Any, Hazard]:
        site, other = part.access.site, others.access(i)
        shape = part.access.lanes.wave
        space = "__shared__" if part.access.memory is None else "__global__"
        relation = _relation(blocks[i] == others.blocks[i], part.thread[i] // WARP == others.threads[i] // WARP)
        what = f"potential {_HAZARDS[kind]} hazard on {space} memory {relation}"
        if harmless:
            what += ", but both write the same value"
        met = Party(said(other.site), other.site.where, lane_of(shape, int(others.blocks[i]), int(others.threads[i])))
        lane = lane_of(shape, int(blocks[i]), int(part.thread[i]))
        key = ("race", kind, site.where, other.site.where, harmless)
        return key, Hazard("race", what, site.where, lane, 1, met, harmless)

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


def _relation(same_block: bool, same_warp: bool) -> str:
    """Return whose accesses these are and what there is not between them."""
    if not same_block:
        return "by different blocks"
    return IN_ONE_WARP if same_warp else "in one block, no barrier between"


def said(site: Site) -> str:
    """Return what an instruction does, as in `write of 4 bytes`."""
    what = "atomic operation" if site.access == "atomic" else site.access
    return f"{what} of {bytes_of(site)}"


def bytes_of(site: Site) -> str:
    """Return how much a lane accesses, as in `4 bytes`."""
    return f"{site.nbytes} byte" + ("s" if site.nbytes > 1 else "")

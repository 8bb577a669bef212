"""Hazards of a launch as they are found: the same thing at the same lines once, with how many threads did it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

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
        self._open: list[tuple[Question, tuple[Any, Hazard]]] = []  # races unless fences put them in order
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
                if len(mine) and self.fences is not None:
                    self._ask(kind, part, blocks, others, mine, mild)
                elif len(mine):
                    alike = part.thread[mine] // WARP == others.threads[mine] // WARP
                    first = mine[np.lexsort((part.thread[mine], blocks[mine], alike))[0]]
                    self.add(*self._hazard(kind, part, blocks, others, int(first), len(mine) * blocks_alike, mild))
                    self._racing += 0 if mild else len(mine)

    def _ask(self, kind: str, part: Part, blocks: IndexArray, others: Others, mine: IndexArray, harmless: bool) -> None:
        """Leave it to the end of the launch whether fences have put these in order."""
        for i in mine.tolist():
            key, hazard = self._hazard(kind, part, blocks, others, i, 1, harmless)
            self._asked[key] += 1
            if self._asked[key] > MAX_QUESTIONS:
                return
            first, second = (int(others.blocks[i]), int(others.threads[i])), (int(blocks[i]), int(part.thread[i]))
            question = Question(first, others.access(i).time, second, part.access.time)
            self._open.append((question, (key, hazard)))

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
        self._open.append((Question((block, thread), access.time, mine, part.access.time, True), (key, hazard)))

    def settle(self) -> None:
        """Report what the fences of the launch, which is over, have left without an order."""
        if self.fences is not None and self._open:
            if self.fences.is_overflown:
                self.cut_short("which accesses its fences put in order")
            answers = self.fences.answers([question for question, _ in self._open])
            for (_, found), is_ordered in zip(self._open, answers, strict=True):
                if not is_ordered:
                    self.add(*found)

    @staticmethod
    def _hazard(
        kind: str, part: Part, blocks: IndexArray, others: Others, i: int, count: int, harmless: bool
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
        return key, Hazard("race", what, site.where, lane, count, met, harmless)

    def uninitialised(self, site: Site, space: str, lanes: Lanes, address: Value, bad: npt.NDArray[np.bool_]) -> None:
        """Report that lanes of an access (mask of their shape) read memory that was never written."""
        what = f"uninitialized __{space}__ memory read of size {bytes_of(site)}"
        key, location = ("uninitialised", space, site.where), None
        if key not in self.hazards:  # the first one is told of
            first = np.broadcast_to(address, lanes.shape).flat[first_index(lanes, bad)]
            location = self.locate(site, space, int(first))
        lane = first_lane(lanes, bad)
        self.add(key, Hazard("uninitialised", what, site.where, lane, int(bad.sum()), location=location))

    def add(self, key: Any, hazard: Hazard) -> None:
        """Note a hazard, or count further threads of one that is known; parties of two warps tell more than of one."""
        known = self.hazards.get(key)
        if known is not None:
            told = hazard if IN_ONE_WARP in known.what and IN_ONE_WARP not in hazard.what else known
            hazard = replace(told, count=known.count + hazard.count)
        self.hazards[key] = hazard


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

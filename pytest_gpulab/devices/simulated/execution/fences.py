"""What fences put in order, across blocks and within: a record of a launch, replayed only where two accesses look racy.

A fence publishes all that its thread did and knows. Whoever reads what that thread then writes with a volatile, atomic
or otherwise strong access learns what it had published; threads that meet at a barrier share what they know and have
published. A fence on the reader's side is not asked for: the last-block reduction of textbooks has none. Whoever reads
a place with a strong access also knows, without any fence, that the accesses which have made its value are over. So are
the earlier strong accesses to this place that their threads made or knew of: a place's accesses are coherent.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.execution.lanes import WARP, Lanes, Value
from pytest_gpulab.devices.simulated.execution.memory import Allocation

MAX_RECORDS = 100_000
MAX_LANES = 1 << 22  # of all records together
_WRITES, _READS = ("write", "exchange", "update"), ("read", "exchange")


class Question(NamedTuple):
    """Does `later`, by a thread, know what another thread did `earlier`? Threads by (block, number in it).

    `hearsay` asks for less: that nothing written after it has told of it either. Accesses that may go without an order
    are in order so, too: nothing lets the later thread rely on the earlier access.
    """

    first: tuple[int, int]
    earlier: int
    second: tuple[int, int]
    later: int
    hearsay: bool = False


class _Record(NamedTuple):
    """What some lanes did; `address` and `memory` (None: shared) say where, for strong accesses.

    `what` is `fence`, `block fence` (for the own block only), `read`, `write`, `exchange` or `update` (an atomic whose
    old value is not wanted); `warps` or `meet`, a warp sync or a barrier of these threads; or `blocks`, one of all
    threads of the blocks that have lanes here.
    """

    time: int
    what: str
    lanes: Lanes
    address: Value
    memory: Allocation | None

    def places(self) -> list[Any]:
        """Return each lane's place in memory."""
        offsets = np.broadcast_to(self.address, self.lanes.shape).ravel(order="F").tolist()
        if self.memory is not None:
            return [(self.memory.base, offset) for offset in offsets]
        return list(zip((-1 - threads_of(self.lanes)[:, 0]).tolist(), offsets, strict=True))


class Fences:
    """The record of one launch."""

    def __init__(self) -> None:
        self.moments: list[int] = []
        """When threads did what may put them in order."""
        self.is_overflown = False
        """Whether too much happened to remember all of it."""
        self._records: list[_Record] = []
        self._lanes = 0

    def add(self, time: int, what: str, lanes: Lanes, address: Value = None, memory: Allocation | None = None) -> None:
        """Remember what some lanes did; see `_Record`."""
        if len(self._records) == MAX_RECORDS or self._lanes > MAX_LANES:
            self.is_overflown = True
            return
        self._lanes += lanes.n
        self.moments.append(time)
        self._records.append(_Record(time, what, lanes, address, memory))

    def exposed(self) -> set[tuple[int, tuple[int, int]]]:
        """Return the strong writes, by time and thread, that another write of the block may overtake.

        That is, with no fence of their thread between. The other write may not know of them: `answers` tells.
        """
        pending: dict[int, list[tuple[int, tuple[int, int], Any]]] = defaultdict(list)
        found: set[tuple[int, tuple[int, int]]] = set()
        for record in self._records:
            if record.what == "fence":
                for block, thread in threads_of(record.lanes).tolist():
                    pending[block] = [entry for entry in pending[block] if entry[1] != (block, thread)]
            elif record.what in _WRITES:
                for (block, thread), place in zip(threads_of(record.lanes).tolist(), record.places(), strict=True):
                    waiting = pending[block]
                    found.update(entry[:2] for entry in waiting if entry[2] != place)
                    pending[block] = [entry for entry in waiting if entry[2] == place]
                    pending[block].append((record.time, (block, thread), place))
        return found

    def answers(self, questions: list[Question]) -> list[bool]:
        """Return for each question whether the answer is yes; always yes where too much happened to remember it."""
        if self.is_overflown:
            return [True] * len(questions)
        sources = sorted({(question.earlier, question.first) for question in questions})
        bit = {source: 1 << number for number, source in enumerate(sources)}
        asked = sorted(range(len(questions)), key=lambda number: questions[number].later)
        replay = _Replay(bit)
        result = [False] * len(questions)
        started = at = 0
        for number in asked:
            question = questions[number]
            while True:
                due = self._records[at].time if at < len(self._records) else question.later
                while started < len(sources) and sources[started][0] < min(due, question.later):
                    replay.learn(sources[started][1], bit[sources[started]])
                    started += 1
                if at >= len(self._records) or due >= question.later:
                    break
                replay.step(self._records[at])
                at += 1
            wanted = bit[question.earlier, question.first]
            result[number] = bool(replay.knows(question.second) & wanted)
            if question.hearsay and not result[number]:
                result[number] = not replay.has_heard(question.second) & wanted
        return result


class _Replay:
    """Who knows of which sources, as bit sets; what a whole block knows is held once, under the block's number.

    Args:
        bit: the sources: time and thread of an access.
    """

    def __init__(self, bit: dict[tuple[int, tuple[int, int]], int]) -> None:
        self._bit, self._times = bit, {time for time, _ in bit}
        self._seen: dict[Any, int] = {}  # sources that are accesses to a place which whoever reads it now observes
        self._here: dict[Any, int] = defaultdict(int)  # all sources that are strong accesses to a place so far
        self._known: dict[Any, int] = defaultdict(int)
        self._public: dict[Any, int] = defaultdict(int)
        self._inside: dict[Any, int] = defaultdict(int)  # published for the own block only
        self._places: dict[Any, int] = {}
        self._heard: dict[Any, int] = defaultdict(int)  # of, but not published by a fence
        self._rumours: dict[Any, int] = {}

    def learn(self, thread: tuple[int, int], bits: int) -> None:
        """Let a thread know of sources."""
        self._known[thread] |= bits

    def knows(self, thread: tuple[int, int]) -> int:
        """Return the sources that a thread knows of."""
        return _of(self._known, thread)

    def has_heard(self, thread: tuple[int, int]) -> int:
        """Return the sources that later writes have told a thread of, fences or not."""
        return _of(self._heard, thread)

    def step(self, record: _Record) -> None:
        """Let what some lanes did spread what they know."""
        is_source = record.time in self._times
        if record.what == "read" and not (is_source or self._places or self._seen or self._rumours):
            return
        threads = [(block, thread) for block, thread in threads_of(record.lanes).tolist()]
        if record.what == "blocks":
            for block in {block for block, _ in threads}:
                self._meet_block(block)
        elif record.what in ("meet", "warps"):
            for together in _groups(record, threads):
                self._meet(together)
        elif "fence" in record.what:
            table = self._public if record.what == "fence" else self._inside
            for thread in threads:
                if self.knows(thread):
                    table[thread] |= self.knows(thread)
        else:
            for thread, place in zip(threads, record.places(), strict=True):
                own = self._bit.get((record.time, thread), 0) if is_source else 0
                self._observe(record.what, thread, place, own)
                self._at(record.what, thread, place)

    def _observe(self, what: str, thread: tuple[int, int], place: Any, own: int) -> None:
        """A thread knows of the accesses that have made the value which it reads: they are over (causality order)."""
        seen, rumours = self._seen.get(place, 0), self._rumours.get(place, 0)
        if what in _READS and seen:
            self._known[thread] |= seen
        if what in _READS and rumours:
            self._heard[thread] |= rumours
        if what != "read":
            before = self.knows(thread) & self._here.get(place, 0)
            self._seen[place] = own | before | (seen if what != "write" else 0)
            self._rumours[place] = self.knows(thread) | (rumours if what != "write" else 0)
        if own:
            self._here[place] |= own

    def _at(self, what: str, thread: tuple[int, int], place: Any) -> None:
        block = thread[0]
        if what in _READS:
            found, nearby = self._places.get(place, 0), self._places.get((place, block), 0)
            if found or nearby:
                self._known[thread] |= found | nearby
                self._public[thread] |= found
        if what == "read":
            return
        public = _of(self._public, thread)
        inside = public | _of(self._inside, thread)
        kept = what != "write"  # others' announcements survive an atomic, but not a plain write
        for key, bits in ((place, public), ((place, block), inside)):
            bits |= self._places.get(key, 0) if kept else 0
            if bits:
                self._places[key] = bits
            else:
                self._places.pop(key, None)

    def _meet_block(self, block: int) -> None:
        for table in (self._known, self._public, self._inside, self._heard):
            for key in [key for key in table if isinstance(key, tuple) and key[0] == block]:
                table[block] |= table.pop(key)

    def _meet(self, threads: list[tuple[int, int]]) -> None:
        for table in (self._known, self._public, self._inside, self._heard):
            together = 0
            for thread in threads:
                together |= table.get(thread, 0)
            if together:
                for thread in threads:
                    table[thread] |= together


def _groups(record: _Record, threads: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Who meets whom: the threads of a block, or those of a warp that wait with the same mask (in `address`)."""
    groups: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    masks = np.broadcast_to(0 if record.what == "meet" else record.address, record.lanes.shape)
    for (block, thread), mask in zip(threads, masks.ravel(order="F").tolist(), strict=True):
        warp = 0 if record.what == "meet" else thread // WARP
        groups[block, warp, mask].append((block, thread))
    return list(groups.values())


def _of(table: dict[Any, int], thread: tuple[int, int]) -> int:
    return table.get(thread, 0) | table.get(thread[0], 0)


def threads_of(lanes: Lanes) -> npt.NDArray[np.int64]:
    """Return (block, thread in it) of each lane, in the order of `wave`: a block after the other."""
    shape = lanes.shape
    block = np.broadcast_to(lanes.wave.block_ids[lanes.column], shape).ravel(order="F")
    thread = np.broadcast_to(lanes.threads.reshape(-1, 1), shape).ravel(order="F")
    return np.stack([block, thread], axis=1).astype(np.int64)

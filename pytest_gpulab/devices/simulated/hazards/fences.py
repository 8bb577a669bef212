"""What fences put in order, across blocks and within: a record of a launch, replayed only where two accesses look racy.

A fence publishes all that its thread did and knows. Whoever reads what that thread then writes with a volatile, atomic
or otherwise strong access learns what it had published; threads that meet at a barrier share what they know and have
published. A fence on the reader's side is not asked for: the last-block reduction of textbooks has none. Whoever reads
a place with a strong access also knows, without any fence, that the accesses which have made its value are over. So are
the earlier strong accesses to this place that their threads made or knew of: a place's accesses are coherent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Lanes, Value
from pytest_gpulab.devices.simulated.memory.spaces import Allocation

from .accesses import PHASES, split_phase
from .classes import Classes, Who, threads_of

MAX_RECORDS = 100_000
MAX_LANES = 1 << 22  # of all records together
MAX_SOURCES = 1 << 12  # classes of accesses that one replay follows
MAX_WORK = 1 << 22  # lanes of records in all replays at once, the first one aside
_Thread = tuple[int, int]  # block, and number in it
_WRITES, _READS = ("write", "exchange", "update"), ("read", "exchange")


class Questions(NamedTuple):
    """Whether each access of `second` knows of the access of `first`, by another thread.

    `hearsay` asks for less: that nothing written after it has told of it either. Accesses that may go without an order
    are in order so, too: nothing lets the later thread rely on the earlier access.
    """

    first: Who
    second: Who
    hearsay: npt.NDArray[np.bool_]


class Record(NamedTuple):
    """What some lanes did; `address` and `memory` (None: shared) say where, for strong accesses.

    `what` is `fence`, `block fence` (for the own block only), `read`, `write`, `exchange` or `update` (an atomic whose
    old value is not wanted); `warps` or `meet`, a warp sync or a barrier of these threads; `blocks`, one of all threads
    of the blocks that have lanes here; or `arrive`, `complete`, `wait` at an mbarrier (see `Phase`).
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
        self._records: list[Record] = []
        self._classes: tuple[int, Classes] | None = None  # by so many records
        self._lanes = 0

    def add(self, time: int, what: str, lanes: Lanes, address: Value = None, memory: Allocation | None = None) -> None:
        """Remember what some lanes did; see `Record`."""
        if len(self._records) == MAX_RECORDS or self._lanes > MAX_LANES:
            self.is_overflown = True
            return
        self._lanes += lanes.n
        self.moments.append(time)
        self._records.append(Record(time, what, lanes, address, memory))

    def exposed(self, first: Who, second: Who) -> npt.NDArray[np.bool_]:
        """Return of which strong writes (`first`) those that see them (`second`) may see a later write before.

        That is, no fence of their thread stands before another write of its block. That may be a fence for the block
        if who sees it is of this block. The other write may not know of the first one: `answers` tells.
        """
        overtaken = {
            is_near: self._overtaken(("fence", "block fence") if is_near else ("fence",))
            for is_near in np.unique(first.block == second.block).tolist()
        }
        each = zip(*(array.tolist() for array in (*first, second.block)), strict=True)
        found = [(time, (block, thread)) in overtaken[block == other] for block, thread, time, other in each]
        return np.array(found, np.bool_)

    def _overtaken(self, fences: tuple[str, ...]) -> set[tuple[int, _Thread]]:
        pending: dict[int, list[tuple[int, _Thread, Any]]] = defaultdict(list)
        found: set[tuple[int, _Thread]] = set()
        for record in self._records:
            if record.what in fences:
                for block, thread in threads_of(record.lanes).tolist():
                    pending[block] = [entry for entry in pending[block] if entry[1] != (block, thread)]
            elif record.what in _WRITES:
                for (block, thread), place in zip(threads_of(record.lanes).tolist(), record.places(), strict=True):
                    waiting = pending[block]
                    found.update(entry[:2] for entry in waiting if entry[2] != place)
                    pending[block] = [entry for entry in waiting if entry[2] == place]
                    pending[block].append((record.time, (block, thread), place))
        return found

    def classes(self) -> Classes:
        """Return which accesses can be told apart, by the records so far."""
        if self._classes is None or self._classes[0] != len(self._records):
            self._classes = len(self._records), Classes(self._records)
        return self._classes[1]

    def answers(self, questions: Questions) -> npt.NDArray[np.bool_]:
        """Return for each question whether the answer is yes; always yes where too much happened to find out."""
        answers = np.ones(len(questions.hearsay), np.bool_)
        if self.is_overflown or not len(answers):
            return answers
        classes = self.classes()
        first, until = classes.earlier(questions.first)
        answers[questions.second.time <= until] = False
        asked = np.flatnonzero(answers)
        source = np.unique(first[asked], return_inverse=True)[1]
        second = np.unique(classes.later(questions.second.at(asked)), return_inverse=True)[1]
        pair = (source * (1 + int(second.max(initial=0))) + second) * 2 + questions.hearsay[asked]
        _, chosen, which = np.unique(pair, return_index=True, return_inverse=True)
        answers[asked] = self._replayed(questions, asked[chosen], source[chosen])[which]
        return answers

    def _replayed(self, questions: Questions, chosen: IndexArray, source: IndexArray) -> npt.NDArray[np.bool_]:
        """Return the answers to some questions, whose sources are numbered."""
        result = np.ones(len(chosen), np.bool_)
        for number, start in enumerate(range(0, 1 + int(source.max(initial=-1)), MAX_SOURCES)):
            if number * self._lanes > MAX_WORK:
                self.is_overflown = True
                break
            mine = np.flatnonzero((source >= start) & (source < start + MAX_SOURCES))
            of = {at: (int(questions.first.time[i]), (int(questions.first.block[i]), int(questions.first.thread[i])))
                  for at, i in zip(source[mine].tolist(), chosen[mine].tolist(), strict=True)}  # fmt: skip
            asked = [
                (int(questions.second.time[i]), (int(questions.second.block[i]), int(questions.second.thread[i])),
                 of[at], bool(questions.hearsay[i]))
                for at, i in zip(source[mine].tolist(), chosen[mine].tolist(), strict=True)
            ]  # fmt: skip
            result[mine] = self._answered(asked)
        return result

    def _answered(self, asked: list[tuple[int, _Thread, tuple[int, _Thread], bool]]) -> list[bool]:
        """Answer questions: when which thread asks for which source, and whether for hearsay."""
        sources = sorted({source for _, _, source, _ in asked})
        bit = {source: 1 << number for number, source in enumerate(sources)}
        replay, result, started = _Replay(bit), [False] * len(asked), 0
        at = bisect_left(self.moments, sources[0][0])
        for number in sorted(range(len(asked)), key=lambda number: asked[number][0]):
            later, thread, source, is_hearsay = asked[number]
            while True:
                due = self._records[at].time if at < len(self._records) else later
                while started < len(sources) and sources[started][0] < min(due, later):
                    replay.learn(sources[started][1], bit[sources[started]])
                    started += 1
                if at >= len(self._records) or due >= later:
                    break
                replay.step(self._records[at])
                at += 1
            result[number] = bool(replay.knows(thread) & bit[source])
            if is_hearsay and not result[number]:
                result[number] = not replay.has_heard(thread) & bit[source]
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
        self._nearby: dict[Any, dict[int, int]] = defaultdict(dict)  # what a place tells the threads of each block
        self._heard: dict[Any, int] = defaultdict(int)  # of, but not published by a fence
        self._rumours: dict[Any, int] = {}
        self._arriving: dict[Any, tuple[int, int]] = {}  # what threads brought to an mbarrier: known, published
        self._complete: dict[Any, tuple[int, int]] = {}  # and until the end of a phase

    def learn(self, thread: tuple[int, int], bits: int) -> None:
        """Let a thread know of sources."""
        self._known[thread] |= bits

    def knows(self, thread: tuple[int, int]) -> int:
        """Return the sources that a thread knows of."""
        return _of(self._known, thread)

    def has_heard(self, thread: tuple[int, int]) -> int:
        """Return the sources that later writes have told a thread of, fences or not."""
        return _of(self._heard, thread)

    def step(self, record: Record) -> None:
        """Let what some lanes did spread what they know."""
        is_source = record.time in self._times
        if record.what == "read" and not (is_source or self._nearby or self._seen or self._rumours):
            return
        threads = [(block, thread) for block, thread in threads_of(record.lanes).tolist()]
        if record.what in ("arrive", "complete", "wait"):
            for thread, place in zip(threads, record.places(), strict=True):
                self._phase(record.what, thread, place)
        elif record.what in ("blocks", "meet", "warps"):
            self._meet_all(record, threads)
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
            found, nearby = self._places.get(place, 0), self._nearby.get(place, {}).get(block, 0)
            if found or nearby:
                self._known[thread] |= found | nearby
                self._public[thread] |= found
        if what == "read":
            return
        if what == "write":  # others' announcements survive an atomic, but not a plain write
            self._places.pop(place, None)
            self._nearby.pop(place, None)
        public = _of(self._public, thread)
        inside = public | _of(self._inside, thread)
        if public:
            self._places[place] = self._places.get(place, 0) | public
        if inside:
            self._nearby[place][block] = self._nearby[place].get(block, 0) | inside

    def _meet_all(self, record: Record, threads: list[tuple[int, int]]) -> None:
        if record.what == "blocks":
            for block in {block for block, _ in threads}:
                self._meet_block(block)
            return
        for together in _groups(record, threads):
            self._meet(together)

    def _phase(self, what: str, thread: tuple[int, int], place: tuple[int, int]) -> None:
        """A thread arrives at an mbarrier, ends a phase, or learns from those who arrived until the end of one."""
        tables = self._known, self._public
        whose, (address, phase) = place[0], split_phase(place[1])
        if what == "arrive":
            before = self._arriving.get(place, (0, 0))
            self._arriving[place] = before[0] | _of(tables[0], thread), before[1] | _of(tables[1], thread)
        elif what == "complete":
            arrived = self._arriving.pop((whose, address), (0, 0))
            before = self._complete.get((whose, address, (phase - 1) % PHASES), (0, 0))
            self._complete[whose, address, phase] = arrived[0] | before[0], arrived[1] | before[1]
        else:
            for bits, table in zip(self._complete.get((whose, address, phase), (0, 0)), tables, strict=True):
                if bits:
                    table[thread] |= bits

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


def _groups(record: Record, threads: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Who meets whom: the threads of a block, or those of a warp that wait with the same mask (in `address`)."""
    groups: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    masks = np.broadcast_to(0 if record.what == "meet" else record.address, record.lanes.shape)
    for (block, thread), mask in zip(threads, masks.ravel(order="F").tolist(), strict=True):
        warp = 0 if record.what == "meet" else thread // WARP
        groups[block, warp, mask].append((block, thread))
    return list(groups.values())


def _of(table: dict[Any, int], thread: tuple[int, int]) -> int:
    return table.get(thread, 0) | table.get(thread[0], 0)

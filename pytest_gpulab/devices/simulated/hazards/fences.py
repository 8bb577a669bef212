"""The order that fences establish, across blocks and within a block.

The synchronisations of a launch are recorded, and replayed only if two accesses may race. An access is *visible* to a
thread if it happens before the thread's next access.

- A fence publishes the accesses of its thread, and those visible to it.
- A strong read (volatile, atomic and the like) of a value that the thread wrote after its fence acquires these.
- Threads at a barrier share their visible and their published accesses.
- A fence on the reader's side is not required: the last-block reduction of textbooks has none.
- A strong read is ordered after the accesses that made its value, without any fence (causality order). It is also
  ordered after the earlier strong accesses to this location that were visible to their threads (coherence).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Lanes, Value
from pytest_gpulab.devices.simulated.memory.spaces import Allocation

from .accesses import PHASES, split_phase
from .alike_blocks import records_of, representatives
from .classes import Accessors, Classes, Record, threads_of

MAX_RECORDS = 100_000  # bounds the memory and the time of a replay
MAX_LANES = 1 << 22  # lanes of all records of a launch
MAX_SOURCES = 1 << 12  # classes of accesses per replay
MAX_WORK = 1 << 22  # lanes of records in all further replays
_Thread = tuple[int, int]  # block, thread in it
_WRITES, _READS = ("write", "exchange", "update"), ("read", "exchange")


class Questions(NamedTuple):
    """Pairs of accesses by different threads, of which `first` may be ordered before `second`.

    The answer is True if it is. For pairs in `both_strong` it is also True if the later thread has observed no write
    that follows the earlier access without a fence: then it cannot rely on the earlier access, so it needs no order.
    """

    first: Accessors
    second: Accessors
    both_strong: npt.NDArray[np.bool_]

    def at(self, chosen: IndexArray) -> Questions:
        """Return a selection of the questions."""
        return Questions(self.first.at(chosen), self.second.at(chosen), self.both_strong[chosen])


class Fences:
    """The recorded synchronisations of one launch."""

    def __init__(self) -> None:
        self.times: list[int] = []
        """The times of the records."""
        self.is_overflown = False
        """True if there were too many records to keep or replay all of them."""
        self._records: list[Record] = []
        self._classes: tuple[int, Classes] | None = None  # with the number of records at the time
        self._lanes = 0

    def add(self, time: int, what: str, lanes: Lanes, address: Value = None, memory: Allocation | None = None) -> None:
        """Record a synchronisation; see `Record`."""
        if len(self._records) == MAX_RECORDS or self._lanes > MAX_LANES:
            self.is_overflown = True
            return
        self._lanes += lanes.n
        self.times.append(time)
        self._records.append(Record(time, what, lanes, address, memory))

    def keep(self, time: int, positions: list[npt.NDArray[np.intp]]) -> None:
        """Remove all lanes from the record of a time, but those at some positions in their wave."""
        at = bisect_left(self.times, time)
        if at == len(self.times) or self.times[at] != time:  # it was not kept
            return
        record = self._records[at]
        mask = np.isin(record.lanes.position, np.concatenate([*positions, np.zeros(0, np.intp)]))
        if mask.all():
            return
        self._classes, self._lanes = None, self._lanes - np.count_nonzero(~mask)
        if not mask.any():
            del self.times[at], self._records[at]
            return
        subset = record.lanes.subset(mask)
        self._records[at] = record._replace(lanes=subset.lanes, address=subset.take(record.address))

    def of_different_blocks(self) -> tuple[Fences, IndexArray | None]:
        """Return the records of one block per group of alike blocks, and the replayed block for each block.

        Return all records and None if blocks may synchronise with each other.
        """
        alike = None if self.is_overflown else representatives(self._records)
        if alike is None:
            return self, None
        reduced = Fences()
        for record in records_of(self._records, np.unique(alike)):
            reduced.add(*record)
        return reduced, alike

    def exposed(self, first: Accessors, second: Accessors) -> npt.NDArray[np.bool_]:
        """Return a mask of pairs: the reader `second` may see a later write before the strong write `first`.

        That is the case if the writing thread has no fence before a later write of its block to another location. A
        reader of the same block needs only a fence for the block. `answers` finds out if the later write is ordered
        after the first.
        """
        each = list(zip(*(array.tolist() for array in (*first, second.block)), strict=True))
        strong: dict[int, set[_Thread]] = defaultdict(set)
        for block, thread, time, _ in each:
            strong[time].add((block, thread))
        overtaken = {
            is_near: self._overtaken(("fence", "block fence") if is_near else ("fence",), strong)
            for is_near in np.unique(first.block == second.block).tolist()
        }
        found = [(time, (block, thread)) in overtaken[block == other] for block, thread, time, other in each]
        return np.array(found, np.bool_)

    def _overtaken(self, fences: tuple[str, ...], strong: Mapping[int, set[_Thread]]) -> set[tuple[int, _Thread]]:
        """Return the strong writes, by time and thread, with a later write of their block and no fence between."""
        # per block: the location of its last write, and the unfenced writes to it, as times by thread
        pending: dict[int, tuple[Any, dict[_Thread, list[int]]]] = defaultdict(lambda: (None, {}))
        found: set[tuple[int, _Thread]] = set()
        for record in self._records:
            if record.what in fences:
                for block, thread in threads_of(record.lanes).tolist():
                    pending[block][1].pop((block, thread), None)
            elif record.what in _WRITES:
                wanted = strong.get(record.time, ())
                for block, threads, location in record.by_block():
                    last, waiting = pending[block]
                    if last != location:
                        found.update((time, writer) for writer, times in waiting.items() for time in times)
                        last, waiting = pending[block] = location, {}
                    for writer in wanted and [(block, thread) for thread in threads]:
                        if writer in wanted:
                            waiting.setdefault(writer, []).append(record.time)
        return found

    def classes(self) -> Classes:
        """Return the classes of accesses by the records so far."""
        if self._classes is None or self._classes[0] != len(self._records):
            self._classes = len(self._records), Classes(self._records)
        return self._classes[1]

    def answers(self, questions: Questions) -> npt.NDArray[np.bool_]:
        """Return the answer to each question; True if there were too many records to find out."""
        answers = np.ones(len(questions.both_strong), np.bool_)
        if self.is_overflown or not len(answers):
            return answers
        classes = self.classes()
        first, until = classes.earlier(questions.first)
        answers[questions.second.time <= until] = False
        open_questions = np.flatnonzero(answers)
        source = np.unique(first[open_questions], return_inverse=True)[1]
        second = np.unique(classes.later(questions.second.at(open_questions)), return_inverse=True)[1]
        pair = (source * (1 + int(second.max(initial=0))) + second) * 2 + questions.both_strong[open_questions]
        _, chosen, which = np.unique(pair, return_index=True, return_inverse=True)
        answers[open_questions] = self._replayed(questions, open_questions[chosen], source[chosen])[which]
        return answers

    def _replayed(self, questions: Questions, chosen: IndexArray, source: IndexArray) -> npt.NDArray[np.bool_]:
        """Return the answers to the chosen questions; `source` numbers their earlier accesses."""
        result = np.ones(len(chosen), np.bool_)
        for number, start in enumerate(range(0, 1 + int(source.max(initial=-1)), MAX_SOURCES)):
            if number * self._lanes > MAX_WORK:
                self.is_overflown = True
                break
            mine = np.flatnonzero((source >= start) & (source < start + MAX_SOURCES))
            of = {at: (int(questions.first.time[i]), (int(questions.first.block[i]), int(questions.first.thread[i])))
                  for at, i in zip(source[mine].tolist(), chosen[mine].tolist(), strict=True)}  # fmt: skip
            open_questions = [
                (int(questions.second.time[i]), (int(questions.second.block[i]), int(questions.second.thread[i])),
                 of[at], bool(questions.both_strong[i]))
                for at, i in zip(source[mine].tolist(), chosen[mine].tolist(), strict=True)
            ]  # fmt: skip
            result[mine] = self._answered(open_questions)
        return result

    def _answered(self, open_questions: list[tuple[int, _Thread, tuple[int, _Thread], bool]]) -> list[bool]:
        """Return the answers to questions: time and thread of the later access, earlier access, both strong."""
        sources = sorted({source for _, _, source, _ in open_questions})
        bit = {source: 1 << number for number, source in enumerate(sources)}
        replay, result, started = _Replay(bit), [False] * len(open_questions), 0
        at = bisect_left(self.times, sources[0][0])
        for number in sorted(range(len(open_questions)), key=lambda number: open_questions[number][0]):
            later, thread, source, is_strong_pair = open_questions[number]
            while True:
                due = self._records[at].time if at < len(self._records) else later
                while started < len(sources) and sources[started][0] < min(due, later):
                    replay.visible[sources[started][1]] |= bit[sources[started]]
                    started += 1
                if at >= len(self._records) or due >= later:
                    break
                replay.step(self._records[at])
                at += 1
            result[number] = bool(_of(replay.visible, thread) & bit[source])
            if is_strong_pair and not result[number]:
                result[number] = not _of(replay.observed, thread) & bit[source]
        return result


class _Replay:
    """A replay of the records: the *sources* (earlier accesses) that are visible to threads, as bit sets.

    Each time and thread of an access has a bit. Sources visible to a whole block are stored under the block's number.
    """

    def __init__(self, bit: dict[tuple[int, tuple[int, int]], int]) -> None:
        self._bit, self._times = bit, {time for time, _ in bit}
        # Per thread, or per block: the sources visible to it, those published by its fences (for the device, or for its
        # block only), and those observed by its reads with or without a fence.
        self.visible: dict[Any, int] = defaultdict(int)
        self._published: dict[Any, int] = defaultdict(int)
        self._published_in_block: dict[Any, int] = defaultdict(int)
        self.observed: dict[Any, int] = defaultdict(int)
        # Per location: the sources that made its value, and all sources that are strong accesses to it.
        self._seen: dict[Any, int] = {}
        self._strong_accesses: dict[Any, int] = defaultdict(int)
        # Per location: the sources that a read acquires (from fences for the device, or for the block), and those
        # that it only observes.
        self._released: dict[Any, int] = {}
        self._released_in_block: dict[Any, dict[int, int]] = defaultdict(dict)
        self._unfenced: dict[Any, int] = {}
        # Per mbarrier: the visible and the published sources of arrivals in its phase, and up to the end of a phase.
        self._arriving: dict[Any, tuple[int, int]] = {}
        self._complete: dict[Any, tuple[int, int]] = {}

    def step(self, record: Record) -> None:
        """Replay a record."""
        is_source = record.time in self._times
        if record.what == "read" and not (is_source or self._released_in_block or self._seen or self._unfenced):
            return
        if record.what in (*_WRITES, *_READS):
            for block, lanes, location in record.by_block():
                writers = [(block, thread) for thread in lanes]
                own = [self._bit.get((record.time, writer), 0) for writer in writers] if is_source else [0] * len(lanes)
                self._access(record.what, location, block, writers, own)
            return
        threads = [(block, thread) for block, thread in threads_of(record.lanes).tolist()]
        if record.what in ("arrive", "complete", "wait"):
            for thread, location in zip(threads, record.locations(), strict=True):
                self._phase(record.what, thread, location)
        elif record.what in ("blocks", "threads", "warps"):
            self._synchronise(record, threads)
        else:
            table = self._published if record.what == "fence" else self._published_in_block
            for thread in threads:
                if visible := _of(self.visible, thread):
                    table[thread] |= visible

    def _access(self, what: str, location: Any, block: int, threads: list[tuple[int, int]], own: list[int]) -> None:
        """Replay a strong access of threads of a block to one location, thread by thread.

        A read is ordered after the accesses that made its value (causality order), and acquires what was released.
        """
        visible, observed, published = self.visible, self.observed, self._published
        seen, unfenced = self._seen.get(location, 0), self._unfenced.get(location, 0)
        strong, released = self._strong_accesses.get(location, 0), self._released.get(location, 0)
        in_block = self._released_in_block.get(location, {}).get(block, 0)
        if what == "read" and not (seen or unfenced or released or in_block or any(own)):
            return
        reads, writes, continues = what in _READS, what != "read", what != "write"
        of_block = visible.get(block, 0), published.get(block, 0), self._published_in_block.get(block, 0)
        for thread, bit in zip(threads, own, strict=True):
            if reads and seen:
                visible[thread] |= seen
            if reads and unfenced:
                observed[thread] |= unfenced
            if writes:
                known = visible.get(thread, 0) | of_block[0]
                seen = bit | known & strong | (seen if continues else 0)
                unfenced = known | (unfenced if continues else 0)
            if reads and (released or in_block):
                visible[thread] |= released | in_block
                published[thread] |= released
            if writes:
                # a release sequence continues with an atomic, but not with a plain write
                given = published.get(thread, 0) | of_block[1]
                released = given | (released if continues else 0)
                given |= self._published_in_block.get(thread, 0) | of_block[2]
                in_block = given | (in_block if continues else 0)
            strong |= bit
        self._strong_accesses[location] = strong
        if writes:
            self._seen[location], self._unfenced[location], self._released[location] = seen, unfenced, released
            others = self._released_in_block[location] if continues else {}
            self._released_in_block[location] = {**others, block: in_block}

    def _synchronise(self, record: Record, threads: list[tuple[int, int]]) -> None:
        if record.what == "blocks":
            for block in {block for block, _ in threads}:
                self._synchronise_block(block)
            return
        for group in _groups(record, threads):
            self._synchronise_threads(group)

    def _phase(self, what: str, thread: tuple[int, int], location: tuple[int, int]) -> None:
        """Replay an arrival at an mbarrier, the end of a phase, or a wait for it."""
        tables = self.visible, self._published
        block_key, (address, phase) = location[0], split_phase(location[1])
        if what == "arrive":
            before = self._arriving.get(location, (0, 0))
            self._arriving[location] = before[0] | _of(tables[0], thread), before[1] | _of(tables[1], thread)
        elif what == "complete":
            arrived = self._arriving.pop((block_key, address), (0, 0))
            before = self._complete.get((block_key, address, (phase - 1) % PHASES), (0, 0))
            self._complete[block_key, address, phase] = arrived[0] | before[0], arrived[1] | before[1]
        else:
            for bits, table in zip(self._complete.get((block_key, address, phase), (0, 0)), tables, strict=True):
                if bits:
                    table[thread] |= bits

    def _synchronise_block(self, block: int) -> None:
        for table in (self.visible, self._published, self._published_in_block, self.observed):
            for key in [key for key in table if isinstance(key, tuple) and key[0] == block]:
                table[block] |= table.pop(key)

    def _synchronise_threads(self, threads: list[tuple[int, int]]) -> None:
        for table in (self.visible, self._published, self._published_in_block, self.observed):
            joined = 0
            for thread in threads:
                joined |= table.get(thread, 0)
            if joined:
                for thread in threads:
                    table[thread] |= joined


def _groups(record: Record, threads: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Return the groups that synchronise: threads of a block, or of a warp with the same mask (in `address`)."""
    groups: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    masks = np.broadcast_to(0 if record.what == "threads" else record.address, record.lanes.shape)
    for (block, thread), mask in zip(threads, masks.ravel(order="F").tolist(), strict=True):
        warp = 0 if record.what == "threads" else thread // WARP
        groups[block, warp, mask].append((block, thread))
    return list(groups.values())


def _of(table: dict[Any, int], thread: tuple[int, int]) -> int:
    """Return the sources that a table has for a thread or its whole block."""
    return table.get(thread, 0) | table.get(thread[0], 0)

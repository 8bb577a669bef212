"""Rows of a figure: the contents of an array after each step of a block, with the writing threads and the sources.

A step ends at a barrier. Within a step, a new row begins where a thread uses an element that was written in the row, as
in the steps of a single warp, and at a shuffle. The sources of a write are the elements that its thread has read since
it last wrote.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.trace_events import AccessEvent, BarrierEvent, LaunchTrace, MissedBarrierEvent, ShuffleEvent

from .tracing import TracedArray
from .warps import WARP

MAX_ROWS = 60
Key = tuple[str, int]


@dataclass(frozen=True)
class Source:
    """An element of a row."""

    row: int
    index: int


@dataclass(frozen=True)
class Arrow:
    """A thread that reads an element and writes another one."""

    source: Source
    index: int
    thread: int


@dataclass
class Row:
    """One row."""

    array: TracedArray
    step: int  # the number of barriers before
    values: npt.NDArray[Any]  # the contents after the row, flat; unknown elements are left out of `known`
    known: npt.NDArray[np.bool_]  # which elements hold a value
    # element to the threads that wrote it in this row, in order
    writers: dict[int, list[int]] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)  # from the elements that were read to those written
    # element to the threads that read it from this row; some write nothing afterwards
    readers: dict[int, set[int]] = field(default_factory=dict)
    line: int = 0  # the source line of most writes; 0 for a row before the first access
    # the threads of two accesses between this row and the one before, without a barrier; None if the same thread made
    # both, or a barrier is between
    unordered: tuple[int, int] | None = None
    # elements that a thread reads from this row before any thread has written them
    unwritten: dict[int, int] = field(default_factory=dict)
    # the barriers after this row that not all threads reach, one per source line
    missed: list[MissedBarrierEvent] = field(default_factory=list)

    @property
    def threads(self) -> set[int]:
        """The threads that write in this row."""
        return {thread for threads in self.writers.values() for thread in threads}


@dataclass(frozen=True)
class _Write:
    key: Key
    index: int
    thread: int
    sources: tuple[tuple[Key, Source], ...]
    epoch: int
    bits: bytes


def rows_of(trace: LaunchTrace, arrays: Mapping[Key, TracedArray], block: int, also: Key | None = None) -> list[Row]:
    """Return the rows of one block, at most `MAX_ROWS`; `also` is an array to show even if nothing accesses it."""
    building = _Rows(arrays)
    for event in trace.events:
        if event.block != block:
            continue
        if isinstance(event, BarrierEvent):
            building.barrier()
        elif isinstance(event, AccessEvent):
            building.access(event)
        elif isinstance(event, ShuffleEvent):
            building.shuffle(event)
        elif isinstance(event, MissedBarrierEvent):
            building.missed_barrier(event)
        if len(building.rows) >= MAX_ROWS:
            break
    building.finish()
    if also is not None and also in arrays:
        building.show(also)
    if building.rows:
        building.rows[0].missed[:0] = building.missed_first
    return building.rows[:MAX_ROWS]


class _Rows:
    def __init__(self, arrays: Mapping[Key, TracedArray]) -> None:
        self.rows: list[Row] = []
        self.missed_first: list[MissedBarrierEvent] = []  # before the first row
        self._arrays, self._starts = arrays, sorted(start for space, start in arrays if space == "shared")
        self._last: dict[Key, int] = {}
        self._contents: dict[Key, npt.NDArray[Any]] = {}
        self._known: dict[Key, npt.NDArray[np.bool_]] = {}
        self._reads: dict[int, dict[tuple[int, int], tuple[Key, Source]]] = {}  # of a thread, by row and element
        self._has_written: dict[int, bool] = {}
        self._epochs: Counter[int] = Counter()
        self._writes: list[_Write] = []
        self._written: dict[tuple[Key, int], int] = {}
        self._lines: dict[Key, Counter[int]] = {}
        self._step = 0
        self._since: dict[tuple[Key, int], int] = {}  # writers since the last barrier
        self._read_since: dict[tuple[Key, int], int] = {}  # readers since the last barrier
        self._conflict: tuple[int, int] | None = None

    def barrier(self) -> None:
        """End the step."""
        self.finish()
        self._step += 1
        self._since, self._read_since = {}, {}
        self._conflict = None

    def missed_barrier(self, event: MissedBarrierEvent) -> None:
        """Add a barrier that not all threads reach to the last row."""
        self.finish()
        missed = self.rows[-1].missed if self.rows else self.missed_first
        if all(other.where != event.where for other in missed):
            missed.append(event)

    def access(self, event: AccessEvent) -> None:
        """Add an access."""
        found = self._located(event)
        if found is None:
            return
        key, indices = found
        self._begin(key)
        pairs = list(zip(indices.tolist(), event.threads.tolist(), strict=True))
        writers = [(self._written.get((key, index)), thread) for index, thread in pairs]
        if any(writer is not None and (event.kind != "write" or writer == thread) for writer, thread in writers):
            self.finish()
        if self._conflict is None:
            before = self._since if event.kind != "write" else self._read_since
            earlier = ((before.get((key, index)), thread) for index, thread in pairs)
            self._conflict = next(((w, thread) for w, thread in earlier if w is not None and w != thread), None)
        if event.kind == "read":
            self._read_since |= {(key, index): thread for index, thread in pairs}
        per_thread = event.nbytes // self._arrays[key].dtype.itemsize or 1
        if event.kind != "write":
            self._read(event, key, indices, per_thread)
        if event.kind != "read":
            self._write(event, key, indices, per_thread)

    def shuffle(self, event: ShuffleEvent) -> None:
        """Add a row of the values that threads pass on; what they write next comes from this row.

        The threads keep their own values, too, unless they all read from one thread of the warp.
        """
        key = ("register", event.where.line if event.where else 0)
        if key not in self._arrays:
            return
        self.finish()
        self._begin(key)
        own = event.threads
        passed = AccessEvent("write", "shared", 0, event.block, own, own, event.bits, event.bits.shape[1], event.where)
        self._write(passed, key, own, 1)
        self.finish()
        row = self._last[key]
        is_broadcast = len(set((event.sources % WARP).tolist())) == 1 < len(event.threads)
        for thread, source in zip(own.tolist(), event.sources.tolist(), strict=True):
            used = dict.fromkeys((source,) if is_broadcast else (thread, source))
            self._has_written[thread] = False
            self._epochs[thread] += 1
            self._reads[thread] = {(row, index): (key, Source(row, index)) for index in used}

    def show(self, key: Key) -> None:
        """Add a row of an array that has none."""
        self._begin(key)
        if key not in self._last:
            self.rows.append(Row(self._arrays[key], self._step, self._contents[key], self._known[key]))

    def finish(self) -> None:
        """Turn the writes since the last row into rows."""
        if not self._writes:
            return
        first_of: dict[Key, int] = {}
        by_epoch: dict[tuple[int, int], list[_Write]] = {}
        for write in self._writes:
            by_epoch.setdefault((write.thread, write.epoch), []).append(write)
        for write in self._writes:
            if write.key not in first_of:
                first_of[write.key] = len(self.rows)
                self.rows.append(self._row(write.key))
            row = self.rows[first_of[write.key]]
            writers = row.writers.setdefault(write.index, [])
            if write.thread not in writers:
                writers.append(write.thread)
            sources = write.sources
            if len(by_epoch[write.thread, write.epoch]) > 1:  # a zero that is no copy is a constant, such as padding
                sources = self._copied_from(write) or (sources if any(write.bits) else ())
            row.arrows += [Arrow(source, write.index, write.thread) for _, source in sources]
        for key, number in first_of.items():
            self._last[key] = number
            row = self.rows[number]
            row.values, row.known = self._contents[key].copy(), self._known[key].copy()
        self._writes, self._written, self._lines = [], {}, {}
        self._conflict = None

    def _row(self, key: Key) -> Row:
        array, lines = self._arrays[key], self._lines.get(key, Counter[int]())
        line = max(lines, key=lambda each: lines[each], default=0)
        return Row(array, self._step, self._contents[key], self._known[key], line=line, unordered=self._conflict)

    def _copied_from(self, write: _Write) -> tuple[tuple[Key, Source], ...]:
        """Return the one source that a write copies unchanged; empty if there is none."""
        for key, source in write.sources:
            value = self.rows[source.row].values[source.index]
            if value.tobytes() == write.bits and (key, source.index) != (write.key, write.index):
                return ((key, source),)
        return ()

    def _located(self, event: AccessEvent) -> tuple[Key, npt.NDArray[np.int64]] | None:
        """Return the array of an access and the elements in it."""
        if event.space == "global":
            key, start = ("global", event.base), 0
        else:
            first = int(event.offsets[0])
            start = max((start for start in self._starts if start <= first), default=-1)
            key = ("shared", start)
        if key not in self._arrays:
            return None
        return key, (event.offsets - start) // self._arrays[key].dtype.itemsize

    def _begin(self, key: Key) -> None:
        """Add the row of an array's contents before its first access."""
        if key in self._contents:
            return
        array = self._arrays[key]
        size = int(np.prod(array.shape))
        if array.contents is None:
            self._contents[key] = np.zeros(size, array.dtype)
        else:
            self._contents[key] = np.array(array.contents, array.dtype).reshape(-1)
        self._known[key] = np.broadcast_to(~np.asarray(array.unwritten), size).copy()
        if self._known[key].any():
            self._last[key] = len(self.rows)
            values, known = self._contents[key].copy(), self._known[key].copy()
            self.rows.append(Row(array, self._step, values, known))

    def _read(self, event: AccessEvent, key: Key, indices: npt.NDArray[np.int64], per_thread: int) -> None:
        known, size = self._known[key], self._known[key].size
        values = _values(event, self._arrays[key].dtype)
        for position, (index, thread) in enumerate(zip(indices.tolist(), event.threads.tolist(), strict=True)):
            if self._has_written.pop(thread, False):
                self._reads[thread] = {}
                self._epochs[thread] += 1
            for k in range(per_thread):
                if index + k >= size:
                    continue
                if key not in self._last:  # nothing was written yet
                    self._last[key] = len(self.rows)
                    self.rows.append(Row(self._arrays[key], self._step, self._contents[key].copy(), known.copy()))
                row = self.rows[self._last[key]]
                row.readers.setdefault(index + k, set()).add(thread)
                if not known[index + k]:
                    row.unwritten.setdefault(index + k, thread)
                    if row.values is not self._contents[key]:
                        row.values[index + k] = values[position, k]
                reads, place = self._reads.setdefault(thread, {}), (self._last[key], index + k)
                if place not in reads:
                    reads[place] = key, Source(*place)

    def _write(self, event: AccessEvent, key: Key, indices: npt.NDArray[np.int64], per_thread: int) -> None:
        values = _values(event, self._arrays[key].dtype)
        for position, (index, thread) in enumerate(zip(indices.tolist(), event.threads.tolist(), strict=True)):
            sources = tuple(self._reads.get(thread, {}).values())
            for k in range(per_thread):
                if index + k >= self._known[key].size:
                    continue
                value = values[position, k]
                self._contents[key][index + k] = value
                self._known[key][index + k] = True
                write = _Write(key, index + k, thread, sources, self._epochs[thread], value.tobytes())
                self._writes.append(write)
                self._written[key, index + k] = self._since[key, index + k] = thread
            self._has_written[thread] = True
        if event.where is not None:
            self._lines.setdefault(key, Counter())[event.where.line] += len(event.threads)


def _values(event: AccessEvent, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the values of an access, shape (threads, values per thread)."""
    count = max(event.nbytes // dtype.itemsize, 1)
    padded = np.zeros((len(event.bits), count * dtype.itemsize), np.uint8)
    padded[:, : event.bits.shape[1]] = event.bits[:, : padded.shape[1]]
    return padded.view(dtype)

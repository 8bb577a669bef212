"""Asynchronous copies from global to shared memory (`cp.async`): they read at once, and write at the wait.

On a GPU the bytes arrive at any time between the copy and the wait. Here they arrive as late as possible, so a thread
that reads before the wait gets the old value. The race check sees the read and the write at the copy, after each
barrier before the wait, and at the wait. For copies that are padded with zeros, it sees the read at the copy only.

Copies that arrive at an mbarrier are written when a thread tests it. The race check sees only their start, because the
barrier orders them.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.translation.sites import Site

from .spaces import misaligned

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.execution.wave import Wave

MAX_COPIES = 1024  # pending copies per wave; with more, the oldest is written before its wait
MAX_BYTES = 64 << 20  # of all pending copies of a wave
_WORD = np.dtype(np.uint32)


class AsyncCopy(NamedTuple):
    """A copy that its threads have not waited for."""

    number: int  # number of the copy in its wave, in order of start
    lanes: Lanes
    site: Site
    address: Value
    words: list[Value]
    group: npt.NDArray[np.int64]  # for each lane, the number of groups that its thread had committed before
    read: Site  # the read of global memory
    source: Value | None  # addresses of the read; None if the race check needs no second one


class _PendingArrival(NamedTuple):
    """Threads that arrive at an mbarrier once their copies up to a number are complete."""

    number: int
    lanes: Lanes
    site: Site
    address: Value


class AsyncCopies:
    """The asynchronous copies of a wave, in order of start."""

    def __init__(self, wave: Wave) -> None:
        self._wave = weakref.proxy(wave)  # a cycle would keep the memory of the wave until the next garbage collection
        self._pending: list[AsyncCopy] = []
        self._arrivals: list[_PendingArrival] = []
        self._started = 0
        self._bytes = 0  # of all pending copies
        self._committed = np.zeros((wave.shape.threads, wave.shape.columns), np.int64)
        if wave.checker is not None:
            wave.checker.pending_copies = self._repeat

    def start(self, lanes: Lanes, sites: tuple[Site, Site], target: Value, source: Value, nbytes: Value | None) -> None:
        """Read global memory at `source`, and queue the write to shared memory at `target`; `sites` are both accesses.

        `nbytes` are read and the rest is filled with zeros; None for the size of the copy.
        """
        read, write = sites
        wave = self._wave
        wave.check_shared(lanes, write, target)
        again: Value | None = None
        if nbytes is None or np.all(nbytes >= read.nbytes):
            words = wave.load_global(lanes, read, source, _WORD, read.nbytes // 4)
            again = source if wave.checker is not None else None
        else:
            words = self._padded(lanes, read, source, np.minimum(nbytes, np.uint32(read.nbytes)))
        if wave.checker is not None:
            wave.checker.start_copy(lanes, write, target, words)
        group = self._committed[lanes.cells]
        self._started += 1
        self._pending.append(AsyncCopy(self._started, lanes, write, target, words, group, read, again))
        self._bytes += lanes.n * write.nbytes
        while self._bytes > MAX_BYTES or len(self._pending) > MAX_COPIES:
            self._write(self._pending.pop(0))

    def _padded(self, lanes: Lanes, site: Site, source: Value, nbytes: Value) -> list[Value]:
        """Return the words of a copy that is padded with zeros; the size of the padding may differ between lanes."""
        if np.any(source & source.dtype.type(site.nbytes - 1)):
            misaligned(lanes, site, "global", source)
        found = np.zeros((*lanes.shape, site.nbytes), np.uint8)
        full = np.broadcast_to(nbytes, lanes.shape)
        for count in np.unique(full[full > 0]).tolist():
            mask = full == count
            subset = lanes.subset(mask)
            first = subset.take(source)
            piece = replace(site, nbytes=1) if count % 4 else replace(site, nbytes=4)
            kind = np.dtype(f"u{piece.nbytes}")
            for at in range(0, count, piece.nbytes):
                value = self._wave.load_global(subset.lanes, piece, first + first.dtype.type(at), kind, 1)[0]
                part = np.ascontiguousarray(np.broadcast_to(value, subset.lanes.shape))
                found[mask, at : at + piece.nbytes] = part.view(np.uint8).reshape(-1, piece.nbytes)
        words = found.view(_WORD)
        return [np.ascontiguousarray(words[..., k]) for k in range(words.shape[-1])]

    def commit(self, lanes: Lanes) -> None:
        """Commit the copies that each thread has started since its last group as a group."""
        self._committed[lanes.cells] += 1

    def wait(self, lanes: Lanes, latest: int | None) -> None:
        """Write the copies of all groups but each thread's `latest`; None: all copies, also without a group."""
        if not self._pending:
            return
        limit = np.zeros(self._committed.shape, np.int64)  # groups with lower numbers are complete
        limit[lanes.cells] = np.iinfo(np.int64).max if latest is None else self._committed[lanes.cells] - latest
        pending, self._pending = self._pending, []
        for copy in pending:
            done = copy.group < limit[copy.lanes.cells]
            self._pending += self._finish(copy, done)

    def arrive(self, lanes: Lanes, site: Site, address: Value, is_expected: bool) -> None:
        """Let threads arrive at mbarriers once all copies that they have started are complete.

        If `is_expected` (`.noinc`), the expected count of the barrier includes these arrivals; else it grows.
        """
        barriers, checker = self._wave.mbarriers, self._wave.checker
        barriers.reach(lanes, site, address)
        if not is_expected:
            barriers.hold(lanes, site, address)
        if checker is not None:
            checker.phase(lanes, address, "arrive")
        self._arrivals.append(_PendingArrival(self._started, lanes, site, address))
        barriers.changes += 1

    def land(self, lanes: Lanes, address: Value) -> None:
        """Complete the copies that arrive at mbarriers, before lanes test these."""
        if not self._arrivals:
            return
        tested = lanes.shared_keys(address)
        arrivals, self._arrivals = self._arrivals, []
        for arrival in arrivals:
            mine = np.isin(arrival.lanes.shared_keys(arrival.address), tested)
            if not mine.all():
                rest = arrival.lanes.subset(~mine)
                self._arrivals.append(arrival._replace(lanes=rest.lanes, address=rest.take(arrival.address)))
            if mine.any():
                now = arrival.lanes.subset(mine)
                self._land(arrival.number, now.lanes)
                self._wave.mbarriers.count(now.lanes, arrival.site, now.take(arrival.address), np.uint32(1))

    def _land(self, number: int, lanes: Lanes) -> None:
        """Write the copies of some threads up to a number."""
        done = np.zeros(self._committed.shape, np.bool_)
        done[lanes.cells] = True
        pending, self._pending = self._pending, []
        for copy in pending:
            mine = done[copy.lanes.cells]
            self._pending += self._finish(copy, mine, is_seen=True) if copy.number <= number else [copy]

    def _finish(self, copy: AsyncCopy, done: npt.NDArray[np.bool_], is_seen: bool = False) -> list[AsyncCopy]:
        """Write a copy for the lanes of a mask; return the rest of it, if any."""
        if done.all():
            self._write(copy, is_seen)
            return []
        if not done.any():
            return [copy]
        self._write(_masked(copy, done), is_seen)
        return [_masked(copy, ~done)]

    def _repeat(self) -> None:
        """Report pending copies to the race check again. Those that arrive at mbarriers are ordered by these."""
        arriving = max((arrival.number for arrival in self._arrivals), default=0)
        for copy in self._pending:
            if copy.number > arriving and self._wave.checker is not None:
                self._read_again(copy)
                self._wave.checker.start_copy(copy.lanes, copy.site, copy.address, copy.words)

    def _read_again(self, copy: AsyncCopy) -> None:
        if copy.source is not None:
            words = copy.read.nbytes // 4
            self._wave.arena.load(copy.lanes, copy.read, copy.source, _WORD, words, self._wave.checker)

    def _write(self, copy: AsyncCopy, is_seen: bool = False) -> None:
        """Write a copy; `is_seen` if the race check needs only its start."""
        if not is_seen:
            self._read_again(copy)
        write = self._wave.land_shared if is_seen else self._wave.store_shared
        write(copy.lanes, copy.site, copy.address, copy.words)
        self._bytes -= copy.lanes.n * copy.site.nbytes


def _masked(copy: AsyncCopy, mask: npt.NDArray[Any]) -> AsyncCopy:
    subset = copy.lanes.subset(mask)
    words = [subset.take(word) for word in copy.words]
    group, address = subset.take(copy.group), subset.take(copy.address)
    source = None if copy.source is None else subset.take(copy.source)
    return copy._replace(lanes=subset.lanes, address=address, words=words, group=group, source=source)

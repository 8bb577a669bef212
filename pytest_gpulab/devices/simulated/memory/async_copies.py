"""Asynchronous copies from global to shared memory (`cp.async`): read at once, written when a thread waits for them.

On a GPU the bytes arrive at any time between the copy and the wait. Arriving at the wait is the latest time: a thread
that reads before it gets what was there before. The race check sees the write twice, at the copy and at the wait.
Copies that arrive at an mbarrier do so when a thread tests it. There the race check sees their start alone: the barrier
puts it in order.
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

MAX_COPIES = 1024  # that a wave's threads have not waited for; earlier ones arrive before the wait
MAX_BYTES = 64 << 20  # in all of these
_WORD = np.dtype(np.uint32)


class _Copy(NamedTuple):
    """A copy that its threads have not waited for.

    Attributes:
        group: for each lane, the number of groups that its thread had committed before.
        number: of the copy, in the order of the wave.
    """

    number: int
    lanes: Lanes
    site: Site
    address: Value
    words: list[Value]
    group: npt.NDArray[np.int64]


class _Arrival(NamedTuple):
    """Threads whose copies up to a number arrive at an mbarrier, once these are complete."""

    number: int
    lanes: Lanes
    site: Site
    address: Value


class AsyncCopies:
    """The asynchronous copies of a wave, each thread's in the order of their start."""

    def __init__(self, wave: Wave) -> None:
        self._wave = weakref.proxy(wave)  # it holds this: a cycle would keep its memory until a garbage collection
        self._pending: list[_Copy] = []
        self._arrivals: list[_Arrival] = []
        self._started = 0
        self._bytes = 0  # in all pending copies
        self._committed = np.zeros((wave.shape.threads, wave.shape.columns), np.int64)

    def start(self, lanes: Lanes, sites: tuple[Site, Site], target: Value, source: Value, nbytes: Value | None) -> None:
        """Read global memory, and note what shared memory will hold after the wait.

        Args:
            lanes: that copy.
            sites: the read of global memory and the write to shared memory.
            target, source: addresses in shared and in global memory.
            nbytes: bytes to read, zeros follow them; None for the size of the copy.
        """
        read, write = sites
        wave = self._wave
        wave.check_shared(lanes, write, target)
        if nbytes is None or np.all(nbytes >= read.nbytes):
            words = wave.load_global(lanes, read, source, _WORD, read.nbytes // 4)
        else:
            words = self._padded(lanes, read, source, np.minimum(nbytes, np.uint32(read.nbytes)))
        if wave.watch is not None:
            wave.watch.start_copy(lanes, write, target, words)
        group = self._committed[lanes.threads.reshape(-1, 1), lanes.column]
        self._started += 1
        self._pending.append(_Copy(self._started, lanes, write, target, words, group))
        self._bytes += lanes.n * write.nbytes
        while self._bytes > MAX_BYTES or len(self._pending) > MAX_COPIES:
            self._write(self._pending.pop(0))

    def _padded(self, lanes: Lanes, site: Site, source: Value, nbytes: Value) -> list[Value]:
        """Return the words of a copy whose last bytes are zeros; how many may differ from lane to lane."""
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
        """Make a group of the copies that each thread has started since its last group."""
        self._committed[lanes.threads.reshape(-1, 1), lanes.column] += 1

    def wait(self, lanes: Lanes, latest: int | None) -> None:
        """Write what lanes have copied.

        Args:
            lanes: that wait.
            latest: how many of each thread's latest groups need not be complete; None to wait for copies without a
                group, too.
        """
        if not self._pending:
            return
        limit = np.zeros(self._committed.shape, np.int64)  # groups below it are complete
        mine = lanes.threads.reshape(-1, 1), lanes.column
        limit[mine] = np.iinfo(np.int64).max if latest is None else self._committed[mine] - latest
        pending, self._pending = self._pending, []
        for copy in pending:
            done = copy.group < limit[copy.lanes.threads.reshape(-1, 1), copy.lanes.column]
            self._pending += self._finish(copy, done)

    def arrive(self, lanes: Lanes, site: Site, address: Value, is_expected: bool) -> None:
        """Let threads arrive at mbarriers once all copies that they have started are complete.

        Args:
            lanes, site, address: that arrive, and where.
            is_expected: whether the barrier counts on these arrivals; else it waits for so many more.
        """
        barriers, watch = self._wave.mbarriers, self._wave.watch
        barriers.reach(lanes, site, address)
        if not is_expected:
            barriers.hold(lanes, site, address)
        if watch is not None:
            watch.phase(lanes, address, "arrive")
        self._arrivals.append(_Arrival(self._started, lanes, site, address))
        barriers.changes += 1

    def land(self, lanes: Lanes, address: Value) -> None:
        """Complete the copies that arrive at mbarriers which lanes are about to test."""
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
        """Write the copies up to a number of some threads."""
        done = np.zeros(self._committed.shape, np.bool_)
        done[lanes.threads.reshape(-1, 1), lanes.column] = True
        pending, self._pending = self._pending, []
        for copy in pending:
            mine = done[copy.lanes.threads.reshape(-1, 1), copy.lanes.column]
            self._pending += self._finish(copy, mine, is_seen=True) if copy.number <= number else [copy]

    def _finish(self, copy: _Copy, done: npt.NDArray[np.bool_], is_seen: bool = False) -> list[_Copy]:
        """Write a copy where a mask holds; return the rest of it, if any."""
        if done.all():
            self._write(copy, is_seen)
            return []
        if not done.any():
            return [copy]
        self._write(_part(copy, done), is_seen)
        return [_part(copy, ~done)]

    def _write(self, copy: _Copy, is_seen: bool = False) -> None:
        """Write a copy; `is_seen` if its start is all that the race check needs."""
        write = self._wave.land_shared if is_seen else self._wave.store_shared
        write(copy.lanes, copy.site, copy.address, copy.words)
        self._bytes -= copy.lanes.n * copy.site.nbytes


def _part(copy: _Copy, mask: npt.NDArray[Any]) -> _Copy:
    subset = copy.lanes.subset(mask)
    words = [subset.take(word) for word in copy.words]
    group = subset.take(copy.group)
    return copy._replace(lanes=subset.lanes, address=subset.take(copy.address), words=words, group=group)

"""Bulk copies between global and shared memory (`cp.async.bulk`): one thread starts the copy of a whole array.

Copies to shared memory read at once. They are written when a thread tests the mbarrier that counts their bytes: see
`async_copies`. Copies to global memory are executed at once, and waits for them are no-ops.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Lanes, Value, first_lane
from pytest_gpulab.devices.simulated.translation.sites import BULK_UNIT, Site

from .spaces import misaligned

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.execution.wave import Wave

_WORD = np.dtype(np.uint32)
_WORDS = BULK_UNIT // _WORD.itemsize  # per unit


class _Units(NamedTuple):
    """Copies cut into units of 16 bytes, with their copy and byte offset. The lane that started a copy is repeated."""

    lanes: Lanes
    copy: IndexArray
    offset: IndexArray

    def at(self, lanes: Lanes, address: Value) -> Value:
        """Return the address of each unit from the addresses of the copies."""
        first = np.broadcast_to(address, lanes.shape).ravel()[self.copy]
        return (first + self.offset.astype(first.dtype)).reshape(-1, 1)


class _BulkCopy(NamedTuple):
    """Pending copies to shared memory, with the mbarriers that count their bytes."""

    lanes: Lanes
    site: Site
    barrier: Value
    nbytes: Value
    units: _Units
    write: Site
    target: Value
    words: list[Value]


class BulkCopies:
    """The bulk copies of a wave."""

    def __init__(self, wave: Wave) -> None:
        self._wave = weakref.proxy(wave)  # it holds this: a cycle would keep its memory until a garbage collection
        self._pending: list[_BulkCopy] = []

    def to_shared(
        self, sites: tuple[Site, Site], target: Value, source: Value, nbytes: Value,
        lanes: Lanes, site: Site, barrier: Value,
    ) -> None:  # fmt: skip
        """Start copies of `nbytes` from `source` in global memory to `target` in shared memory.

        `sites` are the read and the write of one unit; `lanes`, `site` and `barrier` the starting lanes, their
        instruction, and the mbarriers of the copies.
        """
        read, write = sites
        wave, checker = self._wave, self._wave.checker
        wave.mbarriers.reach(lanes, site, barrier)
        units = _units(lanes, {write: target, read: source}, nbytes)
        if units.lanes.n:
            to = units.at(lanes, target)
            wave.shared.check(units.lanes, write, to)
            words = self._load(units, read, units.at(lanes, source))
            if checker is not None:
                checker.start_copy(units.lanes, write, to, words)
            self._pending.append(_BulkCopy(lanes, site, barrier, nbytes, units, write, to, words))
        if checker is not None:
            checker.phase(lanes, barrier, "arrive")
        wave.mbarriers.changes += 1

    def to_global(self, lanes: Lanes, sites: tuple[Site, Site], target: Value, source: Value, nbytes: Value) -> None:
        """Copy to global memory."""
        read, write = sites
        units = _units(lanes, {write: target, read: source}, nbytes)
        if units.lanes.n:
            words = self._wave.load_shared(units.lanes, read, units.at(lanes, source), _WORD, _WORDS)
            to = units.at(lanes, target)
            self._wave.arena.store(units.lanes, write, to, words, self._wave.checker)
            self._count(units, write, to)

    def land(self, lanes: Lanes, barrier: Value) -> None:
        """Complete the copies that mbarriers count, before lanes test these."""
        if not self._pending:
            return
        tested = lanes.shared_keys(barrier)
        pending, self._pending = self._pending, []
        for copy in pending:
            mine = np.isin(copy.lanes.shared_keys(copy.barrier), tested)
            if not mine.all():
                self._pending.append(_masked(copy, ~mine))
            if mine.any():
                now = _masked(copy, mine)
                self._wave.land_shared(now.units.lanes, now.write, now.target, now.words)
                self._wave.mbarriers.count_bytes(now.lanes, now.site, now.barrier, now.nbytes, -1)

    def _load(self, units: _Units, site: Site, address: Value) -> list[Value]:
        """Read units from global memory; they may belong to several arrays."""
        found = np.empty((_WORDS, units.lanes.n, 1), _WORD)
        for subset, allocation, offset in self._wave.arena.locate(units.lanes, site, address):
            rows = slice(None) if subset is None else subset.rows
            mine, at = (units.lanes, address) if subset is None else (subset.lanes, subset.take(address))
            allocation.report(mine, site, at, offset, [], self._wave.checker)
            index = (offset >> np.uint64(2)).astype(np.intp)
            for k in range(_WORDS):
                found[k, rows] = allocation.typed(_WORD)[index + k]
        self._count(units, site, address)
        return list(found)

    def _count(self, units: _Units, site: Site, address: Value) -> None:
        """Count the traffic as if each warp had copied 32 neighbouring units of its block."""
        if self._wave.counters is None:
            return
        columns = units.lanes.columns
        order = np.argsort(columns, kind="stable")
        starts = np.searchsorted(columns[order], columns[order])
        rank = np.empty(len(columns), np.intp)
        rank[order] = np.arange(len(columns)) - starts
        width = min(WARP, self._wave.shape.threads)
        for chunk in range(int(rank.max()) // width + 1):
            mine = np.flatnonzero(rank // width == chunk)
            lanes = Lanes(units.lanes.wave, rank[mine] % width, columns[mine], True)
            self._wave.counters.arena(lanes, site, address[mine])


def _units(lanes: Lanes, ends: dict[Site, Value], nbytes: Value) -> _Units:
    """Cut copies into units of 16 bytes, given addresses by site; raise KernelFault if one or a size is no multiple."""
    for site, address in ends.items():
        if np.any(address & address.dtype.type(BULK_UNIT - 1)):
            misaligned(lanes, site, site.space, address)
    sizes = np.broadcast_to(nbytes, lanes.shape)
    if (bad := sizes % BULK_UNIT != 0).any():
        what = (
            f"invalid arguments: a bulk copy of {int(sizes[bad][0])} bytes; the size must be a multiple of {BULK_UNIT}"
        )
        raise KernelFault("misaligned", what, next(iter(ends)).where, first_lane(lanes, bad))
    counts = sizes.ravel().astype(np.intp) // BULK_UNIT
    copy = np.repeat(np.arange(lanes.n), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    thread, column, _ = lanes.each
    return _Units(Lanes(lanes.wave, thread[copy], column[copy], True), copy, BULK_UNIT * (np.arange(len(copy)) - first))


def _masked(copy: _BulkCopy, mask: npt.NDArray[np.bool_]) -> _BulkCopy:
    """Return the copies of the lanes where a mask is True."""
    if mask.all():
        return copy
    subset, flat = copy.lanes.subset(mask), mask.ravel()
    chosen = np.flatnonzero(flat[copy.units.copy])
    old = copy.units.lanes
    lanes = Lanes(old.wave, old.threads[chosen], old.columns[chosen], True)
    units = _Units(lanes, (np.cumsum(flat) - 1)[copy.units.copy[chosen]], copy.units.offset[chosen])
    return copy._replace(
        lanes=subset.lanes, barrier=subset.take(copy.barrier), nbytes=subset.take(copy.nbytes), units=units,
        target=copy.target[chosen], words=[word[chosen] for word in copy.words],
    )  # fmt: skip

"""The heap of a launch: `malloc`, `free`, `new` and `delete` in kernels.

Addresses are never reused, so a use after free is found. Blocks are separated by a gap of 16 bytes, and an access must
be inside a block. The heap is freed at the end of its launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from pytest_gpulab.devices.protocol import CannotSimulate, KernelFault
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.translation.sites import Site

from .spaces import Allocation, first_lane, invalid

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.execution.launch_state import LaunchState

HEAP_BYTES = 8 << 20  # in use at once; the default of cudaLimitMallocHeapSize
ADDRESS_BYTES = 32 << 20  # allocated in one launch, including freed blocks
_UNIT = 16  # bytes; the alignment of blocks


class Heap(Allocation):
    """The heap from which the threads of a launch allocate blocks."""

    is_heap = True

    def __init__(self, base: int, nbytes: int) -> None:
        super().__init__(base, nbytes)
        self.fill = 0
        self.rewind()

    def rewind(self) -> None:
        """Reset to an empty heap."""
        self._ends = np.zeros(self.nbytes // _UNIT, np.int64)  # per unit, the end of its block; 0 outside of blocks
        self._next, self._used = 1, 0  # units; the first is a gap
        self.mark_unwritten()

    def malloc(self, lanes: Lanes, site: Site, nbytes: Value) -> Value:
        """Allocate a block per lane, and return the addresses; null if the heap is full.

        Raises:
            CannotSimulate: the launch has used all addresses.
        """
        wanted = np.broadcast_to(nbytes, lanes.shape).ravel()
        size = np.minimum(wanted, np.uint64(2 * HEAP_BYTES)).astype(np.int64)
        units = -(-size // _UNIT) + 1
        fits = _UNIT * (self._used + np.cumsum(units)) <= HEAP_BYTES
        units, size = units[fits], size[fits]
        start = self._next + np.cumsum(units) - units
        end = self._next + int(units.sum())
        if end > len(self._ends):
            raise CannotSimulate(f"more than {ADDRESS_BYTES >> 20} MiB from malloc() in one launch", site.where)
        self._ends[self._next : end] = np.repeat(_UNIT * start + size, units)
        self._ends[start + units - 1] = 0  # the gap
        self.data[_UNIT * self._next : _UNIT * end] = self.fill
        self._next, self._used = end, self._used + int(units.sum())
        found = np.zeros(lanes.n, np.uint64)
        found[fits] = self.base + _UNIT * start
        return found.reshape(lanes.shape)

    def free(self, lanes: Lanes, address: Value) -> None:
        """Free blocks; no-op for addresses that are not the start of a block."""
        offsets = np.broadcast_to(address, lanes.shape).astype(np.int64).ravel() - self.base
        for offset in offsets[(offsets >= 0) & (offsets < self.nbytes) & (offsets % _UNIT == 0)].tolist():
            first = offset // _UNIT
            units = -(-(int(self._ends[first]) - offset) // _UNIT)
            if units > 0:
                self._ends[first : first + units] = 0
                self._used -= units + 1

    def check(self, lanes: Lanes, site: Site, offset: Value) -> None:
        """Raise KernelFault for an access outside of all blocks."""
        bad = offset.astype(np.int64) + site.nbytes > self._ends[(offset // np.uint64(_UNIT)).astype(np.intp)]
        if np.any(bad):
            what = f"{invalid(site, 'global')}: outside of the blocks from malloc() or new, or in a freed one"
            raise KernelFault("out-of-bounds", what, site.where, first_lane(lanes, bad))


@contextmanager
def heap_of(launch: LaunchState) -> Iterator[None]:
    """Provide a launch with a heap while it runs, if its kernel allocates memory."""
    if not launch.program.allocates:
        yield
        return
    heap = launch.arena.allocate(ADDRESS_BYTES, Heap)
    assert isinstance(heap, Heap)
    heap.fill, launch.heap = launch.options.fill, heap
    try:
        yield
    finally:
        launch.arena.free(heap)

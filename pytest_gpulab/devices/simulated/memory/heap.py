"""The heap: `malloc`, `free`, `new` and `delete` in kernels.

A block has addresses that no earlier block of the launch had. So a use after free is found, and the race check does not
compare accesses to different blocks. Blocks are separated by a gap of 16 bytes, and an access must be inside a block.
The heap is freed at the end of its launch, or of the program if the device has one (`gpulab run`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from pytest_gpulab.devices.protocol import CannotSimulate, KernelFault
from pytest_gpulab.devices.simulated.groups.lanes import IndexArray, Lanes, Value, first_lane
from pytest_gpulab.devices.simulated.translation.sites import Site

from .spaces import Allocation, Arena, invalid

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.execution.launch_state import LaunchState

HEAP_BYTES = 8 << 20  # in use at once; the default of cudaLimitMallocHeapSize
PART_BYTES = 16 << 20  # of addresses
MAX_PARTS = 8  # with blocks in use
_UNIT = 16  # bytes; the alignment of blocks


class HeapPart(Allocation):
    """A range of addresses for blocks, each used once. Its memory is released when all blocks are freed."""

    is_heap = True

    def __init__(self, base: int, nbytes: int) -> None:
        super().__init__(base, nbytes)
        self._ends = np.zeros(nbytes // _UNIT, np.int64)  # per unit, the end of its block; 0 outside of blocks
        self._next, self.used = 1, 0  # units; the first is a gap
        self.mark_unwritten()

    def has_space(self, units: int) -> bool:
        """Return whether blocks of this number of units fit behind the earlier ones."""
        return self._next + units <= len(self._ends)

    def add(self, units: IndexArray, size: IndexArray, fill: int) -> IndexArray:
        """Allocate blocks, filled with a byte, by their units with the gap and their bytes; return their addresses."""
        start = self._next + np.cumsum(units) - units
        end = self._next + int(units.sum())
        self._ends[self._next : end] = np.repeat(_UNIT * start + size, units)
        self._ends[start + units - 1] = 0  # the gap
        self.data[_UNIT * self._next : _UNIT * end] = fill
        self._next, self.used = end, self.used + int(units.sum())
        return self.base + _UNIT * start

    def remove(self, offset: int) -> int:
        """Free the block that starts at an offset, and return its units; 0 if there is none."""
        first = offset // _UNIT
        units = -(-(int(self._ends[first]) - offset) // _UNIT)
        if units <= 0 or offset % _UNIT:
            return 0
        self._ends[first : first + units] = 0
        self.used -= units + 1
        return units + 1

    def release(self) -> None:
        """Release the memory; the addresses stay invalid."""
        self._ends = np.broadcast_to(np.int64(0), len(self._ends))
        super().release()

    def admit(self, lanes: Lanes, site: Site, offset: Value) -> None:
        """Raise KernelFault for an access outside of all blocks."""
        bad = offset.astype(np.int64) + site.nbytes > self._ends[(offset // np.uint64(_UNIT)).astype(np.intp)]
        if np.any(bad):
            what = f"{invalid(site, 'global')}: outside of the blocks from malloc() or new, or in a freed one"
            raise KernelFault("out-of-bounds", what, site.where, first_lane(lanes, bad))


class Heap:
    """The heap from which threads allocate blocks, up to `limit` bytes at once."""

    def __init__(self, arena: Arena, fill: int) -> None:
        self._arena, self._fill, self.limit = arena, fill, HEAP_BYTES
        self._parts: list[HeapPart] = []
        self.has_refused = False
        """True if a block was refused because the heap was full."""
        self.rewind()

    def rewind(self) -> None:
        """Reset to an empty heap."""
        self.close()
        self._used, self._parts, self.is_used = 0, [self._new_part()], False

    def close(self) -> None:
        """Free all addresses and their memory."""
        for part in self._parts:
            self._arena.free(part)
            part.release()
        self._parts = []

    def malloc(self, lanes: Lanes, site: Site, nbytes: Value) -> Value:
        """Return a block per lane, null if the heap is full; raise CannotSimulate for too many parts in use."""
        self.is_used = True
        wanted = np.broadcast_to(nbytes, lanes.shape).ravel()
        size = np.minimum(wanted, np.uint64(2 * self.limit)).astype(np.int64)
        units = -(-size // _UNIT) + 1
        fits = _UNIT * (self._used + np.cumsum(units)) <= self.limit
        self.has_refused |= not fits.all()
        units, size = units[fits], size[fits]
        if not self._parts[-1].has_space(int(units.sum())):
            self._add_part(site)
        found = np.zeros(lanes.n, np.uint64)
        found[fits] = self._parts[-1].add(units, size, self._fill)
        self._used += int(units.sum())
        return found.reshape(lanes.shape)

    def free(self, lanes: Lanes, address: Value) -> None:
        """Free blocks; no-op for addresses that are not the start of a block."""
        for start in np.broadcast_to(address, lanes.shape).ravel().tolist():
            part = self._arena.find(start)
            if isinstance(part, HeapPart):
                self._used -= part.remove(start - part.base)
                if not part.used and part is not self._parts[-1]:
                    part.release()

    def _add_part(self, site: Site) -> None:
        if not self._parts[-1].used:
            self._parts[-1].release()
        if sum(part.used > 0 for part in self._parts) == MAX_PARTS:
            most = MAX_PARTS * PART_BYTES >> 20
            raise CannotSimulate(f"malloc() with blocks in use among {most} MiB of freed ones", site.where)
        self._parts.append(self._new_part())

    def _new_part(self) -> HeapPart:
        part = self._arena.allocate(max(PART_BYTES, 2 * self.limit), HeapPart)  # one instruction may fill it
        assert isinstance(part, HeapPart)
        return part


@contextmanager
def heap_of(launch: LaunchState) -> Iterator[None]:
    """Provide a launch with a heap while it runs: the device's, or its own."""
    own = Heap(launch.arena, launch.options.fill) if launch.device.heap is None else None
    launch.heap = own or launch.device.heap
    try:
        yield
    finally:
        if own is not None:
            own.close()

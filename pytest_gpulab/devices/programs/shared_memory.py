"""The simulated GPU's global memory in a file that the program maps: both see one memory.

A file in memory has the allocation at address A at offset A - base. Allocations that the host may use (managed and
pinned memory) are mapped in the program at their device address. Others are not: the program reaches them through
copies only, and an access by the host ends in a segmentation fault, as on hardware.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from contextlib import suppress

import numpy as np

from pytest_gpulab.devices.simulated.memory.spaces import ARENA_BASE, Allocation, Arena

PAGE = mmap.PAGESIZE


def whole_pages(nbytes: int) -> int:
    """Return a size rounded up to pages, at least one."""
    return -(-max(nbytes, 1) // PAGE) * PAGE


class SharedArena(Arena):
    """Global memory in a shared file.

    Attributes:
        descriptor: the file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.descriptor = os.memfd_create("gpulab-memory")
        self._mapped: dict[int, mmap.mmap] = {}
        self._offsets: dict[int, int] = {}
        self._size = 0

    def allocate(self, nbytes: int, kind: type[Allocation] = Allocation) -> Allocation:
        """Reserve `nbytes` zeroed bytes; see `Arena.allocate`. Only plain allocations are shared."""
        allocation = super().allocate(nbytes, kind)
        if kind is Allocation:
            self._share(allocation, allocation.base - ARENA_BASE)
        return allocation

    def adopt(self, base: int, nbytes: int) -> Allocation:
        """Make host memory at an address of the program an allocation; its bytes move into the file."""
        start = base // PAGE * PAGE
        allocation = Allocation(base, nbytes)
        inner = base - start
        whole = super().allocate(whole_pages(inner + nbytes))  # only for its place in the file
        super().free(whole)
        self._share(allocation, whole.base - ARENA_BASE, inner)
        index = bisect_left(self._bases, base)
        self._bases.insert(index, base)
        self._allocations.insert(index, allocation)
        return allocation

    def _share(self, allocation: Allocation, offset: int, inner: int = 0) -> None:
        nbytes = whole_pages(inner + len(allocation.data))
        if offset + nbytes > self._size:
            self._size = offset + nbytes
            os.ftruncate(self.descriptor, self._size)
        pages = mmap.mmap(self.descriptor, nbytes, offset=offset)
        self._mapped[allocation.base], self._offsets[allocation.base] = pages, offset + inner
        allocation.data = np.frombuffer(pages, np.uint8)[inner : inner + len(allocation.data)]

    def free(self, allocation: Allocation) -> None:
        """Remove an allocation, and give its pages back to the system."""
        pages = self.forget(allocation)
        if pages is not None:
            with suppress(OSError):
                pages.madvise(mmap.MADV_REMOVE)
        allocation.release()  # records of launches may hold the allocation until Python collects them

    def forget(self, allocation: Allocation) -> mmap.mmap | None:
        """Remove an allocation; return its pages, which keep their contents for the host."""
        super().free(allocation)
        self._offsets.pop(allocation.base, None)
        return self._mapped.pop(allocation.base, None)

    def offset(self, allocation: Allocation) -> int:
        """Return the offset of an allocation in the file."""
        return self._offsets[allocation.base]

    def close(self) -> None:
        """Close the file; arrays of it stay valid."""
        os.close(self.descriptor)

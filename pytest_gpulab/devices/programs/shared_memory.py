"""The simulated GPU's global memory in a file that the program maps: both see one memory.

A file in memory has a stretch of pages per allocation. The program cannot shrink it. Allocations that the host may use
(managed and pinned memory) are mapped in the program at their device address. Others are not: the program reaches them
through copies only, and an access by the host ends in a segmentation fault, as on hardware.
"""

from __future__ import annotations

import fcntl
import mmap
import os

import numpy as np

from pytest_gpulab.devices.errors import OutOfMemory
from pytest_gpulab.devices.simulated.memory.spaces import Allocation, Arena

PAGE = mmap.PAGESIZE
_MULTIPLE = 16  # an allocation's bytes are rounded up to multiples of this


def whole_pages(nbytes: int) -> int:
    """Return a size rounded up to pages, at least one."""
    return -(-max(nbytes, 1) // PAGE) * PAGE


class SharedArena(Arena):
    """Global memory in a shared file.

    Args:
        capacity: the largest size of the file, in bytes; None for no limit.

    Attributes:
        descriptor: the file.
    """

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__()
        self.descriptor = os.memfd_create("gpulab-memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # if the program could shrink it, an access here would end this process with SIGBUS
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self._capacity = capacity
        self._holes: list[tuple[int, int]] = []  # offset and size of freed pages, sorted
        self._mapped: dict[int, mmap.mmap] = {}
        self._offsets: dict[int, int] = {}
        self._size = 0

    def allocate(self, nbytes: int, kind: type[Allocation] = Allocation) -> Allocation:
        """Reserve `nbytes` zeroed bytes; see `Arena.allocate`. Only plain allocations are shared.

        Raises:
            OutOfMemory: the file's capacity is exceeded.
        """
        offset = self._reserved(_pages_for(nbytes)) if kind is Allocation else 0
        allocation = super().allocate(nbytes, kind)
        if kind is Allocation:
            self._share(allocation, offset)
        return allocation

    def adopt(self, base: int, nbytes: int) -> Allocation:
        """Make host memory at an address of the program an allocation; its bytes move into the file.

        Raises:
            OutOfMemory: the file's capacity is exceeded.
        """
        inner = base % PAGE
        offset = self._reserved(_pages_for(nbytes, inner))
        allocation = Allocation(base, nbytes)
        self._share(allocation, offset, inner)
        self._insert(allocation)
        return allocation

    def _share(self, allocation: Allocation, offset: int, inner: int = 0) -> None:
        nbytes = whole_pages(inner + len(allocation.data))
        pages = mmap.mmap(self.descriptor, nbytes, offset=offset)
        self._mapped[allocation.base], self._offsets[allocation.base] = pages, offset + inner
        allocation.data = np.frombuffer(pages, np.uint8)[inner : inner + len(allocation.data)]

    def _reserved(self, nbytes: int) -> int:
        """Return the offset of free pages in the file.

        Raises:
            OutOfMemory: the file's capacity is exceeded.
        """
        for index, (offset, size) in enumerate(self._holes):
            if size >= nbytes:
                self._holes[index : index + 1] = [(offset + nbytes, size - nbytes)] if size > nbytes else []
                return offset
        ends_free = bool(self._holes) and sum(self._holes[-1]) == self._size
        offset = self._holes[-1][0] if ends_free else self._size
        if self._capacity is not None and offset + nbytes > self._capacity:
            raise OutOfMemory(f"the program may use {self._capacity:,} bytes of device memory")
        if ends_free:
            self._holes.pop()
        self._size = offset + nbytes
        os.ftruncate(self.descriptor, self._size)
        return offset

    def free(self, allocation: Allocation) -> None:
        """Remove an allocation; its pages are zeroed and serve later ones."""
        offset = self._offsets.get(allocation.base, 0) // PAGE * PAGE
        pages = self.forget(allocation)
        if pages is not None:
            try:
                pages.madvise(mmap.MADV_REMOVE)
            except OSError:
                pages[:] = bytes(len(pages))
            self._holes = _joined([*self._holes, (offset, len(pages))])
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


def _pages_for(nbytes: int, inner: int = 0) -> int:
    """Return the size of an allocation's pages, in which its first byte is at an offset."""
    return whole_pages(inner + -(-nbytes // _MULTIPLE) * _MULTIPLE)


def _joined(holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return stretches sorted by offset, adjacent ones as one."""
    found: list[tuple[int, int]] = []
    for offset, size in sorted(holes):
        if found and sum(found[-1]) == offset:
            found[-1] = found[-1][0], found[-1][1] + size
        else:
            found.append((offset, size))
    return found

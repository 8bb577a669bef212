"""The simulated GPU's global memory in a file that the program maps: both see one memory.

A file in memory has a stretch of pages per allocation. The program cannot shrink it. Allocations that the host may use
(managed and pinned memory) are mapped in the program at their device address. Others are not: the program reaches them
through copies only, and an access by the host ends in a segmentation fault, as on hardware.

Here a launch has ended when its call returns. On a GPU, it may not have begun, nor may an asynchronous copy. So until
the program synchronises, it cannot access mapped memory that they write, and cannot write to memory that they read. Its
first such access is recorded, then allowed.
"""

import fcntl
import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.errors import OutOfMemory
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.memory.spaces import ALIGNMENT, Allocation, Arena
from pytest_gpulab.devices.simulated.translation.sites import Site

from .outcome import CallSite, EarlyAccess

PAGE = mmap.PAGESIZE
_COPIES = tuple(f"cudaMemcpy{kind}" for kind in
    ("", "Peer", "2D", "3D", "ToSymbol", "FromSymbol", "2DToArray", "2DFromArray", "ToArray", "FromArray"))  # fmt: skip
WAITING = frozenset((
    *_COPIES, "cudaMemset", "cudaMemset2D", "cudaMemset3D", "cudaFree", "cudaFreeHost", "cudaDeviceSynchronize",
    "cudaDeviceReset", "cudaStreamSynchronize", "cudaStreamQuery", "cudaEventSynchronize", "cudaEventQuery",
    "cudaLaunchHostFunc", "cudaStreamAddCallback", "cudaHostUnregister",
))  # fmt: skip
"""Calls that may wait for the device's work. Each counts as waiting for all of it: no correct program is reported."""
READ, WRITTEN, SIGNAL = 1, 2, 4  # bits of `SharedAllocation.accessed`
_MULTIPLE = 16  # an allocation's bytes are rounded up to multiples of this


def whole_pages(nbytes: int) -> int:
    """Return a size rounded up to pages, at least one."""
    return -(-max(nbytes, 1) // PAGE) * PAGE


class SharedAllocation(Allocation):
    """An allocation in the shared file."""

    def __init__(self, base: int, nbytes: int) -> None:
        super().__init__(base, nbytes)
        # per word, bits of `READ`, `WRITTEN` and `SIGNAL` by kernels; empty if the host has no access to it
        self.accessed: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def watch_use(self) -> None:
        """Note the words that kernels use from now on."""
        self.accessed = np.zeros(len(self.data) // 4, np.uint8)

    @property
    def words_used(self) -> npt.NDArray[np.bool_]:
        """True for each word that kernels have used; words that are rounded up are left out."""
        return self.accessed[: self.nbytes // 4].astype(np.bool_)

    @property
    def use(self) -> int:
        """The bits of all words."""
        return int(np.bitwise_or.reduce(self.accessed))

    def admit(self, lanes: Lanes, site: Site, offset: Value) -> None:
        """Mark the words of an access. A write that other processors can wait for is a signal to the host, too."""
        if not self.accessed.size:
            return
        is_signal = site.order != "weak" and bool(site.access == "write" or site.releases)
        bits = np.uint8((WRITTEN if site.modifies else READ) | (SIGNAL if is_signal else 0))
        first = (offset >> np.uint64(2)).view(np.intp)
        for word in range(-(-site.nbytes // 4)):
            self.accessed[first + word] |= bits

    def release(self) -> None:
        """Give the bytes back; see `Allocation.release`."""
        super().release()
        self.accessed = np.empty(0, np.uint8)


class SharedArena(Arena):
    """Global memory in a shared file of at most `capacity` bytes, if there is a limit."""

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

    def allocate(self, nbytes: int, kind: type[Allocation] = Allocation, alignment: int = ALIGNMENT) -> Allocation:
        """Reserve `nbytes` zeroed bytes; see `Arena.allocate`. All but heaps are shared, in whole pages.

        Raises OutOfMemory if the file's capacity is exceeded.
        """
        if kind.is_heap:
            return super().allocate(nbytes, kind, alignment)
        offset = self._reserved(_pages_for(nbytes))
        allocation = super().allocate(nbytes, SharedAllocation if kind is Allocation else kind, max(alignment, PAGE))
        self._share(allocation, offset)
        return allocation

    def adopt(self, base: int, nbytes: int) -> Allocation:
        """Move host memory into the file, as an allocation at its address; raise OutOfMemory beyond its capacity."""
        inner = base % PAGE
        offset = self._reserved(_pages_for(nbytes, inner))
        allocation = SharedAllocation(base, nbytes)
        self._share(allocation, offset, inner)
        self._insert(allocation)
        return allocation

    def _share(self, allocation: Allocation, offset: int, inner: int = 0) -> None:
        nbytes = whole_pages(inner + len(allocation.data))
        pages = mmap.mmap(self.descriptor, nbytes, offset=offset)
        self._mapped[allocation.base], self._offsets[allocation.base] = pages, offset + inner
        allocation.data = np.frombuffer(pages, np.uint8)[inner : inner + len(allocation.data)]

    def _reserved(self, nbytes: int) -> int:
        """Return the offset of free pages in the file, or raise OutOfMemory beyond its capacity."""
        for index, (offset, size) in enumerate(self._holes):
            if size >= nbytes:
                self._holes[index : index + 1] = [(offset + nbytes, size - nbytes)] if size > nbytes else []
                return offset
        ends_free = bool(self._holes) and sum(self._holes[-1]) == self._size
        offset = self._holes[-1][0] if ends_free else self._size
        if self._capacity is not None and offset + nbytes > self._capacity:
            raise OutOfMemory(f"the program may use {self._capacity:,} bytes of device memory")
        try:
            os.ftruncate(self.descriptor, offset + nbytes)
        except OSError as error:  # such as a limit of the shell: `ulimit -f`
            raise OutOfMemory(f"the system refuses {offset + nbytes:,} bytes of shared memory: {error}") from None
        if ends_free:
            self._holes.pop()
        self._size = offset + nbytes
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


@dataclass(frozen=True)
class _Use:
    """A use of an allocation: the call that has allocated it, the last work that uses it, and the kernel if any."""

    allocation: SharedAllocation
    memory: CallSite
    work: CallSite
    kernel: str


class Unfinished:
    """Memory in use by work that the host has not waited for."""

    def __init__(self) -> None:
        self.generation = 0  # changes whenever the memory in use may have changed
        self._uses: dict[int, _Use] = {}

    def add(self, allocations: Iterable[tuple[Allocation, CallSite]], work: CallSite, kernel: str = "") -> None:
        """Note the memory that a launch or a copy (`work`) has used, with the calls that have allocated it."""
        bits = 0
        for allocation, memory in allocations:
            if isinstance(allocation, SharedAllocation) and allocation.use:
                self._uses[allocation.base] = _Use(allocation, memory, work, kernel)
                self.generation += 1
                bits |= allocation.use
        if bits & SIGNAL:  # the host can wait for it
            self.finish()

    def finish(self) -> None:
        """Note that the host has waited."""
        for base in list(self._uses):
            self.forget(base)

    def forget(self, base: int) -> None:
        """Note that the memory at an address is not in use."""
        use = self._uses.pop(base, None)
        if use is not None:
            use.allocation.accessed[:] = 0
            self.generation += 1

    def ranges(self) -> Iterator[tuple[Allocation, Literal[0, 1]]]:
        """Yield memory in use, each with 1 if the host may read it."""
        for use in self._uses.values():
            yield use.allocation, 0 if use.allocation.use & WRITTEN else 1

    def accessed(self, allocation: Allocation, address: int, is_write: bool, at: CallSite) -> EarlyAccess | None:
        """Return an access by the host if it disturbs work; its memory then counts as no longer in use."""
        use = self._uses.get(allocation.base)
        if use is None:
            return None
        bits = use.allocation.accessed[(address - allocation.base) // 4]
        if not bits & (READ | WRITTEN if is_write else WRITTEN):
            return None
        self.forget(allocation.base)
        return EarlyAccess(at, is_write, use.memory, use.work, use.kernel)

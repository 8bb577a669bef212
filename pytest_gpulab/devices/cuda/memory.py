"""Arrays on the GPU between two guard zones, because the hardware does not detect a write just past an array."""

from functools import cached_property
from math import prod
from random import SystemRandom
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Array, Location
from pytest_gpulab.devices.stopwatch import Copies, Copy

from .context import PrimaryContext
from .driver import memory_for

ALIGNMENT = 512  # the driver's alignment of allocations, which textures need
SPREAD_BYTES = 1 << 14  # spare bytes to move an array within, so that no kernel can rely on its place
GUARD_BYTES = 4096  # also catches an index that is off by a block of floats
MAX_KEPT_BYTES = 1 << 20  # per block
KEEP_BYTES = 32 << 20  # of all blocks
COPIED_BESIDE_BYTES = 1 << 20  # copies of this size run beside kernels and interrupt none; 4 KiB do (H200)
# The distance of the guard contents from arrays. The driver packs arrays into pages of this size, and an
# out-of-bounds write next to an array hits its page.
APART_BYTES = 2 << 20
_chance = SystemRandom()
# Random bytes, so that a copied neighbour or a constant changes them.
_GUARD = np.random.default_rng(0x9A11).integers(0, 256, GUARD_BYTES, dtype=np.uint8)


class Blocks:
    """A pool of GPU memory blocks, reused for arrays of exactly the same size.

    The driver serves one process at a time: an allocation takes microseconds alone, but milliseconds while many
    submissions are graded. Large blocks are not kept: other processes may need the memory.
    """

    def __init__(self, context: PrimaryContext) -> None:
        self.context = context
        self._kept: dict[int, list[Any]] = {}
        self._kept_bytes = 0
        self._apart: Any = None
        context.users.add(self)

    @property
    def guard(self) -> int:
        """The address of the guard zones' contents in GPU memory: copies within the GPU are asynchronous.

        The context must be current, and at work on the first access.
        """
        if self._apart is None:
            self._apart = self._new(2 * APART_BYTES)
            self.context.driver.memcpy_htod(int(self._apart) + APART_BYTES, _GUARD)
        return int(self._apart) + APART_BYTES

    def take(self, nbytes: int) -> Any:
        """Return a block of that size with undefined contents; the context must be current.

        Raises DeviceUnavailable if GPU memory is full.
        """
        if not self._kept.get(nbytes):
            return self._new(nbytes)
        self._kept_bytes -= nbytes
        return self._kept[nbytes].pop()

    def _new(self, nbytes: int) -> Any:
        with memory_for(self.context.driver, f"{nbytes:,} bytes more"):
            return self.context.driver.mem_alloc(nbytes)

    def give(self, block: Any, nbytes: int) -> None:
        """Keep a block or free it; the context must be current."""
        if nbytes > MAX_KEPT_BYTES or self._kept_bytes + nbytes > KEEP_BYTES:
            block.free()
            return
        self._kept_bytes += nbytes
        self._kept.setdefault(nbytes, []).append(block)

    def close(self) -> None:
        """Free all blocks; only the end of the process frees those of a broken context."""
        blocks = [block for kept in self._kept.values() for block in kept]
        blocks += [] if self._apart is None else [self._apart]
        if blocks and self.context.usable:
            with self.context.current():
                for block in blocks:
                    block.free()
            self._kept.clear()


class CudaMemory:
    """The `Memory` protocol on a GPU."""

    def __init__(self, blocks: Blocks, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._blocks, self._context = blocks, blocks.context
        self.dtype, self.shape = np.dtype(dtype), shape
        with self._context.current():
            self._allocation: Any = blocks.take(self._taken_bytes)
            self._context.users.add(self)
            self.address = int(self._allocation) + GUARD_BYTES + _chance.randrange(0, SPREAD_BYTES, ALIGNMENT)
            self._is_guarded = False
        self._read: tuple[int, Array, Array] | None = None

    @cached_property
    def nbytes(self) -> int:
        """The size in bytes, without the guard zones."""
        return prod(map(int, self.shape)) * self.dtype.itemsize

    @property
    def _taken_bytes(self) -> int:
        return self.nbytes + 2 * GUARD_BYTES + SPREAD_BYTES

    def get(self) -> Array:
        """Return a copy in host memory."""
        self._refuse_freed()
        contents = self._read_whole() if self._is_guarded else self._copied(self.address, self.nbytes)
        return contents.view(self.dtype).reshape(self.shape)

    def set(self, values: npt.ArrayLike) -> None:
        """Overwrite the contents; raise ValueError if `values` has another shape."""
        contents = np.ascontiguousarray(values, self.dtype)
        if np.shape(values) != self.shape:
            raise ValueError(f"the array has shape {self.shape}, the values have {np.shape(values)}")
        self._refuse_freed()
        with self._context.current() if contents.nbytes >= COPIED_BESIDE_BYTES else self._context.at_work():
            if contents.nbytes:
                self._context.driver.memcpy_htod(self.address, contents)

    def mark_unwritten(self) -> None:
        """No-op: a GPU does not track writes."""

    def guard(self) -> None:
        """Fill the guard zones before the first launch; the context must be current, and at work.

        Arrays of timed launches need no guard zones, and filling them would interrupt the timing of other processes.
        """
        if not self._is_guarded:
            for zone in self._zones():
                self._context.driver.memcpy_dtod(zone, self._blocks.guard, GUARD_BYTES)
            self._is_guarded = True

    def damage(self, name: str = "array") -> str | None:
        """Describe writes into the guard zones in a sentence with the array's `name`; None without one."""
        self._refuse_freed()
        if not self._is_guarded:
            return None
        if self._read is None or self._read[0] != self._context.launches:
            before, after = (self._copied(address, GUARD_BYTES) for address in self._zones())
        else:
            _, before, after = self._read
        return describe_damage(before, after, self.dtype.itemsize, self.nbytes, name)

    def free(self) -> None:
        """Free the memory; only the end of the process frees that of a broken context."""
        if self._allocation is not None and self._context.usable:
            with self._context.current():
                self._blocks.give(self._allocation, self._taken_bytes)
            self._allocation = None

    def _zones(self) -> tuple[int, int]:
        return self.address - GUARD_BYTES, self.address + self.nbytes

    def _read_whole(self) -> Array:
        """Return the contents, and cache the guard zones until the next launch.

        One copy instead of three: each copy may wait for the time slices of other processes.
        """
        whole = self._copied(self.address - GUARD_BYTES, self.nbytes + 2 * GUARD_BYTES)
        before, contents, after = np.split(whole, (GUARD_BYTES, GUARD_BYTES + self.nbytes))
        self._read = self._context.launches, before.copy(), after.copy()
        return contents

    def _copied(self, address: int, nbytes: int) -> Array:
        contents = np.empty(nbytes, np.uint8)
        with self._context.current():
            if nbytes:
                self._context.driver.memcpy_dtoh(contents, address)
        return contents

    def _refuse_freed(self) -> None:
        if self._is_freed():
            raise ValueError("this array was freed")

    def _is_freed(self) -> bool:
        return self._allocation is None


class CudaPart(CudaMemory):
    """An array inside another one, with its lifetime and no guard zones. Raises ValueError if it exceeds the whole."""

    def __init__(self, whole: CudaMemory, offset_bytes: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._context, self._whole = whole._context, whole
        self.dtype, self.shape = np.dtype(dtype), shape
        if not 0 <= offset_bytes <= whole.nbytes - self.nbytes:
            raise ValueError(f"{self.nbytes} bytes from byte {offset_bytes} on are not inside {whole.nbytes} bytes")
        self.address = whole.address + offset_bytes
        self._is_guarded = False

    def guard(self) -> None:
        """No-op: a part has no guard zones."""

    def damage(self, name: str = "array") -> str | None:
        """Return None: the memory around a part may change."""

    def free(self) -> None:
        """No-op: the whole owns the memory."""

    def _is_freed(self) -> bool:
        return self._whole._is_freed()


def copy_within(copies: Copies) -> None:
    """Enqueue copies between arrays on the GPU, in order, without waiting; the context must be current."""
    for copy in copies:
        source, target = copy.source, copy.target
        assert isinstance(source, CudaMemory) and isinstance(target, CudaMemory)
        source._refuse_freed()
        target._refuse_freed()
        offset, nbytes = _range(copy)
        if nbytes:
            source._context.driver.memcpy_dtod(target.address + offset, source.address + offset, nbytes)


def _range(copy: Copy) -> tuple[int, int]:
    """Return the offset of a copy from the arrays' start and its size, in bytes."""
    if copy.elements is None:
        return 0, copy.source.nbytes
    first, end, _ = copy.elements.indices(copy.source.nbytes // copy.source.dtype.itemsize)
    return first * copy.source.dtype.itemsize, (end - first) * copy.source.dtype.itemsize


def describe_damage(before: Array, after: Array, itemsize: int, nbytes: int, name: str = "array") -> str | None:
    """Describe a write outside an array, from the present contents of its guard zones (uint8); None without one."""
    before_bytes, after_bytes = np.flatnonzero(before != _GUARD), np.flatnonzero(after != _GUARD)
    if after_bytes.size:
        offset = nbytes + int(after_bytes[0])
    elif before_bytes.size:
        offset = int(before_bytes[-1]) - GUARD_BYTES
    else:
        return None
    place = Location("global", offset, nbytes, 1, 1, "write")
    return f"invalid __global__ write: {place.named(name, itemsize)}"

"""Arrays on the GPU between two guard zones, because the hardware does not notice a write just past an array."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Array, Location
from pytest_gpulab.devices.stopwatch import Copies, Copy

from .context import PrimaryContext
from .driver import memory_for

GUARD_BYTES = 4096
MAX_KEPT_BYTES = 1 << 20  # of a piece
KEEP_BYTES = 32 << 20  # altogether
COPIED_BESIDE_BYTES = 1 << 20  # what is so large is copied beside kernels and interrupts none; 4 KiB do (H200)
APART_BYTES = 2 << 20  # from arrays, with which the driver shares pages of so many: who writes beside one hits another
# Different at every byte, so that copying a neighbour into the zone shows as well as writing a constant.
_GUARD = np.random.default_rng(0x9A11).integers(0, 256, GUARD_BYTES, dtype=np.uint8)


class Blocks:
    """Pieces of a GPU's memory that are used again, for arrays of exactly the same size.

    The driver serves one process at a time, so what takes it microseconds takes milliseconds while many submissions are
    graded. Large pieces are not kept: others may need the room.
    """

    def __init__(self, context: PrimaryContext) -> None:
        self.context = context
        self._kept: dict[int, list[Any]] = {}
        self._kept_bytes = 0
        self._apart: Any = None
        context.users.add(self)

    @property
    def guard(self) -> int:
        """Where what guard zones hold lies: a copy within the GPU need not be waited for.

        The context must be current, and at work when this is asked for the first time.
        """
        if self._apart is None:
            self._apart = self._new(2 * APART_BYTES)
            self.context.driver.memcpy_htod(int(self._apart) + APART_BYTES, _GUARD)
        return int(self._apart) + APART_BYTES

    def take(self, nbytes: int) -> Any:
        """Return a piece of that size, with whatever is in it; the context must be current.

        Raises:
            DeviceUnavailable: there is no room for it.
        """
        if not self._kept.get(nbytes):
            return self._new(nbytes)
        self._kept_bytes -= nbytes
        return self._kept[nbytes].pop()

    def _new(self, nbytes: int) -> Any:
        with memory_for(self.context.driver, f"{nbytes:,} bytes more"):
            return self.context.driver.mem_alloc(nbytes)

    def give(self, piece: Any, nbytes: int) -> None:
        """Keep a piece or free it; the context must be current."""
        if nbytes > MAX_KEPT_BYTES or self._kept_bytes + nbytes > KEEP_BYTES:
            piece.free()
            return
        self._kept_bytes += nbytes
        self._kept.setdefault(nbytes, []).append(piece)

    def close(self) -> None:
        """Free everything; in a broken context only the end of the process can."""
        pieces = [piece for pieces in self._kept.values() for piece in pieces]
        pieces += [] if self._apart is None else [self._apart]
        if pieces and self.context.usable:
            with self.context.current():
                for piece in pieces:
                    piece.free()
            self._kept.clear()


class CudaMemory:
    """The `Memory` protocol on a GPU."""

    def __init__(self, blocks: Blocks, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._blocks, self._context = blocks, blocks.context
        self._dtype, self._shape = np.dtype(dtype), shape
        with self._context.current():
            self._allocation: Any = blocks.take(self.nbytes + 2 * GUARD_BYTES)
            self._context.users.add(self)
            self.address = int(self._allocation) + GUARD_BYTES
            self._is_guarded = False
        self._read: tuple[int, Array, Array] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._shape

    @cached_property
    def nbytes(self) -> int:
        """The size in bytes, without the guard zones."""
        return prod(map(int, self._shape)) * self._dtype.itemsize

    def get(self) -> Array:
        """Return a copy in host memory."""
        self._refuse_freed()
        contents = self._read_whole() if self._is_guarded else self._copied(self.address, self.nbytes)
        return contents.view(self._dtype).reshape(self._shape)

    def set(self, values: npt.ArrayLike) -> None:
        """Overwrite the contents.

        Raises:
            ValueError: `values` has another shape.
        """
        contents = np.ascontiguousarray(values, self._dtype)
        if np.shape(values) != self._shape:
            raise ValueError(f"the array has shape {self._shape}, the values have {np.shape(values)}")
        self._refuse_freed()
        with self._context.current() if contents.nbytes >= COPIED_BESIDE_BYTES else self._context.at_work():
            if contents.nbytes:
                self._context.driver.memcpy_htod(self.address, contents)

    def mark_unwritten(self) -> None:
        """Do nothing: a GPU cannot tell what was written."""

    def guard(self) -> None:
        """Fill the guard zones before the first launch; the context must be current, and at work.

        Arrays whose launches are timed need none, and filling them would interrupt what others time.
        """
        if not self._is_guarded:
            for zone in self._zones():
                self._context.driver.memcpy_dtod(zone, self._blocks.guard, GUARD_BYTES)
            self._is_guarded = True

    def damage(self, name: str = "array") -> str | None:
        """Say in a sentence what launches wrote into the guard zones of an array called `name`, or None."""
        self._refuse_freed()
        if not self._is_guarded:
            return None
        if self._read is None or self._read[0] != self._context.launches:
            before, after = (self._copied(address, GUARD_BYTES) for address in self._zones())
        else:
            _, before, after = self._read
        return describe_damage(before, after, self._dtype.itemsize, self.nbytes, name)

    def free(self) -> None:
        """Give the memory back; in a broken context only the end of the process can."""
        if self._allocation is not None and self._context.usable:
            with self._context.current():
                self._blocks.give(self._allocation, self.nbytes + 2 * GUARD_BYTES)
            self._allocation = None

    def _zones(self) -> tuple[int, int]:
        return self.address - GUARD_BYTES, self.address + self.nbytes

    def _read_whole(self) -> Array:
        """Return the contents, and keep the zones in mind until the next launch.

        While other processes use the GPU each copy waits until it has turned to them and back.
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
    """An array inside another one, without guard zones of its own; it lives as long as that.

    Raises:
        ValueError: it does not fit in there.
    """

    def __init__(self, whole: CudaMemory, offset_bytes: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self._context, self._whole = whole._context, whole
        self._dtype, self._shape = np.dtype(dtype), shape
        if not 0 <= offset_bytes <= whole.nbytes - self.nbytes:
            raise ValueError(f"{self.nbytes} bytes from byte {offset_bytes} on are not inside {whole.nbytes} bytes")
        self.address = whole.address + offset_bytes
        self._is_guarded = False

    def guard(self) -> None:
        """Do nothing: it has no zones."""

    def damage(self, name: str = "array") -> str | None:
        """Say nothing: what surrounds it may change."""

    def free(self) -> None:
        """Do nothing: the memory belongs to the whole."""

    def _is_freed(self) -> bool:
        return self._whole._is_freed()


def copy_within(copies: Copies) -> None:
    """Copy between arrays on the GPU, one after the other; the context must be current, nothing is waited for."""
    for copy in copies:
        source, target = copy.source, copy.target
        assert isinstance(source, CudaMemory) and isinstance(target, CudaMemory)
        source._refuse_freed()
        target._refuse_freed()
        offset, nbytes = _stretch(copy)
        if nbytes:
            source._context.driver.memcpy_dtod(target.address + offset, source.address + offset, nbytes)


def _stretch(copy: Copy) -> tuple[int, int]:
    """Return where a copy begins, in bytes from an array's start, and how many bytes it takes."""
    if copy.elements is None:
        return 0, copy.source.nbytes
    first, end, _ = copy.elements.indices(copy.source.nbytes // copy.source.dtype.itemsize)
    return first * copy.source.dtype.itemsize, (end - first) * copy.source.dtype.itemsize


def describe_damage(before: Array, after: Array, itemsize: int, nbytes: int, name: str = "array") -> str | None:
    """Say what was written outside an array, given its two guard zones as they are now (uint8), or None."""
    before_bytes, after_bytes = np.flatnonzero(before != _GUARD), np.flatnonzero(after != _GUARD)
    if after_bytes.size:
        offset = nbytes + int(after_bytes[0])
    elif before_bytes.size:
        offset = int(before_bytes[-1]) - GUARD_BYTES
    else:
        return None
    place = Location("global", offset, nbytes, 1, 1, "write")
    return f"invalid __global__ write: {place.named(name, itemsize)}"

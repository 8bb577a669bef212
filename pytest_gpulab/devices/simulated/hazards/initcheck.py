"""Uninitialised reads: a record of the written bytes of shared, local and global memory.

Shared and local memory are unwritten at the start of each block. An array of global memory is unwritten from a call of
`Allocation.mark_unwritten`.

Structs are copied with their padding and with members that were never set. So a value that is only copied may have
unwritten bytes among written ones (`loads.copied`, `empty`, `empty_global`). The same bytes of the copy then count as
unwritten, so a later read of such a member is reported (`Gaps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import IndexArray, Lanes, Shape, Value
from pytest_gpulab.devices.simulated.memory.spaces import Allocation
from pytest_gpulab.devices.simulated.translation.sites import Site

from .accesses import Mask

if TYPE_CHECKING:  # needed for kernels that copy structs
    from pytest_gpulab.devices.simulated.translation.analysis.loads import Carried

    from .checker import LaunchHazardChecker

_ALL_BYTES = np.uint8(0xF)


class Initcheck:
    """The search for uninitialised reads in one wave, by the written bytes of shared and of local memory."""

    def __init__(self, launch: LaunchHazardChecker, shape: Shape, shared_bytes: int, local_bytes: int) -> None:
        self._launch = launch
        self.shared = Written(shared_bytes, shape.columns, launch.program.reserved_shared)
        self.local = Written(local_bytes, shape.columns * shape.threads)
        self.gaps = Gaps(shape)

    def access_shared(self, lanes: Lanes, site: Site, address: Value, alike: bool) -> None:
        """Check an access to shared memory; `alike` if it is the same in all blocks."""
        self._access("shared", self.shared, lanes, lanes.column, site, address, alike)

    def access_local(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Check an access to local memory."""
        self._access("local", self.local, lanes, lanes.position, site, address, lanes.full and address.ndim == 0)

    def _access(
        self, space: str, written: Written, lanes: Lanes, column: IndexArray, site: Site, address: Value, alike: bool
    ) -> None:
        if site.uses_old_value:
            bad = written.missing(lanes, column, address, site.nbytes)
            self._record(site, lanes, bad, lambda k: written.missing(lanes, column, _plus(address, k), 1))
            bad = self._without_padding(site, bad, partial(written.empty, lanes, column, address, site.nbytes))
            if bad is not None:
                self._launch.reporter.uninitialised(site, space, lanes, address, bad)
        if site.modifies:
            written.write(column, address, site.nbytes, alike)
            for k, mask in self._carried(site, lanes):
                written.erase(column, _plus(address, k), mask)

    def access_global(self, lanes: Lanes, site: Site, memory: Allocation, offset: Value) -> None:
        """Check an access to global memory."""
        if memory.written is not None:
            self._access_partly_written(lanes, site, memory, offset)
        elif self.gaps and site.access == "read":
            self._record(site, lanes, None, lambda k: None)
        for k, mask in self._carried(site, lanes):
            erase_global(memory, _plus(offset, k), mask)

    def _access_partly_written(self, lanes: Lanes, site: Site, memory: Allocation, offset: Value) -> None:
        if site.uses_old_value:
            bad = missing_global(lanes, memory, offset, site.nbytes)
            self._record(site, lanes, bad, lambda k: missing_global(lanes, memory, _plus(offset, k), 1))
            bad = self._without_padding(site, bad, partial(empty_global, lanes, memory, offset, site.nbytes))
            if bad is not None:
                space = "constant" if site.space == "const" else "global"
                self._launch.reporter.uninitialised(site, space, lanes, offset + np.uint64(memory.base), bad)
        if site.modifies:
            write_global(memory, offset, site.nbytes)

    def _record(self, site: Site, lanes: Lanes, bad: Mask | None, missing: Callable[[int], Mask | None]) -> None:
        """Record the unwritten bytes of a load with a value that is only copied; see `Gaps.record`."""
        if (bad is not None or self.gaps) and site.number in self._launch.program.copied:
            self._launch.has_copied_unwritten |= bad is not None
            self.gaps.record(site.number, lanes, site.nbytes, missing if bad is not None else None)

    def _carried(self, site: Site, lanes: Lanes) -> Iterable[tuple[int, Mask]]:
        """Return the bytes of a store that stay unwritten; see `Gaps.carried`."""
        pieces = self._launch.program.carried.get(site.number) if self.gaps and site.access == "write" else None
        return self.gaps.carried(pieces, lanes) if pieces else ()

    def _without_padding(self, site: Site, bad: Mask | None, empty: Callable[[], Mask]) -> Mask | None:
        """Return a mask of the lanes that read more unwritten bytes than the padding of a struct that they copy.

        `bad` masks the lanes that read any unwritten byte, the result of `empty` those that read only such bytes.
        """
        unit = None if bad is None else self._launch.program.copied.get(site.number)
        if bad is None or unit is None:
            return bad
        rest = bad & empty() if unit else None
        return rest if rest is not None and rest.any() else None


def _plus(address: Value, nbytes: int) -> Value:
    return address + address.dtype.type(nbytes)


class Written:
    """The written bytes of shared or local memory, four bits per word: (words, columns), one column while all agree.

    Columns are the wave's blocks or lanes, of `nbytes` each. The first `reserved` bytes are of NVIDIA's libraries, and
    count as written.
    """

    def __init__(self, nbytes: int, columns: int, reserved: int = 0) -> None:
        self._columns = columns
        self._bits = np.zeros((-(-nbytes // 4), 1), np.uint8)
        self._bits[: reserved // 4] = _ALL_BYTES
        self._complete = not nbytes

    def write(self, column: IndexArray, address: Value, nbytes: int, alike: bool) -> None:
        """Record a write; `alike` if it is the same in all columns."""
        if self._complete:
            return
        if alike and self._bits.shape[1] == 1:
            column = np.zeros((1, 1), np.intp)
        elif self._bits.shape[1] != self._columns:
            self._widen()
        flat = self._bits.reshape(-1)
        if nbytes == 4 and len(flat) == len(self._bits):
            flat[address >> address.dtype.type(2)] = _ALL_BYTES
            return
        word, bits = _words(address, nbytes)
        for k in range(max(nbytes // 4, 1)):
            index = (word + k) * self._bits.shape[1] + column
            if nbytes >= 4:
                flat[index] = _ALL_BYTES
            else:
                np.bitwise_or.at(flat, index, np.broadcast_to(bits, index.shape))

    def _widen(self) -> None:
        """Give each column bits of its own. Rows without a written byte take no memory until they are used."""
        narrow, self._bits = self._bits, np.zeros((len(self._bits), self._columns), np.uint8)
        rows = np.flatnonzero(narrow[:, 0])
        self._bits[rows] = narrow[rows]

    def reset(self, lanes: Lanes, column: IndexArray, address: Value, nbytes: int) -> None:
        """Mark memory that is reused as unwritten."""
        if address.ndim == 0 and lanes.full and self._bits.shape[1] == 1:
            column = np.zeros((1, 1), np.intp)
        elif self._bits.shape[1] != self._columns:
            self._widen()
        flat, first = self._bits.reshape(-1), (address >> address.dtype.type(2)).astype(np.intp)
        for k in range(-(-nbytes // 4)):
            flat[(first + k) * self._bits.shape[1] + column] = 0

    def erase(self, column: IndexArray, address: Value, mask: Mask) -> None:
        """Mark the byte at each address as unwritten, in the lanes of a mask."""
        if self._bits.shape[1] != self._columns:
            self._widen()
        self._complete = False
        index = np.broadcast_to((address >> address.dtype.type(2)) * self._columns + column, mask.shape)[mask]
        inner = np.broadcast_to(address & address.dtype.type(3), mask.shape)[mask].astype(np.uint8)
        gone = np.bitwise_not(np.left_shift(np.uint8(1), inner))
        np.bitwise_and.at(self._bits.reshape(-1), index.astype(np.intp), gone)

    def missing(self, lanes: Lanes, column: IndexArray, address: Value, nbytes: int) -> Mask | None:
        """Return a mask of the lanes that read an unwritten byte, or None."""
        if self._complete:
            return None
        flat, bad = self._bits.reshape(-1), None
        if self._bits.shape[1] == 1:
            if nbytes == 4 and flat[address >> address.dtype.type(2)].min() == _ALL_BYTES:
                return None
            column = np.zeros((1, 1), np.intp)
        word, bits = _words(address, nbytes)
        for k in range(max(nbytes // 4, 1)):
            here = flat[(word + k) * self._bits.shape[1] + column] & bits != bits
            bad = here if bad is None else bad | here
        assert bad is not None
        return np.broadcast_to(bad, lanes.shape) if bad.any() else None

    def empty(self, lanes: Lanes, column: IndexArray, address: Value, nbytes: int) -> Mask:
        """Return a mask of the lanes that read only unwritten bytes."""
        flat, width = self._bits.reshape(-1), self._bits.shape[1]
        word, bits = _words(address, nbytes)
        place = column if width > 1 else np.zeros((1, 1), np.intp)
        any_bit = [flat[(word + k) * width + place] & bits for k in range(max(nbytes // 4, 1))]
        return np.broadcast_to(np.bitwise_or.reduce(any_bit) == 0, lanes.shape)

    def update_complete(self) -> None:
        """Skip further checks if all bytes are written."""
        self._complete = self._complete or bool(self._bits.min() == _ALL_BYTES)


def _words(address: Value, nbytes: int) -> tuple[IndexArray, npt.NDArray[np.uint8]]:
    """Return the (first) word of an access, and the bits of the accessed bytes in it."""
    word = np.atleast_2d((address >> address.dtype.type(2)).astype(np.intp))
    if nbytes >= 4:
        return word, np.atleast_2d(_ALL_BYTES)
    inner = np.atleast_2d((address & address.dtype.type(3)).astype(np.uint8))
    return word, np.left_shift(np.uint8((1 << nbytes) - 1), inner)


def write_global(memory: Allocation, offset: Value, nbytes: int) -> None:
    """Record a write to an array that has unwritten bytes."""
    assert memory.written is not None
    size = min(nbytes, 8)
    index, view = _index(offset, size), memory.written.view(f"u{size}")
    for k in range(nbytes // size):
        view[index + k] = _ones(size)


def erase_global(memory: Allocation, offset: Value, mask: Mask) -> None:
    """Mark the byte at each offset as unwritten, in the lanes of a mask."""
    if memory.written is None:
        memory.written = np.ones(len(memory.data), np.uint8)
    memory.written[np.broadcast_to(offset, mask.shape)[mask].astype(np.intp)] = 0


def missing_global(lanes: Lanes, memory: Allocation, offset: Value, nbytes: int) -> Mask | None:
    """Return a mask of the lanes that read an unwritten byte of an array, or None."""
    size = min(nbytes, 8)
    bad = np.logical_or.reduce([part != _ones(size) for part in _marks(memory, offset, nbytes)])
    return np.broadcast_to(np.atleast_2d(bad), lanes.shape) if np.any(bad) else None


def empty_global(lanes: Lanes, memory: Allocation, offset: Value, nbytes: int) -> Mask:
    """Return a mask of the lanes that read only unwritten bytes of an array."""
    empty = [part == 0 for part in _marks(memory, offset, nbytes)]
    return np.broadcast_to(np.atleast_2d(np.logical_and.reduce(empty)), lanes.shape)


def _marks(memory: Allocation, offset: Value, nbytes: int) -> list[Value]:
    """Return the marks of the accessed bytes, in words of at most 8."""
    assert memory.written is not None
    size = min(nbytes, 8)
    index, view = _index(offset, size), memory.written.view(f"u{size}")
    return [view[index + k] for k in range(nbytes // size)]


def _index(offset: Value, nbytes: int) -> IndexArray:
    index: IndexArray = (offset >> np.uint64(nbytes.bit_length() - 1)).astype(np.intp)
    return index


def _ones(nbytes: int) -> int:
    """Return the mark of `nbytes` written bytes: each byte is 1."""
    return int.from_bytes(b"\1" * nbytes, "little")


class Gaps:
    """The unwritten bytes in each thread's last execution of loads for copies, in one wave."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._of: dict[int, npt.NDArray[np.uint32]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def record(self, load: int, lanes: Lanes, nbytes: int, missing: Callable[[int], Mask | None] | None) -> None:
        """Record the unwritten bytes of a load; `missing` gives the mask of the lanes without an n-th byte, if any."""
        if missing is None and load not in self._of:
            return
        bits = np.zeros(lanes.shape, np.uint32)
        for k in range(nbytes if missing is not None else 0):
            mask = missing(k) if missing is not None else None
            if mask is not None:
                bits |= np.left_shift(mask.astype(np.uint32), np.uint32(k))
        if load not in self._of:
            self._of[load] = np.zeros((self._shape.threads, self._shape.columns), np.uint32)
        self._of[load][lanes.cells] = bits

    def carried(self, pieces: Sequence[Carried], lanes: Lanes) -> Iterator[tuple[int, Mask]]:
        """Yield the bytes of a store that stay unwritten, each with a mask of lanes."""
        for piece in pieces:
            if piece.load in self._of:
                bits = self._of[piece.load][lanes.cells]
                for k in range(piece.nbytes):
                    mask = (bits >> np.uint32(piece.at_load + k)) & np.uint32(1) != 0
                    if mask.any():
                        yield piece.at_store + k, mask

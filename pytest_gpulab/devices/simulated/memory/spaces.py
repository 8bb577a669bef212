"""The memories of the simulated GPU, with checks of bounds and alignment, vectorised over the lanes of a group.

`Arena` holds allocations of global and constant memory at virtual addresses. `Banked` holds shared memory (one column
per block) or local memory (one column per lane) as 32-bit words. So a row is the same word of every block.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from random import SystemRandom
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import KernelFault, Lane
from pytest_gpulab.devices.simulated.groups.group import Union
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Subset, Value, first_index, lane_at
from pytest_gpulab.devices.simulated.translation.sites import Site

ARENA_BASE = 0x0010_0000_0000
PIECE_BYTES = 1 << 20  # a piece of the address space, which has parts of one allocation only
# of allocations in bytes, as `cudaMalloc` guarantees (CUDA C++ Programming Guide, device memory accesses)
ALIGNMENT = 256
_GAP = PIECE_BYTES  # between allocations, so that an overrun does not hit the next one
_chance = SystemRandom()
NULL_BYTES = 4096  # the lowest addresses are never allocated: they are null pointers
U64 = np.dtype(np.uint64)


def invalid(site: Site, space: str) -> str:
    """Return compute-sanitizer's description of an invalid access."""
    return f"invalid __{space}__ {site.access} of size {site.nbytes} byte{'s' if site.nbytes > 1 else ''}"


def misaligned(lanes: Lanes, site: Site, space: str, address: Value) -> NoReturn:
    """Raise KernelFault for an address that is no multiple of the access size."""
    first = first_index(lanes, address & address.dtype.type(site.nbytes - 1) != 0)
    at = int(np.broadcast_to(address, lanes.shape).flat[first])
    raise InvalidAccess("misaligned", site, space, at, lane_at(lanes, first))


class InvalidAccess(KernelFault):
    """An access outside of all arrays, or a misaligned one; `nowhere` describes an address that is near no array."""

    def __init__(self, code: str, site: Site, space: str, address: int, lane: Lane, nowhere: str = "") -> None:
        super().__init__(code, invalid(site, space), site.where, lane)
        self.site, self.space, self.address, self.nowhere = site, space, address, nowhere


class AccessListener(Protocol):
    """A receiver of accesses to global memory."""

    def access_global(
        self, lanes: Lanes, site: Site, memory: Allocation, address: Value, offset: Value, values: list[Value]
    ) -> None:
        """Record that a group reads (no values), writes or atomically updates an allocation, at byte offsets."""


class Allocation:
    """A range of addresses and its bytes."""

    is_heap = False  # True if threads allocate blocks from it

    def __init__(self, base: int, nbytes: int) -> None:
        self.base, self.nbytes = base, nbytes
        self.data = np.zeros(-(-nbytes // 16) * 16, np.uint8)
        self.written: npt.NDArray[np.uint8] | None = None  # 1 per written byte, else 0; None if all count as written
        self.is_set = False  # True for a variable that the host has set
        self._views: dict[np.dtype[Any], npt.NDArray[Any]] = {}

    def admit(self, lanes: Lanes, site: Site, offset: Value) -> None:
        """Admit an access inside of the allocation. A heap checks it; memory that the host may use records it.

        Raises KernelFault if it is outside of the heap's blocks.
        """

    def clear(self) -> None:
        """Set all bytes to 0: new pages, of which only those that a kernel accesses take memory."""
        if not self.data.flags.owndata:  # a program has the same pages
            self.data[:] = 0
            return
        self.data = np.zeros(len(self.data), np.uint8)
        self._views.clear()

    def mark_unwritten(self) -> None:
        """Mark all bytes as unwritten."""
        self.written = np.zeros(len(self.data), np.uint8)

    def release(self) -> None:
        """Give the bytes back; the allocation is not used again."""
        self.data, self.written = np.empty(0, np.uint8), None
        self._views.clear()

    def report(
        self,
        lanes: Lanes,
        site: Site,
        address: Value,
        offset: Value,
        values: list[Value],
        checker: AccessListener | None,
    ) -> None:
        """Report an access to `checker`. An unobserved write makes `written` unknown, so all bytes count as written."""
        if checker is not None:
            checker.access_global(lanes, site, self, address, offset, values)
        elif site.modifies:
            self.written = None

    def typed(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the bytes as an array of `dtype`."""
        view = self._views.get(dtype)
        if view is None:
            view = self._views[dtype] = self.data.view(dtype)
        return view


class Arena:
    """Global and constant memory."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self.allocations: list[Allocation] = []  # sorted by address
        self._retired: deque[Allocation] = deque()
        self._next = ARENA_BASE

    def allocate(self, nbytes: int, kind: type[Allocation] = Allocation, alignment: int = ALIGNMENT) -> Allocation:
        """Reserve `nbytes` zeroed bytes at a random place, as no kernel may rely on more than the alignment."""
        self._free_retired()
        allocation = kind(self._next + _chance.randrange(0, PIECE_BYTES, max(alignment, ALIGNMENT)), nbytes)
        self._insert(allocation)
        self._next = -(-(allocation.base + nbytes + _GAP) // PIECE_BYTES) * PIECE_BYTES
        return allocation

    def _insert(self, allocation: Allocation) -> None:
        index = bisect_left(self._bases, allocation.base)
        self._bases.insert(index, allocation.base)
        self.allocations.insert(index, allocation)

    def free(self, allocation: Allocation) -> None:
        """Remove an allocation: its addresses become invalid."""
        index = bisect_left(self._bases, allocation.base)
        del self.allocations[index], self._bases[index]

    def retire(self, allocation: Allocation) -> None:
        """Free an allocation later, when no access is in progress: garbage collection may happen at any time."""
        self._retired.append(allocation)

    def _free_retired(self) -> None:
        while self._retired:
            self.free(self._retired.popleft())

    def contents(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the bytes of every allocation."""
        self._free_retired()
        return (allocation.data for allocation in self.allocations)

    def find(self, address: int) -> Allocation | None:
        """Return the allocation that contains an address, or None."""
        index = bisect_right(self._bases, address) - 1
        if index < 0 or address >= self._bases[index] + max(self.allocations[index].nbytes, 1):
            return None
        return self.allocations[index]

    def locate(
        self, lanes: Lanes, site: Site, address: Value
    ) -> Iterator[tuple[Subset | None, Allocation, npt.NDArray[np.uint64]]]:
        """Yield (lanes or None for all, allocation, byte offset); raise KernelFault if out of bounds or misaligned."""
        # most overruns are behind the end of the array that the first lane accesses
        first = address.item(0)
        allocation = self.find(first)
        if allocation is not None:
            offset = np.subtract(address, np.uint64(allocation.base), dtype=U64)
            only = first - allocation.base if address.ndim == 0 else None  # Python's int is faster than NumPy scalars
            every_bit, end = _every_bit(offset) if only is None else only, allocation.nbytes - site.nbytes
            # no offset is above its bits together with those of all others
            if every_bit <= end or (only is None and int(np.maximum.reduce(offset, axis=None)) <= end):
                if every_bit & (site.nbytes - 1):
                    misaligned(lanes, site, _space(site), address)
                allocation.admit(lanes, site, offset)
                yield None, allocation, offset
                return
        yield from self._pieces(lanes, site, address)

    def _pieces(
        self, lanes: Lanes, site: Site, address: Value
    ) -> Iterator[tuple[Subset | None, Allocation, npt.NDArray[np.uint64]]]:
        full = np.broadcast_to(address, lanes.shape)
        bases = np.array(self._bases, np.uint64)
        sizes = np.array([allocation.nbytes for allocation in self.allocations], np.int64)
        owner = np.searchsorted(bases, full, side="right") - 1
        if len(bases):
            mine = np.maximum(owner, 0)
            offset = (full - bases[mine]).astype(np.int64)  # negative if the top bit of the address is set
            inside = (owner >= 0) & (offset >= 0) & (offset <= sizes[mine] - site.nbytes)
        else:
            offset, inside = full.astype(np.int64), owner >= 0
        if not inside.all():
            self._out_of_bounds(lanes, site, full, ~inside)
        if np.any(offset & (site.nbytes - 1)):
            misaligned(lanes, site, _space(site), address)
        for which in np.unique(owner):
            subset = lanes.subset(owner == which)
            inner = subset.take(np.ascontiguousarray(offset)).view(np.uint64)
            allocation = self.allocations[which]
            allocation.admit(subset.lanes, site, inner)
            yield subset, allocation, inner

    def _out_of_bounds(self, lanes: Lanes, site: Site, address: Value, bad: npt.NDArray[np.bool_]) -> NoReturn:
        first = first_index(lanes, bad)
        at = int(address.flat[first])
        nowhere = "the address is a null pointer or close to one" if at < NULL_BYTES else "no memory is allocated"
        raise InvalidAccess("out-of-bounds", site, _space(site), at, lane_at(lanes, first), nowhere)

    def load(
        self,
        lanes: Lanes,
        site: Site,
        address: Value,
        dtype: np.dtype[Any],
        count: int = 1,
        checker: AccessListener | None = None,
    ) -> list[Value]:
        """Read `count` consecutive elements of `dtype` per lane."""
        shift = np.uint64(dtype.itemsize.bit_length() - 1)
        subsets, found = [], []
        for subset, allocation, offset in self.locate(lanes, site, address):
            if checker is not None and (site.space != "const" or allocation.written is not None):
                allocation.report(subset.lanes if subset else lanes, site, address, offset, [], checker)
            index = (offset >> shift).view(np.intp)
            view = allocation.typed(dtype)
            values = [view.take(index + k if k else index) for k in range(count)]
            if subset is None:
                return values
            subsets.append(subset)
            found.append(values)
        union = Union([subset.lanes for subset in subsets], lanes)
        return [union.join(values) for values in zip(*found, strict=True)]

    def store(
        self, lanes: Lanes, site: Site, address: Value, values: list[Value], checker: AccessListener | None = None
    ) -> None:
        """Write consecutive elements per lane; of several lanes at one address the last one wins."""
        dtype = values[0].dtype
        shift = np.uint64(dtype.itemsize.bit_length() - 1)
        for subset, allocation, offset in self.locate(lanes, site, address):
            view = allocation.typed(dtype)
            index = (offset >> shift).view(np.intp)
            mine = values if subset is None else [subset.take(value) for value in values]
            allocation.report(subset.lanes if subset else lanes, site, address, offset, mine, checker)
            for k, value in enumerate(mine):
                _scatter(view, index + k if k else index, value)


def _every_bit(values: Value) -> int:
    return int(np.bitwise_or.reduce(values, axis=None) if values.ndim else values)


def _space(site: Site) -> str:
    return "constant" if site.space == "const" else "global"


def _scatter(view: npt.NDArray[Any], index: Value, value: Value) -> None:
    if index.ndim == 0 and value.ndim:
        value = value.flat[-1]
    elif value.ndim and value.shape != index.shape:
        index = np.broadcast_to(index, np.broadcast_shapes(index.shape, value.shape))
    view[index] = value


Range = tuple[int, int]
"""Start and end of a variable in bytes; the end is exclusive."""
LAZY_BYTES = 16 << 20  # from this size on, memory is filled where it is accessed


class Banked:
    """Shared or local memory: `words[word, column]`."""

    def __init__(self, space: str, nbytes: int, columns: int, fill: int) -> None:
        self.space, self.nbytes, self.columns = space, nbytes, columns
        # the last checked address: values never change, so it is checked once
        self._checked: tuple[Value | None, int, Range | None] = (None, 0, None)
        # The operating system provides zeroed pages on their first use. So large memory holds each byte xor the fill.
        shape = -(-nbytes // 8) * 2, columns
        self._xor = fill if shape[0] * columns * 4 >= LAZY_BYTES else 0
        self.words = np.zeros(shape, np.uint32) if self._xor else np.full(shape, fill * 0x01010101, np.uint32)

    def check(self, lanes: Lanes, site: Site, address: Value, bounds: Range | None = None) -> None:
        """Raise KernelFault if any lane is misaligned or outside of `bounds` (default: the whole memory)."""
        if self._checked[0] is address and self._checked[1:] == (site.nbytes, bounds):
            return
        low, high = bounds or (0, self.nbytes)
        every_bit, end = _every_bit(address), high - site.nbytes
        # no address is above its bits together with those of all others
        beyond = every_bit > end and int(np.maximum.reduce(address, axis=None)) > end
        if beyond or (low and int(np.minimum.reduce(address, axis=None)) < low):
            self._out_of_bounds(lanes, site, address, low, high)
        if every_bit & (site.nbytes - 1):
            misaligned(lanes, site, self.space, address)
        self._checked = (address, site.nbytes, bounds)

    def _out_of_bounds(self, lanes: Lanes, site: Site, address: Value, low: int, high: int) -> NoReturn:
        signed = address.astype(np.int64)
        first = first_index(lanes, (signed > high - site.nbytes) | (signed < low))
        at = int(np.broadcast_to(address, lanes.shape).flat[first])
        bits = 8 * address.dtype.itemsize
        at -= (at >> (bits - 1)) << bits  # a negative sum has wrapped around
        owner = "block" if self.space == "shared" else "thread"
        raise InvalidAccess(
            "out-of-bounds", site, self.space, at, lane_at(lanes, first), f"the {owner} has no such memory"
        )

    def index(self, address: Value, column: npt.NDArray[np.intp], size: int) -> npt.NDArray[np.intp]:
        """Return indices into the flattened memory as elements of `size` (at most 4) bytes."""
        index: npt.NDArray[np.intp] = (address >> address.dtype.type(2)).astype(np.intp) * self.columns + column
        if size == 4:
            return index
        part = (address & address.dtype.type(3)) >> address.dtype.type(size.bit_length() - 1)
        inner: npt.NDArray[np.intp] = part.astype(np.intp)
        return index * (4 // size) + inner

    def _rows(self, lanes: Lanes, address: Value, size: int) -> bool:
        """Return True if the access consists of whole rows, so that it needs no index per lane."""
        return size >= 4 and self.columns == lanes.wave.columns and lanes.alike(address)

    def load(self, lanes: Lanes, column: npt.NDArray[np.intp], address: Value, dtype: np.dtype[Any]) -> Value:
        """Read one element of `dtype` per lane. The caller has checked the bounds."""
        size = dtype.itemsize
        if size == 8:
            unsigned = np.dtype(np.uint32)
            low = self.load(lanes, column, address, unsigned)
            high = self.load(lanes, column, address + address.dtype.type(4), unsigned)
            return (low.astype(U64) | (high.astype(U64) << np.uint64(32))).view(dtype)
        value = self._load(lanes, column, address, dtype)
        return self._decoded(value.view(f"u{size}")).view(dtype) if self._xor else value

    def _decoded(self, value: Value) -> Value:
        """Return stored unsigned values as those that the kernel sees, or the reverse."""
        return value ^ value.dtype.type(self._xor * 0x01010101 & (1 << 8 * value.dtype.itemsize) - 1)

    def column_bytes(self, start: int, end: int, column: int) -> bytes:
        """Return the bytes in a range of one column."""
        raw: bytes = self._decoded(self.words[start // 4 : -(-end // 4), column]).tobytes()
        return raw[start % 4 :][: end - start]

    def words_of(self, start: int, end: int, columns: npt.NDArray[np.intp]) -> bytes:
        """Return the words in a range of several columns, column by column."""
        return bytes(self._decoded(self.words[start:end, columns]).T.tobytes())

    def _load(self, lanes: Lanes, column: npt.NDArray[np.intp], address: Value, dtype: np.dtype[Any]) -> Value:
        size = dtype.itemsize
        if self._rows(lanes, address, size):
            if address.ndim == 0:
                return self.words[int(address) >> 2].reshape(1, -1).copy().view(dtype)
            return self.words.take(address[:, 0] >> address.dtype.type(2), axis=0).view(dtype)
        unsigned = np.dtype(f"u{size}")
        return self.words.view(unsigned).ravel().take(self.index(address, column, size)).view(dtype)

    def store(self, lanes: Lanes, column: npt.NDArray[np.intp], address: Value, value: Value) -> None:
        """Write one element per lane. The caller has checked the bounds."""
        size = value.dtype.itemsize
        if size == 8:
            bits = value.view(U64)
            self.store(lanes, column, address, bits.astype(np.uint32))
            self.store(lanes, column, address + address.dtype.type(4), (bits >> np.uint64(32)).astype(np.uint32))
            return
        value = value.view(f"u{size}")
        if self._xor:
            value = self._decoded(value)
        if self._rows(lanes, address, size):
            if address.size == 1:  # the same for all threads; it may be an array if there is only one block
                address = address.reshape(())[()]
            row = int(address) >> 2 if address.ndim == 0 else address[:, 0] >> address.dtype.type(2)
            if address.ndim == 0 and value.ndim and value.shape[0] > 1:
                value = value[-1:]
            self.words[row] = value
            return
        index = self.index(address, column, size)
        _scatter(self.words.view(value.dtype).reshape(-1), np.broadcast_to(index, lanes.shape), value)

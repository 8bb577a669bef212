"""A wave in which a read returns changed values. They show whether a result depends on the read."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.launch import MAX_RECORDED_BYTES
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.memory.async_copies import AsyncCopies, AsyncCopy
from pytest_gpulab.devices.simulated.memory.atomics import Operation
from pytest_gpulab.devices.simulated.memory.spaces import Banked
from pytest_gpulab.devices.simulated.translation.sites import Site

from .launch_state import LaunchState
from .wave import Dtype, Wave

WORD = 4  # bytes
ATOMIC = -1  # in place of a read's number in `RecordedReads`: the atomics of a wave are counted together


class DisturbedWave(Wave):
    """A wave that counts the reads of a memory, and changes the values of one of them.

    It also knows which thread wrote each byte of shared memory last: a read of another thread's value is the purpose of
    shared memory.
    """

    def __init__(self, launch: LaunchState, block_ids: npt.NDArray[np.intp], is_counted: bool) -> None:
        super().__init__(launch, block_ids, is_counted)
        assert launch.options.disturbed is not None
        self._read = launch.options.disturbed
        self._carriers = None if self._read.compared else launch.program.carriers

    @cached_property
    def _writers(self) -> Banked:
        """The thread that wrote each byte, see `_threads`; 0 for none."""
        return Banked("shared", self.launch.shared_bytes, self.shape.columns, 0)

    @cached_property
    def _sources(self) -> Banked:
        """1 + the number of the write to each word; 0 for none."""
        return Banked("shared", self.launch.shared_bytes, self.shape.columns, 0)

    @property
    def _needs_source(self) -> bool:
        """True until the chosen read of shared memory."""
        read = self._read
        return read.space == "shared" and read.nth >= read.seen and not read.is_write

    def load_global(self, lanes: Lanes, site: Site, address: Value, dtype: Dtype, count: int) -> list[Value]:
        """Read global memory; reads of `__constant__` variables are counted, or changed at the chosen address."""
        values = super().load_global(lanes, site, address, dtype, count)
        if self._read.space != "constant":
            return values
        if self._read.is_write:
            chosen = np.broadcast_to(address == self._read.address, lanes.shape)
            return [_flipped(value, chosen, self._read.flipped) for value in values] if chosen.any() else values
        if self._read.nth < 0 and self._is_set(address):
            self._read.lanes += lanes.n
            self._read.proper += lanes.n if site.space == "const" else 0
        return values

    def load_const(self, lanes: Lanes, site: Site, address: Value, dtype: Dtype, count: int) -> list[Value]:
        """Read constant memory; the values of the chosen read are changed."""
        values = super().load_const(lanes, site, address, dtype, count)
        if self._read.space != "constant" or self._read.is_write or not self._is_next(lanes):
            return values
        self._read.address = int(np.broadcast_to(address, lanes.shape)[_of_warp(lanes, self._number)][0])
        return self._changed(lanes, values, address) if self._is_set(address) and self._carries(site) else values

    def load_shared(
        self, lanes: Lanes, site: Site, address: Value, dtype: Dtype, count: int, check: bool = True
    ) -> list[Value]:
        """Read shared memory; the values of the chosen read are changed."""
        values = self._exchanged(lanes, site.number, super().load_shared(lanes, site, address, dtype, count, check))
        if self._read.space != "shared":
            return values
        if self._read.nth < 0:
            self._count_writers(lanes, site, address)
        if self._read.is_write or not (self._is_next(lanes) and self._carries(site)):
            return values
        self._read.source = self._source(lanes, address)
        self._read.address = int(np.broadcast_to(address, lanes.shape)[_of_warp(lanes, self._number)][0])
        changed = self._changed(lanes, values, address)
        if site.is_guess:  # a compare-and-swap finds out that the value is changed, unless memory has it, too
            here = lanes.subset(np.broadcast_to(_of_warp(lanes, self._number), lanes.shape))
            own = [here.take(value) for value in changed]
            self._store_banked(self.shared, here.lanes.column, here.lanes, here.take(address), own)
        return changed

    def _exchanged(self, lanes: Lanes, number: int, values: list[Value]) -> list[Value]:
        """Record the values that a read returns, or return those of another run; see `RecordedReads`."""
        if (recorded := self._read.recorded) is None:
            return values
        place = number, int(self.shape.block_ids[0])
        key = *place, recorded.turns[place]
        recorded.turns[place] += 1
        if recorded.is_replayed:
            others = recorded.values.get(key, values)
            return others if all(_fits(value, lanes) for value in others) else values
        size = sum(value.nbytes for value in values)
        if recorded.nbytes + size <= MAX_RECORDED_BYTES:
            recorded.values[key] = [value.copy() for value in values]
            recorded.nbytes += size
        return values

    def store_shared(self, lanes: Lanes, site: Site, address: Value, values: list[Value]) -> None:
        """Write to shared memory; the values of the chosen write are changed."""
        self._write_shared(super().store_shared, lanes, site, address, values)

    def _atomic_shared(
        self, lanes: Lanes, operation: Operation, address: Value, dtype: Dtype, values: list[Value], wanted: bool
    ) -> Value:
        """Execute an atomic, which is a write, too; the chosen one leaves changed values in memory."""
        found = super()._atomic_shared(lanes, operation, address, dtype, values, wanted)
        first = self._read.written
        if self._is_next_write(lanes):
            left = self._load_banked(self.shared, lanes.column, lanes, address, dtype, 1)
            self._store_banked(self.shared, lanes.column, lanes, address, self._changed(lanes, left, address))
        if self._needs_source:
            self._note_source(lanes, dtype.itemsize, address, 1 + first + lanes.warp_numbers)
        return self._exchanged(lanes, ATOMIC, [found])[0] if wanted else found

    def _is_next_write(self, lanes: Lanes) -> bool:
        """Count a write per warp; return True if the chosen one is among them."""
        self._number = self._read.nth - self._read.written
        self._read.written += lanes.warp_count
        return self._read.is_write and 0 <= self._number < lanes.warp_count

    def land_shared(self, lanes: Lanes, site: Site, address: Value, values: list[Value]) -> None:
        """Write elements to shared memory at the end of a copy."""
        self._write_shared(super().land_shared, lanes, site, address, values)
        self.note_copy(lanes, site, address)

    def _write_shared(
        self, write: Callable[..., None], lanes: Lanes, site: Site, address: Value, values: list[Value]
    ) -> None:
        first = self._read.written
        if self._is_next_write(lanes):
            values = self._changed(lanes, values, address)
        write(lanes, site, address, values)
        if self._needs_source:
            self._note_source(lanes, site.nbytes, address, 1 + first + lanes.warp_numbers)

    @cached_property
    def copies(self) -> AsyncCopies:
        """The asynchronous copies on their way."""
        return _NotedCopies(self)

    def note_copy(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Note an asynchronous copy: it counts as a write of no thread, so that its own thread may read it."""
        self._note_writers(lanes, site, address, np.zeros((1, 1), np.uint32))

    def _access_shared(self, lanes: Lanes, site: Site, address: Value, values: list[Value], check: bool = True) -> None:
        super()._access_shared(lanes, site, address, values, check)
        if site.modifies:
            self._note_writers(lanes, site, address, _threads(lanes))

    def _note_writers(self, lanes: Lanes, site: Site, address: Value, threads: npt.NDArray[np.uint32]) -> None:
        if self._read.space == "shared" and self._read.nth < 0:
            threads = threads.view(f"u{min(site.nbytes, WORD)}")[:, :1]
            self._store_banked(self._writers, lanes.column, lanes, address, [threads] * (-(-site.nbytes // WORD)))

    def _note_source(self, lanes: Lanes, nbytes: int, address: Value, numbers: npt.NDArray[Any]) -> None:
        words = [numbers.astype(np.uint32)] * (-(-nbytes // WORD))
        self._store_banked(self._sources, lanes.column, lanes, address - address % WORD, words)

    def _source(self, lanes: Lanes, address: Value) -> int:
        """Return the write that the first lane of the chosen read gets its value from, -1 for another origin."""
        first = address - address % WORD
        (sources,) = self._load_banked(self._sources, lanes.column, lanes, first, np.dtype(np.uint32), 1)
        return int(np.broadcast_to(sources, lanes.shape)[_of_warp(lanes, self._number)][0]) - 1

    def _count_writers(self, lanes: Lanes, site: Site, address: Value) -> None:
        dtype = np.dtype(f"u{min(site.nbytes, WORD)}")
        (writers,) = self._load_banked(self._writers, lanes.column, lanes, address, dtype, 1)
        others = np.broadcast_to(writers != _threads(lanes).view(dtype)[:, :1], lanes.shape)
        self._read.lanes += lanes.n
        self._read.proper += int(np.count_nonzero(others))

    def _is_set(self, address: Value) -> bool:
        """Return True for the address of a variable that the host has set."""
        memory = self.arena.find(int(address.item(0)))
        return memory is not None and memory.is_set

    def _carries(self, site: Site) -> bool:
        """Return True if the values of a read can flow into memory, and do not only decide conditions."""
        return self._carriers is None or site.number in self._carriers

    def _is_next(self, lanes: Lanes) -> bool:
        """Count a read per warp; return True if the chosen one is among them."""
        self._number = self._read.nth - self._read.seen
        self._read.seen += lanes.warp_count
        return 0 <= self._number < lanes.warp_count

    def _changed(self, lanes: Lanes, values: list[Value], address: Value) -> list[Value]:
        chosen = _of_warp(lanes, self._number)
        if not self._read.single:
            return [_flipped(value, chosen, self._read.flipped) for value in values]
        if not self._read.is_write:
            chosen &= chosen.cumsum().reshape(chosen.shape) == 1
        size = values[0].dtype.itemsize
        places = (self._read.address - address.astype(np.int64)) // size
        return [_flipped(value, chosen & (places == k), self._read.flipped) for k, value in enumerate(values)]


class _NotedCopies(AsyncCopies):
    """Asynchronous copies that a `DisturbedWave` knows."""

    def __init__(self, wave: DisturbedWave) -> None:
        super().__init__(wave)
        self._noting = wave

    def _write(self, copy: AsyncCopy, is_seen: bool = False) -> None:
        super()._write(copy, is_seen)
        self._noting.note_copy(copy.lanes, copy.site, copy.address)


def _threads(lanes: Lanes) -> npt.NDArray[np.uint32]:
    """Return a word per thread with four times the same byte. Threads 255 apart have the same."""
    return ((1 + lanes.threads % 255) * 0x01010101).astype(np.uint32).reshape(-1, 1)


def _of_warp(lanes: Lanes, number: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the lanes of one warp, by its number in the group."""
    return np.asarray(lanes.warp_numbers == number)


def _fits(value: Value, lanes: Lanes) -> bool:
    return all(extent in (1, whole) for extent, whole in zip(value.shape, lanes.shape, strict=False))


def _flipped(value: Value, chosen: npt.NDArray[np.bool_], flipped: int) -> Any:
    bits = np.broadcast_to(value, chosen.shape).copy().view(f"u{value.dtype.itemsize}")
    bits[chosen] ^= bits.dtype.type(flipped & ((1 << 8 * bits.dtype.itemsize) - 1))
    return bits.view(value.dtype)

"""Device memory for timed runs: several copies of each buffer, moved at random.

Where arrays lie in memory changes a fast kernel's time by about one percent. So both sides of a benchmark use the same
copies where their buffers are alike, and all copies move every few rounds. Each copy has spare bytes to move within,
because allocating takes longer than a benchmark, and other graders wait meanwhile.
"""

from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from math import prod

import numpy as np

from pytest_gpulab.devices.protocol import DeviceError, Memory
from pytest_gpulab.devices.stopwatch import Copy, TimingDevice
from pytest_gpulab.exercise import Array, Buffer
from pytest_gpulab.grading.plans.replay import FIRST, initial_contents

from .contents import Inputs

SLACK_BYTES = 2**24  # spare bytes per copy to move within
FIRST_BYTES = 2**20  # of an array of equal elements, uploaded; the rest is copied from them on the device
STEP_BYTES = 512  # the driver's alignment of allocations, enough for any access


class BufferPool:
    """A pool of device buffers that both sides of a benchmark share."""

    def __init__(self, device: TimingDevice) -> None:
        self._device = device
        self._rng: np.random.Generator | None = None
        self._allocations: dict[Hashable, Memory] = {}
        self._copies: dict[Hashable, Memory] = {}
        self._sources: dict[Hashable, Memory] = {}
        self._spare: list[Memory] = []
        self._set_aside: dict[int, Memory] = {}

    def copy(self, index: int, buffer: Buffer) -> Memory:
        """Return the memory of a buffer in one of the copies, valid until the copies move."""
        key = _key(index, buffer)
        if key not in self._allocations:
            self._allocations[key] = self._allocation(buffer)
        if key not in self._copies:
            steps = 0 if self._rng is None else int(self._rng.integers(SLACK_BYTES // STEP_BYTES + 1))
            place = (self._allocations[key], steps * STEP_BYTES)
            self._copies[key] = self._device.part(*place, buffer.shape, buffer.dtype)
        return self._copies[key]

    def move_copies(self, rng: np.random.Generator) -> None:
        """Move each copy to another random address within its allocation."""
        self._rng = rng
        self._copies.clear()

    def reset(self, copies: Iterable[Copy]) -> None:
        """Execute copies on the device, untimed."""
        self._device.copy(tuple(copies))

    def same(self, one: Memory, other: Memory, buffer: Buffer, elements: slice) -> bool:
        """Return whether a range of elements is the same in two arrays of a buffer's shape."""
        place = (elements.start * np.dtype(buffer.dtype).itemsize, (elements.stop - elements.start,), buffer.dtype)
        return self._device.same(self._device.part(one, *place), self._device.part(other, *place))

    def at_work(self) -> AbstractContextManager[None]:
        """Return a context in which no other grader times: the GPU lock is taken once for all calls in it."""
        return self._device.working()

    def spare(self, buffer: Buffer) -> None:
        """Allocate memory for one more copy, for a later `set_aside`."""
        self._spare.append(self._device.empty(buffer.nbytes + SLACK_BYTES, np.uint8))

    def set_aside(self, index: int, buffer: Buffer) -> Memory:
        """Remove an array from the copies and keep its contents until `take_back`; the copy gets other memory."""
        key = _key(index, buffer)
        memory = self._copies.pop(key)
        self._set_aside[id(memory)] = self._allocations.pop(key)
        return memory

    def take_back(self, memory: Memory) -> None:
        """Return memory that was set aside to the pool."""
        self._spare.append(self._set_aside.pop(id(memory)))

    def _allocation(self, buffer: Buffer) -> Memory:
        for spare in self._spare:
            if spare.nbytes == buffer.nbytes + SLACK_BYTES:
                self._spare.remove(spare)
                return spare
        return self._device.empty(buffer.nbytes + SLACK_BYTES, np.uint8)

    def source(self, buffer: Buffer, inputs: Inputs) -> Memory:
        """Return memory with the contents of a buffer before the first launch."""
        made_from = id(inputs) if buffer.role == "input" else buffer.zeroed
        key = (made_from, buffer.name, np.dtype(buffer.dtype), buffer.shape)
        if key not in self._sources:
            is_alike = buffer.role != "input" and buffer.nbytes > FIRST_BYTES
            made = self._filled(buffer) if is_alike else self._device.array(self._contents(buffer, inputs))
            self._sources[key] = made
        return self._sources[key]

    def _filled(self, buffer: Buffer) -> Memory:
        """Return an array of equal elements, made on the device from copies of its beginning.

        Host memory for the whole array would take the CPU longer than everything else.
        """
        whole, size = self._device.empty(buffer.shape, buffer.dtype), prod(map(int, buffer.shape))
        itemsize = np.dtype(buffer.dtype).itemsize

        def stretch(first: int, elements: int) -> Memory:
            return self._device.part(whole, first * itemsize, (elements,), buffer.dtype)

        done = FIRST_BYTES // itemsize
        stretch(0, done).set(self._contents(replace(buffer, shape=(done,)), {}))
        copies = []
        while done < size:
            further = min(done, size - done)
            copies.append(Copy(stretch(0, further), stretch(done, further)))
            done += further
        self._device.copy(tuple(copies))
        return whole

    @staticmethod
    def _contents(buffer: Buffer, inputs: Inputs) -> Array:
        return initial_contents(buffer, inputs, FIRST.poison)

    def close(self) -> None:
        """Free all memory."""
        with suppress(DeviceError):  # after a kernel broke the device, freeing fails
            for memory in (
                *self._allocations.values(),
                *self._spare,
                *self._set_aside.values(),
                *self._sources.values(),
            ):
                memory.free()


def _key(index: int, buffer: Buffer) -> Hashable:
    return index, buffer.name, np.dtype(buffer.dtype), buffer.shape

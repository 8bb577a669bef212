"""Device memory for timed runs: several copies of each buffer, moved at random.

Where arrays lie in memory changes a fast kernel's time by about one percent. So both sides of a benchmark use the same
copies where their buffers are alike, and all copies move every few rounds. Each copy has spare bytes to move within,
because allocating takes longer than a benchmark, and other graders wait meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from math import prod

import numpy as np

from pytest_gpulab.devices.protocol import DeviceError, Memory
from pytest_gpulab.devices.stopwatch import Copy, TimingDevice
from pytest_gpulab.exercise import Buffer
from pytest_gpulab.grading.plans.replay import FIRST, initial_contents

from .contents import Array, Inputs

ROOM_BYTES = 2**24  # that an array may be moved by
FIRST_BYTES = 2**20  # of an array whose elements are all alike: the others are copied from them
STEP_BYTES = 512  # what the driver aligns allocations to, a multiple of what any access needs


class BufferPool:
    """The arrays that contenders share; `close` gives them back."""

    def __init__(self, device: TimingDevice) -> None:
        self._device = device
        self._rng: np.random.Generator | None = None
        self._rooms: dict[Hashable, Memory] = {}
        self._copies: dict[Hashable, Memory] = {}
        self._sources: dict[Hashable, Memory] = {}
        self._spare: list[Memory] = []
        self._set_aside: dict[int, Memory] = {}

    def copy(self, index: int, buffer: Buffer) -> Memory:
        """Return the memory of a buffer in one of the copies, until they move."""
        key = _key(index, buffer)
        if key not in self._rooms:
            self._rooms[key] = self._room(buffer)
        if key not in self._copies:
            steps = 0 if self._rng is None else int(self._rng.integers(ROOM_BYTES // STEP_BYTES + 1))
            place = (self._rooms[key], steps * STEP_BYTES)
            self._copies[key] = self._device.part(*place, buffer.shape, buffer.dtype)
        return self._copies[key]

    def move_copies(self, rng: np.random.Generator) -> None:
        """Let each copy be put elsewhere at random."""
        self._rng = rng
        self._copies.clear()

    def reset(self, copies: Iterable[Copy]) -> None:
        """Make copies, untimed."""
        self._device.copy(tuple(copies))

    def same(self, one: Memory, other: Memory, buffer: Buffer, elements: slice) -> bool:
        """Say whether some elements of two arrays that a buffer may have are the same."""
        place = (elements.start * np.dtype(buffer.dtype).itemsize, (elements.stop - elements.start,), buffer.dtype)
        return self._device.same(self._device.part(one, *place), self._device.part(other, *place))

    def at_work(self) -> AbstractContextManager[None]:
        """Wait until no other grader times, once for all that follows."""
        return self._device.working()

    def spare(self, buffer: Buffer) -> None:
        """Have room for one copy more, which `set_aside` will need."""
        self._spare.append(self._device.empty(buffer.nbytes + ROOM_BYTES, np.uint8))

    def set_aside(self, index: int, buffer: Buffer) -> Memory:
        """Take an array out of the copies, as it is, until `take_back` or `close`; the copy gets another place."""
        key = _key(index, buffer)
        memory = self._copies.pop(key)
        self._set_aside[id(memory)] = self._rooms.pop(key)
        return memory

    def take_back(self, memory: Memory) -> None:
        """Use the room again of what was set aside."""
        self._spare.append(self._set_aside.pop(id(memory)))

    def _room(self, buffer: Buffer) -> Memory:
        for spare in self._spare:
            if spare.nbytes == buffer.nbytes + ROOM_BYTES:
                self._spare.remove(spare)
                return spare
        return self._device.empty(buffer.nbytes + ROOM_BYTES, np.uint8)

    def source(self, buffer: Buffer, inputs: Inputs) -> Memory:
        """Return the memory that holds what a buffer holds before the first launch."""
        made_from = id(inputs) if buffer.role == "input" else buffer.zeroed
        key = (made_from, buffer.name, np.dtype(buffer.dtype), buffer.shape)
        if key not in self._sources:
            is_alike = buffer.role != "input" and buffer.nbytes > FIRST_BYTES
            made = self._filled(buffer) if is_alike else self._device.array(self._contents(buffer, inputs))
            self._sources[key] = made
        return self._sources[key]

    def _filled(self, buffer: Buffer) -> Memory:
        """Return an array whose elements are all alike: copies of its beginning, made on the device.

        Memory for all of it in this process takes a processor longer than everything else.
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
        """Give all memory back."""
        with suppress(DeviceError):  # a device that a kernel brought down cannot free anything
            for memory in (*self._rooms.values(), *self._spare, *self._set_aside.values(), *self._sources.values()):
                memory.free()


def _key(index: int, buffer: Buffer) -> Hashable:
    return index, buffer.name, np.dtype(buffer.dtype), buffer.shape

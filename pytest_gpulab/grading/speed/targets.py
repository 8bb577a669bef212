"""One side of a race on a real device: a plan with several copies of its buffers in device memory.

Each run uses another copy than the run before, with contents that no run has met, so that a kernel which remembers a
pointer or a result gains nothing. (Only what was enqueued too late is run again as it is, one run in ten at most; then
the last one counts.) Where arrays lie in memory changes a fast kernel's time by a percent or so. So both
sides use the same copies where their buffers are alike, and all copies are put elsewhere every few rounds: each
has room to be moved about in, because while one grader times others wait, and allocating takes longer than a race.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from math import prod

import numpy as np

from pytest_gpulab.devices.protocol import DeviceError, LaunchProfile, Memory, Module
from pytest_gpulab.devices.stopwatch import Call, Copy, Stopwatch, TimingDevice
from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.plans.replay import FIRST, allocated, changed_elements, initial_contents

from .contents import Array, Inputs
from .mixing import Mix, mixed

Outputs = Mapping[str, Memory]

REPLICAS = 3
MAX_BATCH = 32
ROOM_BYTES = 2**24  # that an array may be moved by
FIRST_BYTES = 2**20  # of an array whose elements are all alike: the others are copied from them
STEP_BYTES = 512  # what the driver aligns allocations to, a multiple of what any access needs
# Of the level-2 cache: two halves of it hold what the other reads, too, and the sources of the copies want room.
WARM_SHARE = 1 / 4


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


class BenchmarkTarget:
    """A module and the plan to time, ready on the device.

    Args:
        pool: where to run.
        module: the compiled submission or baseline.
        plan: what to run.
        contents: sets of input contents to mix.
    """

    def __init__(self, pool: BufferPool, module: Module, plan: Plan, contents: Sequence[Inputs]) -> None:
        self.module, self.plan, self.contents = module, plan, contents
        self._pool, self._buffers = pool, allocated(plan)
        # Now, because what is copied to the GPU later is copied while others wait for it.
        self._sources = [{buffer.name: pool.source(buffer, inputs) for buffer in self._buffers} for inputs in contents]
        self._replicas: list[dict[str, Memory]] = []
        self._calls: list[list[Call]] = []
        self.take_copies(REPLICAS)

    def spare_outputs(self, count: int) -> None:
        """Have room for `keep_outputs`, so often, before others wait."""
        for buffer in self._outputs * count:
            self._pool.spare(buffer)

    @property
    def nbytes(self) -> int:
        """Bytes that one run can touch."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def profiles(self) -> tuple[LaunchProfile, ...]:
        """Run once and return the profiles of all launches.

        Raises:
            DeviceError: a launch ends abnormally.
        """
        with self._pool.at_work():
            self._set_constants(Mix(0))
            self._pool.reset(self._resets(0, Mix(0)))  # from the GPU's own memory: there it is already
            return tuple(
                self.module.launch(call.kernel, call.grid, call.block, call.args, call.shared_bytes)
                for call in self._calls[0]
            )

    def cold_ms(self, watch: Stopwatch, index: int, mix: Mix) -> float:
        """Time one run in one of the copies, on mixed contents, with cold caches; with the overhead of one."""
        self._set_constants(mix)
        return watch.cold_ms(self.module, self._calls[index], list(self._resets(index, mix)))

    def batch_size(self, l2_bytes: int) -> int:
        """Return how many runs a batch with warm caches can have; below `REPLICAS` they would not be warm."""
        return min(MAX_BATCH, int(WARM_SHARE * l2_bytes) // max(1, self.nbytes))

    def take_copies(self, count: int) -> None:
        """Use so many of the pool's copies, those of a batch at once; do so again after they have moved."""
        self._replicas = [
            {buffer.name: self._pool.copy(index, buffer) for buffer in self._buffers} for index in range(count)
        ]
        self._calls = [[_call(launch, copies) for launch in self.plan.launches] for copies in self._replicas]

    def batch_ms(self, watch: Stopwatch, mixes: Sequence[Mix]) -> float:
        """Time one run in each copy, without a gap between them and with warm caches; return the time of one.

        The overhead in it is that of so many.

        Args:
            watch: times.
            mixes: what each copy holds; where the plan sets constants, all must be the same.
        """
        self._set_constants(mixes[0])
        copies = [copy for index, mix in enumerate(mixes) for copy in self._resets(index, mix)]
        calls = [call for index in range(len(mixes)) for call in self._calls[index]]
        return watch.batch_ms(self.module, calls, copies) / len(mixes)

    def overhead_ms(self, watch: Stopwatch, runs: int = 1) -> float:
        """Return what the time of one run shows too much, if so many are timed at once."""
        return watch.overhead_ms(runs * len(self.plan.launches)) / runs

    def keep_outputs(self, index: int) -> Outputs:
        """Set aside what the latest run in one of the copies wrote; take the copies anew before the next run."""
        return {buffer.name: self._pool.set_aside(index, buffer) for buffer in self._outputs}

    def changed_inputs(self, index: int, mix: Mix) -> dict[str, int]:
        """Return of which inputs the latest run in one of the copies overwrote elements that must stay, and how many.

        Only what differs is read from the device, which takes long.
        """
        found = {}
        for buffer in self._buffers:
            if buffer.role == "input" and not buffer.may_change and not self._is_intact(buffer, index, mix):
                before, after = mixed(self.contents, mix)[buffer.name], self._replicas[index][buffer.name].get()
                found[buffer.name] = changed_elements(before, after)
        return found

    def _is_intact(self, buffer: Buffer, index: int, mix: Mix) -> bool:
        """Compare on the device, piece by piece."""
        now, pieces = self._replicas[index][buffer.name], mix.pieces(prod(map(int, buffer.shape)), len(self._sources))
        return all(self._pool.same(self._sources[which][buffer.name], now, buffer, some) for which, some in pieces)

    def drop_outputs(self, outputs: Outputs) -> None:
        """Use the room again of outputs that were kept."""
        for memory in outputs.values():
            self._pool.take_back(memory)

    @property
    def _outputs(self) -> list[Buffer]:
        return [buffer for buffer in self._buffers if buffer.role == "output"]

    def _set_constants(self, mix: Mix) -> None:
        if self.plan.constants:
            contents = mixed(self.contents, mix)
            for symbol, name in self.plan.constants.items():
                self.module.set_constant(symbol, contents[name])

    def _resets(self, index: int, mix: Mix) -> Iterator[Copy]:
        """Yield the copies that put everything into the state from before a run."""
        base, other = self._sources[mix.base], self._sources[mix.other(len(self._sources))]
        for buffer in self._buffers:
            target = self._replicas[index][buffer.name]
            yield Copy(base[buffer.name], target)
            if buffer.role == "input":
                for stretch in mix.stretches(prod(map(int, buffer.shape))):
                    yield Copy(other[buffer.name], target, stretch)


class BaselineFailed(Exception):
    """A timed launch of a baseline ended abnormally, for which the submission does not answer."""

    def __init__(self, error: DeviceError) -> None:
        super().__init__(str(error))
        self.error = error


class Baseline(BenchmarkTarget):
    """The side that a submission is held against: times raise `BaselineFailed` in the place of `DeviceError`."""

    def cold_ms(self, watch: Stopwatch, index: int, mix: Mix) -> float:
        """Time one run; see `BenchmarkTarget`."""
        with _told_apart():
            return super().cold_ms(watch, index, mix)

    def batch_ms(self, watch: Stopwatch, mixes: Sequence[Mix]) -> float:
        """Time one run in each copy; see `BenchmarkTarget`."""
        with _told_apart():
            return super().batch_ms(watch, mixes)


@contextmanager
def _told_apart() -> Iterator[None]:
    try:
        yield
    except DeviceError as error:
        raise BaselineFailed(error) from error


def _call(launch: Launch, memories: Mapping[str, Memory]) -> Call:
    args: tuple[Memory | np.generic, ...] = tuple(memories[arg] if isinstance(arg, str) else arg for arg in launch.args)
    return Call(launch.kernel, launch.grid, launch.block, args, launch.shared_bytes)

"""One side of a race on a real device: a plan with several copies of its buffers in device memory.

Each run uses another copy than the run before, with contents that no run has met, so that a kernel which remembers a
pointer or a result gains nothing. Where arrays lie in memory changes a fast kernel's time by a percent or so. So both
sides use the same copies where their buffers are alike, and all copies are put elsewhere every few rounds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np

from pytest_gpulab.devices.protocol import Device, DeviceError, LaunchProfile, Memory, Module
from pytest_gpulab.devices.stopwatch import Call, Copy, Stopwatch
from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.mixing import Inputs, Mix, mixed
from pytest_gpulab.grading.replay import FIRST, allocated, initial_contents

Outputs = Mapping[str, Memory]

REPLICAS = 3
MAX_BATCH = 32
SPACER_BYTES = (2**26, 2**20)
# Of the level-2 cache: two halves of it hold what the other reads, too, and the sources of the copies want room.
WARM_SHARE = 1 / 4


class Pool:
    """The arrays that contenders share; `close` gives them back."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._copies: dict[Hashable, Memory] = {}
        self._sources: dict[Hashable, Memory] = {}
        self._spacers: list[Memory] = []
        self._set_aside: list[Memory] = []

    def copy(self, index: int, buffer: Buffer) -> Memory:
        """Return the memory of a buffer in one of the copies, until they move."""
        key = (index, buffer.name, np.dtype(buffer.dtype), buffer.shape)
        if key not in self._copies:
            self._copies[key] = self._device.empty(buffer.shape, buffer.dtype)
        return self._copies[key]

    def move_copies(self, rng: np.random.Generator) -> None:
        """Let all copies be allocated anew, behind something of random size in the large and in the small."""
        _free(self._copies.values())
        _free(self._spacers)
        self._copies.clear()
        self._spacers = [self._device.empty(int(rng.integers(1, most)), np.uint8) for most in SPACER_BYTES]

    def set_aside(self, memories: Iterable[Memory]) -> None:
        """Take arrays out of the copies, as they are, until `close`; their place is allocated anew."""
        self._set_aside.extend(memories)
        taken = {id(memory) for memory in self._set_aside}
        self._copies = {key: memory for key, memory in self._copies.items() if id(memory) not in taken}

    def source(self, buffer: Buffer, inputs: Inputs) -> Memory:
        """Return the memory that holds what a buffer holds before the first launch."""
        made_from = id(inputs) if buffer.role == "input" else buffer.zeroed
        key = (made_from, buffer.name, np.dtype(buffer.dtype), buffer.shape)
        if key not in self._sources:
            self._sources[key] = self._device.array(initial_contents(buffer, inputs, FIRST.poison))
        return self._sources[key]

    def close(self) -> None:
        """Give all memory back."""
        with suppress(DeviceError):  # a device that a kernel brought down cannot free anything
            _free([*self._copies.values(), *self._sources.values(), *self._spacers, *self._set_aside])


def _free(memories: Iterable[Memory]) -> None:
    for memory in memories:
        memory.free()


class Contender:
    """A module and the plan to time, ready on the device.

    Args:
        pool: where to run.
        module: the compiled submission or baseline.
        plan: what to run.
        contents: sets of input contents to mix.
    """

    def __init__(self, pool: Pool, module: Module, plan: Plan, contents: Sequence[Inputs]) -> None:
        self.module, self.plan, self.contents = module, plan, contents
        self._pool, self._buffers = pool, allocated(plan)
        self._replicas: list[dict[str, Memory]] = []
        for buffer in self._buffers:  # now, because what is copied to the GPU later is copied while others wait for it
            for inputs in contents:
                pool.source(buffer, inputs)
        self.take_copies(REPLICAS)

    @property
    def nbytes(self) -> int:
        """Bytes that one run can touch."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def profiles(self) -> tuple[LaunchProfile, ...]:
        """Run once and return the profiles of all launches.

        Raises:
            DeviceError: a launch ends abnormally.
        """
        self._set_constants(Mix(0))
        for buffer in self._buffers:
            self._replicas[0][buffer.name].set(initial_contents(buffer, self.contents[0], FIRST.poison))
        return tuple(
            self.module.launch(call.kernel, call.grid, call.block, call.args, call.shared_bytes)
            for call in self._calls(0)
        )

    def cold_ms(self, watch: Stopwatch, index: int, mix: Mix) -> float:
        """Time one run in one of the copies, on mixed contents, with cold caches."""
        self._set_constants(mix)
        return watch.cold_ms(self.module, self._calls(index), list(self._resets(index, mix)))

    def batch_size(self, l2_bytes: int) -> int:
        """Return how many runs a batch with warm caches can have; below `REPLICAS` they would not be warm."""
        return min(MAX_BATCH, int(WARM_SHARE * l2_bytes) // max(1, self.nbytes))

    def take_copies(self, count: int) -> None:
        """Use so many of the pool's copies, those of a batch at once; do so again after they have moved."""
        self._replicas = [
            {buffer.name: self._pool.copy(index, buffer) for buffer in self._buffers} for index in range(count)
        ]

    def batch_ms(self, watch: Stopwatch, mixes: Sequence[Mix]) -> float:
        """Time one run in each copy, without a gap between them and with warm caches; return the time of one.

        Args:
            watch: times.
            mixes: what each copy holds; where the plan sets constants, all must be the same.
        """
        self._set_constants(mixes[0])
        copies = [copy for index, mix in enumerate(mixes) for copy in self._resets(index, mix)]
        calls = [call for index in range(len(mixes)) for call in self._calls(index)]
        return watch.batch_ms(self.module, calls, copies) / len(mixes)

    def keep_outputs(self, index: int) -> Outputs:
        """Set aside what the latest run in one of the copies wrote; take the copies anew before the next run."""
        kept = {buffer.name: self._replicas[index][buffer.name] for buffer in self._buffers if buffer.role == "output"}
        self._pool.set_aside(kept.values())
        return kept

    def _set_constants(self, mix: Mix) -> None:
        if self.plan.constants:
            contents = mixed(self.contents, mix)
            for symbol, name in self.plan.constants.items():
                self.module.set_constant(symbol, contents[name])

    def _resets(self, index: int, mix: Mix) -> Iterator[Copy]:
        """Yield the copies that put everything into the state from before a run."""
        for buffer in self._buffers:
            target = self._replicas[index][buffer.name]
            yield Copy(self._pool.source(buffer, self.contents[mix.base]), target)
            if buffer.role == "input":
                other = self._pool.source(buffer, self.contents[mix.other(len(self.contents))])
                for stretch in mix.stretches(int(np.prod(buffer.shape, dtype=np.int64))):
                    yield Copy(other, target, stretch)

    def _calls(self, index: int) -> list[Call]:
        return [_call(launch, self._replicas[index]) for launch in self.plan.launches]


def _call(launch: Launch, memories: Mapping[str, Memory]) -> Call:
    args: tuple[Memory | np.generic, ...] = tuple(memories[arg] if isinstance(arg, str) else arg for arg in launch.args)
    return Call(launch.kernel, launch.grid, launch.block, args, launch.shared_bytes)

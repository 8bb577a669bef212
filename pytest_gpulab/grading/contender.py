"""One side of a race on a real device: a plan with several copies of its buffers in device memory.

Each run uses another copy than the run before, with other contents, so that a kernel which remembers a pointer or a
result gains nothing. Where arrays lie in memory changes a fast kernel's time by a percent or so. So both sides use the
same copies where their buffers are alike, and all copies are put elsewhere every few rounds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Device, DeviceError, LaunchProfile, Memory, Module
from pytest_gpulab.devices.stopwatch import Call, Stopwatch
from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.replay import FIRST, allocated, initial_contents

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]

REPLICAS = 3  # prime to the number of sets of contents, so that every copy meets all
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
            _free([*self._copies.values(), *self._sources.values(), *self._spacers])


def _free(memories: Iterable[Memory]) -> None:
    for memory in memories:
        memory.free()


class Contender:
    """A module and the plan to time, ready on the device.

    Args:
        pool: where to run.
        module: the compiled submission or baseline.
        plan: what to run.
        contents: sets of input contents to alternate between.
    """

    def __init__(self, pool: Pool, module: Module, plan: Plan, contents: Sequence[Inputs]) -> None:
        self.module, self.plan, self.contents = module, plan, contents
        self._pool, self._buffers = pool, allocated(plan)
        self._replicas: list[dict[str, Memory]] = []
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
        self._set_constants(0)
        for buffer in self._buffers:
            self._replicas[0][buffer.name].set(initial_contents(buffer, self.contents[0], FIRST.poison))
        return tuple(
            self.module.launch(call.kernel, call.grid, call.block, call.args, call.shared_bytes)
            for call in self._calls(0)
        )

    def warm_up_ms(self, watch: Stopwatch, turn: int) -> float:
        """Time one run with cold caches, on the first contents only: what it leaves behind is of no use later."""
        return self._cold_ms(watch, self.copy_of(turn), 0)

    def cold_ms(self, watch: Stopwatch, turn: int) -> float:
        """Time one run with cold caches."""
        return self._cold_ms(watch, self.copy_of(turn), self.set_of(turn))

    def batch_size(self, l2_bytes: int) -> int:
        """Return how many runs a batch with warm caches can have; below `REPLICAS` they would not be warm."""
        return min(MAX_BATCH, int(WARM_SHARE * l2_bytes) // max(1, self.nbytes))

    def take_copies(self, count: int) -> None:
        """Use so many of the pool's copies, those of a batch at once; do so again after they have moved."""
        self._replicas = [
            {buffer.name: self._pool.copy(index, buffer) for buffer in self._buffers} for index in range(count)
        ]

    def batch_ms(self, watch: Stopwatch, turn: int) -> float:
        """Time one run in each copy, without a gap between them and with warm caches; return the time of one."""
        self._set_constants(self.set_of(turn))
        indices = range(len(self._replicas))
        copies = [pair for index in indices for pair in self._resets(index, self._set_in_batch(index, turn))]
        calls = [call for index in indices for call in self._calls(index)]
        return watch.batch_ms(self.module, calls, copies) / len(indices)

    def copy_of(self, turn: int) -> int:
        """Return which copy a cold run of this turn uses."""
        return turn % REPLICAS

    def left_by_cold(self, turn: int) -> dict[str, Array]:
        """Return what the latest run, the cold one of this turn, wrote."""
        return self._outputs(self.copy_of(turn))

    def left_by_batch(self, turn: int, contents: int, pick: int) -> dict[str, Array]:
        """Return what one of the latest batch's runs on these contents wrote."""
        indices = [index for index in range(len(self._replicas)) if self._set_in_batch(index, turn) == contents]
        return self._outputs(indices[pick % len(indices)])

    def set_of(self, turn: int) -> int:
        """Return which contents a cold run of this turn works on: two turns each, so that both orders meet all."""
        return turn // 2 % len(self.contents)

    def _cold_ms(self, watch: Stopwatch, index: int, contents: int) -> float:
        self._set_constants(contents)
        return watch.cold_ms(self.module, self._calls(index), list(self._resets(index, contents)))

    def _set_in_batch(self, index: int, turn: int) -> int:
        """Return the contents for one copy of a batch; constants are set for all at once."""
        return self.set_of(turn) if self.plan.constants else (index + turn) % len(self.contents)

    def _set_constants(self, contents: int) -> None:
        for symbol, name in self.plan.constants.items():
            self.module.set_constant(symbol, self.contents[contents][name])

    def _resets(self, index: int, contents: int) -> Iterator[tuple[Memory, Memory]]:
        for buffer in self._buffers:
            yield self._pool.source(buffer, self.contents[contents]), self._replicas[index][buffer.name]

    def _calls(self, index: int) -> list[Call]:
        return [_call(launch, self._replicas[index]) for launch in self.plan.launches]

    def _outputs(self, index: int) -> dict[str, Array]:
        names = (buffer.name for buffer in self._buffers if buffer.role == "output")
        return {name: self._replicas[index][name].get() for name in names}


def _call(launch: Launch, memories: Mapping[str, Memory]) -> Call:
    args: tuple[Memory | np.generic, ...] = tuple(memories[arg] if isinstance(arg, str) else arg for arg in launch.args)
    return Call(launch.kernel, launch.grid, launch.block, args, launch.shared_bytes)

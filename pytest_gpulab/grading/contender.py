"""One side of a race on a real device: a plan with several copies of its buffers in device memory.

Each run uses another copy than the run before, with other contents, so that a kernel which remembers a pointer or a
result gains nothing. Both sides use the same copies where their buffers are alike: where an array lies changes its
speed by some tenths of a percent.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
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

REPLICAS = 3  # prime to the two sets of contents, so that every copy meets both
MAX_BATCH = 32
# Of the level-2 cache: two halves of it hold what the other reads, too, and the sources of the copies want room.
WARM_SHARE = 1 / 4


class Pool:
    """The arrays that contenders share; `close` gives them back."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._memories: dict[Hashable, Memory] = {}

    def copy(self, index: int, buffer: Buffer) -> Memory:
        """Return the memory of a buffer in one of the copies."""
        key = ("copy", index, buffer.name, np.dtype(buffer.dtype), buffer.shape)
        if key not in self._memories:
            self._memories[key] = self._device.empty(buffer.shape, buffer.dtype)
        return self._memories[key]

    def source(self, buffer: Buffer, inputs: Inputs) -> Memory:
        """Return the memory that holds what a buffer holds before the first launch."""
        made_from = id(inputs) if buffer.role == "input" else buffer.zeroed
        key = ("source", made_from, buffer.name, np.dtype(buffer.dtype), buffer.shape)
        if key not in self._memories:
            self._memories[key] = self._device.array(initial_contents(buffer, inputs, FIRST.poison))
        return self._memories[key]

    def close(self) -> None:
        """Give all memory back."""
        with suppress(DeviceError):  # a device that a kernel brought down cannot free anything
            for memory in self._memories.values():
                memory.free()
        self._memories.clear()


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
        self._grow(REPLICAS)

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
        for source, target in self._resets(0, 0):
            target.set(source.get())
        return tuple(
            self.module.launch(call.kernel, call.grid, call.block, call.args, call.shared_bytes)
            for call in self._calls(0)
        )

    def cold_ms(self, watch: Stopwatch, turn: int) -> float:
        """Time one run with cold caches."""
        self._set_constants(turn)
        index = turn % REPLICAS
        return watch.cold_ms(self.module, self._calls(index), list(self._resets(index, turn)))

    def batch_size(self, l2_bytes: int) -> int:
        """Return how many runs a batch with warm caches can have; below `REPLICAS` they would not be warm."""
        return min(MAX_BATCH, int(WARM_SHARE * l2_bytes) // max(1, self.nbytes))

    def prepare_batch(self, size: int) -> None:
        """Make as many copies as a batch has runs."""
        self._grow(size)

    def batch_ms(self, watch: Stopwatch, turn: int) -> float:
        """Time one run in each copy, without a gap between them and with warm caches; return the time of one."""
        self._set_constants(turn)
        indices = range(len(self._replicas))
        copies = [pair for index in indices for pair in self._resets(index, self._turn(index, turn))]
        calls = [call for index in indices for call in self._calls(index)]
        return watch.batch_ms(self.module, calls, copies) / len(indices)

    def left_by_cold(self, turn: int) -> dict[str, Array]:
        """Return what the latest run, the cold one of this turn, wrote."""
        return self._outputs(turn % REPLICAS)

    def left_by_batch(self, turn: int, contents: int, pick: int) -> dict[str, Array]:
        """Return what one of the latest batch's runs on these contents wrote."""
        indices = [index for index in range(len(self._replicas)) if self.set_of(self._turn(index, turn)) == contents]
        return self._outputs(indices[pick % len(indices)])

    def set_of(self, turn: int) -> int:
        """Return which contents a cold run of this turn, or a batch in which all have the same, works on."""
        return turn % len(self.contents)

    def _grow(self, replicas: int) -> None:
        for index in range(len(self._replicas), replicas):
            self._replicas.append({buffer.name: self._pool.copy(index, buffer) for buffer in self._buffers})

    def _turn(self, index: int, turn: int) -> int:
        """Return the turn that chooses a batch's contents for one copy; constants are set for all at once."""
        return turn if self.plan.constants else index + turn

    def _set_constants(self, turn: int) -> None:
        for symbol, name in self.plan.constants.items():
            self.module.set_constant(symbol, self.contents[self.set_of(turn)][name])

    def _resets(self, index: int, turn: int) -> Iterator[tuple[Memory, Memory]]:
        for buffer in self._buffers:
            yield self._pool.source(buffer, self.contents[self.set_of(turn)]), self._replicas[index][buffer.name]

    def _calls(self, index: int) -> list[Call]:
        return [_call(launch, self._replicas[index]) for launch in self.plan.launches]

    def _outputs(self, index: int) -> dict[str, Array]:
        names = (buffer.name for buffer in self._buffers if buffer.role == "output")
        return {name: self._replicas[index][name].get() for name in names}


def _call(launch: Launch, memories: Mapping[str, Memory]) -> Call:
    args: tuple[Memory | np.generic, ...] = tuple(memories[arg] if isinstance(arg, str) else arg for arg in launch.args)
    return Call(launch.kernel, launch.grid, launch.block, args, launch.shared_bytes)

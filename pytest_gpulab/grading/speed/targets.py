"""One side of a benchmark on a real device: a plan with several copies of its buffers in device memory.

Each run uses another copy than the run before, with contents that no run has had. So a kernel that keeps a pointer or a
result gains nothing. The exception: samples that were enqueued too late are repeated with the same contents, in at most
one run in ten, and only the last repetition counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod

import numpy as np

from pytest_gpulab.devices.protocol import DeviceError, LaunchProfile, Memory, Module
from pytest_gpulab.devices.stopwatch import Copy, KernelLaunch, Stopwatch
from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.plans.replay import allocated, changed_elements

from .buffers import BufferPool
from .contents import Inputs
from .mixing import Mix, mixed

Outputs = Mapping[str, Memory]

REPLICAS = 3
MAX_BATCH = 32
# Of the level-2 cache: two halves of it hold what the other reads, too, and the sources of the copies want room.
WARM_SHARE = 1 / 4


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
        self._calls: list[list[KernelLaunch]] = []
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


def _call(launch: Launch, memories: Mapping[str, Memory]) -> KernelLaunch:
    args: tuple[Memory | np.generic, ...] = tuple(memories[arg] if isinstance(arg, str) else arg for arg in launch.args)
    return KernelLaunch(launch.kernel, launch.grid, launch.block, args, launch.shared_bytes)

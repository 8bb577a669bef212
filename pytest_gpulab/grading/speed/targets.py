"""One side of a benchmark on a real device: a plan with several copies of its buffers in device memory.

Each run uses another copy than the run before, with contents that no run has had. So a kernel that keeps a pointer or a
result gains nothing. The exception: samples that were enqueued too late are repeated with the same contents, in at most
one run in ten, and only the last repetition counts.
"""

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
# Of the level-2 cache: each of its two partitions also holds the other's reads, and the copies' sources need space.
WARM_SHARE = 1 / 4


class BenchmarkTarget:
    """One side of a benchmark: a module and a plan, ready on the device, with sets of input contents to mix."""

    def __init__(self, pool: BufferPool, module: Module, plan: Plan, contents: Sequence[Inputs]) -> None:
        self.module, self.plan, self.contents = module, plan, contents
        self._pool, self._buffers = pool, allocated(plan)
        # Copied before the GPU lock is taken: other graders would wait for a later copy.
        self._sources = [{buffer.name: pool.source(buffer, inputs) for buffer in self._buffers} for inputs in contents]
        self._replicas: list[dict[str, Memory]] = []
        self._calls: list[list[KernelLaunch]] = []
        self.take_copies(REPLICAS)

    def spare_outputs(self, count: int) -> None:
        """Allocate memory for this number of calls of `keep_outputs`, before the GPU lock is taken."""
        for buffer in self._outputs * count:
            self._pool.spare(buffer)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, an upper bound of the memory that a run touches."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def profiles(self) -> tuple[LaunchProfile, ...]:
        """Run once and return the profiles of all launches, or raise DeviceError if one ends abnormally."""
        with self._pool.at_work():
            self._set_constants(Mix(0))
            self._pool.reset(self._resets(0, Mix(0)))  # copies within the GPU's memory
            return tuple(
                self.module.launch(call.kernel, call.grid, call.block, call.args, call.shared_bytes)
                for call in self._calls[0]
            )

    def cold_ms(self, stopwatch: Stopwatch, index: int, mix: Mix) -> float:
        """Return the time of one run in one of the copies with cold caches, launch overhead included."""
        self._set_constants(mix)
        return stopwatch.cold_ms(self.module, self._calls[index], list(self._resets(index, mix)))

    def batch_size(self, l2_bytes: int) -> int:
        """Return the size of a batch with warm caches; a result below `REPLICAS` means that they would not be warm."""
        return min(MAX_BATCH, int(WARM_SHARE * l2_bytes) // max(1, self.nbytes))

    def take_copies(self, count: int) -> None:
        """Take this number of the pool's copies, all of a batch; must be repeated after they have moved."""
        self._replicas = [
            {buffer.name: self._pool.copy(index, buffer) for buffer in self._buffers} for index in range(count)
        ]
        self._calls = [[_call(launch, copies) for launch in self.plan.launches] for copies in self._replicas]

    def batch_ms(self, stopwatch: Stopwatch, mixes: Sequence[Mix]) -> float:
        """Return the time per run of one run in each copy, back to back and with warm caches.

        It includes the overhead of a batch of this size. The mixes must be the same if the plan sets constants.
        """
        self._set_constants(mixes[0])
        copies = [copy for index, mix in enumerate(mixes) for copy in self._resets(index, mix)]
        calls = [call for index in range(len(mixes)) for call in self._calls[index]]
        return stopwatch.batch_ms(self.module, calls, copies) / len(mixes)

    def overhead_ms(self, stopwatch: Stopwatch, runs: int = 1) -> float:
        """Return the launch overhead per run, for this number of runs per sample."""
        return stopwatch.overhead_ms(runs * len(self.plan.launches)) / runs

    def keep_outputs(self, index: int) -> Outputs:
        """Set aside the outputs of the latest run in a copy; call `take_copies` before the next run."""
        return {buffer.name: self._pool.set_aside(index, buffer) for buffer in self._outputs}

    def changed_inputs(self, index: int, mix: Mix) -> dict[str, int]:
        """Return the inputs that the latest run in a copy overwrote without permission, with the count of elements.

        Only inputs that differ are read from the device, because reading is slow.
        """
        found = {}
        for buffer in self._buffers:
            if buffer.role == "input" and not buffer.may_change and not self._is_intact(buffer, index, mix):
                before, after = mixed(self.contents, mix)[buffer.name], self._replicas[index][buffer.name].get()
                found[buffer.name] = changed_elements(before, after)
        return found

    def _is_intact(self, buffer: Buffer, index: int, mix: Mix) -> bool:
        """Return whether an input is unchanged, compared on the device."""
        now, pieces = self._replicas[index][buffer.name], mix.pieces(prod(map(int, buffer.shape)), len(self._sources))
        return all(self._pool.same(self._sources[which][buffer.name], now, buffer, some) for which, some in pieces)

    def drop_outputs(self, outputs: Outputs) -> None:
        """Return the memory of kept outputs to the pool."""
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
        """Yield the copies that restore the state before a run."""
        base, other = self._sources[mix.base], self._sources[mix.other(len(self._sources))]
        for buffer in self._buffers:
            target = self._replicas[index][buffer.name]
            yield Copy(base[buffer.name], target)
            if buffer.role == "input":
                for stretch in mix.stretches(prod(map(int, buffer.shape))):
                    yield Copy(other[buffer.name], target, stretch)


class BaselineFailed(Exception):
    """An abnormal end of a timed launch of the baseline, which is not the submission's fault."""

    def __init__(self, error: DeviceError) -> None:
        super().__init__(str(error))
        self.error = error


class Baseline(BenchmarkTarget):
    """The baseline's side: its timed runs raise `BaselineFailed` instead of `DeviceError`."""

    def cold_ms(self, stopwatch: Stopwatch, index: int, mix: Mix) -> float:
        """Return the time of one run; see `BenchmarkTarget`."""
        with _as_baseline_failure():
            return super().cold_ms(stopwatch, index, mix)

    def batch_ms(self, stopwatch: Stopwatch, mixes: Sequence[Mix]) -> float:
        """Return the time per run of a batch; see `BenchmarkTarget`."""
        with _as_baseline_failure():
            return super().batch_ms(stopwatch, mixes)


@contextmanager
def _as_baseline_failure() -> Iterator[None]:
    try:
        yield
    except DeviceError as error:
        raise BaselineFailed(error) from error


def _call(launch: Launch, memories: Mapping[str, Memory]) -> KernelLaunch:
    args: tuple[Memory | np.generic, ...] = tuple(memories[arg] if isinstance(arg, str) else arg for arg in launch.args)
    return KernelLaunch(launch.kernel, launch.grid, launch.block, args, launch.shared_bytes)

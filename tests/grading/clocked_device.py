"""A fake device with a clock: its stopwatch runs the kernels and reads their cost, with noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from doubling import Bench
from fake_device import FakeDevice, FakeMemory, Program

from pytest_gpulab.devices.stopwatch import Conditions, Copies, KernelLaunch
from pytest_gpulab.exercise import SpeedTier

QUIET = Conditions(1980, 1980)
SIZE = 2**10
TIERS = (SpeedTier(1.5, 20, SIZE, required=True), SpeedTier(5, 20, SIZE))


class FakeStopwatch:
    """Counts its samples (`cold`, `batches`); `noise` gives the factor for a sample by its number."""

    def __init__(self) -> None:
        self.l2_bytes = 0
        self.peak_bandwidth_gb_s = 1e9
        self.tick_ms = 0.0
        self.cold: list[tuple[Any, ...]] = []
        self.batches: list[int] = []
        self.looks = 0
        self.events: list[str] = []
        self.drains: list[bool] = []
        self.rng = np.random.default_rng(8)

    def noise(self, sample: int) -> float:
        return float(np.exp(0.002 * self.rng.standard_normal()))

    def conditions(self) -> Conditions:
        self.looks += 1
        return QUIET

    def calibrate(self, briefly: bool = False) -> None:
        self.events.append("learns on" if briefly else "calibrates")

    def overhead_ms(self, launches: int) -> float:
        return 0.0

    def others(self) -> tuple[str, ...]:
        return ()

    def cold_ms(self, module: Any, calls: Sequence[KernelLaunch], copies: Copies = ()) -> float:
        self.events.append("sample")
        self.cold.append((module.program, *(id(arg) for arg in calls[0].args[:-1])))
        return self.run(module, calls, copies)

    def batch_ms(self, module: Any, calls: Sequence[KernelLaunch], copies: Copies = ()) -> float:
        self.batches.append(len(calls))
        return self.run(module, calls, copies)

    def run(self, module: Any, calls: Sequence[KernelLaunch], copies: Copies) -> float:
        carry_out(copies)
        launched = [module.launch(call.kernel, call.grid, call.block, call.args) for call in calls]
        elapsed_ms = sum(profile.estimated_ms or 0.0 for profile in launched)
        return elapsed_ms * self.noise(len(self.cold) + len(self.batches))


def carry_out(copies: Copies) -> None:
    for copy in copies:
        stretch = slice(None) if copy.elements is None else copy.elements
        copy.target.values.reshape(-1)[stretch] = copy.source.values.reshape(-1)[stretch]


class ClockedDevice(FakeDevice):
    def __init__(self, programs: Any) -> None:
        super().__init__(programs, estimates=False)
        self.watch = FakeStopwatch()
        self.held_at_start: list[int] = []
        self.stays = 0

    def part(self, whole: Any, offset_bytes: int, shape: Any, dtype: Any) -> FakeMemory:
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        assert 0 <= offset_bytes <= whole.nbytes - nbytes
        inside = whole.values.reshape(-1).view(np.uint8)[offset_bytes : offset_bytes + nbytes]
        memory = FakeMemory(self, 0)
        memory.values = inside.view(dtype).reshape(shape)
        self.held.remove(memory)
        return memory

    def copy(self, copies: Copies) -> None:
        carry_out(copies)

    def same(self, one: Any, other: Any) -> bool:
        return one.values.tobytes() == other.values.tobytes()

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count: each time a grader asks, it may have to wait for others that time."""
        self.stays += 1
        yield

    @contextmanager
    def stopwatch(self, drain: bool = False) -> Iterator[FakeStopwatch]:
        self.held_at_start.append(len(self.held))
        self.watch.drains.append(drain)
        yield self.watch
        self.watch.events.append("given back")


class ClockedBench(Bench):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.device: ClockedDevice = ClockedDevice(self.programs)

    @property
    def watch(self) -> FakeStopwatch:
        return self.device.watch


def sessions(clocked: ClockedBench) -> int:
    """Return how often the stopwatch was asked for."""
    return len(clocked.device.held_at_start)


def tier(clocked: ClockedBench, submission: Program, threshold: float = 1.5, **changes: Any) -> Any:
    """Grade a speed tier of a submission."""
    tiers = (SpeedTier(threshold, 40, SIZE, required=True),)
    return clocked.result(f"speedup[{threshold:g}x]", submission, speed=tiers, **changes)

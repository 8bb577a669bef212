"""The protocol of a device that can time launches: single samples, and the state of the GPU.

`pytest_gpulab.grading.speed.benchmark` decides how many samples to take and in which order, and evaluates them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from .protocol import Device, Memory, Module, SharedDevice

SLOW_CLOCK_SHARE = 0.75
"""Share of the highest SM clock; a GPU below it is throttled."""
FULL_SPEED = 0.99
"""Share of the rated SM clock; below it, ratios are wrong: by 0.2 % per 1 % of the clock with the naive reduction as
baseline (H200)."""
UNINTERRUPTED_MS = 1.0
"""A sample of at most this length ends in its process's time slice on the GPU, if it begins with the slice."""


@dataclass(frozen=True)
class KernelLaunch:
    """A launch with its arguments in device memory; see `Module.launch`."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Memory | np.generic, ...]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Copy:
    """A copy between two arrays in device memory, of the same size and type."""

    source: Memory
    target: Memory
    elements: slice | None = None  # the elements to copy, in row-major order; None copies all


Copies = Sequence[Copy]


@dataclass(frozen=True)
class Conditions:
    """The state of the GPU at one moment, as far as it may disturb a timing; None or empty if unknown."""

    sm_clock_mhz: int | None = None  # the present SM clock
    max_sm_clock_mhz: int | None = None  # the highest SM clock
    slowdowns: tuple[str, ...] = ()  # causes of throttling, in words
    speed: float = 1.0  # the SM clock of a kernel just run, over the rated clock; 1 at most
    # the longest time slice of other processes on the GPU; 0 if there is none. Also 0 if it was not measured: the
    # samples are too short to be interrupted and the clock is at full speed
    interruption_ms: float = 0.0

    @property
    def held_down_by(self) -> tuple[str, ...]:
        """Causes of throttling at this moment, in words."""
        if self.slowdowns or self.clock_share >= SLOW_CLOCK_SHARE:
            return self.slowdowns
        return (f"SM clock at {self.sm_clock_mhz} of {self.max_sm_clock_mhz} MHz",)

    @property
    def clock_share(self) -> float:
        """The SM clock as a share of the highest; 1 where unknown."""
        if self.sm_clock_mhz is None or not self.max_sm_clock_mhz:
            return 1.0
        return self.sm_clock_mhz / self.max_sm_clock_mhz


class Stopwatch(Protocol):
    """A stopwatch for launches. While it is open, no other grader times on the same GPU."""

    @property
    def l2_bytes(self) -> int:
        """The size of the level-2 cache."""

    @property
    def peak_bandwidth_gb_s(self) -> float:
        """Peak bandwidth of device memory, in 1e9 bytes per second; 0 if unknown."""

    @property
    def tick_ms(self) -> float:
        """The resolution of the clock, as far as known."""

    def cold_ms(self, module: Module, launches: Sequence[KernelLaunch], copies: Copies = ()) -> float:
        """Time consecutive launches together, with a flushed level-2 cache; the sample includes the launch overhead.

        The copies are made before, in order. Raises LaunchError and KernelFault as `Module.launch` does.
        """

    def batch_ms(self, module: Module, launches: Sequence[KernelLaunch], copies: Copies = ()) -> float:
        """Time consecutive launches directly after the copies, so that the caches hold the targets as far as they fit.

        Errors and overhead are as for `cold_ms`.
        """

    def overhead_ms(self, launches: int) -> float:
        """Return the launch overhead included in a sample of that number of launches, as measured so far.

        It is subtracted after all samples are taken, because a single measurement of it may have been disturbed.
        """

    def calibrate(self, briefly: bool = False) -> None:
        """Measure the launch overhead included in samples; anew, when the clock is at full speed.

        With `briefly`, between samples, add to the measurements.
        """

    def conditions(self) -> Conditions:
        """Return the GPU's present state; may take some milliseconds."""

    def others(self) -> tuple[str, ...]:
        """Return the other processes on the GPU, in words. Takes a while; also works after the stopwatch is closed."""


@runtime_checkable
class TimingDevice(Device, SharedDevice, Protocol):
    """A device that can time launches."""

    def part(self, whole: Memory, offset_bytes: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Memory:
        """Return an array inside another one, with the lifetime of the whole; raise ValueError if it exceeds that."""

    def copy(self, copies: Copies) -> None:
        """Make copies within device memory, in order."""

    def same(self, one: Memory, other: Memory) -> bool:
        """Return True if two arrays hold the same bytes. Different bytes may be equal numbers, such as 0 and -0."""

    def stopwatch(self, drain: bool = False) -> AbstractContextManager[Stopwatch]:
        """Hold the GPU's lock exclusively, for timing. Call `calibrate` first, when the clock is at full speed.

        With `drain`, wait for long kernels of other graders, too; all other graders wait meanwhile. Raises
        DeviceUnavailable if the wait is too long.
        """

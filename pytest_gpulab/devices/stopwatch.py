"""What a device offers besides the protocol if it can time launches: single samples, and the state of the GPU.

`pytest_gpulab.grading.speed.benchmark` decides how many samples to take, in which order, and what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from .protocol import Device, Memory, Module

SLOW_CLOCK_SHARE = 0.75
"""Of the highest SM clock: a GPU that runs below is held down by something."""
FULL_SPEED = 0.99
"""Of the SM clock that the GPU is rated at: below it, ratios are not what they are; by 0.2 % for each hundredth of the
clock where the naive reduction is the baseline (H200)."""
UNINTERRUPTED_MS = 1.0
"""What takes no longer, and begins with its process's turn on the GPU or little later, ends in it."""


@dataclass(frozen=True)
class Call:
    """A launch with its arguments in device memory; see `Module.launch`."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Memory | np.generic, ...]
    shared_bytes: int = 0


@dataclass(frozen=True)
class Copy:
    """From one array in device memory to another of the same size and type.

    Attributes:
        source, target: the arrays.
        elements: which of them, counted in row-major order; all where it is None.
    """

    source: Memory
    target: Memory
    elements: slice | None = None


Copies = Sequence[Copy]


@dataclass(frozen=True)
class Conditions:
    """What may disturb a timing at one moment; None and empty where the device does not tell.

    Attributes:
        sm_clock_mhz, max_sm_clock_mhz: now and at most.
        slowdowns: what holds the clocks down, in words.
        speed: the SM clock that a kernel just had, over the one that the GPU is rated at, 1 at most.
        interruption_ms: how long others hold the GPU at one time; 0 where they do not, and where nobody looked, because
            what is timed is too short to be interrupted and the speed is full.
    """

    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    slowdowns: tuple[str, ...] = ()
    speed: float = 1.0
    interruption_ms: float = 0.0

    @property
    def held_down_by(self) -> tuple[str, ...]:
        """What makes a time suspect that is taken now, in words."""
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
    """Takes samples; while it is open, nobody else who asks for a stopwatch of the same GPU gets one."""

    @property
    def l2_bytes(self) -> int:
        """The size of the level-2 cache."""

    @property
    def peak_bandwidth_gb_s(self) -> float:
        """What device memory transfers at most, in 1e9 bytes a second; 0 where the device does not tell."""

    @property
    def tick_ms(self) -> float:
        """The step in which its clock goes on, as far as is known by now."""

    def cold_ms(self, module: Module, calls: Sequence[Call], copies: Copies = ()) -> float:
        """Time the calls, one after the other, with nothing of theirs left in the level-2 cache; with the overhead.

        Args:
            module: of the kernels.
            calls: what is timed, all together.
            copies: made before, one after the other.

        Raises:
            LaunchError, KernelFault: as for `Module.launch`.
        """

    def batch_ms(self, module: Module, calls: Sequence[Call], copies: Copies = ()) -> float:
        """Time the calls just after the copies, so that the caches hold the targets as far as they fit.

        Args, raises, overhead: as for `cold_ms`.
        """

    def overhead_ms(self, launches: int) -> float:
        """Return what a sample of so many launches shows too much, by what is known now.

        It is taken off once all samples are there: what is learned in one moment may have been disturbed.
        """

    def calibrate(self, briefly: bool = False) -> None:
        """Learn what samples show too much.

        Args:
            briefly: learn on, while samples are taken; otherwise anew, once the clock is up.
        """

    def conditions(self) -> Conditions:
        """Look at the GPU's state; may take some milliseconds."""

    def others(self) -> tuple[str, ...]:
        """Return the other processes that use the GPU, in words; can also be asked afterwards, and takes a while."""


@runtime_checkable
class TimingDevice(Device, Protocol):
    """A device that can time."""

    def part(self, whole: Memory, offset_bytes: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Memory:
        """Return an array inside another one, that lives as long as that.

        Raises:
            ValueError: it does not fit in there.
        """

    def copy(self, copies: Copies) -> None:
        """Copy within device memory, one after the other."""

    def same(self, one: Memory, other: Memory) -> bool:
        """Say whether two arrays hold the same bytes; different ones are equal numbers at times, such as 0 and -0."""

    def alone(self) -> AbstractContextManager[None]:
        """Wait until no other grader uses this GPU, and let none.

        Raises:
            DeviceUnavailable: the wait was too long.
        """

    def working(self) -> AbstractContextManager[None]:
        """Wait until no other grader times on this GPU, once for all that it is given to do inside `with`."""

    def stopwatch(self, drain: bool = False) -> AbstractContextManager[Stopwatch]:
        """Wait until no other grader uses this GPU, then time; `calibrate` first, once the clock is up.

        Args:
            drain: wait for long kernels of other graders, too; all other graders wait meanwhile.

        Raises:
            DeviceUnavailable: the wait was too long.
        """


def alone_on(device: Device) -> AbstractContextManager[None]:
    """Wait until no other grader uses the GPU; a device without a clock has nobody to wait for."""
    return device.alone() if isinstance(device, TimingDevice) else nullcontext()


def at_work_on(device: Device) -> AbstractContextManager[None]:
    """Wait until no other grader times on the GPU, once for all that follows; see `alone_on`."""
    return device.working() if isinstance(device, TimingDevice) else nullcontext()

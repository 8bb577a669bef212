"""Protocols of abilities that only some devices or modules have; `isinstance` finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable


@runtime_checkable
class BreakableDevice(Protocol):
    """A device that a kernel can break for its process, but not for other processes."""

    @property
    def usable(self) -> bool:
        """True until a kernel has broken the device."""


@runtime_checkable
class LaunchLimits(Protocol):
    """A module that can check the extents of a launch beforehand."""

    def check_launch(self, kernel: str, grid: Sequence[int], block: Sequence[int], shared_bytes: int = 0) -> None:
        """Check a launch against the GPU's limits: extents, registers per block, shared memory.

        Raises:
            LaunchError: the launch exceeds a limit.
        """


@runtime_checkable
class PrefetchingDevice(Protocol):
    """A device that can compile several variants of a source in parallel."""

    def compile_ahead(
        self, source: str, filename: str, variants: Sequence[Mapping[str, str]], headers: Mapping[str, str]
    ) -> None:
        """Compile a source with several sets of macros in parallel; `Device.compile` then returns the results.

        `Device.compile` raises the compile errors, too.

        Raises:
            DeviceUnavailable: the compiler cannot be run.
        """


@runtime_checkable
class SharedDevice(Protocol):
    """A device that graders share: timing needs it alone."""

    def alone(self) -> AbstractContextManager[None]:
        """Hold the GPU's lock exclusively: no other grader uses the GPU.

        Raises:
            DeviceUnavailable: the wait was too long.
        """

    def working(self) -> AbstractContextManager[None]:
        """Hold the GPU's lock shared inside `with`: no other grader times meanwhile."""


def alone_on(device: object) -> AbstractContextManager[None]:
    """Hold the GPU's lock exclusively; no-op on a device that graders do not share."""
    return device.alone() if isinstance(device, SharedDevice) else nullcontext()


def at_work_on(device: object) -> AbstractContextManager[None]:
    """Hold the GPU's lock shared; no-op on a device that graders do not share."""
    return device.working() if isinstance(device, SharedDevice) else nullcontext()

"""Exceptions of devices: mistakes in kernels, limits of the simulated GPU, and missing hardware or software."""

from __future__ import annotations

from collections.abc import Mapping

from .hazards import Hazard, Lane, Location, SourceLine


class DeviceError(Exception):
    """The base class of the exceptions that a device raises."""


class CompileError(DeviceError):
    """A compilation error; `diagnostics` is the compiler's own message."""

    def __init__(self, diagnostics: str) -> None:
        super().__init__(diagnostics)
        self.diagnostics = diagnostics


class LaunchError(DeviceError):
    """An invalid launch: no such kernel, wrong number or size of arguments, too many threads or bytes."""


class KernelFault(DeviceError):
    """A fault of a kernel that ended the launch.

    Attributes:
        code: a stable word: `out-of-bounds`, `misaligned`, `endless-loop`, `time-limit`, `deadlock`, `barrier`,
            `stack-overflow`, `assert`, `trap`, `texture` (an invalid handle or fetch) or `device-fault`.
        what: the fault in one sentence.
        where, lane: the source line and the first thread, if known.
        output: the kernel's printf output until then.
        location: the accessed location of a memory fault, if known.
        launch: as in `Hazard`.
        hazards: the hazards found until then.
        read_per_thread: as in `LaunchProfile`, until then.
    """

    def __init__(
        self,
        code: str,
        what: str,
        where: SourceLine | None = None,
        lane: Lane | None = None,
        output: str = "",
        location: Location | None = None,
        launch: str = "",
        hazards: tuple[Hazard, ...] = (),
        read_per_thread: Mapping[int, float] | None = None,
    ) -> None:
        self.read_per_thread = read_per_thread or {}
        self.code, self.what, self.where, self.lane, self.output = code, what, where, lane, output
        self.location, self.launch, self.hazards = location, launch, hazards
        place = f"{where}: " if where else ""
        super().__init__(f"{place}{what}" + (f", first by {lane}" if lane else ""))


class TooMuchWork(DeviceError):
    """A launch with more instructions than `LaunchOptions.complete_within` allows."""


class CannotSimulate(DeviceError):
    """A feature of the kernel that the simulated GPU lacks: the machine's fault, never the student's."""

    def __init__(self, what: str, where: SourceLine | None = None) -> None:
        self.what, self.where = what, where
        super().__init__(f"cannot simulate {what}" + (f" at {where}" if where else ""))


class DeviceUnavailable(DeviceError):
    """A device that is not available; the message says what is missing and how to install it."""


class OutOfMemory(DeviceUnavailable):
    """Lack of memory for a launch or a compilation, on the machine or in the process."""


class DeviceAbsent(DeviceUnavailable):
    """A device that this machine lacks: hardware or software is missing, or too old."""

"""What a device raises: the student's mistakes, what the simulated GPU cannot do, and what the machine lacks."""

from __future__ import annotations

from collections.abc import Mapping

from .hazards import Hazard, Lane, Location, SourceLine


class DeviceError(Exception):
    """Base of everything that a device raises on purpose."""


class CompileError(DeviceError):
    """The source does not compile: `diagnostics` is the compiler's own message."""

    def __init__(self, diagnostics: str) -> None:
        super().__init__(diagnostics)
        self.diagnostics = diagnostics


class LaunchError(DeviceError):
    """The call itself is wrong: no such kernel, wrong number or size of arguments, too many threads or bytes."""


class KernelFault(DeviceError):
    """The kernel did something that ended the launch.

    Attributes:
        code: a stable word: `out-of-bounds`, `misaligned`, `endless-loop`, `time-limit`, `deadlock`, `barrier`,
            `stack-overflow`, `assert`, `trap`, `texture` (a handle or a fetch that fits no texture) or `device-fault`.
        what: one sentence.
        where, lane: the place, where known.
        output: what the kernel had printed until then.
        location: of a memory fault, where the access went, where known.
        launch: as in `Hazard`.
        hazards: what was seen until then.
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
    """A launch would issue more instructions than `LaunchOptions.complete_within` allows."""


class CannotSimulate(DeviceError):
    """The simulated GPU does not know something that the kernel uses: the machine's fault, never the student's."""

    def __init__(self, what: str, where: SourceLine | None = None) -> None:
        self.what, self.where = what, where
        super().__init__(f"cannot simulate {what}" + (f" at {where}" if where else ""))


class DeviceUnavailable(DeviceError):
    """The device that was asked for is not there: says what is missing and how to get it."""


class OutOfMemory(DeviceUnavailable):
    """There is no memory left, on the machine or for the process, for what a launch or a compilation needs."""


class DeviceAbsent(DeviceUnavailable):
    """Nobody has set up such a device on this machine: hardware or software is missing, or too old ever to do."""

"""Errors of devices, and hazards that a device finds in a launch, in compute-sanitizer's words, with line and thread.

Errors are mistakes in kernels, limits of the simulated GPU, and missing hardware or software.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class DeviceError(Exception):
    """The base class of the exceptions that a device raises; they can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[DeviceError], args: tuple[Any, ...], attributes: Mapping[str, Any]) -> DeviceError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


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
            `block-order`, `stack-overflow`, `assert`, `trap`, `breakpoint`, `texture` (an invalid handle or fetch) or
            `device-fault`.
        what: the fault in one sentence.
        where, lane: the source line and the first thread, if known.
        output: the kernel's printf output until then.
        location: the accessed location of a memory fault, if known.
        launch: as in `Hazard`.
        hazards: the hazards found until then.
        read_per_thread: as in `LaunchProfile`, until then.
        remains: for a time limit that the kernel cannot meet, the work that is left, in words.
        is_stalled: True if the launch was stopped because it made no progress, see `LaunchOptions.stall_limit_s`.
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
        remains: str = "",
        is_stalled: bool = False,
    ) -> None:
        self.read_per_thread: Mapping[int, float] = {}
        self.code, self.what, self.where, self.lane, self.output = code, what, where, lane, output
        self.location, self.launch, self.hazards = location, launch, hazards
        self.remains, self.is_stalled = remains, is_stalled
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


class SourceLine(NamedTuple):
    """A line of a source file, as named in the compiler's line table."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Lane(NamedTuple):
    """One thread of a launch."""

    block: tuple[int, int, int]  # its index as (x, y, z)
    thread: tuple[int, int, int]  # its index in the block as (x, y, z)
    axes: tuple[int, int] = (1, 1)  # the numbers of axes of the grid and of the block

    def __str__(self) -> str:
        axes = max(self.axes)  # the same for both: `block 0 thread (y=1, x=0)` reads as two ways to count
        return f"block {_short(self.block, axes)} thread {_short(self.thread, axes)}"


def _short(index: tuple[int, int, int], axes: int) -> str:
    return str(index[0]) if axes == 1 else f"({with_axes(index[:axes][::-1])})"


def with_axes(index: Sequence[int]) -> str:
    """Return an index of several axes with their names, x last, such as `y=16, x=0`, as for threads and elements."""
    if len(index) not in (2, 3):
        return ", ".join(map(str, index))
    return ", ".join(f"{axis}={at}" for axis, at in zip("zyx"[-len(index) :], index, strict=True))


class Location(NamedTuple):
    """The location of a memory access, in or beside an array."""

    space: str  # `global`, `constant`, `shared` or `local`
    offset: int  # bytes from the array's start; negative before it
    nbytes: int  # the array's size
    size: int  # bytes of one lane's access
    element: int  # bytes of one value in it (4 for a `float4`)
    access: str  # `read`, `write` or `atomic`
    symbol: str = ""  # the array's name in the source, if the array is a variable
    parameter: int | None = None  # the index of the kernel parameter that points to the array, if any
    base: int | None = None  # the array's address, if the caller allocated it

    def __str__(self) -> str:
        """Return the element if the array has a name, else the distance from the array in bytes."""
        if self.symbol:
            return self.named(self.symbol, self.element)
        whole = f"a thread's own {self.nbytes} bytes" if self.space == "local" else f"an array of {self.nbytes} bytes"
        if self.offset < 0:
            return f"{-self.offset} bytes before the start of {whole}"
        past = self.offset - self.nbytes
        if self._is_inside:
            return f"byte {self.offset} of {whole}"
        if past < 0:
            return f"the access runs past the end of {whole}"
        return f"{f'{past} bytes' if past else 'just'} past the end of {whole}"

    def named(self, name: str, element: int) -> str:
        """Describe an invalid access to the array `name` with elements of `element` bytes, or outside of it."""
        if self._is_inside:
            of = f"byte {self.offset}" if self.offset % self.size else f"the start of `{name}`"
            at_once = " at once" if self.size > element else ""
            return f"{self.elements(name, element)} {_DONE[self.access]}{at_once}, {of} is no multiple of {self.size}"
        if not self.nbytes and self.space == "shared":
            return f"{self.elements(name, element)} {_DONE[self.access]}, but {NO_DYNAMIC_SHARED}"
        count = self.nbytes // element
        has = f"`{name}` has {count} element{'' if count == 1 else 's'}"
        return f"{self.elements(name, element)} {_DONE[self.access]}, {has}"

    @property
    def _is_inside(self) -> bool:
        """True for a misaligned access."""
        return 0 <= self.offset <= self.nbytes - self.size

    def elements(self, name: str, element: int) -> str:
        """Name the accessed elements: `` `out[256]` ``, or `` `in[6]` to `in[9]` ``; or a single variable."""
        if self.symbol and (self.offset, self.nbytes) == (0, element) and self.size == element:
            return f"`{name}`"
        first = self.offset // element
        last = (self.offset + self.size - 1) // element
        return f"`{name}[{first}]`" if first == last else f"`{name}[{first}]` to `{name}[{last}]`"


NO_DYNAMIC_SHARED = "the kernel is launched without dynamic shared memory"
_DONE = {"read": "read", "write": "written", "atomic": "changed by an atomic"}

HazardKind = Literal["memory", "barrier", "race", "uninitialised"]


class Access(NamedTuple):
    """The other access of a race: its kind, source line and thread."""

    what: str
    where: SourceLine | None
    lane: Lane

    def __str__(self) -> str:
        return f"{self.what} by {self.lane}" + (f" at {self.where}" if self.where else "")


@dataclass(frozen=True)
class Hazard:
    """An error found in a launch, whether or not its results are correct."""

    kind: HazardKind  # the family, as in `safe[kind]`
    what: str  # one sentence in compute-sanitizer's words, without the source line
    where: SourceLine | None = None  # the source line, if known
    lane: Lane | None = None  # the first thread found, if known
    count: int = 1  # the number of threads at this line
    other: Access | None = None  # the other access of a race
    # True if it cannot change a result (two threads write the same value): a warning, not an error
    harmless: bool = False
    location: Location | None = None  # the location of the first uninitialised read, if known
    launch: str = ""  # the launch among several, and its arrays; empty if the caller gave none

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        first = f", first by {self.lane}" if self.lane else ""
        times = f" ({self.count} threads)" if self.count > 1 else ""
        article = "an" if self.other and self.other.what.startswith("atomic") else "a"
        met = f", against {article} {self.other}" if self.other else ""
        launch = f", in {self.launch}" if self.launch else ""
        return f"{place}{self.what}{first}{times}{met}{launch}"

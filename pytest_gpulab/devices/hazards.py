"""What a device saw go wrong in a launch, in compute-sanitizer's words, and where: in the source, by which thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SourceLine:
    """A place in a source file, as the compiler's line table names it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Lane:
    """One thread of a launch: block and thread indices as (x, y, z)."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]

    def __str__(self) -> str:
        return f"block {_short(self.block)} thread {_short(self.thread)}"


def _short(index: tuple[int, int, int]) -> str:
    return str(index[0]) if index[1:] == (0, 0) else f"({index[0]}, {index[1]}, {index[2]})"


@dataclass(frozen=True)
class Location:
    """Where in memory an access went: in or beside an array.

    Attributes:
        space: `global`, `constant`, `shared` or `local`.
        offset: bytes from the array's start; negative before it.
        nbytes: the array's size.
        size: bytes of one lane's access.
        element: bytes of one value of it (of a `float4`: 4).
        access: `read`, `write` or `atomic`.
        symbol: the array's name in the source, if it is a variable.
        parameter: the position of the kernel's parameter that points to the array, if one does.
        base: the array's address, if it was allocated by the caller.
    """

    space: str
    offset: int
    nbytes: int
    size: int
    element: int
    access: str
    symbol: str = ""
    parameter: int | None = None
    base: int | None = None

    def __str__(self) -> str:
        """Name the element where the array has a name; else give the distance from the array in bytes."""
        if self.symbol:
            return self.named(self.symbol, self.element)
        whole = f"a thread's own {self.nbytes} bytes" if self.space == "local" else f"an array of {self.nbytes} bytes"
        if self.offset < 0:
            return f"{-self.offset} bytes before the start of {whole}"
        past = self.offset - self.nbytes
        if past < 0:
            return f"the access runs past the end of {whole}"
        return f"{f'{past} bytes' if past else 'just'} past the end of {whole}"

    def named(self, name: str, element: int) -> str:
        """Return the words for an access outside the array `name`, whose elements have `element` bytes."""
        if not self.nbytes and self.space == "shared":
            return f"{self.elements(name, element)} {_DONE[self.access]}, but {NO_DYNAMIC_SHARED}"
        count = self.nbytes // element
        has = f"`{name}` has {count} element{'' if count == 1 else 's'}"
        return f"{self.elements(name, element)} {_DONE[self.access]}, {has}"

    def elements(self, name: str, element: int) -> str:
        """Name the elements that are accessed: `` `out[256]` ``, or `` `in[6]` to `in[9]` ``; or a single variable."""
        if self.symbol and (self.offset, self.nbytes) == (0, element) and self.size == element:
            return f"`{name}`"
        first = self.offset // element
        last = (self.offset + self.size - 1) // element
        return f"`{name}[{first}]`" if first == last else f"`{name}[{first}]` to `{name}[{last}]`"


NO_DYNAMIC_SHARED = "the kernel is launched without dynamic shared memory"
_DONE = {"read": "read", "write": "written", "atomic": "changed by an atomic"}

HazardKind = Literal["memory", "barrier", "race", "uninitialised"]


@dataclass(frozen=True)
class Access:
    """The other party of a race: what it did, where in the source, and which thread it was."""

    what: str
    where: SourceLine | None
    lane: Lane

    def __str__(self) -> str:
        return f"{self.what} by {self.lane}" + (f" at {self.where}" if self.where else "")


@dataclass(frozen=True)
class Hazard:
    """Something wrong that a launch did, whether or not its results came out right.

    Attributes:
        kind: the family, as in `safe[kind]`.
        what: one sentence in compute-sanitizer's words, without the place.
        where: source line, where known.
        lane: the first thread seen doing it, where known.
        count: how many threads did it at this line.
        other: of a race, the access that it met.
        harmless: it cannot change a result (two threads write the same value): a warning, not an error.
        location: of an uninitialised read, the first that was seen, where known.
        launch: which of several launches it was, and whose arrays it got; empty where nobody has said.
    """

    kind: HazardKind
    what: str
    where: SourceLine | None = None
    lane: Lane | None = None
    count: int = 1
    other: Access | None = None
    harmless: bool = False
    location: Location | None = None
    launch: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        who = f", first by {self.lane}" if self.lane else ""
        times = f" ({self.count} threads)" if self.count > 1 else ""
        met = f", against a {self.other}" if self.other else ""
        launch = f", in {self.launch}" if self.launch else ""
        return f"{place}{self.what}{who}{times}{met}{launch}"

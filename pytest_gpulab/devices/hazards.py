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
    """

    kind: HazardKind
    what: str
    where: SourceLine | None = None
    lane: Lane | None = None
    count: int = 1
    other: Access | None = None
    harmless: bool = False

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        who = f", first by {self.lane}" if self.lane else ""
        times = f" ({self.count} threads)" if self.count > 1 else ""
        met = f", against a {self.other}" if self.other else ""
        return f"{place}{self.what}{who}{times}{met}"

"""Events of a traced launch as plain data: accesses to memory, barriers, executed source lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from .errors import SourceLine

MAX_EVENTS = 20_000  # per launch; later ones are left out


@dataclass(frozen=True)
class AccessEvent:
    """One access of some threads of a block, executed together.

    Attributes:
        kind: `read`, `write` or `atomic`.
        space: `shared` or `global`.
        base: the address of the array in global memory; 0 for shared memory.
        block: linear index of the block.
        threads: linear indices in the block, shape (threads,).
        offsets: bytes from `base`, shape (threads,).
        bits: the bytes read or written, uint8, shape (threads, nbytes); those of an atomic are the new value.
        nbytes: bytes per thread.
        where: the source line.
    """

    kind: Literal["read", "write", "atomic"]
    space: Literal["shared", "global"]
    base: int
    block: int
    threads: npt.NDArray[np.intp]
    offsets: npt.NDArray[np.int64]
    bits: npt.NDArray[np.uint8]
    nbytes: int
    where: SourceLine | None


@dataclass(frozen=True)
class BarrierEvent:
    """A barrier that all threads of a block have passed."""

    block: int


@dataclass(frozen=True)
class MissedBarrierEvent:
    """A barrier that not all threads of a block reach together, before those that reach it go on.

    Attributes:
        block: linear index of the block.
        absent: linear indices of the threads that do not reach it.
        expected: the thread count of a named barrier that more threads reach; `absent` is empty then.
        where: the source line.
    """

    block: int
    absent: tuple[int, ...]
    expected: int | None
    where: SourceLine | None


@dataclass(frozen=True)
class LineEvent:
    """Source lines that some threads of a block execute together, in order."""

    block: int
    threads: npt.NDArray[np.intp]
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True)
class ShuffleEvent:
    """A shuffle: some threads of a block receive values of other threads of their warps.

    Attributes:
        block: linear index of the block.
        threads: linear indices in the block, shape (threads,).
        sources: the threads that they read from, shape (threads,).
        bits: the values that the threads pass on, uint8, shape (threads, 4).
        where: the source line.
    """

    block: int
    threads: npt.NDArray[np.intp]
    sources: npt.NDArray[np.intp]
    bits: npt.NDArray[np.uint8]
    where: SourceLine | None


Event = AccessEvent | BarrierEvent | MissedBarrierEvent | LineEvent | ShuffleEvent


@dataclass
class LaunchTrace:
    """The events of one launch, in order.

    Attributes:
        grid, block: extents.
        shared: shared variables by their names in the source, to their start and size in bytes.
        events: the events of the recorded blocks.
        is_cut: True if there were more than `MAX_EVENTS`.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: Mapping[str, tuple[int, int]]
    events: list[Event] = field(default_factory=list)
    is_cut: bool = False

    def add(self, event: Event) -> None:
        """Add an event unless there are too many."""
        if len(self.events) < MAX_EVENTS:
            self.events.append(event)
        else:
            self.is_cut = True


@dataclass
class Trace:
    """The traces of the launches that run with it (`LaunchOptions.trace`), of blocks by their linear indices."""

    blocks: frozenset[int] = frozenset({0})
    launches: list[LaunchTrace] = field(default_factory=list)

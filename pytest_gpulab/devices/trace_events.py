"""Events of a traced launch as plain data: accesses to memory, barriers, executed source lines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from .errors import SourceLine

MAX_EVENTS = 20_000  # per launch; later ones are left out


@dataclass(frozen=True)
class AccessEvent:
    """One access of some threads of a block, executed together."""

    kind: Literal["read", "write", "atomic"]  # `read`, `write` or `atomic`
    space: Literal["shared", "global"]  # `shared` or `global`
    base: int  # the address of the array in global memory; 0 for shared memory
    block: int  # linear index of the block
    threads: npt.NDArray[np.intp]  # linear indices in the block, shape (threads,)
    offsets: npt.NDArray[np.int64]  # bytes from `base`, shape (threads,)
    # the bytes read or written, uint8, shape (threads, nbytes); those of an atomic are the new value
    bits: npt.NDArray[np.uint8]
    nbytes: int  # bytes per thread
    where: SourceLine | None  # the source line


@dataclass(frozen=True)
class BarrierEvent:
    """A barrier that all threads of a block have passed."""

    block: int


@dataclass(frozen=True)
class MissedBarrierEvent:
    """A barrier that not all threads of a block reach together, before those that reach it go on."""

    block: int  # linear index of the block
    absent: tuple[int, ...]  # linear indices of the threads that do not reach it
    expected: int | None  # the thread count of a named barrier that more threads reach; `absent` is empty then
    where: SourceLine | None  # the source line


@dataclass(frozen=True)
class LineEvent:
    """Source lines that some threads of a block execute together, in order."""

    block: int
    threads: npt.NDArray[np.intp]
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True)
class ShuffleEvent:
    """A shuffle: some threads of a block receive values of other threads of their warps."""

    block: int  # linear index of the block
    threads: npt.NDArray[np.intp]  # linear indices in the block, shape (threads,)
    sources: npt.NDArray[np.intp]  # the threads that they read from, shape (threads,)
    bits: npt.NDArray[np.uint8]  # the values that the threads pass on, uint8, shape (threads, 4)
    where: SourceLine | None  # the source line


@dataclass(frozen=True)
class StuckThreads:
    """Threads of a block that could not go on when a fault ended the launch."""

    block: int  # linear index of the block
    threads: tuple[int, ...]  # linear indices in the block
    is_loop: bool  # True in a loop; False at an mbarrier
    where: SourceLine | None  # the source line of the loop's condition, or of the wait


Event = AccessEvent | BarrierEvent | MissedBarrierEvent | LineEvent | ShuffleEvent


@dataclass
class LaunchTrace:
    """The events of one launch, in order."""

    kernel: str
    grid: tuple[int, int, int]  # extents
    block: tuple[int, int, int]  # extents
    # shared variables by their names in the source, to their start and size in bytes
    shared: Mapping[str, tuple[int, int]]
    events: list[Event] = field(default_factory=list)  # the events of the recorded blocks
    is_cut: bool = False  # True if there were more than `MAX_EVENTS`
    stuck: list[StuckThreads] = field(default_factory=list)  # in the recorded blocks, one per place

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

"""The state that all waves of a launch share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_gpulab.devices.protocol import Hazard, LaunchOptions
from pytest_gpulab.devices.simulated.counting.tally import Tally
from pytest_gpulab.devices.simulated.hazards.checker import LaunchHazardChecker, may_change
from pytest_gpulab.devices.simulated.memory.heap import Heap
from pytest_gpulab.devices.simulated.memory.locating import locate
from pytest_gpulab.devices.simulated.memory.printf import Printer
from pytest_gpulab.devices.simulated.memory.spaces import Arena, Range
from pytest_gpulab.devices.simulated.memory.textures import Textures
from pytest_gpulab.devices.simulated.translation.program import Program

from .deadline import Deadline
from .surroundings import Surroundings

if TYPE_CHECKING:  # not imported by launches that are not counted
    from pytest_gpulab.devices.simulated.counting.counters import Counters

ABSENT_VALUE = np.uint32(0)  # as on an H100


@dataclass
class LaunchState:
    """The state that all waves of one launch share.

    Attributes:
        parameters: the kernel's arguments as bytes, in the program's layout.
        unwritten: initial contents of the registers.
        textures: the device's textures and surfaces.
        surroundings: clocks and multiprocessors.
        hazards: hazards by kind, sentence and source line.
        deadline: the time limit.
        workspace: address of the memory for grid synchronisation; 0 if the launch is not cooperative.
        heap: heap of a kernel that allocates memory, while the launch runs.
        absent: result of a shuffle from a lane that is inactive or has exited.
        absences: shuffles from such lanes, by source line; hazards if the launch depends on the results.
        bounds: range of shared memory that an instruction may access, by its number.
        checker: the check for races and uninitialised reads; None if the launch runs without it.
        tally: instructions of the waves that are not counted.
    """

    program: Program
    arena: Arena
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    parameters: bytes
    shared_bytes: int
    options: LaunchOptions
    printer: Printer
    counters: Counters | None
    deadline: Deadline
    unwritten: list[Any]
    textures: Textures
    surroundings: Surroundings
    hazards: dict[Any, Hazard] = field(default_factory=dict)
    workspace: int = 0
    heap: Heap | None = None
    absent: np.uint32 = ABSENT_VALUE
    absences: dict[Any, Hazard] = field(default_factory=dict)
    bounds: dict[int, Range] = field(default_factory=dict)
    checker: LaunchHazardChecker | None = field(init=False)
    tally: Tally = field(init=False)

    def __post_init__(self) -> None:
        self.tally, self.checker = Tally(self.program), None
        if self.options.check:
            changing = may_change(self.program, self.parameters, self.arena)
            self.checker = LaunchHazardChecker(self.program, self.hazards, partial(locate, self), changing)

    @property
    def is_clean(self) -> bool:
        """True if all accesses were checked for hazards and none was found."""
        return self.checker is not None and not self.hazards and not self.unchecked

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Accesses that the race check had to leave out."""
        return () if self.checker is None else tuple(self.checker.reporter.unchecked)

    def read_per_thread(self, args: Sequence[object]) -> dict[int, float]:
        """Return `LaunchProfile.read_per_thread`, given the launch's arguments."""
        if self.checker is None:
            return {}
        threads = prod((*self.grid, *self.block))
        held = {position: getattr(argument, "allocation", None) for position, argument in enumerate(args)}
        read = self.checker.read_bytes
        return {position: read[memory] / threads for position, memory in held.items() if memory in read}

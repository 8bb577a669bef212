"""A translated kernel: its basic blocks, its memory, and properties of its text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import Function, Instruction

from .analysis.loads import Carried, carried, copied
from .analysis.origins import Origins, lines_reading
from .analysis.targets import Targets, targets
from .analysis.waits import without_end
from .blocks import TranslatedBlock
from .control.instructions import is_arrival
from .line_numbers import Places
from .sites import Site


@dataclass
class Program:
    """A kernel ready to run.

    Attributes:
        codes: dtype code of each register.
        parameters: (byte offset, size) of each kernel parameter.
        static_shared, local: bytes a block and a thread.
        reserved_shared: bytes of `static_shared` that the kernel does not declare: its first, for cooperative groups.
        sites: memory instructions by index.
        kernel: its statements, inlined.
        banked: space, offset and bytes of each variable in shared or local memory.
        addresses: of the module's global and constant variables.
        unset: registers that some way through the kernel reads before anything has written them.
        fences: whether it has fences or accesses that release.
        sees_order: whether an instruction may show which threads went first though nothing races: accesses that are not
            weak, fences, clocks, the mask of active lanes.
        shuffles: whether it has shuffles.
        allocates: whether it calls `malloc` or `free`.
        grid_syncs: whether it asks for the workspace of grid synchronisation.
        stack: first byte and size of the frames of recursive functions in local memory, if there are any.
        clean: what the race check found to be free of races, to be known again, with its size in bytes.
    """

    name: str
    steps: list[TranslatedBlock]
    codes: list[str]
    parameters: tuple[tuple[int, int], ...]
    static_shared: int
    local: int
    sites: list[Site]
    source: str
    kernel: Function
    banked: Mapping[str, tuple[str, int, int]]
    addresses: Mapping[str, int]
    unset: frozenset[str]
    fences: bool = False
    sees_order: bool = False
    shuffles: bool = False
    grid_syncs: bool = False
    reserved_shared: int = 0
    allocates: bool = False
    stack: tuple[int, int] | None = None
    clean: dict[object, int] = field(default_factory=dict)

    @cached_property
    def is_orderly(self) -> bool:
        """Whether threads share memory by plain accesses and barriers of whole blocks alone.

        Then the order of warps decides nothing unless something races.
        """
        return not self.sees_order and all(step.barrier is None or _is_for_all(step.barrier) for step in self.steps)

    @cached_property
    def without_end(self) -> frozenset[int]:
        """The basic blocks that no thread leaves to end; see `waits.without_end`."""
        return without_end(self.steps)

    @cached_property
    def copied(self) -> dict[int, int]:
        """The loads whose values are only moved; see `loads.copied`."""
        return copied([statement for step in self.steps for statement in step.statements])

    @cached_property
    def carried(self) -> dict[int, tuple[Carried, ...]]:
        """What stores write just as loads have read it; see `loads.carried`."""
        return carried([statement for step in self.steps for statement in step.statements])

    @cached_property
    def communicates(self) -> bool:
        """Whether its threads may learn in the course of a launch what others have done, barriers aside."""
        return self.fences or any(site.observes for site in self.sites)

    @cached_property
    def origins(self) -> Origins:
        """What the addresses of its memory instructions are computed from."""
        return Origins(self.kernel)

    @cached_property
    def unset_lines(self) -> tuple[SourceLine, ...]:
        """The source lines at which such registers are read."""
        return lines_reading(self.kernel, self.unset) if self.unset else ()

    @cached_property
    def targets(self) -> Targets:
        """The arrays that it may change."""
        return targets(self.kernel, self.origins, self.sites, self.addresses)

    @property
    def parameter_names(self) -> list[str]:
        """What the compiler calls the kernel's parameters."""
        return [parameter.name for parameter in self.kernel.parameters]

    @cached_property
    def places(self) -> Places:
        """The source lines of its statements."""
        return Places([step.statements for step in self.steps])

    @cached_property
    def site_rows(self) -> list[int]:
        """The row in `places` of each memory instruction."""
        return [self.places.row[site.where] for site in self.sites]

    @cached_property
    def barrier_rows(self) -> list[tuple[int, int]]:
        """The basic blocks that end with a barrier or arrive at one, and its row in `places`; once for each barrier."""
        return [
            (block, self.places.row[statement.where])
            for block, step in enumerate(self.steps)
            for statement in step.statements
            if statement is step.barrier or (isinstance(statement, Instruction) and is_arrival(statement))
        ]


def _is_for_all(barrier: Instruction) -> bool:
    """Whether all threads of the block meet: no number of them is given, behind the barrier's own and a reduction's."""
    return "arrive" not in barrier.op and len(barrier.operands) <= (3 if "red" in barrier.op else 1)

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
    """A translated kernel.

    Attributes:
        steps: basic blocks in scheduling order.
        codes: dtype code of each register.
        parameters: (byte offset, size) of each kernel parameter.
        static_shared, local: bytes per block and per thread.
        sites: memory instructions by index.
        source: text of the Python functions.
        kernel: the kernel with its functions inlined.
        banked: space, offset and bytes of each variable in shared or local memory.
        addresses: addresses of the module's global and constant variables.
        unset: registers that are read before any write on some path through the kernel.
        fences: True if it has fences or releasing accesses.
        sees_order: True if an instruction may reveal the order of threads without a race: an access that is not weak, a
            fence, a clock, the mask of active lanes.
        shuffles: True if it has shuffles.
        grid_syncs: True if it uses the workspace of grid synchronisation.
        reserved_shared: the first bytes of `static_shared`, which the kernel does not declare: for cooperative groups.
        allocates: True if it calls `malloc` or `free`.
        stack: first byte and size of the frames of recursive functions in local memory, if there are any.
        clean: cache of the race check: access patterns without races, with their sizes in bytes.
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
        """True if threads communicate only through plain accesses and barriers of whole blocks.

        Then the order of warps changes no result, unless there is a race.
        """
        return not self.sees_order and all(step.barrier is None or _is_for_all(step.barrier) for step in self.steps)

    @cached_property
    def without_end(self) -> frozenset[int]:
        """The basic blocks without a path to the kernel's end; see `waits.without_end`."""
        return without_end(self.steps)

    @cached_property
    def copied(self) -> dict[int, int]:
        """The loads with values that are only moved; see `loads.copied`."""
        return copied([statement for step in self.steps for statement in step.statements])

    @cached_property
    def carried(self) -> dict[int, tuple[Carried, ...]]:
        """Bytes that stores write exactly as loads have read them, by store; see `loads.carried`."""
        return carried([statement for step in self.steps for statement in step.statements])

    @cached_property
    def communicates(self) -> bool:
        """True if threads can observe each other's work during a launch other than through barriers."""
        return self.fences or any(site.observes for site in self.sites)

    @cached_property
    def origins(self) -> Origins:
        """The arrays that the addresses of its memory instructions are computed from."""
        return Origins(self.kernel)

    @cached_property
    def unset_lines(self) -> tuple[SourceLine, ...]:
        """The source lines that read the `unset` registers."""
        return lines_reading(self.kernel, self.unset) if self.unset else ()

    @cached_property
    def targets(self) -> Targets:
        """The arrays that it may change."""
        return targets(self.kernel, self.origins, self.sites, self.addresses)

    @property
    def parameter_names(self) -> list[str]:
        """The compiler's names of the kernel's parameters."""
        return [parameter.name for parameter in self.kernel.parameters]

    @cached_property
    def places(self) -> Places:
        """The source lines of its statements."""
        return Places([step.statements for step in self.steps])

    @cached_property
    def site_rows(self) -> list[int]:
        """The row in `places` per memory instruction."""
        return [self.places.row[site.where] for site in self.sites]

    @cached_property
    def barrier_rows(self) -> list[tuple[int, int]]:
        """The basic block and the row in `places` of each barrier and each arrival at one."""
        return [
            (block, self.places.row[statement.where])
            for block, step in enumerate(self.steps)
            for statement in step.statements
            if statement is step.barrier or (isinstance(statement, Instruction) and is_arrival(statement))
        ]


def _is_for_all(barrier: Instruction) -> bool:
    """Return whether a barrier waits for all threads of the block: it has no operand for their number."""
    return "arrive" not in barrier.op and len(barrier.operands) <= (3 if "red" in barrier.op else 1)

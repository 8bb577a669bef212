"""A translated kernel: its basic blocks, its memory, and properties of its text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Function, Instruction, Sym
from pytest_gpulab.devices.simulated.translation.control.graph import TENSOR_CORES, is_arrival, needs_cluster
from pytest_gpulab.devices.simulated.translation.sites import Origins, Site, Targets, lines_reading, targets

if TYPE_CHECKING:  # needed for kernels that copy structs
    from pytest_gpulab.devices.simulated.translation.analysis.counted_loops import CountedLoop
    from pytest_gpulab.devices.simulated.translation.analysis.float_counters import FloatCounter
    from pytest_gpulab.devices.simulated.translation.analysis.loads import Carried


DOUBLE_WORK = 4  # of a basic block with fused operations in double precision, in other blocks


@dataclass
class Program:
    """A translated kernel."""

    name: str
    steps: list[TranslatedBlock]  # basic blocks in scheduling order
    codes: list[str]  # dtype code of each register
    parameters: tuple[tuple[int, int], ...]  # (byte offset, size) of each kernel parameter
    static_shared: int  # bytes per block
    local: int  # bytes per thread
    sites: list[Site]  # memory instructions by index
    source: str  # text of the Python functions
    kernel: Function  # the kernel with its functions inlined
    banked: Mapping[str, tuple[str, int, int]]  # space, offset and bytes of each variable in shared or local memory
    addresses: Mapping[str, int]  # addresses of the module's global and constant variables
    unset: frozenset[str]  # registers that are read before any write on some path through the kernel
    fences: bool = False  # True if it has fences or releasing accesses
    # True if an instruction may reveal the order of threads without a race: an access that is not weak, a fence, a
    # clock, the mask of active lanes
    sees_order: bool = False
    shuffles: bool = False  # True if it has shuffles
    grid_syncs: bool = False  # True if it uses the workspace of grid synchronisation
    # the first bytes of `static_shared`, which the kernel does not declare: for cooperative groups
    reserved_shared: int = 0
    allocates: bool = False  # True if it calls `malloc` or `free`
    # first byte and size of the frames of recursive functions in local memory, if there are any
    stack: tuple[int, int] | None = None
    # cache of the race check: access patterns without races, with their sizes in bytes
    clean: dict[object, int] = field(default_factory=dict)
    # cache of `locating.shared_bounds`, by the bytes of shared memory per block
    bounds: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    # caches of `counted_loop` and `is_counted`, by basic block
    _counted_loops: dict[int, CountedLoop | FloatCounter | None] = field(default_factory=dict)
    _counted_blocks: dict[int, bool] = field(default_factory=dict)

    @cached_property
    def is_orderly(self) -> bool:
        """True if threads communicate only through plain accesses and barriers of whole blocks.

        Then the order of warps changes no result, unless there is a race.
        """
        return not self.sees_order and all(step.barrier is None or _is_for_all(step.barrier) for step in self.steps)

    @cached_property
    def may_wait(self) -> bool:
        """True if a loop goes on until other threads have written to global memory."""
        return any(site.is_awaited and site.space != "shared" for site in self.sites)

    @property
    def is_set(self) -> bool:
        """True if no register or heap memory is read before it is written; False if unknown."""
        return not (self.unset or self.allocates or self.stack is not None)

    @cached_property
    def step_work(self) -> int:
        """How many times longer a basic block takes than usual: fused operations in double precision take long."""
        fused = (each for step in self.steps for each in step.statements if isinstance(each, Instruction))
        return DOUBLE_WORK if any(each.op[0] in ("fma", "mad") and each.op[-1] == "f64" for each in fused) else 1

    @cached_property
    def without_end(self) -> frozenset[int]:
        """The basic blocks without a path to the kernel's end."""
        entries: dict[int, list[int]] = defaultdict(list)
        for i, step in enumerate(self.steps):
            for target in step.targets:
                entries[target].append(i)
        ending = {i for i, step in enumerate(self.steps) if not step.targets}
        fresh = list(ending)
        while fresh:
            found = [i for i in entries[fresh.pop()] if i not in ending]
            ending.update(found)
            fresh += found
        return frozenset(range(len(self.steps))) - ending

    def counted_loop(self, block: int) -> CountedLoop | FloatCounter | None:
        """Return the loop that begins at a basic block, if it ends only when a counter meets a bound."""
        if block not in self._counted_loops:
            from pytest_gpulab.devices.simulated.translation.analysis.counted_loops import counted_loop

            self._counted_loops[block] = counted_loop(self.steps, block) if self.stack is None else None
        return self._counted_loops[block]

    def is_counted(self, block: int) -> bool:
        """Return whether a basic block is in loops that each end when a counter meets its bound."""
        if block not in self._counted_blocks:
            jumps = (min(step.targets) for step in self.steps[block:] if step.targets)
            starts = {target for target in jumps if target <= block}
            is_counted = bool(starts) and all(self.counted_loop(start) is not None for start in starts)
            self._counted_blocks[block] = is_counted
        return self._counted_blocks[block]

    @cached_property
    def register_numbers(self) -> dict[str, int]:
        """The number of each register."""
        return {name: number for number, name in enumerate(self.kernel.registers)}

    @cached_property
    def copied(self) -> dict[int, int]:
        """The loads with values that are only moved; see `loads.copied`."""
        from pytest_gpulab.devices.simulated.translation.analysis.loads import copied

        return copied([statement for step in self.steps for statement in step.statements])

    @cached_property
    def carried(self) -> dict[int, tuple[Carried, ...]]:
        """Bytes that stores write exactly as loads have read them, by store; see `loads.carried`."""
        from pytest_gpulab.devices.simulated.translation.analysis.loads import carried

        return carried([statement for step in self.steps for statement in step.statements])

    @cached_property
    def carriers(self) -> frozenset[int] | None:
        """The instructions with results that carry data, see `data_flow`; None if unknown because of recursion."""
        from pytest_gpulab.devices.simulated.translation.analysis.data_flow import carriers

        if self.stack is not None:
            return None
        return carriers(statement for step in self.steps for statement in step.statements)

    @cached_property
    def needs_cluster(self) -> Instruction | None:
        """The first instruction that concerns other blocks of a cluster, which can be simulated for one block only."""
        found = (each for each in self.kernel.body if isinstance(each, Instruction) and needs_cluster(each))
        return next(found, None)

    @cached_property
    def communicates(self) -> bool:
        """True if threads can observe each other's work during a launch other than through barriers."""
        return self.fences or any(site.observes for site in self.sites)

    @cached_property
    def only_prints_local(self) -> bool:
        """True if nothing but printf reads local memory."""
        return not any(site.access != "write" and site.space in ("local", "generic") for site in self.sites)

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

    @cached_property
    def addition_rows(self) -> list[tuple[int, int, int]]:
        """The basic block, the row in `places` and the additions per thread of each statement in `data_flow`."""
        from pytest_gpulab.devices.simulated.translation.analysis.data_flow import additions

        statements = [(block, each) for block, step in enumerate(self.steps) for each in step.statements]
        found = additions(each for _, each in statements)
        return [
            (block, self.places.row[each.where], found[each.number])
            for block, each in statements
            if each.number in found
        ]

    @cached_property
    def wait_rows(self) -> list[tuple[int, int]]:
        """The basic block from which a loop that waits for other threads is entered, and the row of that loop."""
        from pytest_gpulab.devices.simulated.translation.analysis.waits import entries_of_waits

        return [(block, self.places.row[self.steps[start].where]) for block, start in entries_of_waits(self)]


def _is_for_all(barrier: Instruction) -> bool:
    """Return whether a barrier waits for all threads of the block: it has no operand for their number."""
    return "arrive" not in barrier.op and len(barrier.operands) <= (3 if "red" in barrier.op else 1)


_QUIET = {
    "abs", "add", "and", "bfe", "bra", "cvt", "cvta", "div", "fence", "fma", "ld", "lop3", "mad", "max", "membar",
    "min", "mov", "mul", "nanosleep", "neg", "not", "or", "rem", "selp", "setp", "shl", "shr", "sub", "xor",
}  # fmt: skip
"""Opcodes that change nothing but registers, by values in registers and memory."""
_CLOCKS = ("%clock", "%globaltimer")


def _is_quiet(statement: Instruction | Call) -> bool:
    if not isinstance(statement, Instruction) or statement.op[0] not in _QUIET:
        return False
    return not any(isinstance(each, Sym) and each.name.startswith(_CLOCKS) for each in statement.operands)


@dataclass
class TranslatedBlock:
    """A basic block as a Python function."""

    # function of (wave, group). It returns the predicate of a branch, the index of a switch or the operands of a
    # barrier
    run: Callable[[Any, Any], Any]
    end: str  # as in `Block`
    targets: tuple[int, ...]  # as in `Block`; for a branch, (if true, if false)
    spins: bool  # as in `Block`
    loops: bool  # as in `Block`
    waits: bool  # True if the block ends a loop that only waits for a phase of an mbarrier
    where: SourceLine | None  # as in `Block`
    # function of (wave, group) that returns the lane mask of the warp-synchronising instruction at the start
    mask: Callable[[Any, Any], Any] | None
    live_in: int  # live registers at the start, a bit set
    writes: int  # registers that the block writes and that are live at its end, a bit set
    results: int  # if the block begins a loop that may wait, the registers on which nothing in it depends, a bit set
    statements: tuple[Instruction | Call, ...]  # PTX instructions and calls, including the last one
    barrier: Instruction | None  # the barrier instruction at the end
    result: tuple[int, str] | None  # index and dtype code of the register for the result of the barrier's reduction

    @cached_property
    def changes(self) -> bool:
        """True if it may change more than registers, or if its effect depends on more than registers and memory."""
        return self.end not in ("goto", "branch") or not all(map(_is_quiet, self.statements))

    @property
    def only_exits(self) -> bool:
        """True if it is nothing but the end of the kernel."""
        return self.end == "exit" and len(self.statements) == 1

    @property
    def is_maskless(self) -> bool:
        """True if it begins with an instruction of all lanes of a warp, which has no lane mask."""
        first = self.statements[0] if self.statements else None
        return isinstance(first, Instruction) and first.op[0] in TENSOR_CORES


class Places:
    """Source lines in the order of files and lines; the last one is None, for statements without a line.

    `row` and `of_statement` map lines and numbers of statements to rows. `statements` has the number of statements per
    row and basic block (column).
    """

    def __init__(self, blocks: Sequence[Sequence[Instruction | Call]]) -> None:
        known = {statement.where for block in blocks for statement in block if statement.where is not None}
        self.lines = (*sorted(known, key=lambda line: (line.file, line.line)), None)
        self.row = {line: row for row, line in enumerate(self.lines)}
        self.of_statement = {statement.number: self.row[statement.where] for block in blocks for statement in block}
        self.statements = np.zeros((len(self.lines), len(blocks)))
        for number, block in enumerate(blocks):
            for statement in block:
                self.statements[self.row[statement.where], number] += 1

"""Translate one kernel of a PTX module into a `Program`: a Python function for each basic block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pytest_gpulab.devices.protocol import CannotSimulate, SourceLine
from pytest_gpulab.devices.simulated.ptx.collector import without_collector
from pytest_gpulab.devices.simulated.ptx.syntax import (
    Call,
    Function,
    Instruction,
    Label,
    PtxModule,
    Statement,
    Sym,
    Variable,
)
from pytest_gpulab.devices.simulated.translation.calls.inline import function_address, inline
from pytest_gpulab.devices.simulated.translation.calls.recursion import STACK_AREA
from pytest_gpulab.devices.simulated.translation.emission.block import BlockWriter, Names
from pytest_gpulab.devices.simulated.translation.emission.memory import emit_built_in

from .control import TENSOR_CORES, Block, Graph, build, is_arrival, members
from .emission import compare, floats, integers, moves, tensor_cores, textures, warps
from .emission import stack as emit_stack
from .line_numbers import Places
from .loads import Carried, awaited, carried, copied, guesses
from .origins import Origins, lines_reading
from .phase_waits import phase_waits
from .refusals import MALFORMED, refusal, with_feature
from .sites import LOCAL_WINDOW, SHARED_WINDOW, Site
from .targets import Targets, targets
from .waits import without_end

RESERVED = "%reserved_smem_offset_1"  # memory of cooperative groups, for tiles of several warps
RESERVED_BYTES = 1024  # as on compute capability 8.0 and later; cooperative groups use 288
STATEMENTS_A_LOOK = 256  # of a long basic block, until it asks whether the launch has time left
# imported for the opcodes they register
_ = compare, floats, integers, moves, emit_stack, tensor_cores, textures, warps


@dataclass
class Step:
    """A basic block ready to run.

    Attributes:
        run: (wave, group) to the predicate of a branch, the index of a switch or the operands of a barrier.
        end, targets, spins, loops, where: as in `Block`; for a branch, targets are (if true, if false).
        waits: a loop goes back here that only waits for a phase of an mbarrier.
        mask: for a block that begins with a warp-synchronising instruction, (wave, group) to its lane mask.
        live_in: registers needed from here on, a bit set.
        writes: registers written here that live on, a bit set.
        statements: PTX instructions and calls, the end included.
    """

    run: Callable[[Any, Any], Any]
    end: str
    targets: tuple[int, ...]
    spins: bool
    loops: bool
    waits: bool
    where: SourceLine | None
    mask: Callable[[Any, Any], Any] | None
    live_in: int
    writes: int
    statements: tuple[Instruction | Call, ...]
    barrier: Instruction | None
    result: tuple[int, str] | None

    @property
    def is_maskless(self) -> bool:
        """Whether it begins with an instruction that all lanes of a warp execute together, without naming them."""
        first = self.statements[0] if self.statements else None
        return isinstance(first, Instruction) and first.op[0] in TENSOR_CORES


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
    steps: list[Step]
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


def translate(
    module: PtxModule,
    kernel: Function,
    addresses: dict[str, int],
    vocabulary: Mapping[str, Any],
    frame_bytes: Callable[[], Mapping[str, int]] = dict,
) -> Program:
    """Translate a kernel.

    Args:
        module, kernel: as read.
        addresses: of the module's global and constant variables.
        vocabulary: what generated code may call, by name.
        frame_bytes: gives the stack frame of each function in machine code, by symbol; asked only where one is
            recursive.

    Raises:
        CannotSimulate: for anything that is not known, with the opcode, file and line.
    """
    with without_collector():
        try:
            return _translated(module, kernel, addresses, vocabulary, frame_bytes)
        except CannotSimulate as error:
            raise with_feature(error) from None


def _translated(
    module: PtxModule,
    kernel: Function,
    addresses: dict[str, int],
    vocabulary: Mapping[str, Any],
    frame_bytes: Callable[[], Mapping[str, int]],
) -> Program:
    flat, calls = inline(module, kernel, frame_bytes)
    graph = build(flat)
    layout = _Layout(module, flat, addresses)
    names = Names(flat.registers, graph.registers, layout.addresses)
    names.guesses, names.awaited = guesses(graph.blocks), awaited(graph.blocks)
    source, masks = _write(graph, names)
    namespace = names.namespace
    namespace.update(vocabulary)
    namespace.update({f"c{number}": call for number, call in enumerate(calls)})
    exec(compile(source, f"<{kernel.name}>", "exec"), namespace)  # our own translation, no student's text
    waits = phase_waits(graph.blocks)
    steps = [_step(i, block, names, namespace, i in masks, i in waits) for i, block in enumerate(graph.blocks)]
    codes = list(names.codes.values())
    return Program(
        kernel.name, steps, codes, layout.parameters, layout.shared, layout.local, names.sites, source, flat,
        layout.banked, addresses, frozenset() if calls else _unset(graph, names), names.fences, names.sees_order,
        names.shuffles, names.grid_syncs, layout.reserved, names.allocates, layout.stack,
    )  # fmt: skip


def _unset(graph: Graph, names: Names) -> frozenset[str]:
    """Return the registers that some way through the kernel reads before anything has written them.

    Not told with recursion: a way that enters a function at one call and leaves it at another one is none.
    """
    needed = graph.blocks[0].live_in if graph.blocks else 0
    return frozenset(name for name, index in names.index.items() if needed >> index & 1)


def _is_for_all(barrier: Instruction) -> bool:
    """Whether all threads of the block meet: no number of them is given, behind the barrier's own and a reduction's."""
    return "arrive" not in barrier.op and len(barrier.operands) <= (3 if "red" in barrier.op else 1)


class _Layout:
    """Where variables and parameters lie: offsets in shared and local memory, parameter offsets."""

    def __init__(self, module: PtxModule, kernel: Function, addresses: dict[str, int]) -> None:
        self.addresses = dict(addresses)
        self.addresses["shared window"], self.addresses["local window"] = SHARED_WINDOW, LOCAL_WINDOW
        for name, function in module.functions.items():
            if not function.entry:
                self.addresses[name] = function_address(module, name)
        shared = [v for v in (*module.variables.values(), *kernel.variables.values()) if v.space == "shared"]
        reserved = [Variable(RESERVED, "shared", RESERVED_BYTES, RESERVED_BYTES)] if _names(kernel, RESERVED) else []
        self.reserved = sum(variable.nbytes for variable in reserved)
        self.shared = self._place([*reserved, *(v for v in shared if v.nbytes)])
        dynamic = -(-self.shared // 16) * 16
        self.addresses.update({v.name: dynamic for v in shared if not v.nbytes})
        local = [v for v in kernel.variables.values() if v.space == "local"]
        self.local = self._place(local)
        self.banked = {v.name: (v.space, self.addresses[v.name], v.nbytes) for v in (*shared, *local)}
        frames = self.banked.pop(STACK_AREA, None)
        self.stack = frames[1:] if frames is not None else None
        self.parameters = self._parameters(kernel.parameters)

    def _place(self, variables: list[Variable]) -> int:
        end = 0
        for variable in variables:
            start = -(-end // variable.align) * variable.align
            self.addresses[variable.name] = start
            end = start + variable.nbytes
        return end

    def _parameters(self, variables: tuple[Variable, ...]) -> tuple[tuple[int, int], ...]:
        self._place(list(variables))
        return tuple((self.addresses[variable.name], variable.nbytes) for variable in variables)


def _names(kernel: Function, symbol: str) -> bool:
    """Whether an operand of a kernel is this symbol."""
    instructions = (statement for statement in kernel.body if isinstance(statement, Instruction))
    operands = (operand for instruction in instructions for operand in instruction.operands)
    return any(type(operand) is Sym and operand.name == symbol for operand in operands)


def _write(graph: Graph, names: Names) -> tuple[str, set[int]]:
    functions: list[str] = []
    masks = set()
    for i, block in enumerate(graph.blocks):
        functions.append(_function(f"b{i}", *_block_lines(block, names)))
        if block.converge:
            functions.append(_mask_function(f"m{i}", block.body[0], names))
            masks.add(i)
    return "\n".join(functions), masks


def _mask_function(name: str, first: Statement, names: Names) -> str:
    """The function for the lane mask of a warp-synchronising instruction: its last operand, or all lanes."""
    writer = BlockWriter(names)
    try:
        assert isinstance(first, Instruction)
        if first.op[0] in TENSOR_CORES:
            return _function(name, [], names.constant(-1, "u4"))
        return _function(name, writer.lines, writer.read(first.operands[-1], "u4"))
    except MALFORMED:
        raise refusal(first) from None


def _function(name: str, body: list[str], value: str) -> str:
    return "\n ".join([f"def {name}(w, g):", "L = g.lanes; R = g.regs", *body, f"return {value}"])


def _block_lines(block: Block, names: Names) -> tuple[list[str], str]:
    writer = BlockWriter(names)
    for number, statement in enumerate(block.body):
        if number % STATEMENTS_A_LOOK == STATEMENTS_A_LOOK - 1:
            writer.lines.append("w.check_time()")
        writer.dying = block.dying.get(number, ())
        if isinstance(statement, Instruction):
            writer.instruction(statement)
        elif isinstance(statement, Call):
            try:
                emit_built_in(writer, statement)
            except MALFORMED:
                raise refusal(statement) from None
        writer.release()
    try:
        value = _end_value(block, writer)
    except CannotSimulate as error:
        raise error if error.where or block.last is None else CannotSimulate(error.what, block.last.where) from None
    except MALFORMED:
        raise refusal(block.last) from None
    for index in members(block.live_out & block.defined):
        if not _set_by_barrier(block, register := names.registers[index]):
            writer.lines.append(f"R[{index}] = {writer.local(register)}")
    return writer.lines, value


def _set_by_barrier(block: Block, register: str) -> bool:
    result = _barrier_result(block)
    return result is not None and result == register


def _barrier_result(block: Block) -> str | None:
    if block.end == "barrier" and block.last is not None and "red" in block.last.op:
        target = block.last.operands[0]
        return getattr(target, "name", None)
    return None


def _end_value(block: Block, writer: BlockWriter) -> str:
    last = block.last
    if block.end == "branch" and last is not None and last.guard is not None:
        return writer.read(last.guard[0], "?")
    if block.end == "switch" and last is not None:
        return writer.read(last.operands[0], "u4")
    if block.end == "barrier" and last is not None:
        operands = last.operands[1:] if "red" in last.op else last.operands
        values = [writer.read(operand, "u4") for operand in (operands[:-1] if "red" in last.op else operands)]
        predicate = writer.read(operands[-1], "?") if "red" in last.op else "None"
        number = values[0] if values else "w.zero"
        return f"({number}, {values[1] if len(values) > 1 else 'None'}, {predicate})"
    return "None"


def _step(i: int, block: Block, names: Names, namespace: dict[str, Any], masked: bool, waits: bool) -> Step:
    targets = block.targets
    if block.end == "branch" and block.last is not None and block.last.guard is not None and block.last.guard[1]:
        targets = targets[::-1]
    register = _barrier_result(block)
    result = None
    if register is not None:
        result = (names.index[register], names.codes[register])
    barrier = block.last if block.end == "barrier" else None
    statements = tuple(s for s in (*block.body, block.last) if s is not None and not isinstance(s, Label))
    words = set(barrier.op) if barrier is not None else set()
    if barrier is not None and ("cluster" in words or not {"sync", "red", "arrive"} & words):
        raise CannotSimulate(f"the instruction {barrier.name}", barrier.where)
    return Step(
        run=namespace[f"b{i}"],
        end=block.end,
        targets=targets,
        spins=block.spins,
        loops=block.loops,
        waits=waits,
        where=block.where,
        mask=namespace[f"m{i}"] if masked else None,
        live_in=block.live_in,
        writes=block.defined & block.live_out,
        statements=statements,
        barrier=barrier,
        result=result,
    )

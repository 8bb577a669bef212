"""The translation of one kernel of a PTX module into a `Program`: one Python function per basic block and lane mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_gpulab.devices.protocol import CannotSimulate
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
from pytest_gpulab.devices.simulated.translation.control.building import build
from pytest_gpulab.devices.simulated.translation.control.graph import (
    MALFORMED,
    STACK_AREA,
    TENSOR_CORES,
    Block,
    Graph,
    members,
    naming_feature,
    refusal,
)
from pytest_gpulab.devices.simulated.translation.emission import integers
from pytest_gpulab.devices.simulated.translation.emission.block import BlockWriter, Names
from pytest_gpulab.devices.simulated.translation.emission.memory import emit_built_in
from pytest_gpulab.devices.simulated.translation.program import Program, TranslatedBlock
from pytest_gpulab.devices.simulated.translation.sites import LOCAL_WINDOW, SHARED_WINDOW
from pytest_gpulab.devices.system.processes import without_collector

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.translation.analysis.retries import Retry
    from pytest_gpulab.devices.simulated.translation.calls.recursion import StackCall

# Each takes 50 us of processor time to translate, which no time limit of kernels covers. A 512-point FFT has 10,000.
MAX_STATEMENTS = 1 << 16
BUILTINS_IN = {
    name: module
    for module, names in {
        "arithmetic.integers": "select widen mul_wide mul_hi div_int rem_int shl shr funnel bit_length clz bfind brev "
        "popc fns bfe bfi bmsk prmt lop3 dot4 parts saturated carry_add carry_sub",
        "arithmetic.rounding": "fma_f32 rounded_f32 flushed odd narrow fma_f64 sum_error rounded_f64",
        "arithmetic.floats": "canonical ftz saturate min_float max_float or_nan xor_sign div_approx sin_approx "
        "cos_approx has_class",
        "arithmetic.conversions": "compare round_integral float_to_int int_to_float int_to_int to_tf32",
        "arithmetic.halves": "unpack pack halves fma_half compare_halves set_pairs",
        "arithmetic.float8": "float8_to_half to_float8",
        "execution.launch_state": "low high",
        "warps.collectives": "lanemask shuffle ballot activemask vote match_any match_all redux elect",
        "warps.tensor_cores": "load_matrix store_matrix multiply load_tiles store_tiles transpose_tile",
    }.items()
    for name in names.split()
}
"""The module of each function; a module is imported with the first kernel that calls one of its functions."""


def translate(
    module: PtxModule, kernel: Function, addresses: dict[str, int], frame_bytes: Callable[[], Mapping[str, int]]
) -> Program:
    """Translate a kernel; `addresses` are those of the module's global and constant variables.

    `frame_bytes` returns the stack frame of each function in machine code, by symbol, in bytes; it is called only for
    kernels with recursion. Raises CannotSimulate with the opcode, file and line if an opcode, type or modifier is not
    supported.
    """
    with without_collector(), naming_feature():
        flat, calls = _inlined(module, kernel, frame_bytes)
        check_length(flat)
        return _translated(kernel.name, flat, calls, Layout(module, flat, addresses), addresses)


def check_length(kernel: Function) -> None:
    """Raise CannotSimulate if a kernel has too many instructions; a kernel with calls has more without them."""
    if len(kernel.body) > MAX_STATEMENTS:
        raise CannotSimulate(f"a kernel of {len(kernel.body):,} instructions; the limit is {MAX_STATEMENTS:,}")


def _translated(
    name: str, flat: Function, calls: Sequence[StackCall], layout: Layout, addresses: dict[str, int]
) -> Program:
    graph = build(flat)
    names = Names(flat.registers, graph.registers, layout.addresses)
    swaps = any(isinstance(s, Instruction) and "cas" in s.op for block in graph.blocks for s in block.body)
    names.guesses, names.awaited = _guesses_and_awaited(graph, swaps)
    names.retries = _retries(graph, names.guesses) if swaps else {}
    source = write(graph, names)
    namespace = names.namespace
    code = compile(source, f"<{name}>", "exec")  # generated text; it contains no text of the submission
    namespace.update(_builtins(code))
    namespace.update({f"c{number}": call for number, call in enumerate(calls)})
    exec(code, namespace)
    waits, results = _phase_waits(graph), _results_of_waits(graph, names)
    steps = [
        _step(block, names, namespace[f"b{i}"], namespace.get(f"m{i}"), i in waits, results.get(i, 0))
        for i, block in enumerate(graph.blocks)
    ]
    codes = list(names.codes.values())
    return Program(
        name, steps, codes, layout.parameters, layout.shared, layout.local, names.sites, source, flat,
        layout.banked, addresses, frozenset() if calls else _unset(graph, names), names.fences, names.sees_order,
        names.shuffles, names.grid_syncs, layout.reserved, names.allocates, layout.stack,
    )  # fmt: skip


def _builtins(code: CodeType) -> Mapping[str, Any]:
    """Return the functions of `BUILTINS_IN` that generated code names."""
    simulated = __package__.rpartition(".")[0]
    return {"np": np} | {
        name: getattr(import_module(f"{simulated}.{BUILTINS_IN[name]}"), name)
        for name in _names_in(code)
        if name in BUILTINS_IN
    }


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


# The modules of calls, loops that wait and compare-and-swap are imported for kernels that have them.


def _inlined(
    module: PtxModule, kernel: Function, frame_bytes: Callable[[], Mapping[str, int]]
) -> tuple[Function, Sequence[StackCall]]:
    """Return the kernel without calls, and its calls of recursive functions; see `inline`."""
    if not any(type(statement) is Call for statement in kernel.body):
        return kernel, ()
    from pytest_gpulab.devices.simulated.translation.calls.inline import inline

    return inline(module, kernel, frame_bytes)


def _retries(graph: Graph, guesses: frozenset[int]) -> Mapping[int, Retry]:
    """Return the compare-and-swaps that their loops repeat; see `retries`."""
    from pytest_gpulab.devices.simulated.translation.analysis.retries import retries

    return retries(graph.blocks, guesses)


def _guesses_and_awaited(graph: Graph, swaps: bool) -> tuple[frozenset[int], frozenset[int]]:
    """Return the loads with values that an `atom.cas` expects, and those that a loop waits for; see `loads`."""
    if not swaps and not any(block.spins for block in graph.blocks):
        return frozenset(), frozenset()
    from pytest_gpulab.devices.simulated.translation.analysis.loads import awaited, guesses

    return guesses(graph.blocks), awaited(graph.blocks)


def _phase_waits(graph: Graph) -> frozenset[int]:
    """Return the blocks that end a loop that only waits for a phase of an mbarrier."""
    if not any(isinstance(s, Instruction) and s.op[0] == "mbarrier" for block in graph.blocks for s in block.body):
        return frozenset()
    from pytest_gpulab.devices.simulated.translation.analysis.waits import phase_waits

    return phase_waits(graph.blocks)


def _results_of_waits(graph: Graph, names: Names) -> dict[int, int]:
    """Return the registers that loops which may wait only compute; see `waits.results_of_waits`."""
    if not any(block.spins for block in graph.blocks):
        return {}
    from pytest_gpulab.devices.simulated.translation.analysis.waits import results_of_waits

    return results_of_waits(graph.blocks, names.index)


def _unset(graph: Graph, names: Names) -> frozenset[str]:
    """Return the registers that are read before any write on some path through the kernel.

    Not valid with recursion: the graph then has paths from one call into a function and back to another call.
    """
    needed = graph.blocks[0].live_in if graph.blocks else 0
    return frozenset(name for name, index in names.index.items() if needed >> index & 1)


def _step(
    block: Block, names: Names, run: Callable[..., Any], mask: Callable[..., Any] | None, waits: bool, results: int
) -> TranslatedBlock:
    targets = block.targets
    if block.end == "branch" and block.last is not None and block.last.guard is not None and block.last.guard[1]:
        targets = targets[::-1]
    register = barrier_result(block)
    result = None
    if register is not None:
        result = (names.index[register], names.codes[register])
    barrier = block.last if block.end == "barrier" else None
    statements = tuple(s for s in (*block.body, block.last) if s is not None and not isinstance(s, Label))
    words = set(barrier.op) if barrier is not None else set()
    if barrier is not None and not {"sync", "red", "arrive", "wait"} & words:
        raise CannotSimulate(f"the instruction {barrier.name}", barrier.where)
    return TranslatedBlock(
        run=run,
        end=block.end,
        targets=targets,
        spins=block.spins,
        loops=block.loops,
        waits=waits,
        where=block.where,
        mask=mask,
        live_in=block.live_in,
        writes=block.defined & block.live_out,
        results=results,
        statements=statements,
        barrier=barrier,
        result=result,
    )


STATEMENTS_PER_TIME_CHECK = 256  # the scheduler checks only between blocks, which may have 100,000
_ = integers  # imported for the opcodes that it registers


def write(graph: Graph, names: Names) -> str:
    """Return the text of all functions: one per block, and one for the lane mask of some."""
    functions: list[str] = []
    for i, block in enumerate(graph.blocks):
        functions.append(_function(f"b{i}", *_block_lines(block, names)))
        if block.converge:
            functions.append(_mask_function(f"m{i}", block.body[0], names))
    return "\n".join(functions)


def _mask_function(name: str, first: Statement, names: Names) -> str:
    """Return the function for the lane mask of a warp-synchronising instruction: its last operand, or all lanes."""
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
    retried = names.retries and any(getattr(each, "number", -1) in names.retries for each in block.body)
    writer, dying = BlockWriter(names), {} if retried else block.dying  # steps before a retried swap are written twice
    writer.chosen = _chosen(block)
    for number, statement in enumerate(block.body):
        if number % STATEMENTS_PER_TIME_CHECK == STATEMENTS_PER_TIME_CHECK - 1:
            writer.lines.append("w.check_time()")
        writer.dying = dying.get(number, ())
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


def _chosen(block: Block) -> Mapping[int, tuple[int, bool]]:
    if not any(isinstance(each, Instruction) and each.op[0] == "selp" for each in block.body):
        return {}
    from pytest_gpulab.devices.simulated.translation.analysis.loads import chosen

    return chosen(block)


def _set_by_barrier(block: Block, register: str) -> bool:
    result = barrier_result(block)
    return result is not None and result == register


def barrier_result(block: Block) -> str | None:
    """Return the register of a barrier's reduction, if the block ends with one."""
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


RESERVED = "%reserved_smem_offset_1"  # memory of cooperative groups, for tiles of several warps
RESERVED_BYTES = 1024  # as on compute capability 8.0 and later; cooperative groups use 288


class Layout:
    """The offsets of variables in shared and local memory, and of parameters."""

    def __init__(self, module: PtxModule, kernel: Function, addresses: dict[str, int]) -> None:
        self.addresses = dict(addresses)
        self.addresses["shared window"], self.addresses["local window"] = SHARED_WINDOW, LOCAL_WINDOW
        self.addresses.update(module.function_addresses)
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
    """Return whether an operand of a kernel is this symbol."""
    readers = ("mov", "cvt")  # of special registers
    moves = (move for move in kernel.body if isinstance(move, Instruction) and move.op[0] in readers)
    operands = (operand for move in moves for operand in move.operands)
    return any(type(operand) is Sym and operand.name == symbol for operand in operands)

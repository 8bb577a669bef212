"""The text of a program: one Python function per basic block, and one per lane mask."""

from __future__ import annotations

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction, Statement

from .control.graph import Block, Graph
from .control.instructions import TENSOR_CORES
from .control.liveness import members
from .emission import compare, floats, integers, moves, tensor_cores, textures, warps
from .emission import stack as emit_stack
from .emission.block import BlockWriter, Names
from .emission.memory import emit_built_in
from .refusals import MALFORMED, refusal

STATEMENTS_PER_TIME_CHECK = 256  # the scheduler checks only between blocks, which may have 100,000
# imported for the opcodes they register
_ = compare, floats, integers, moves, emit_stack, tensor_cores, textures, warps


def write(graph: Graph, names: Names) -> tuple[str, set[int]]:
    """Return the text of all functions, and the blocks that have a function for their lane mask."""
    functions: list[str] = []
    masks = set()
    for i, block in enumerate(graph.blocks):
        functions.append(_function(f"b{i}", *_block_lines(block, names)))
        if block.converge:
            functions.append(_mask_function(f"m{i}", block.body[0], names))
            masks.add(i)
    return "\n".join(functions), masks


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
    writer = BlockWriter(names)
    for number, statement in enumerate(block.body):
        if number % STATEMENTS_PER_TIME_CHECK == STATEMENTS_PER_TIME_CHECK - 1:
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

"""Calls of recursive functions and their returns, as calls of the wave's stack."""

from pytest_gpulab.devices.simulated.ptx.syntax import Imm, Instruction, Operand, Reg, Vector
from pytest_gpulab.devices.simulated.translation.control.graph import ENTER, LEAVE, RETURN

from .block import BlockWriter, emits


def _call(operand: Operand) -> str:
    """Return the name of a `StackCall` in generated code."""
    assert isinstance(operand, Imm)
    return f"c{operand.value}"


@emits(ENTER, modifiers=None)
def _enter(b: BlockWriter, i: Instruction) -> None:
    target, stack, call, saved = i.operands
    assert isinstance(saved, Vector)
    values = "".join(f"{b.local(item.name)}, " for item in saved.items if isinstance(item, Reg))
    b.write(target, f"w.stack.enter(L, {_call(call)}, {b.read(stack, 'u8')}, ({values}))", "u8")


@emits(LEAVE, modifiers=None)
def _leave(b: BlockWriter, i: Instruction) -> None:
    restored, stack, call = i.operands
    assert isinstance(restored, Vector)
    codes = [b.names.codes[item.name] for item in restored.items if isinstance(item, Reg)]
    values = b.assign(f"w.stack.leave(L, {_call(call)}, {b.read(stack, 'u8')}, {codes[1:]})")
    for number, (item, code) in enumerate(zip(restored.items, codes, strict=True)):
        b.write(item, f"{values}[{number}]", code)


@emits(RETURN, modifiers=None)
def _return(b: BlockWriter, i: Instruction) -> None:
    index, stack = i.operands
    b.write(index, f"w.stack.top(L, {b.read(stack, 'u8')})", "u4")

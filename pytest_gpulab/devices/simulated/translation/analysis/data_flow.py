"""The flow of data from memory and other threads through registers, without control: conditions carry no data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction, Operand, registers_of

_ADDS = {"add", "addc", "sub", "subc", "mad", "madc", "sad", "dp4a", "dp2a"}
_FETCHES = {"ld", "ldu", "atom", "shfl"}
_NO_DATA = {"param", "const"}


def integer_additions(statements: Iterable[Instruction | Call]) -> frozenset[int]:
    """Return the integer additions of two values that come from memory or other threads, by number.

    An address or index is computed from one such value at most. An atomic adds a value to another one in memory;
    shared memory has no addition of floats, so that a loop of the machine code has it.
    """
    instructions = [statement for statement in statements if isinstance(statement, Instruction) and statement.operands]
    data = _data(instructions)
    return frozenset(each.number for each in instructions if _adds(each, data))


def _data(instructions: Iterable[Instruction]) -> set[str]:
    """Return the registers with data."""
    flows = [(registers_of(each.operands[:1]), set(registers_of(_values(each)))) for each in instructions]
    fetched = (each for each in instructions if each.op[0] in _FETCHES and _NO_DATA.isdisjoint(each.op))
    data = {name for each in fetched for name in registers_of(each.operands[:1])}
    while more := {n for written, read in flows if not data.isdisjoint(read) for n in written} - data:
        data |= more
    return data


def _values(instruction: Instruction) -> Iterator[Operand]:
    """Yield the operands that carry values to the result: none for a condition."""
    op, operands = instruction.op, instruction.operands
    if op[0] in ("setp", "set", "st", "red", "bar", "barrier", "vote", "match"):
        return
    yield from operands[1:3] if op[0] in ("selp", "slct") else operands[1:]


def _adds(instruction: Instruction, data: set[str]) -> bool:
    op, operands = instruction.op, instruction.operands
    if op[0] in ("atom", "red"):
        is_counted = op[-1][0] in "us" or "global" in op
        return "add" in op and is_counted and not data.isdisjoint(registers_of(operands[-1:]))
    if op[0] not in _ADDS or op[-1][0] not in "bus":
        return False
    factors, addend = operands[1:-1], operands[-1:]
    return all(not data.isdisjoint(registers_of(part)) for part in (factors, addend))

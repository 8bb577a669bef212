"""The flow of data from memory and other threads through registers, without control: conditions carry no data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction, Operand, registers_of
from pytest_gpulab.devices.simulated.translation.control.graph import has_result

_CONDITIONS = {"setp", "set", "testp", "vote", "bar", "barrier"}  # what they read decides, and is no data
_STORES = {"st", "red", "atom", "cp", "stmatrix", "sust"}
_ON_CHIP = ("shared", "local")
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
    flows = [(_results(each), set(registers_of(_values(each)))) for each in instructions]
    fetched = (each for each in instructions if each.op[0] in _FETCHES and _NO_DATA.isdisjoint(each.op))
    data = {name for each in fetched for name in _results(each)}
    while more := {n for written, read in flows if not data.isdisjoint(read) for n in written} - data:
        data |= more
    return data


def carriers(statements: Iterable[Instruction | Call]) -> frozenset[int]:
    """Return the instructions, by number, with results that flow into memory: as a value, or as a part of an address.

    Results that only decide which way a thread goes, or which of two other values it takes, carry no data. Shared and
    local memory pass data on if a load from there does.
    """
    instructions = [statement for statement in statements if isinstance(statement, Instruction) and statement.operands]
    flows = [(each, set(_results(each)), set(registers_of(_values(each)))) for each in instructions]
    needed, carrying = set[str](), list[Instruction]()
    while True:
        found = [each for each, written, _ in flows if not needed.isdisjoint(written)]
        more = {name for each, written, read in flows if not needed.isdisjoint(written) for name in read}
        more |= {name for each in instructions if _is_kept(each, carrying) for name in registers_of(each.operands)}
        if more <= needed and len(found) == len(carrying):
            return frozenset(each.number for each in carrying)
        needed, carrying = needed | more, found


def _results(instruction: Instruction) -> list[str]:
    return registers_of(instruction.operands[:1]) if has_result(instruction.op) else []


def _is_kept(instruction: Instruction, carrying: Iterable[Instruction]) -> bool:
    """Return whether an instruction stores data that the host, other threads or its own thread take from memory."""
    op = instruction.op
    if op[0] not in _STORES and op[:2] != ("wmma", "store"):
        return False
    space = next((name for name in _ON_CHIP if name in op), None)
    if op[0] == "cp" or space is None:
        return True
    return any(not _is_elsewhere(each, space) for each in carrying)


def _is_elsewhere(instruction: Instruction, space: str) -> bool:
    """Return whether an instruction takes nothing from a memory space."""
    op = instruction.op
    if op[0] not in ("ld", "ldu", "atom", "ldmatrix", "wmma"):
        return True
    return space not in op and any(name in op for name in ("global", "param", "const", *_ON_CHIP))


def _values(instruction: Instruction) -> Iterator[Operand]:
    """Yield the operands that carry values to the result: none for a condition."""
    op, operands = instruction.op, instruction.operands
    if op[0] in _CONDITIONS:
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

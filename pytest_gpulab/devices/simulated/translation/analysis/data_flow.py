"""The flow of data from memory and other threads through registers, without control: conditions carry no data."""

import re
from collections.abc import Iterable, Iterator
from math import prod

from pytest_gpulab.devices.simulated.groups.lanes import WARP
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction, Operand, registers_of
from pytest_gpulab.devices.simulated.translation.control.graph import has_result, with_sources

_CONDITIONS = {"setp", "set", "testp", "vote", "bar", "barrier"}  # what they read decides, and is no data
_STORES = {"st", "red", "atom", "cp", "stmatrix", "sust"}
_ON_CHIP = ("shared", "local")
_ADDS = {"add", "addc", "sub", "subc", "mad", "madc", "fma", "sad", "dp4a", "dp2a", "mul"}
_EXTENTS = re.compile(r"m(\d+)n(\d+)k(\d+)")  # of matrices
_FETCHES = {"ld", "ldu", "atom", "shfl"}
_NO_DATA = {"param", "const"}


def additions(statements: Iterable[Instruction | Call]) -> dict[int, int]:
    """Return the additions per thread that are no instruction of its own in machine code, by number of the statement.

    They are additions of two integers or half floats that come from memory or other threads: an address or index is
    computed from one such value at most. A product of two integers may hide an addition of their upper halves. An
    atomic adds a value to another one in memory; shared memory has no addition of floats, so that a loop of the machine
    code has it. Threads share the additions of a matrix product.
    """
    instructions = [statement for statement in statements if isinstance(statement, Instruction) and statement.operands]
    data = _data(instructions)
    found = {each.number: _in_matrices(each) or int(_adds(each, data)) for each in instructions}
    return {number: count for number, count in found.items() if count}


def _data(instructions: Iterable[Instruction]) -> set[str]:
    """Return the registers with data."""
    flows = [(_results(each), set(registers_of(_values(each)))) for each in instructions]
    fetched = (each for each in instructions if each.op[0] in _FETCHES and _NO_DATA.isdisjoint(each.op))
    data = {name for each in fetched for name in _results(each)}
    return with_sources(data, ((read, written) for written, read in flows))  # here, data flows to the results


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


def _in_matrices(instruction: Instruction) -> int:
    """Return the additions per thread of a matrix product on tensor cores; 0 for other instructions."""
    op = instruction.op
    if op[0] != "mma" and op[:2] != ("wmma", "mma"):
        return 0
    extents = next((found for word in op if (found := _EXTENTS.fullmatch(word))), None)
    return prod(map(int, extents.groups())) // WARP if extents is not None else 0


def _adds(instruction: Instruction, data: set[str]) -> bool:
    op, operands = instruction.op, instruction.operands
    if op[0] in ("atom", "red"):
        is_counted = op[-1][0] in "us" or "global" in op
        return "add" in op and is_counted and not data.isdisjoint(registers_of(operands[-1:]))
    is_half = op[-1].lstrip("bf") in ("16", "16x2")
    if op[0] not in _ADDS or (op[-1][0] not in "bus" and not is_half) or (op[0] == "mul" and is_half):
        return False
    factors, addend = operands[1:-1], operands[-1:]
    return all(not data.isdisjoint(registers_of(part)) for part in (factors, addend))

"""Loops that only wait for a phase of an mbarrier: nothing but an arrival at that barrier ends them."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpulab.devices.simulated.ptx.syntax import Call, Imm, Instruction, Label, Sym
from pytest_gpulab.devices.simulated.translation.control.graph import Block
from pytest_gpulab.devices.simulated.translation.control.instructions import MBARRIER_TESTS, defined_and_used

_PASSED_ON = {"mov", "selp", "setp", "and", "or", "xor", "not", "cvt"}
_HARMLESS = {*_PASSED_ON, "add", "sub", "mul", "shl", "shr", "nanosleep", "bra", "mbarrier"}


def phase_waits(blocks: Sequence[Block]) -> frozenset[int]:
    """Return the numbers of the basic blocks that end with the backward jump of such a loop."""
    found = []
    for i, block in enumerate(blocks):
        if block.spins and (start := min(block.targets)) <= i and _only_waits(blocks[start : i + 1], start):
            found.append(i)
    return frozenset(found)


def _only_waits(loop: Sequence[Block], start: int) -> bool:
    """Return whether a loop only tests mbarriers, and these tests alone decide when it ends."""
    if any(block.end not in ("goto", "branch") for block in loop):
        return False
    statements = [s for block in loop for s in (*block.body, block.last) if s is not None and not isinstance(s, Label)]
    instructions = [s for s in statements if isinstance(s, Instruction) and s.op[0] != "bra"]
    tests = [s for s in instructions if _is_test(s)]
    if not tests or any(isinstance(s, Call) or not _is_harmless(s) for s in statements):
        return False
    changed = {name for s in instructions if not _is_constant(s) for name in defined_and_used(s, {})[0]}
    if any(changed.intersection(defined_and_used(test, {})[1]) for test in tests):
        return False
    inside = range(start, start + len(loop))
    leaving = [block.last for block in loop if any(target not in inside for target in block.targets)]
    guards = {last.guard[0].name for last in leaving if last is not None and last.guard is not None}
    return len(guards) > 0 and _is_decided_by_tests(guards, instructions)


def _is_decided_by_tests(relevant: set[str], instructions: Sequence[Instruction]) -> bool:
    """Return whether registers depend only on tests of mbarriers and on values that are constant in the loop."""
    while True:
        more = set(relevant)
        for instruction in instructions:
            written, read = defined_and_used(instruction, {})
            if relevant.isdisjoint(written) or _is_test(instruction):
                continue
            if instruction.op[0] not in _PASSED_ON or any(map(_is_special, instruction.operands)):
                return False
            more.update(read)
        if more == relevant:
            return True
        relevant = more


def _is_test(statement: Instruction) -> bool:
    return statement.op[0] == "mbarrier" and statement.op[1] in MBARRIER_TESTS


def _is_harmless(statement: Instruction | Call) -> bool:
    if not isinstance(statement, Instruction) or statement.op[0] not in _HARMLESS:
        return False
    return statement.op[0] != "mbarrier" or _is_test(statement)


def _is_constant(instruction: Instruction) -> bool:
    source = instruction.operands[-1] if instruction.op[0] == "mov" else None
    return isinstance(source, Imm | Sym) and not _is_special(source)


def _is_special(operand: object) -> bool:
    """Return whether an operand is a special register, such as the clock."""
    return isinstance(operand, Sym) and operand.name.startswith("%")

"""Liveness of registers: the values that a block needs, passes on, and may drop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Statement, Sym
from pytest_gpulab.devices.simulated.translation.refusals import MALFORMED, refusal

from .graph import Block
from .instructions import defined_and_used


def liveness(blocks: list[Block], registers: dict[str, int]) -> None:
    """Set each block's live registers, and the last use of those that die in it."""
    uses, last = [], []
    for block in blocks:
        defined, used, touched = _summary(block, registers)
        block.defined = _bits(defined, registers)
        uses.append(_bits(used, registers))
        last.append(touched)
    changed = True
    while changed:
        changed = False
        for block, used_bits in zip(reversed(blocks), reversed(uses), strict=True):
            block.live_out = 0
            for target in block.targets:
                block.live_out |= blocks[target].live_in
            live_in = used_bits | (block.live_out & ~block.defined)
            changed |= live_in != block.live_in
            block.live_in = live_in
    names = list(registers)
    for block, touched in zip(blocks, last, strict=True):
        lives_on = {names[index] for index in members(block.live_out)}
        for name, number in touched.items():
            if name not in lives_on:
                block.dying.setdefault(number, []).append(name)


def _summary(block: Block, registers: dict[str, int]) -> tuple[set[str], set[str], dict[str, int]]:
    """Return the registers that a block writes, those that it reads first, and each one's last statement by number."""
    defined: set[str] = set()
    used: set[str] = set()
    last: dict[str, int] = {}
    statement: Statement | None = None
    try:
        for number, statement in enumerate([*block.body, *([block.last] if block.last else [])]):
            writes, reads = defined_and_used(statement, registers)
            for name in reads:
                if name not in last:
                    used.add(name)
                last[name] = number
            for name in writes:
                defined.add(name)
                last[name] = number
    except MALFORMED:
        raise refusal(statement) from None
    return defined, used, last


def _bits(names: Iterable[str], registers: dict[str, int]) -> int:
    """Return a bit set; not by shifts, each of which would copy it."""
    bits = bytearray(len(registers) // 8 + 1)
    for name in names:
        index = registers[name]
        bits[index >> 3] |= 1 << (index & 7)
    return int.from_bytes(bits, "little")


def members(bits: int) -> Iterator[int]:
    """Yield what is in a bit set; not by shifts, each of which would copy it."""
    digits = f"{bits:b}"[::-1]
    at = digits.find("1")
    while at >= 0:
        yield at
        at = digits.find("1", at + 1)


def discard_unused(block: Block, registers: dict[str, int]) -> None:
    """Give up old values that atomics fetch but nobody reads: lanes that meet can then act all at once."""
    if not any(isinstance(statement, Instruction) and statement.op[0] == "atom" for statement in block.body):
        return
    gone: set[str] = set()  # what is written before it is read again, or not needed after the block
    needed: set[str] = set(defined_and_used(block.last, registers)[1]) if block.last is not None else set()
    for index in reversed(range(len(block.body))):
        statement = block.body[index]
        writes, reads = defined_and_used(statement, registers)
        is_needed = any(
            name in needed or (name not in gone and block.live_out >> registers[name] & 1) for name in writes
        )
        if isinstance(statement, Instruction) and statement.op[0] == "atom" and writes and not is_needed:
            block.body[index] = replace(statement, operands=(Sym("_"), *statement.operands[1:]))
        needed.difference_update(writes)
        gone.update(writes)
        needed.update(reads)

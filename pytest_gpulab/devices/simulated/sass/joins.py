"""Accesses that the assembler has merged: shared-memory accesses, and the atomics of a warp."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .code import MachineBlock
from .instructions import ATOMG, ATOMS, LD, LDG, LDS, RED, REDUX, STS, VOTE, VOTEU

_ATOMICS = (ATOMS, ATOMG, RED)


@dataclass(frozen=True)
class PtxAccess:
    """A load or store of the PTX: `Site.index`, statement number, `ld` or `st`, and width in bytes."""

    index: int
    number: int
    op: str
    nbytes: int


def joined_widths(
    blocks: Sequence[MachineBlock], homes: Mapping[int, int], accesses: Iterable[PtxAccess]
) -> dict[int, int]:
    """Return the widest machine access, in bytes, of accesses that may be part of a wider one, by index.

    These are all accesses of one operation and width in a basic block of the PTX (`homes`, by statement) if any of them
    has a wider machine instruction.
    """
    widest: dict[int, int] = defaultdict(int)
    for block in blocks:
        for instruction in block.instructions:
            if instruction.operation in (LDS, STS):
                widest[instruction.number] = max(widest[instruction.number], instruction.nbytes)
    groups: dict[tuple[str, int, int], list[PtxAccess]] = defaultdict(list)
    for access in accesses:
        groups[access.op, homes.get(access.number, -1), access.nbytes].append(access)
    found: dict[int, int] = {}
    for (_, _, nbytes), group in groups.items():
        width = max(widest.get(access.number, 0) for access in group)
        if width > nbytes:
            found |= {access.index: width for access in group}
    return found


def joined_loads(blocks: Sequence[MachineBlock]) -> dict[int, int]:
    """Return how many executions of a load from global memory a warp waits for at once, by statement.

    The assembler unrolls loops, and moves the loads of several iterations before the first instruction that needs one.
    """
    found: dict[int, int] = {}
    for block in blocks:
        copies: Counter[int] = Counter()
        waits: dict[int, set[int]] = defaultdict(set)
        pending = wait = 0
        for instruction in block.instructions:
            if instruction.waits & pending:
                pending, wait = 0, wait + 1
            if instruction.operation in (LDG, LD):
                copies[instruction.number] += 1
                waits[instruction.number].add(wait)
                pending |= 1 << instruction.result
        for number, count in copies.items():
            found[number] = max(count // len(waits[number]), found.get(number, 1))
    return found


def joined_atomics(blocks: Sequence[MachineBlock], atomics: frozenset[int]) -> frozenset[int]:
    """Return the atomics that one lane may execute for its warp.

    If all lanes have one address, the assembler combines their integers by votes and warp reductions. Statements with
    the same operands share these, so a vote anywhere makes every guarded atomic a candidate.
    """
    code = [n for block in blocks for n in block.instructions if n.number in atomics]
    if not any(instruction.operation in (VOTE, VOTEU, REDUX) for instruction in code):
        return frozenset()
    return frozenset(
        instruction.number for instruction in code if instruction.operation in _ATOMICS and instruction.guarded
    )

"""Accesses that the assembler has joined: shared-memory accesses to wider ones, a warp's atomics to one lane's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .code import MachineBlock
from .instructions import ATOMG, ATOMS, LDS, RED, REDUX, STS, VOTE, VOTEU

_ATOMICS = (ATOMS, ATOMG, RED)


@dataclass(frozen=True)
class PtxAccess:
    """A load or store of the PTX: its place in the program, its statement, `ld` or `st`, its width."""

    index: int
    number: int
    op: str
    nbytes: int


def joined_widths(
    blocks: Sequence[MachineBlock], homes: Mapping[int, int], accesses: Iterable[PtxAccess]
) -> dict[int, int]:
    """Return the widest machine access, in bytes, for accesses that may be part of a wider one, by index.

    That is any access of a basic block of the PTX (`homes`, by statement) for which some instruction is wider than its
    statement.
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


def joined_atomics(blocks: Sequence[MachineBlock], atomics: frozenset[int]) -> frozenset[int]:
    """Return the statements, of those given, in which one lane may act for its warp.

    Where all lanes have one address, the assembler joins their integers by votes and warp reductions. Statements with
    the same operands share these, so a vote anywhere makes every guarded atomic a candidate.
    """
    code = [n for block in blocks for n in block.instructions if n.number in atomics]
    if not any(instruction.operation in (VOTE, VOTEU, REDUX) for instruction in code):
        return frozenset()
    return frozenset(
        instruction.number for instruction in code if instruction.operation in _ATOMICS and instruction.guarded
    )

"""Which accesses to shared memory the assembler has joined to wider ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_gpulab.devices.simulated.machine.code import MachineBlock
from pytest_gpulab.devices.simulated.machine.sass import LDS, STS


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

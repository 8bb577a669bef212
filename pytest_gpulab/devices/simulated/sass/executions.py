"""How often each machine instruction was executed, by warps and by lanes, from the flow of lanes through its block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import median_low
from typing import Any

import numpy as np
import numpy.typing as npt

from . import instructions
from .code import MachineBlock
from .flow import OUT, Flow, FlowModel
from .instructions import MachineInstruction
from .joins import PtxAccess, joined_atomics, joined_widths

_SAME = 0.02  # counts closer than this are one, as a difference of logarithms
_OTHER = 0.4  # and beyond this they have nothing to do with each other
_UNKNOWN_GUARD = 0.5  # of the lanes work, where a guard belongs to how one statement is carried out
_WARP = 32
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Executed:
    """What a launch did, by statement number: lanes and warps, and the warps that a branch divided."""

    lanes: Mapping[int, int]
    warps: Mapping[int, int]
    parted: Mapping[int, int]


@dataclass(frozen=True)
class Executions:
    """How often machine instructions were executed; all arrays have one element for each of `MachineKernel.code`.

    Attributes:
        warps: times that it was issued.
        threads: lanes that were there.
        working: lanes that its guard did not switch off.
        active: warps in which it did not switch off all of them.
        parted: warps that it divided.
    """

    warps: Floats
    threads: Floats
    working: Floats
    active: Floats
    parted: Floats


class MachineKernel:
    """A kernel's machine code, ready to be counted.

    Args:
        blocks: the entry first.
        homes: for each statement of the PTX the basic block of the PTX that it stands in, by number.
        corrected: statements whose guarded instructions correct a first result, which is seldom needed.

    Attributes:
        blocks: as given.
        code: all instructions.
        numbers: the statement that each instruction is charged to.
        remembered: what `accounts` made of earlier launches, by what they did.
        operations, branches: of each instruction, `MachineInstruction.operation` and whether it is a conditional jump.
        is_too_large: whether its executions cannot be found.
    """

    def __init__(self, blocks: Sequence[MachineBlock], homes: Mapping[int, int], corrected: frozenset[int]) -> None:
        self.blocks, self._homes, self._corrected = blocks, homes, corrected
        self._flow = FlowModel(blocks, homes)
        self.remembered: dict[tuple[Any, ...], Any] = {}
        self.is_too_large = self._flow.is_too_large
        self.code = [instruction for block in blocks for instruction in block.instructions]
        self._block = np.repeat(np.arange(len(blocks)), [len(block.instructions) for block in blocks])
        self.numbers = self._charged()
        self.operations = np.array([instruction.operation for instruction in self.code])
        self.branches = np.array([instruction.jumps and instruction.conditional for instruction in self.code])
        self._entering: dict[int, list[int]] = {i: [] for i in range(len(blocks))}
        for i, block in enumerate(blocks):
            for target in block.targets:
                self._entering[target].append(i)
        self._guarded = [k for k, instruction in enumerate(self.code) if instruction.guarded or instruction.never]
        self._votes = [
            {n.number for n in block.instructions if n.number in homes and not n.guarded} for block in blocks
        ]

    def _charged(self) -> list[int]:
        """What belongs to no statement, such as the compiler's own functions, goes with who calls or stands before."""
        callers = {b.calls: b.last.number for b in self.blocks if b.calls is not None and b.last.number in self._homes}
        number, numbers = min(self._homes, default=-1), []
        for i, block in enumerate(self.blocks):
            number = callers.get(i, number)
            numbers += [n.number if n.number in self._homes else number for n in block.instructions]
        return numbers

    def joined_widths(self, accesses: Iterable[PtxAccess]) -> dict[int, int]:
        """See `joins.joined_widths`."""
        return joined_widths(self.blocks, self._homes, accesses)

    def joined_atomics(self, atomics: frozenset[int]) -> frozenset[int]:
        """See `joins.joined_atomics`."""
        return joined_atomics(self.blocks, atomics)

    def executions(self, executed: Executed, launched: int) -> Executions:
        """Return what a launch did; `launched` are its threads, or those of the blocks that ran."""
        launch = _Launch(self, executed, self._flow.solve(executed.lanes, launched))
        warps, threads = np.array(launch.warps)[self._block], np.array(launch.flow.lanes)[self._block]
        share, parted = np.ones(len(self.code)), np.zeros(len(self.code))
        active = warps.copy()
        for k in self._guarded:
            i, instruction = int(self._block[k]), self.code[k]
            share[k] = launch.share(i, instruction) if threads[k] else 0.0
            active[k] = min(warps[k], share[k] * threads[k] / launch.together(instruction.number))
        ends = np.cumsum([len(block.instructions) for block in self.blocks]) - 1
        for i, block in enumerate(self.blocks):
            if block.last.jumps and block.last.conditional:
                parted[ends[i]] = launch.warps[i] * launch.parting(block)
        return Executions(warps, threads, threads * share, active, parted)


class _Launch:
    """One launch of a kernel: its flow, and the warps of each block."""

    def __init__(self, kernel: MachineKernel, executed: Executed, flow: Flow) -> None:
        self.kernel, self.executed, self.flow = kernel, executed, flow
        self.expected = kernel._flow.expected(flow.lanes)
        self.warps = self._warps()

    # --- warps ------------------------------------------------------------------------------------------

    def _warps(self) -> list[float]:
        found = [self._by_density(i) for i in range(len(self.kernel.blocks))]
        known = [lanes / _WARP if warps is None else warps for warps, lanes in zip(found, self.flow.lanes, strict=True)]
        for i, warps in enumerate(found):
            if warps is None and self.flow.lanes[i]:
                known[i] = self._arriving(i, known) or known[i]
        return known

    def _by_density(self, i: int) -> float | None:
        """Warps of a block, if its lanes stand as close together as those of a statement in it; None if none does."""
        block, lanes = self.kernel.blocks[i], self.flow.lanes[i]
        if not lanes:
            return 0.0
        if all(instruction.operation in instructions.MEETING for instruction in block.instructions):
            return None
        votes = []
        for number in self.kernel._votes[i]:
            ran = self.executed.lanes[number]
            if ran:
                expected = self.expected.get(number, float(ran))
                away = abs(log(max(expected, 1e-9) / ran)) if expected != ran else 0.0
                votes.append((away, self.together(number)))
        best = min(votes, default=(_OTHER, 0.0))[0]
        if best >= _OTHER:
            return None
        return lanes / median_low([density for away, density in votes if away <= best + _SAME])

    def together(self, number: int) -> float:
        """Lanes of a warp that execute a statement together, on average."""
        warps = self.executed.warps.get(number, 0)
        return self.executed.lanes[number] / warps if warps else 1.0

    def _arriving(self, i: int, warps: Sequence[float]) -> float:
        """Warps that come to a block, counted once for each part in which they come."""
        return sum(self._along(source, i, warps) for source in self.kernel._entering[i])

    def _along(self, source: int, target: int, warps: Sequence[float]) -> float:
        """Warps of a block that go on to another one with at least one lane."""
        block, here = self.kernel.blocks[source], warps[source]
        others = [other for other in block.targets if other != target]
        if not others:
            return here
        total = here * (1 + self.parting(block))
        if len(others) == 1 and self.kernel._entering[others[0]] == [source]:
            return min(max(total - warps[others[0]], 0.0), here)
        share = self.flow.edges.get((source, target), 0.0) / max(self.flow.lanes[source], 1.0)
        return min(total * share, here)

    def parting(self, block: MachineBlock) -> float:
        """How many of the warps that come to the branch at a block's end it divides."""
        warps = self.executed.warps.get(block.last.number, 0)
        return self.executed.parted.get(block.last.number, 0) / warps if warps and block.last.conditional else 0.0

    # --- guards -----------------------------------------------------------------------------------------

    def share(self, i: int, instruction: MachineInstruction) -> float:
        """The share of a block's lanes that an instruction's guard lets work."""
        block = self.kernel.blocks[i]
        if instruction.never:
            return 0.0
        if instruction is block.last and (block.last.jumps or block.last.leaves):
            target = OUT if block.last.leaves else block.targets[0]
            return min(self.flow.edges.get((i, target), 0.0) / self.flow.lanes[i], 1.0)
        number = instruction.number
        if number in self.kernel._corrected:
            return 0.0
        if number not in self.executed.lanes or number in self.kernel._votes[i]:
            return _UNKNOWN_GUARD  # the statement has instructions without a guard, too: it is no branch of the PTX
        ran = float(self.executed.lanes[number])
        return min(ran / max(self.expected.get(number, 0.0), ran, 1.0), 1.0)

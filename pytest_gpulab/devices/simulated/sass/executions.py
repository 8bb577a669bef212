"""Executions of each machine instruction, by warps and by lanes, from the flow of lanes through its block."""

from collections.abc import Mapping, Sequence
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

_SAME = 0.02  # difference of logarithms, up to which two counts are equal
_OTHER = 0.4  # difference of logarithms, from which two counts are unrelated
_UNKNOWN_GUARD = 0.5  # share of active lanes, for guards inside the code of one statement
_WARP = 32
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Executed:
    """Executions of each statement, by number: lanes, warps, and divergent warps of a branch."""

    lanes: Mapping[int, int]
    warps: Mapping[int, int]
    divergent: Mapping[int, int]


@dataclass(frozen=True)
class Executions:
    """Executions of machine instructions; all arrays have one element per instruction of `MachineKernel.code`."""

    warps: Floats  # number of issues
    threads: Floats  # lanes at the instruction
    working: Floats  # lanes with a true guard
    active: Floats  # warps with at least one such lane
    divergent: Floats  # divergent warps
    addresses: Floats  # of a load of constants: those of a table of jumps, per warp


class MachineKernel:
    """A kernel's machine code, prepared for counting; its first basic block is the entry.

    `homes` has the basic block of the PTX of each statement, by number. `corrected` are statements with guarded
    instructions for the rare correction of a first result.
    """

    def __init__(self, blocks: Sequence[MachineBlock], homes: Mapping[int, int], corrected: frozenset[int]) -> None:
        self.blocks, self.homes, self._corrected = blocks, homes, corrected
        self._flow = FlowModel(blocks, homes)
        self.cached: dict[tuple[Any, ...], Any] = {}  # results of `accounts` for earlier launches, by their counts
        self.is_too_large = self._flow.is_too_large  # to compute executions
        self.code = [instruction for block in blocks for instruction in block.instructions]
        self._block = np.repeat(np.arange(len(blocks)), [len(block.instructions) for block in blocks])
        self.numbers = self._charged()  # statement number that each instruction is attributed to
        self.operations = np.array([instruction.operation for instruction in self.code])
        # True for conditional jumps
        self.branches = np.array([instruction.jumps and instruction.conditional for instruction in self.code])
        tabled = {target for block in blocks if block.last.operation == instructions.BRX for target in block.targets}
        firsts = np.concatenate(([True], self._block[1:] != self._block[:-1]))
        # True for the first instruction of a block that a table of addresses leads to
        self.tabled = firsts & np.isin(self._block, list(tabled))
        ends = np.cumsum([len(block.instructions) for block in blocks]) - 1
        self._tables = [
            (k, max((j for j in range(k) if self.operations[j] == instructions.LDC), default=k))
            for k in ends
            if self.operations[k] == instructions.BRX
        ]  # jumps by tables, each with the load of its address
        self._entering: dict[int, list[int]] = {i: [] for i in range(len(blocks))}
        for i, block in enumerate(blocks):
            for target in block.targets:
                self._entering[target].append(i)
        self._guarded = [k for k, instruction in enumerate(self.code) if instruction.guarded or instruction.never]
        self._votes = [{n.number for n in block.instructions if n.number in homes and _tells(n)} for block in blocks]

    def _charged(self) -> list[int]:
        """Return the statement numbers; instructions without one get the number of the caller or of the one before."""
        callers = {b.calls: b.last.number for b in self.blocks if b.calls is not None and b.last.number in self.homes}
        number, numbers = min(self.homes, default=-1), []
        for i, block in enumerate(self.blocks):
            number = callers.get(i, number)
            numbers += [n.number if n.number in self.homes else number for n in block.instructions]
        return numbers

    def executions(self, executed: Executed, launched: int) -> Executions:
        """Return the executions of a launch; `launched` is the number of threads of the blocks that ran."""
        launch = _LaunchFlow(self, executed, self._flow.solve(executed.lanes, launched))
        warps, threads = np.array(launch.warps)[self._block], np.array(launch.flow.lanes)[self._block]
        share, divergent = np.ones(len(self.code)), np.zeros(len(self.code))
        active = warps.copy()
        for k in self._guarded:
            i, instruction = int(self._block[k]), self.code[k]
            share[k] = launch.share(i, instruction) if threads[k] else 0.0
            active[k] = min(warps[k], share[k] * threads[k] / launch.together(instruction.number))
        ends = np.cumsum([len(block.instructions) for block in self.blocks]) - 1
        for i, block in enumerate(self.blocks):
            if block.last.operation == instructions.BSYNC and len(block.instructions) == 1:
                warps[ends[i]] = active[ends[i]] = launch.meeting(i)
            if block.last.jumps and block.last.conditional:
                divergent[ends[i]] = launch.warps[i] * launch.divergence(block)
        addresses = np.ones(len(self.code))
        jumping = sum(warps[jump] for jump, _ in self._tables)
        for jump, load in self._tables if jumping else ():  # a warp jumps once to each of its lanes' targets
            addresses[load] = max(float(warps @ self.tabled) / jumping, 1.0)
            warps[jump] *= addresses[load]
        return Executions(warps, threads, threads * share, active, divergent, addresses)


def _tells(instruction: MachineInstruction) -> bool:
    """Return True if all lanes of a block execute the statement of an instruction.

    Others may execute that of a guarded one. BSSY, before a branch, has the number of any statement near it.
    """
    if instruction.jumps and instruction.conditional:
        return True
    return not instruction.guarded and instruction.operation not in (instructions.BSSY, instructions.BSYNC)


class _LaunchFlow:
    """The flow of one launch of a kernel, and the warps of each block."""

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
                known[i] = sum(self._along(source, i, known) for source in self.kernel._entering[i]) or known[i]
        return known

    def _by_density(self, i: int) -> float | None:
        """Return the warps of a block from the lanes per warp of a matching statement in it; None without a match."""
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
        """Return the mean number of lanes per warp that execute a statement."""
        warps = self.executed.warps.get(number, 0)
        return self.executed.lanes[number] / warps if warps else 1.0

    def _along(self, source: int, target: int, warps: Sequence[float]) -> float:
        """Return the warps of a block that enter another one with at least one lane."""
        block, here = self.kernel.blocks[source], warps[source]
        others = [other for other in block.targets if other != target]
        if not others:
            return here
        total = here * (1 + self.divergence(block))
        if len(others) == 1 and self.kernel._entering[others[0]] == [source]:
            return min(max(total - warps[others[0]], 0.0), here)
        return min(total * self._share(source, target), here)

    def meeting(self, i: int) -> float:
        """Return how often the parts of warps arrive at a block where they meet: from a loop, a part per divergence."""
        parts = 0.0
        for source in self.kernel._entering[i]:
            block, here = self.kernel.blocks[source], self.warps[source]
            start = next((other for other in block.targets if other != i), source)
            if start > source or len(block.targets) != 2:
                parts += self._along(source, i, self.warps)
                continue
            before = (other for other in self.kernel._entering[start] if other != source)
            entered = sum(self.warps[other] * self._share(other, start) for other in before)
            parts += min(here * self.divergence(block) + entered, here)
        return max(parts, self.warps[i])

    def _share(self, source: int, target: int) -> float:
        """Return the share of a block's lanes that go to another one."""
        return self.flow.edges.get((source, target), 0.0) / max(self.flow.lanes[source], 1.0)

    def divergence(self, block: MachineBlock) -> float:
        """Return the share of divergent warps at the branch at a block's end."""
        warps = self.executed.warps.get(block.last.number, 0)
        return self.executed.divergent.get(block.last.number, 0) / warps if warps and block.last.conditional else 0.0

    # --- guards -----------------------------------------------------------------------------------------

    def share(self, i: int, instruction: MachineInstruction) -> float:
        """Return the share of a block's lanes with a true guard of an instruction."""
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
            return _UNKNOWN_GUARD  # it has unguarded instructions, too, so it is no branch of the PTX
        ran = float(self.executed.lanes[number])
        return min(ran / max(self.expected.get(number, 0.0), ran, 1.0), 1.0)

"""How often each machine instruction was executed, by warps and by lanes, from the flow of lanes through its block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import median_low

from pytest_gpulab.devices.simulated.machine import sass
from pytest_gpulab.devices.simulated.machine.code import MachineBlock
from pytest_gpulab.devices.simulated.machine.flow import OUT, Copies, Executed, Flow, solve
from pytest_gpulab.devices.simulated.machine.sass import MachineInstruction

_SAME = 0.02  # counts closer than this are one, as a difference of logarithms
_OTHER = 0.4  # and beyond this they have nothing to do with each other
_UNKNOWN_GUARD = 0.5  # of the lanes work, where a guard belongs to how one statement is carried out
_WARP = 32


@dataclass(frozen=True)
class Execution:
    """One machine instruction: the statement it is charged to, and how often it was executed.

    Attributes:
        warps: times that it was issued.
        threads: lanes that were there.
        working: lanes that its guard did not switch off.
        active: warps in which it did not switch off all of them.
        parted: warps that it divided.
    """

    instruction: MachineInstruction
    number: int
    warps: float
    threads: float
    working: float
    active: float
    parted: float


def executions(
    blocks: Sequence[MachineBlock],
    executed: Mapping[int, Executed],
    parted: Mapping[int, int],
    corrections: frozenset[int],
    launched: int,
) -> list[Execution] | None:
    """Return what the machine code did, or None where it is too large.

    Args:
        blocks: of the kernel, the entry first.
        executed: by statement number.
        parted: warps that a branch divided, by its statement number.
        corrections: statements whose guarded instructions correct a first result, which is seldom needed.
        launched: threads of the launch, or of the blocks that ran.
    """
    flow = solve(blocks, executed, launched)
    if flow is None:
        return None
    return list(_Kernel(blocks, executed, parted, corrections, flow).run())


class _Kernel:
    def __init__(
        self,
        blocks: Sequence[MachineBlock],
        executed: Mapping[int, Executed],
        parted: Mapping[int, int],
        corrections: frozenset[int],
        flow: Flow,
    ) -> None:
        self.blocks, self.executed, self.parted, self.flow = blocks, executed, parted, flow
        self.corrections = corrections
        self.expected = Copies(blocks, executed).expected(flow.lanes)
        self.entering: dict[int, list[int]] = {i: [] for i in range(len(blocks))}
        for i, block in enumerate(blocks):
            for target in block.targets:
                self.entering[target].append(i)
        self.warps = self._warps()

    def run(self) -> Iterator[Execution]:
        first = min(self.executed, default=-1)
        callers = {block.calls: block.last.number for block in self.blocks if block.calls is not None}
        number = first
        for i, block in enumerate(self.blocks):
            number = callers.get(i, number)
            lanes, warps = self.flow.lanes[i], self.warps[i]
            for instruction in block.instructions if lanes else ():
                charged = instruction.number if instruction.number in self.executed else number
                working = lanes * self._share(i, instruction)
                active = min(warps, working / self._together(instruction.number)) if instruction.guarded else warps
                split = warps * self._parting(block) if instruction is block.last and block.last.jumps else 0.0
                yield Execution(instruction, charged, warps, lanes, working, active, split)

    def _together(self, number: int) -> float:
        """Lanes of a warp that execute a statement together, on average."""
        known = self.executed.get(number)
        return known.lanes / known.warps if known is not None and known.lanes else 1.0

    # --- warps ------------------------------------------------------------------------------------------

    def _warps(self) -> list[float]:
        found: list[float | None] = [self._by_density(i) for i in range(len(self.blocks))]
        known = [lanes / _WARP if warps is None else warps for warps, lanes in zip(found, self.flow.lanes, strict=True)]
        for i, warps in enumerate(found):
            if warps is None and self.flow.lanes[i]:
                known[i] = self._arriving(i, known) or known[i]
        return known

    def _by_density(self, i: int) -> float | None:
        """Warps of a block, if its lanes stand as close together as those of a statement in it; None if none does."""
        block, lanes = self.blocks[i], self.flow.lanes[i]
        if not lanes:
            return 0.0
        if all(instruction.operation in sass.MEETING for instruction in block.instructions):
            return None
        votes = []
        for instruction in block.instructions:
            known = self.executed.get(instruction.number)
            if known is not None and known.lanes and not instruction.guarded:
                expected = self.expected.get(instruction.number, float(known.lanes))
                votes.append((abs(log(max(expected, 1e-9) / known.lanes)), known.lanes / known.warps))
        best = min(votes, default=(_OTHER, 0.0))[0]
        if best >= _OTHER:
            return None
        return lanes / median_low([density for away, density in votes if away <= best + _SAME])

    def _arriving(self, i: int, warps: Sequence[float]) -> float:
        """Warps that come to a block, counted once for each part in which they come."""
        return sum(self._along(source, i, warps) for source in self.entering[i])

    def _along(self, source: int, target: int, warps: Sequence[float]) -> float:
        """Warps of a block that go on to another one with at least one lane."""
        block = self.blocks[source]
        here = warps[source]
        others = [other for other in block.targets if other != target]
        if not others:
            return here
        total = here * (1 + self._parting(block))
        if len(others) == 1 and self.entering[others[0]] == [source]:
            return min(max(total - warps[others[0]], 0.0), here)
        share = self.flow.edges.get((source, target), 0.0) / max(self.flow.lanes[source], 1.0)
        return min(total * share, here)

    def _parting(self, block: MachineBlock) -> float:
        """How many of the warps that come to the branch at a block's end it divides."""
        known = self.executed.get(block.last.number)
        if not block.last.conditional or known is None or not known.warps:
            return 0.0
        return self.parted.get(block.last.number, 0) / known.warps

    # --- guards -----------------------------------------------------------------------------------------

    def _share(self, i: int, instruction: MachineInstruction) -> float:
        """The share of a block's lanes that an instruction's guard lets work."""
        block = self.blocks[i]
        if instruction.never:
            return 0.0
        if not instruction.guarded:
            return 1.0
        if instruction is block.last and (block.last.jumps or block.last.leaves):
            target = OUT if block.last.leaves else block.targets[0]
            return min(self.flow.edges.get((i, target), 0.0) / self.flow.lanes[i], 1.0)
        if instruction.number in self.corrections:
            return 0.0
        known = self.executed.get(instruction.number)
        if known is None or self._partly_guarded(block, instruction.number):
            return _UNKNOWN_GUARD
        return min(known.lanes / max(self.expected.get(instruction.number, 0.0), float(known.lanes), 1.0), 1.0)

    @staticmethod
    def _partly_guarded(block: MachineBlock, number: int) -> bool:
        """Whether a statement has instructions with a guard and without, so that the guard is no branch of the PTX."""
        return any(other.number == number and not other.guarded for other in block.instructions)

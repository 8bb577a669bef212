"""How many lanes ran each basic block of machine code, from how many ran each PTX statement.

Lanes flow through the control-flow graph: as many leave a block as enter it. Of all flows that begin with the launch's
threads, the one is taken that explains best how often each PTX statement was executed and, among those, issues the
fewest instructions: the assembler unrolls loops, and takes the slow path of a division, only where that pays. Both are
one linear program (`linear`).

A statement stands in the machine code once for each copy of it that unrolling or tail duplication has made. Copies of
what the assembler cannot merge, drop or move are evidence of full weight: memory accesses, barriers, shuffles.
Floating-point operations weigh less, others little. A copy with a guard says only that at least so many lanes come by,
because a short branch may have become a guard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_gpulab.devices.simulated.machine import sass
from pytest_gpulab.devices.simulated.machine.code import MachineBlock
from pytest_gpulab.devices.simulated.machine.linear import Matrix, Vector, minimise
from pytest_gpulab.devices.simulated.machine.sass import MachineInstruction

OUT = -1
"""Where lanes go that exit or return."""
_FULL, _FLOAT, _WEAK = 1.0, 0.3, 0.02
_CONTROL = {sass.BRA, sass.BRX, sass.EXIT, sass.BSSY, sass.BSYNC, sass.CALL, sass.CALL_ABSOLUTE, sass.RET, sass.BREAK}
_ISSUE_COST = 1e-4  # of one instruction, against a lane of full weight that is not explained
_NEGLIGIBLE = 3e-6  # of the most executed statement: what the linear program leaves of zero
LARGEST = 350  # rows of a linear program


@dataclass(frozen=True)
class Executed:
    """How often a PTX statement was executed: lanes, warps, and the basic block of the PTX that it stands in."""

    lanes: int
    warps: int
    home: int

    def more(self, lanes: int, warps: int) -> Executed:
        """Return it with further executions, as of another inlined copy of its function."""
        return Executed(self.lanes + lanes, self.warps + warps, self.home)


@dataclass(frozen=True)
class Flow:
    """Lanes by block of machine code, and by (block, target) where control parts; `OUT` is a target, too."""

    lanes: list[float]
    edges: Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class _Evidence:
    """`sum of copies x lanes of the block` should be `lanes`, or at least that."""

    copies: tuple[tuple[int, int], ...]
    at_least: bool


def solve(blocks: Sequence[MachineBlock], executed: Mapping[int, Executed], launched: int) -> Flow | None:
    """Return the flow, or None where the code is too large to find it.

    Args:
        blocks: of the kernel, the entry first.
        executed: by statement number.
        launched: threads of the launch, or of the blocks that ran.
    """
    edges = [(i, target) for i, block in enumerate(blocks) for target in _ways(block)]
    evidence = _gather(blocks, executed)
    chains = _chains(blocks, edges)
    outer = [edge for edge in edges if edge[1] == OUT or chains[edge[0]] != chains[edge[1]] or _is_loop(edge, chains)]
    heads = sorted(set(chains))
    if len(heads) + len(evidence) > LARGEST:
        return None
    scale = float(max([launched, *(lanes for _, lanes, _ in evidence)]))
    program = _Program(blocks, chains, heads, outer)
    found = program.solve(evidence, launched, scale) * scale
    found[found < _NEGLIGIBLE * scale] = 0.0
    along = dict(zip(outer, np.rint(found).tolist(), strict=True))
    by_chain: dict[int, float] = defaultdict(float)
    for (source, _), lanes in along.items():
        by_chain[chains[source]] += lanes
    return Flow([by_chain[chain] for chain in chains], along)


def _ways(block: MachineBlock) -> tuple[int, ...]:
    return (*block.targets, OUT) if block.leaves else block.targets


def _is_loop(edge: tuple[int, int], chains: Sequence[int]) -> bool:
    """Whether an edge leads back to the head of its own chain."""
    return chains[edge[1]] == edge[1] and edge[1] <= edge[0]


def _chains(blocks: Sequence[MachineBlock], edges: Sequence[tuple[int, int]]) -> list[int]:
    """For each block the first of the chain that it belongs to: blocks that the same lanes run one after the other."""
    entries: dict[int, int] = defaultdict(int)
    for _, target in edges:
        entries[target] += 1
    entries[0] += 1
    for block in blocks:
        if block.calls is not None:
            entries[block.calls] += 2
    chains = list(range(len(blocks)))
    for i, block in enumerate(blocks):
        follows = block.targets[0] if len(_ways(block)) == 1 and block.targets and block.calls is None else None
        if follows is not None and entries[follows] == 1 and follows > i:
            chains[follows] = chains[i]
    return chains


class _Program:
    """The linear program: a variable for each edge between chains, two for what a piece of evidence leaves over."""

    def __init__(
        self, blocks: Sequence[MachineBlock], chains: list[int], heads: list[int], edges: list[tuple[int, int]]
    ) -> None:
        self.chains, self.edges = chains, edges
        self.row = {head: i for i, head in enumerate(heads)}
        self.leaving = np.zeros((len(heads), len(edges)))  # chains x edges: by how much lanes of the chain follow
        entering = np.zeros_like(self.leaving)
        self.length = np.zeros(len(heads))
        for i, block in enumerate(blocks):
            self.length[self.row[chains[i]]] += len(block.instructions)
        for k, (source, target) in enumerate(edges):
            self.leaving[self.row[chains[source]], k] = 1
            if target != OUT:
                entering[self.row[chains[target]], k] = 1
        self.balance = self.leaving - entering
        for i, block in enumerate(blocks):
            if block.calls is not None:
                self.balance[self.row[chains[block.calls]]] -= self.leaving[self.row[chains[i]]]

    def solve(self, evidence: list[tuple[_Evidence, float, float]], launched: int, scale: float) -> Vector:
        chains, edges = self.leaving.shape
        rows, columns = chains + len(evidence), edges + 2 * len(evidence)
        matrix: Matrix = np.zeros((rows, columns))
        right, cost = np.zeros(rows), np.zeros(columns)
        matrix[:chains, :edges] = self.balance
        right[0] = launched / scale
        cost[:edges] = _ISSUE_COST * (self.length @ self.leaving)
        for k, (piece, lanes, weight) in enumerate(evidence):
            row, short, over = chains + k, edges + 2 * k, edges + 2 * k + 1
            for block, copies in piece.copies:
                matrix[row, :edges] += copies * self.leaving[self.row[self.chains[block]]]
            matrix[row, short], matrix[row, over] = 1.0, -1.0
            right[row] = lanes / scale
            cost[short], cost[over] = weight, _WEAK * weight if piece.at_least else weight
        return minimise(cost, matrix, right)[:edges]


def _gather(blocks: Sequence[MachineBlock], executed: Mapping[int, Executed]) -> list[tuple[_Evidence, float, float]]:
    """Return the evidence with lanes and weight; of what speaks of the same copies, the weighted median."""
    copies = Copies(blocks, executed)
    found: dict[_Evidence, list[tuple[float, float]]] = defaultdict(list)
    for number in copies.by_statement:
        piece, weight = copies.evidence(number)
        found[piece].append((float(executed[number].lanes), weight))
    return [(piece, _weighted_median(votes), sum(weight for _, weight in votes)) for piece, votes in found.items()]


def _weighted_median(votes: list[tuple[float, float]]) -> float:
    votes = sorted(votes)
    half, total = sum(weight for _, weight in votes) / 2, 0.0
    for lanes, weight in votes:
        total += weight
        if total >= half:
            return lanes
    return votes[-1][0]


class Copies:
    """Where each statement stands in the machine code."""

    def __init__(self, blocks: Sequence[MachineBlock], executed: Mapping[int, Executed]) -> None:
        self.executed = executed
        self.by_statement: dict[int, dict[int, dict[int, list[MachineInstruction]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )  # statement -> operation -> block -> instructions
        for i, block in enumerate(blocks):
            for instruction in block.instructions:
                known = instruction.number in executed and not instruction.never
                if known and instruction.operation not in _CONTROL:
                    self.by_statement[instruction.number][instruction.operation][i].append(instruction)
        self.unrolled: dict[tuple[int, int], int] = defaultdict(lambda: 1)  # (block, block of the PTX) -> copies
        for number in self.by_statement:
            places = self._typical(number)
            if _weight(places) > _WEAK:
                for i, instructions in places.items():
                    key = i, executed[number].home
                    self.unrolled[key] = max(self.unrolled[key], len(instructions))

    def _typical(self, number: int) -> dict[int, list[MachineInstruction]]:
        """The instructions of a statement, by block, that stand for it best: of the heaviest, then rarest operation."""
        operations = self.by_statement[number]
        return max(operations.values(), key=lambda places: (_weight(places), -sum(map(len, places.values()))))

    def evidence(self, number: int) -> tuple[_Evidence, float]:
        """Return what a statement says of the flow, and its weight."""
        places = self._typical(number)
        weight, home = _weight(places), self.executed[number].home
        counts = {
            i: len(instructions) if weight > _WEAK else self.unrolled[i, home] for i, instructions in places.items()
        }
        guarded = any(instruction.guarded for instructions in places.values() for instruction in instructions)
        return _Evidence(tuple(sorted(counts.items())), guarded), weight

    def expected(self, lanes: Sequence[float]) -> dict[int, float]:
        """Return how many lanes would execute each statement if the blocks had so many, guards aside."""
        return {
            number: sum(copies * lanes[block] for block, copies in self.evidence(number)[0].copies)
            for number in self.by_statement
        }


def _weight(places: Mapping[int, list[MachineInstruction]]) -> float:
    operation = next(iter(places.values()))[0].operation
    if operation in sass.FIXED:
        return _FULL
    return _FLOAT if operation in sass.FLOATING else _WEAK

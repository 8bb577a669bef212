"""Lanes per basic block of machine code, from the lanes per PTX statement.

Lanes flow through the control-flow graph: as many leave a block as enter it. The chosen flow starts with the launch's
threads and explains best the executions of each PTX statement. Among equal flows it issues the fewest instructions,
since the assembler unrolls loops and adds slow paths only where that pays. This is one linear program (`linear`).

A statement has one copy in machine code per unrolled or duplicated body. Copies that the assembler cannot merge, drop
or move (memory accesses, barriers, shuffles) are evidence of full weight. Floating-point operations have less weight,
others little. A guarded copy is only a lower bound of the lanes, since a short branch may have become a guard.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import instructions as sass
from .code import MachineBlock
from .instructions import MachineInstruction
from .linear import Matrix, Vector, minimise

OUT = -1
"""The target of lanes that exit or return."""
_FULL, _FLOAT, _WEAK = 1.0, 0.3, 0.02
_CONTROL = {sass.BRA, sass.BRX, sass.EXIT, sass.BSSY, sass.BSYNC, sass.CALL, sass.CALL_ABSOLUTE, sass.RET, sass.BREAK}
_ISSUE_COST = 1e-4  # cost of an instruction, relative to an unexplained lane of full weight
_MAX_SOLVED = 64  # cached solutions of the linear program
_NEGLIGIBLE = 3e-6  # error of the linear program, relative to the most executed statement
_EXACT = 1e-9  # rounding error for counts of the order of 1
LARGEST = 350  # rows of a linear program


@dataclass(frozen=True)
class Flow:
    """Lanes by block of machine code, and by (block, target); `OUT` is a target, too."""

    lanes: list[float]
    edges: Mapping[tuple[int, int], float]


@dataclass(frozen=True)
class _Evidence:
    """The condition that the sum of `copies` times lanes per block is, or is at least, the lanes of a statement."""

    copies: tuple[tuple[int, int], ...]
    at_least: bool


class FlowModel:
    """The launch-independent part of a kernel's flow: the linear program without its right-hand side.

    The first of the basic blocks is the entry. `homes` gives the basic block of the PTX by the number of a statement.
    """

    def __init__(self, blocks: Sequence[MachineBlock], homes: Mapping[int, int]) -> None:
        self._edges = [(i, target) for i, block in enumerate(blocks) for target in _ways(block)]
        self._chains = _chains(blocks, self._edges)
        self._outer = [edge for edge in self._edges if not _is_inside(edge, self._chains)]
        self._copies = Copies(blocks, homes)
        self._solved: dict[bytes, Vector] = {}
        self._votes: dict[_Evidence, list[tuple[int, float]]] = defaultdict(list)
        for number in self._copies.by_statement:
            piece, weight = self._copies.evidence(number)
            self._votes[piece].append((number, weight))
        self._pieces = {number: self._copies.evidence(number)[0].copies for number in self._copies.by_statement}
        self.is_too_large = len(set(self._chains)) + len(self._votes) > LARGEST
        if not self.is_too_large:
            self._matrix, self._cost = self._program(blocks)
            self._decisive = [_Decisive(rows, self._matrix[:, : len(self._outer)]) for rows in self._levels()]

    def _levels(self) -> Iterator[list[int]]:
        """Yield sets of rows that may determine the flow: the graph with the strong evidence, and with all of it."""
        chains = len(self._matrix) - len(self._votes)
        for least in (_FLOAT, 0.0):
            pieces = enumerate(self._votes.items(), chains)
            rows = [row for row, (piece, votes) in pieces if not piece.at_least and sum(w for _, w in votes) >= least]
            yield [*range(chains), *rows]

    def _program(self, blocks: Sequence[MachineBlock]) -> tuple[Matrix, Vector]:
        """Return matrix and cost; variables are the edges between chains, and two residuals per piece of evidence."""
        row = {head: i for i, head in enumerate(sorted(set(self._chains)))}
        place = [row[chain] for chain in self._chains]
        leaving = np.zeros((len(row), len(self._outer)))  # chains x edges
        balance, length = np.zeros_like(leaving), np.zeros(len(row))
        for i, block in enumerate(blocks):
            length[place[i]] += len(block.instructions)
        for k, (source, target) in enumerate(self._outer):
            leaving[place[source], k] = 1
            if target != OUT:
                balance[place[target], k] -= 1
        balance += leaving
        for i, block in enumerate(blocks):
            if block.calls is not None:
                balance[place[block.calls]] -= leaving[place[i]]
        chains, edges, pieces = len(row), len(self._outer), len(self._votes)
        matrix, cost = np.zeros((chains + pieces, edges + 2 * pieces)), np.zeros(edges + 2 * pieces)
        matrix[:chains, :edges] = balance
        cost[:edges] = _ISSUE_COST * (length @ leaving)
        for k, (piece, votes) in enumerate(self._votes.items()):
            short, over, weight = edges + 2 * k, edges + 2 * k + 1, sum(weight for _, weight in votes)
            for i, copies in piece.copies:
                matrix[chains + k, :edges] += copies * leaving[place[i]]
            matrix[chains + k, short], matrix[chains + k, over] = 1.0, -1.0
            cost[short], cost[over] = weight, _WEAK * weight if piece.at_least else weight
        return matrix, cost

    def solve(self, lanes: Mapping[int, int], launched: int) -> Flow:
        """Return the flow of a launch with that many threads, from the executions of each statement by lanes."""
        counts = [_weighted_median([(lanes[n], weight) for n, weight in votes]) for votes in self._votes.values()]
        scale = float(max([launched, *counts]))
        right = np.zeros(len(self._matrix))
        right[0] = launched / scale
        right[len(right) - len(counts) :] = np.array(counts) / scale
        exact = (flow for decisive in self._decisive if (flow := decisive.flow(right)) is not None)
        found = next(exact, None)
        if found is None:
            found = self._minimised(right)
        found[found < _NEGLIGIBLE] = 0.0
        along = dict(zip(self._outer, np.rint(found * scale).tolist(), strict=True))
        by_chain: dict[int, float] = defaultdict(float)
        for (source, _), passing in along.items():
            by_chain[self._chains[source]] += passing
        return Flow([by_chain[chain] for chain in self._chains], along)

    def _minimised(self, right: Vector) -> Vector:
        """Solve the linear program; launches that differ in size only share a cached solution."""
        key = right.tobytes()
        if key not in self._solved:
            if len(self._solved) >= _MAX_SOLVED:
                self._solved.clear()
            self._solved[key] = minimise(self._cost, self._matrix, right)[: len(self._outer)]
        return np.array(self._solved[key])

    def expected(self, lanes: Sequence[float]) -> dict[int, float]:
        """Return the executions of each statement for given lanes per block, guards aside."""
        return {number: sum(copies * lanes[block] for block, copies in piece) for number, piece in self._pieces.items()}


class _Decisive:
    """Rows that determine at most one flow, so that the linear program need not be solved."""

    def __init__(self, rows: list[int], matrix: Matrix) -> None:
        self._rows, self._part = rows, matrix[rows]
        complete = len(rows) >= matrix.shape[1] and np.linalg.matrix_rank(self._part) == matrix.shape[1]
        self._inverse = np.linalg.pinv(self._part) if complete else None

    def flow(self, right: Vector) -> Vector | None:
        """Return the flow along each edge if the rows are consistent, else None."""
        if self._inverse is None:
            return None
        wanted = right[self._rows]
        found = self._inverse @ wanted
        agrees = np.abs(self._part @ found - wanted).max() < _EXACT and found.min() > -_EXACT
        return np.maximum(found, 0.0) if agrees else None


def _ways(block: MachineBlock) -> tuple[int, ...]:
    return (*block.targets, OUT) if block.leaves else block.targets


def _is_inside(edge: tuple[int, int], chains: Sequence[int]) -> bool:
    """Return whether an edge is inside a chain and is no back edge to its head."""
    source, target = edge
    return target != OUT and chains[source] == chains[target] and not (chains[target] == target and target <= source)


def _chains(blocks: Sequence[MachineBlock], edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the first block of each block's chain. The same lanes execute all blocks of a chain in turn."""
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


def _weighted_median(votes: list[tuple[int, float]]) -> float:
    if len(votes) == 1 or min(votes)[0] == max(votes)[0]:
        return float(votes[0][0])
    votes = sorted(votes)
    half, total = sum(weight for _, weight in votes) / 2, 0.0
    for lanes, weight in votes:
        total += weight
        if total >= half:
            return float(lanes)
    return float(votes[-1][0])


class Copies:
    """The copies of each statement in machine code."""

    def __init__(self, blocks: Sequence[MachineBlock], homes: Mapping[int, int]) -> None:
        self._homes = homes
        # Statement -> operation -> block -> instructions.
        self.by_statement: dict[int, dict[int, dict[int, list[MachineInstruction]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )
        for i, instruction in _numbered(blocks, homes):
            self.by_statement[instruction.number][instruction.operation][i].append(instruction)
        self._unrolled: dict[tuple[int, int], int] = defaultdict(lambda: 1)  # (block, block of the PTX) -> copies
        for number in self.by_statement:
            places = self._typical(number)
            if _weight(places) > _WEAK:
                for i, instructions in places.items():
                    key = i, homes[number]
                    self._unrolled[key] = max(self._unrolled[key], len(instructions))

    def _typical(self, number: int) -> dict[int, list[MachineInstruction]]:
        """Return the instructions that represent a statement, by block: of the heaviest, then rarest operation."""
        operations = self.by_statement[number]
        return max(operations.values(), key=lambda places: (_weight(places), -sum(map(len, places.values()))))

    def evidence(self, number: int) -> tuple[_Evidence, float]:
        """Return a statement's evidence on the flow, and its weight."""
        places = self._typical(number)
        weight, home = _weight(places), self._homes[number]
        counts = {
            i: len(instructions) if weight > _WEAK else self._unrolled[i, home] for i, instructions in places.items()
        }
        guarded = any(instruction.guarded for instructions in places.values() for instruction in instructions)
        return _Evidence(tuple(sorted(counts.items())), guarded), weight


def _numbered(blocks: Sequence[MachineBlock], homes: Mapping[int, int]) -> Iterator[tuple[int, MachineInstruction]]:
    """Yield the instructions that are evidence of their statement's executions, with their block."""
    for i, block in enumerate(blocks):
        for instruction in block.instructions:
            if instruction.number in homes and not instruction.never and instruction.operation not in _CONTROL:
                yield i, instruction


def _weight(places: Mapping[int, list[MachineInstruction]]) -> float:
    operation = next(iter(places.values()))[0].operation
    if operation in sass.FIXED:
        return _FULL
    return _FLOAT if operation in sass.FLOATING else _WEAK

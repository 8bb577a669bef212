"""Cutting a statement list into basic blocks."""

from __future__ import annotations

from dataclasses import replace

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Function, Instruction, Label, Statement, Sym
from pytest_gpulab.devices.simulated.translation.refusals import MALFORMED, refusal

from .graph import Block
from .instructions import BARRIERS, WARP_SYNC

_CUTTING = frozenset({"bra", "brx", "ret", "exit", "trap", *BARRIERS, *WARP_SYNC})


def _is_straight(instruction: Instruction) -> bool:
    """Return whether an instruction neither begins nor ends a block."""
    return instruction.guard is None and instruction.op[0] not in _CUTTING


class Splitter:
    """A splitter of statement lists at labels, jumps, barriers and warp-synchronising instructions."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.blocks = [Block()]
        self.labels: dict[str, int] = {}
        self.jumps: list[tuple[Block, tuple[str | int, ...]]] = []
        self.open = True  # True while the last block accepts statements

    def run(self) -> list[Block]:
        """Return the blocks in the order of the statements.

        Raises:
            CannotSimulate: a jump to an unknown label, a malformed instruction.
        """
        statement: Statement | None = None
        try:
            for statement in self.function.body:
                if self.open and type(statement) is Instruction and _is_straight(statement):
                    self.blocks[-1].body.append(statement)
                else:
                    self._statement(statement)
        except MALFORMED:
            raise refusal(statement) from None
        if self.open:
            self._finish("exit", None, ())
        for block, targets in self.jumps:
            block.targets = tuple(self._target(block, target) for target in targets)
        return self.blocks

    def _statement(self, statement: Statement) -> None:
        if isinstance(statement, Label):
            self.labels[statement.name] = self._start()
        elif isinstance(statement, Call):
            self._current().body.append(statement)
        else:
            self._instruction(statement)

    def _target(self, block: Block, target: str | int) -> int:
        if isinstance(target, str) and target not in self.labels:
            raise CannotSimulate(f"a jump to {target}", block.last.where if block.last else block.where)
        return self.labels[target] if isinstance(target, str) else target

    def _current(self) -> Block:
        if not self.open:
            self._append()
        return self.blocks[-1]

    def _append(self) -> int:
        self.blocks.append(Block())
        self.open = True
        return len(self.blocks) - 1

    def _start(self) -> int:
        """Begin a new block unless the last one is still empty; return its index."""
        if self.open and not self.blocks[-1].body and not self.blocks[-1].converge:
            return len(self.blocks) - 1
        if self.open:
            self._finish("goto", None, (len(self.blocks),))
        return self._append()

    def _finish(self, end: str, last: Instruction | None, targets: tuple[str | int, ...]) -> None:
        block = self._current()
        block.end, block.last = end, last
        self.jumps.append((block, targets))
        self.open = False

    def _instruction(self, instruction: Instruction) -> None:
        op = instruction.op[0]
        if op == "bra":
            self._branch(instruction)
        elif instruction.guard is not None:
            self._predicated(instruction)
        elif op == "brx":
            label = instruction.operands[-1]
            targets = self.function.branch_targets.get(label.name) if isinstance(label, Sym) else None
            if targets is None:
                raise CannotSimulate(f"the instruction {instruction.name}", instruction.where)
            self._finish("switch", instruction, targets)
        elif op in ("ret", "exit"):
            self._finish("exit", instruction, ())
        elif op in BARRIERS and "warp" not in instruction.op:
            self._current()
            self._finish("barrier", instruction, (len(self.blocks),))
        else:
            if op in WARP_SYNC or (op in BARRIERS and "warp" in instruction.op):
                self._start()
                self.blocks[-1].converge = True
            self._current().body.append(instruction)
            if op == "trap":
                self._finish("exit", None, ())

    def _branch(self, instruction: Instruction) -> None:
        target = instruction.operands[0]
        if not isinstance(target, Sym):
            raise CannotSimulate(f"the instruction {instruction.name}", instruction.where)
        self._current()
        if instruction.guard is None:
            self._finish("goto", instruction, (target.name,))
        else:
            self._finish("branch", instruction, (target.name, len(self.blocks)))

    def _predicated(self, instruction: Instruction) -> None:
        """Put `op` of `@p op` into a block of its own, as groups have no masks: other lanes jump over it."""
        assert instruction.guard is not None
        register, negated = instruction.guard
        self._current()
        skip = Instruction(("bra",), (), (register, not negated), instruction.where)
        self._finish("branch", skip, ())
        branch, jump = self.blocks[-1], len(self.jumps) - 1
        inner = self._append()
        self._instruction(replace(instruction, guard=None))
        self.jumps[jump] = (branch, (self._start(), inner))

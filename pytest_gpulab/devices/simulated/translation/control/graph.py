"""The control-flow graph of a kernel: basic blocks in scheduling order."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Label, Statement


@dataclass
class Block:
    """A basic block.

    Attributes:
        body: statements, none of which moves control.
        end: what the last statement does: `goto`, `branch`, `switch`, `barrier` or `exit`.
        last: the statement that `end` stands for, where there is one.
        targets: indices of the next blocks; for `branch` (taken, not taken).
        converge: the block begins with a warp-synchronising instruction.
        live_in, live_out, defined: registers as bit sets over `Graph.registers`.
        dying: by the number of a statement in `body`: the registers whose values nothing needs after it.
        spins: a loop ends here whose body can see other threads' writes (it may be a wait for them).
        loops: a jump back from here may be the end of a loop. That of a recursive call or of its return is none, so it
            cannot go on for ever: at last the stack is full.
    """

    body: list[Statement] = field(default_factory=list)
    end: str = "goto"
    last: Instruction | None = None
    targets: tuple[int, ...] = ()
    converge: bool = False
    live_in: int = 0
    live_out: int = 0
    defined: int = 0
    dying: dict[int, list[str]] = field(default_factory=dict)
    spins: bool = False
    loops: bool = True

    @property
    def where(self) -> SourceLine | None:
        """The first source line of the block."""
        statements = [*self.body, self.last] if self.last else self.body
        return next((s.where for s in statements if not isinstance(s, Label) and s.where), None)


@dataclass
class Graph:
    """A kernel as blocks in scheduling order; block 0 is the entry."""

    blocks: list[Block]
    registers: dict[str, int]

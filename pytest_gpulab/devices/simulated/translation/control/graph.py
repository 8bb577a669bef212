"""The control-flow graph of a kernel: basic blocks in scheduling order."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Label, Statement


@dataclass
class Block:
    """A basic block.

    Attributes:
        body: statements without jumps and barriers.
        end: kind of the end: `goto`, `branch`, `switch`, `barrier` or `exit`.
        last: the statement of the end, if there is one.
        targets: indices of the next blocks; for `branch` (taken, not taken).
        converge: True if the block begins with a warp-synchronising instruction.
        live_in, live_out, defined: registers as bit sets over `Graph.registers`.
        dying: registers that are dead after a statement, by its position in `body`.
        spins: True if the block ends a loop that can observe writes of other threads, so that it may wait for them.
        loops: True if a jump back from here may end a loop. Jumps of recursive calls and returns do not: they cannot
            continue for ever, because the stack is finite.
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

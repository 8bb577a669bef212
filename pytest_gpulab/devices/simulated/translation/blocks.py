"""A basic block as a Python function, with the properties that the scheduler needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction

from .control.instructions import TENSOR_CORES


@dataclass
class TranslatedBlock:
    """A basic block as a Python function.

    Attributes:
        run: function of (wave, group). It returns the predicate of a branch, the index of a switch or the operands of a
            barrier.
        end, targets, spins, loops, where: as in `Block`; for a branch, targets are (if true, if false).
        waits: True if the block ends a loop that only waits for a phase of an mbarrier.
        mask: function of (wave, group) that returns the lane mask of the warp-synchronising instruction at the start.
        live_in: live registers at the start, a bit set.
        writes: registers that the block writes and that are live at its end, a bit set.
        statements: PTX instructions and calls, including the last one.
        barrier: the barrier instruction at the end.
        result: index and dtype code of the register for the result of the barrier's reduction.
    """

    run: Callable[[Any, Any], Any]
    end: str
    targets: tuple[int, ...]
    spins: bool
    loops: bool
    waits: bool
    where: SourceLine | None
    mask: Callable[[Any, Any], Any] | None
    live_in: int
    writes: int
    statements: tuple[Instruction | Call, ...]
    barrier: Instruction | None
    result: tuple[int, str] | None

    @property
    def is_maskless(self) -> bool:
        """True if it begins with an instruction of all lanes of a warp, which has no lane mask."""
        first = self.statements[0] if self.statements else None
        return isinstance(first, Instruction) and first.op[0] in TENSOR_CORES

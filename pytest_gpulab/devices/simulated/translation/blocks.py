"""A basic block as a Python function, with what the scheduler must know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction

from .control.instructions import TENSOR_CORES


@dataclass
class TranslatedBlock:
    """A basic block ready to run.

    Attributes:
        run: (wave, group) to the predicate of a branch, the index of a switch or the operands of a barrier.
        end, targets, spins, loops, where: as in `Block`; for a branch, targets are (if true, if false).
        waits: a loop goes back here that only waits for a phase of an mbarrier.
        mask: for a block that begins with a warp-synchronising instruction, (wave, group) to its lane mask.
        live_in: registers needed from here on, a bit set.
        writes: registers written here that live on, a bit set.
        statements: PTX instructions and calls, the end included.
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
        """Whether it begins with an instruction that all lanes of a warp execute together, without naming them."""
        first = self.statements[0] if self.statements else None
        return isinstance(first, Instruction) and first.op[0] in TENSOR_CORES

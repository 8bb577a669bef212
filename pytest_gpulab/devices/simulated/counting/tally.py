"""Instructions of the blocks that are not counted; apart from `counters`, which correctness checks do not import."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_gpulab.devices.simulated.groups.lanes import Lanes
from pytest_gpulab.devices.simulated.translation.program import Program


class Tally:
    """The instructions of the blocks that are not counted, to compare them with those of the counted blocks.

    Attributes:
        issued: warp instructions.
    """

    def __init__(self, program: Program) -> None:
        self.issued = 0
        self._statements = [len(step.statements) for step in program.steps]

    def step(self, block: int, lanes: Lanes) -> None:
        """Count an execution of a basic block."""
        self.issued += lanes.warp_count * self._statements[block]

    def diverge(self, block: int, lanes: Lanes, ways: Sequence[Lanes]) -> None:
        """No-op: divided groups are counted by their steps."""

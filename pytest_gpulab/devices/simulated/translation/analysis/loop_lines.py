"""Source lines of loops, for findings about kernels that do not end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pytest_gpulab.devices.protocol import SourceLine

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock


class LoopLines:
    """The source lines of a kernel's loops.

    Args:
        steps: the kernel's basic blocks.
    """

    def __init__(self, steps: Sequence[TranslatedBlock]) -> None:
        self._steps = steps

    def is_in_loop(self, block: int) -> bool:
        """Return whether a basic block is in a loop."""
        return any(min(step.targets) <= block <= i for i, step in enumerate(self._steps) if step.targets)

    def of_condition(self, block: int) -> SourceLine | None:
        """Return the source line of the condition of the innermost loop around a basic block.

        A loop without a condition has its first line instead. A block outside of loops has its own line.
        """
        steps = self._steps
        backs = [(i - min(step.targets), i) for i, step in enumerate(steps) if step.targets]
        around = [(length, i) for length, i in backs if length >= 0 and i - length <= block <= i]
        if not around:
            return next((step.where for step in steps[block:] if step.where), None)
        length, end = min(around)
        loop = steps[end - length : end + 1]
        decisions = [
            step.statements for step in reversed(loop) if min(step.targets, default=end) <= end < max(step.targets)
        ]
        chosen = (statement for statements in decisions for statement in reversed(statements))
        line = next((each.where for each in chosen if each.where), None)
        return line or self._first(loop)

    def without_exit(self, block: int) -> SourceLine | None:
        """Return the first source line of all blocks that are reached from one that never reaches the kernel's end."""
        reached, open_blocks = {block}, [block]
        while open_blocks:
            new = set(self._steps[open_blocks.pop()].targets) - reached
            reached |= new
            open_blocks += new
        return self._first([self._steps[each] for each in reached])

    def _first(self, loop: Iterable[TranslatedBlock]) -> SourceLine | None:
        """Return the first source line of a loop: of the kernel's own lines, or else of inlined functions."""
        kernel = next((step.where for step in self._steps if step.where), None)
        lines = {statement.where for step in loop for statement in step.statements if statement.where}
        return min(lines, default=None, key=lambda where: (_is_outside(kernel, where), where.line))


def _is_outside(kernel: SourceLine | None, where: SourceLine) -> bool:
    """Return whether a line is in another file than a kernel's first line, or above it."""
    return kernel is not None and (where.file != kernel.file or where.line < kernel.line)

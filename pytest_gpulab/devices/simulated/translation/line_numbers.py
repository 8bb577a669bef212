"""The source lines of a program's statements, numbered as rows of tables of costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction


class Places:
    """Source lines in the order of files and lines; the last one is None, for statements without a line.

    Args:
        blocks: the statements of each basic block.

    Attributes:
        lines: the source lines, without repetitions.
        row: row by line.
        of_statement: row by the number of a statement.
        statements: number of statements per line (row) and basic block (column).
    """

    def __init__(self, blocks: Sequence[Sequence[Instruction | Call]]) -> None:
        known = {statement.where for block in blocks for statement in block if statement.where is not None}
        self.lines = (*sorted(known, key=lambda line: (line.file, line.line)), None)
        self.row = {line: row for row, line in enumerate(self.lines)}
        self.of_statement = {statement.number: self.row[statement.where] for block in blocks for statement in block}
        self.statements = np.zeros((len(self.lines), len(blocks)))
        for number, block in enumerate(blocks):
            for statement in block:
                self.statements[self.row[statement.where], number] += 1

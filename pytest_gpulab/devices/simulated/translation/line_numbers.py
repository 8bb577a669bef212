"""The source lines of a program's statements, numbered, so that what is charged to them fits in a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction


class Places:
    """Source lines in the order of files and lines; None, the last one, is what the compiler names no line for.

    Args:
        blocks: the statements of each basic block.

    Attributes:
        lines: each once.
        row: of each line.
        of_statement: row of each statement, by its number.
        statements: how many of them each line (row) has in each basic block (column).
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

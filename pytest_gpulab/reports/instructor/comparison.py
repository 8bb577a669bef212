"""Two sources side by side, with the lines that differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

MAX_ROWS = 400
"""Most rows of a comparison in the report."""
MAX_COLUMNS = 160


@dataclass(frozen=True)
class Side:
    """A line of one source: its number and its text."""

    number: int
    text: str


@dataclass(frozen=True)
class RowOfTwo:
    """Lines that stand beside each other; None where a source has no such line."""

    left: Side | None
    right: Side | None
    differs: bool


def side_by_side(left: str, right: str) -> list[RowOfTwo]:
    """Return the first rows of a comparison. Lines that differ in spaces only are the same."""
    lines = [[line.expandtabs(4)[:MAX_COLUMNS] for line in text.splitlines()[:MAX_ROWS]] for text in (left, right)]
    keys = [["".join(line.split()) for line in side] for side in lines]
    rows: list[RowOfTwo] = []
    for tag, a, b, c, d in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        rows += _rows(_sides(lines[0], a, b), _sides(lines[1], c, d), tag != "equal")
    return rows[:MAX_ROWS]


def _sides(lines: list[str], first: int, end: int) -> list[Side]:
    return [Side(index + 1, lines[index]) for index in range(first, end)]


def _rows(left: list[Side], right: list[Side], differs: bool) -> Iterator[RowOfTwo]:
    for one, other in zip_longest(left, right):
        yield RowOfTwo(one, other, differs)

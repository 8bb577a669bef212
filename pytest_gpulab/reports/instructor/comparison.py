"""Two sources side by side, with the lines that differ."""

from difflib import SequenceMatcher
from itertools import zip_longest
from typing import NamedTuple

MAX_ROWS = 400
"""Most rows of a comparison in the report."""
MAX_COLUMNS = 160


class Side(NamedTuple):
    """A line of one source: its number and its text."""

    number: int
    text: str


class RowOfTwo(NamedTuple):
    """Lines that stand beside each other; None where a source has no such line."""

    left: Side | None
    right: Side | None
    differs: bool


def side_by_side(left: str, right: str) -> list[RowOfTwo]:
    """Return the first rows of a comparison. Lines that differ in spaces only are the same."""
    one, other = map(_sides, (left, right))
    keys = [["".join(side.text.split()) for side in sides] for sides in (one, other)]
    rows: list[RowOfTwo] = []
    for tag, a, b, c, d in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        rows += (RowOfTwo(*pair, tag != "equal") for pair in zip_longest(one[a:b], other[c:d]))
    return rows[:MAX_ROWS]


def _sides(text: str) -> list[Side]:
    lines = text.splitlines()[:MAX_ROWS]
    return [Side(number, line.expandtabs(4)[:MAX_COLUMNS]) for number, line in enumerate(lines, 1)]

"""Proof that a wave makes no progress: its whole state comes back, and what it does next depends on nothing else.

The state is compared with an earlier one as in Brent's search for cycles, at the back edges of loops. Most loops change
a register of the group that takes them, so these are compared first. They are cheap to keep, because values never
change: references will do. All else is kept once they have come back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .group import Group
from .lanes import Lanes, Value

FIRST_LOOK = 16  # rounds of a loop before it is suspected: most loops have ended by then
MIN_LOOKS = 16
SHARE_OF_LOOKS = 16  # one round in so many is looked at, so cycles of a sixteenth of all rounds are found
Threads = tuple[object, Lanes, list[Value]]
"""A group of a wave: where it stands, its lanes, its live registers."""
Rest = tuple[list[Threads], bytes]
"""All other groups, and a hash of everything else that decides what the wave does."""


class _Mark:
    """A state of a wave; `rest` is None as long as it was not needed."""

    def __init__(self, own: Threads) -> None:
        self.own = own
        self.rest: Rest | None = None


class State(Protocol):
    """A wave as it is now."""

    def own(self, group: Group, block: int) -> Threads:
        """Return the registers of a group that goes back to a block."""

    def rest(self) -> Rest:
        """Return everything else."""


class Repetition:
    """The rounds of each loop of a wave, and the state to compare with.

    Args:
        blocks: number of basic blocks.
    """

    def __init__(self, blocks: int) -> None:
        self._rounds = [0] * blocks
        self._next_look = [FIRST_LOOK] * blocks
        self._marks: dict[int, _Mark] = {}

    def forget(self) -> None:
        """Begin anew: others may have changed memory."""
        blocks = len(self._rounds)
        self._rounds, self._next_look = [0] * blocks, [FIRST_LOOK] * blocks
        self._marks.clear()

    def is_seen_at(self, group: Group, block: int, state: State) -> bool:
        """Count a round of the loop that a group takes back to a block; say whether the wave was in this state."""
        rounds = self._rounds[block] = self._rounds[block] + 1
        return rounds >= self._next_look[block] and self._look(group, block, state, rounds)

    def _look(self, group: Group, block: int, state: State, rounds: int) -> bool:
        start = 1 << rounds.bit_length() - 1
        last = start + max(MIN_LOOKS, start // SHARE_OF_LOOKS)
        self._next_look[block] = rounds + 1 if rounds < last else 2 * start
        mark = self._marks.get(block)
        if rounds == start or mark is None:
            self._marks[block] = _Mark(state.own(group, block))
            return False
        if not _equal(mark.own, state.own(group, block)):
            return False
        if mark.rest is None:
            mark.rest = state.rest()
            return False
        (others, memory), (others_now, memory_now) = mark.rest, state.rest()
        is_seen = memory == memory_now and len(others) == len(others_now) and all(map(_equal, others, others_now))
        if is_seen:  # another group's rounds begin anew: else each would take twice as many as the one before
            self._rounds[block], self._next_look[block] = 0, FIRST_LOOK
            del self._marks[block]
        return is_seen


def _equal(one: Threads, other: Threads) -> bool:
    (place, lanes, values), (its_place, its_lanes, its_values) = one, other
    return place == its_place and _same_lanes(lanes, its_lanes) and all(map(_same_value, values, its_values))


def _same_lanes(one: Lanes, other: Lanes) -> bool:
    return one is other or (
        one.flat == other.flat
        and np.array_equal(one.threads, other.threads)
        and np.array_equal(one.columns, other.columns)
    )


def _same_value(one: Value, other: Value) -> bool:
    """Whether all bits are equal, those of a NaN included."""
    return one is other or (one.shape == other.shape and one.tobytes() == other.tobytes())


def hashed(arrays: Sequence[Any], numbers: Sequence[int]) -> bytes:
    """Return a hash of contiguous arrays and some numbers that two different states do not share."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=16)
    for array in arrays:
        digest.update(memoryview(array).cast("B") if array.size else b"")
    return digest.digest()

"""The proof that a loop is endless: the whole state of a wave repeats, and its next steps depend on nothing else.

The state is compared with an earlier one at the back edges of loops, as in Brent's algorithm for cycles. Most loops
change a register of the group that executes them, so these registers are compared first. They are cheap to keep: values
never change, so references suffice. The rest of the state is saved only after the registers have repeated, and only if
something else can have changed meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .group import Group
from .lanes import Lanes, Value

MIN_COMPARISONS = 16  # iterations, so that short cycles are found soon
COMPARED_SHARE = 16  # one iteration in 16 is compared, so cycles up to a sixteenth of all iterations are found
Threads = tuple[object, Lanes, list[Value]]
"""A group of a wave: its program counter, its lanes, its live registers."""
Rest = tuple[list[Threads], bytes]
"""All other groups, and a hash of everything else on which the wave depends."""


class _SavedState:
    """A saved state of a wave; `rest` is None until the registers have repeated after other changes."""

    def __init__(self, own: Threads, changes: int) -> None:
        self.own, self.changes = own, changes
        self.rest: Rest | None = None
        self.has_repeated = False

    def is_repeated(self, state: State) -> bool:
        """Return whether the state is the same again, given that the registers are."""
        before, self.has_repeated = self.has_repeated, True
        if self.changes == state.changes():
            return before
        if self.rest is None:
            self.rest = state.rest()
            return False
        (others, memory), (others_now, memory_now) = self.rest, state.rest()
        return memory == memory_now and len(others) == len(others_now) and all(map(_equal, others, others_now))


class State(Protocol):
    """The current state of a wave."""

    def own(self, group: Group, block: int) -> Threads:
        """Return the program counter, lanes and live registers of a group that jumps back to a block."""

    def rest(self) -> Rest:
        """Return the rest of the state."""

    def changes(self) -> int:
        """Return a number that stays the same while the rest of the state does."""


class CycleDetector:
    """The saved states of a wave at its loops; a repeated state restarts the count of its loop."""

    def __init__(self, iterations: list[int], state: State) -> None:
        self._iterations, self._state = iterations, state
        self._next_comparison: dict[int, int] = {}
        self._saved: dict[int, _SavedState] = {}

    def is_seen_at(self, group: Group, block: int) -> bool:
        """Return True if the wave was in the state of this iteration before."""
        iterations = self._iterations[block]
        return iterations >= self._next_comparison.get(block, 0) and self._compare(group, block, iterations)

    def _compare(self, group: Group, block: int, iterations: int) -> bool:
        state = self._state
        start = 1 << iterations.bit_length() - 1
        last = start + max(MIN_COMPARISONS, start // COMPARED_SHARE)
        self._next_comparison[block] = iterations + 1 if iterations < last else 2 * start
        saved = self._saved.get(block)
        if iterations == start or saved is None:
            self._saved[block] = _SavedState(state.own(group, block), state.changes())
            return False
        is_seen = _equal(saved.own, state.own(group, block)) and saved.is_repeated(state)
        if is_seen:  # restart the count: else each further group would need twice the iterations of the one before
            self._iterations[block] = 0
            del self._saved[block], self._next_comparison[block]
        return is_seen


def _equal(one: Threads, other: Threads) -> bool:
    (pc, lanes, values), (its_pc, its_lanes, its_values) = one, other
    return pc == its_pc and _same_lanes(lanes, its_lanes) and all(map(_same_value, values, its_values))


def _same_lanes(one: Lanes, other: Lanes) -> bool:
    return one is other or (
        one.flat == other.flat
        and np.array_equal(one.threads, other.threads)
        and np.array_equal(one.columns, other.columns)
    )


def _same_value(one: Value, other: Value) -> bool:
    """Return True if all bits are equal, also those of NaNs."""
    return one is other or (one.shape == other.shape and one.tobytes() == other.tobytes())


def hashed(arrays: Sequence[Any], numbers: Sequence[int]) -> bytes:
    """Return a collision-resistant hash of contiguous arrays and some numbers."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=16)
    for array in arrays:
        digest.update(memoryview(array).cast("B") if array.size else b"")
    return digest.digest()

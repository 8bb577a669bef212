"""Groups in loops that make no progress: stalled groups, and the proof that a loop is endless.

Groups that spin on other threads' writes are set aside (stalled) until other groups have run. Blocks may wait for each
other in a chain: each goes on when its predecessor has. So the groups are woken again as long as lanes leave their
loops, to poll once. Otherwise each link of the chain would cost a round of all waves.

If only one lane can go on at a time, as at a lock, it is mostly the first one, and the others would poll in vain. So
only the first lane is woken once this has been seen a few times, until it does not go on.

A wave makes no progress if its whole state repeats, and its next steps depend on nothing else. The state is compared
with an earlier one at the back edges of loops, as in Brent's algorithm for cycles. Most loops change a register of the
group that executes them, so these registers are compared first. They are cheap to keep: values never change, so
references suffice. The rest of the state is saved only after the registers have repeated, and only if something else
can have changed meanwhile.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from .group import Group
from .lanes import Lanes, Value

SPIN_LIMIT = 64  # iterations of a spinning loop before other groups run
MAX_WAKES = 1024  # in a row; threads that pass a token around may need another wave to stop them
FIRST_TURNS = 4  # wakes in a row of which one lane went on each, before only one is woken
MAX_TURNS = 16  # the same, if another lane than the woken one should have gone on; it doubles each time
NEVER = 1 << 62
FIRST_COMPARISON = 16  # iterations of a loop before the first comparison: most loops have fewer
MIN_COMPARISONS = 16  # iterations, so that short cycles are found soon
COMPARED_SHARE = 16  # one iteration in 16 is compared, so cycles up to a sixteenth of all iterations are found
Threads = tuple[object, Lanes, list[Value]]
"""A group of a wave: its program counter, its lanes, its live registers."""
Rest = tuple[list[Threads], bytes]
"""All other groups, and a hash of everything else on which the wave depends."""


class StalledGroups:
    """The stalled groups of a wave.

    Args:
        in_turn: True if lanes that wait for their turn may be woken one by one, which saves polls.

    Attributes:
        groups: the groups, with the basic blocks where they go on.
        is_endless: True if, when the wave last stopped, all groups were in loops that change nothing; only other waves
            could end them.
        is_alone: True if such a loop is the only remaining group, so that no other thread of the wave can end it.
    """

    def __init__(self, in_turn: bool = True) -> None:
        self.groups: list[tuple[Group, int]] = []
        self.is_endless = self.is_alone = False
        self._endless = self._wakes = 0
        self._is_released = False
        self._woken = Counter[int]()  # lanes per basic block
        # wakes in a row of which one lane went on each, how many there must be, whether the last one was for one lane
        self._turns, self._needed_turns, self._is_turn = 0, FIRST_TURNS if in_turn else NEVER, False
        self._by_block = True  # the order of turns: blocks, then threads, or threads, then blocks

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def takes_turns(self) -> bool:
        """True if the lanes that wait may go on in a known order."""
        return self._needed_turns <= MAX_TURNS

    def begin(self) -> None:
        """Begin a run of the wave."""
        self.is_endless = self.is_alone = False
        self._endless = self._wakes = 0
        self._is_released = False

    def add(self, group: Group, block: int) -> None:
        """Add a group that goes on at a basic block."""
        self.groups.append((group, block))

    def add_endless(self, is_alone: bool) -> None:
        """Record that the next group is in a loop that changes nothing."""
        self._endless += 1
        self.is_alone = is_alone

    def note_release(self) -> None:
        """Record that a barrier has released threads, which may write what the groups wait for."""
        self._is_released = True

    def next(self) -> list[tuple[Group, int]]:
        """Return the groups to wake, to poll once, if other threads went on since the last wake; else none."""
        lanes = self._lanes()
        left = {block: count - lanes[block] for block, count in self._woken.items() if lanes[block] < count}
        if self._wakes == MAX_WAKES or not (left or self._is_released or self._is_turn):
            return []
        turn = None if self._is_released else self._turn(left)
        wakes = self._wakes + 1
        self.begin()
        self._wakes, self._is_turn = wakes, turn is not None
        if turn is not None:
            self._woken = lanes
            return [self._first(turn)]
        return self._take(lanes, SPIN_LIMIT - 1)

    def _turn(self, left: dict[int, int]) -> int | None:
        """Return the basic block of the group of which to wake one lane, given the lanes that left; None for all."""
        if self._is_turn and not left:
            self._needed_turns, self._by_block = self._needed_turns * 2, not self._by_block
        self._turns = self._turns + 1 if list(left.values()) == [1] else 0
        is_next = self._turns >= self._needed_turns and any(block in left for _, block in self.groups)
        return next(iter(left)) if is_next else None

    def _first(self, block: int) -> tuple[Group, int]:
        """Remove the first lane that goes on at a basic block."""
        at = next(at for at, (_, its) in enumerate(self.groups) if its == block)
        group, _ = self.groups.pop(at)
        if group.lanes.n > 1:
            group, rest = group.split(group.lanes.first(self._by_block))
            self.groups.insert(at, (rest, block))
        group.loops = SPIN_LIMIT - 1
        return group, block

    def end(self) -> list[tuple[Group, int]]:
        """Return all groups, for the wave's next run."""
        self.is_endless = self._endless == len(self.groups)
        self._is_turn = False
        return self._take(self._lanes(), 0)

    def _lanes(self) -> Counter[int]:
        lanes = Counter[int]()
        for group, block in self.groups:
            lanes[block] += group.lanes.n
        return lanes

    def _take(self, lanes: Counter[int], loops: int) -> list[tuple[Group, int]]:
        self._woken, taken, self.groups = lanes, self.groups, []
        for group, _ in taken:
            group.loops = loops
        return taken


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
    """The iterations of each loop of a wave, and the saved states."""

    def __init__(self, blocks: int) -> None:
        self._iterations = [0] * blocks
        self._next_comparison = [FIRST_COMPARISON] * blocks
        self._saved: dict[int, _SavedState] = {}

    def reset(self) -> None:
        """Discard all states, because others may have changed memory."""
        blocks = len(self._iterations)
        self._iterations, self._next_comparison = [0] * blocks, [FIRST_COMPARISON] * blocks
        self._saved.clear()

    def is_seen_at(self, group: Group, block: int, state: Callable[[], State]) -> bool:
        """Count an iteration of the loop at a block; return True if the wave was in this state before."""
        iterations = self._iterations[block] = self._iterations[block] + 1
        return iterations >= self._next_comparison[block] and self._compare(group, block, state(), iterations)

    def _compare(self, group: Group, block: int, state: State, iterations: int) -> bool:
        start = 1 << iterations.bit_length() - 1
        last = start + max(MIN_COMPARISONS, start // COMPARED_SHARE)
        self._next_comparison[block] = iterations + 1 if iterations < last else 2 * start
        saved = self._saved.get(block)
        if iterations == start or saved is None:
            self._saved[block] = _SavedState(state.own(group, block), state.changes())
            return False
        is_seen = _equal(saved.own, state.own(group, block)) and saved.is_repeated(state)
        if is_seen:  # restart the count: else each further group would need twice the iterations of the one before
            self._iterations[block], self._next_comparison[block] = 0, FIRST_COMPARISON
            del self._saved[block]
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

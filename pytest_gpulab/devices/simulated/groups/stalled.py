"""Groups that spin on other threads' writes, set aside (stalled) until other groups have run.

Blocks may wait for each other in a chain: each goes on when its predecessor has. So the groups are woken again as long
as lanes leave their loops, to poll once. Otherwise each link of the chain would cost a round of all waves.
"""

from __future__ import annotations

from collections import Counter

from .group import Group

SPIN_LIMIT = 64  # iterations of a spinning loop before other groups run
MAX_WAKES = 1024  # in a row; threads that pass a token around may need another wave to stop them


class StalledGroups:
    """The stalled groups of a wave.

    Attributes:
        groups: the groups, with the basic blocks where they go on.
        is_endless: True if, when the wave last stopped, all groups were in loops that change nothing; only other waves
            could end them.
        is_alone: True if such a loop is the only remaining group, so that no other thread of the wave can end it.
    """

    def __init__(self) -> None:
        self.groups: list[tuple[Group, int]] = []
        self.is_endless = self.is_alone = False
        self._endless = self._wakes = 0
        self._is_released = False
        self._woken = Counter[int]()  # lanes per basic block

    def __len__(self) -> int:
        return len(self.groups)

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
        """Return all groups, to poll once, if other threads went on since the last wake; else none."""
        lanes = self._lanes()
        have_left = any(lanes[block] < count for block, count in self._woken.items())
        if self._wakes == MAX_WAKES or not (have_left or self._is_released):
            return []
        wakes = self._wakes + 1
        self.begin()
        self._wakes = wakes
        return self._take(lanes, SPIN_LIMIT - 1)

    def end(self) -> list[tuple[Group, int]]:
        """Return all groups, for the wave's next run."""
        self.is_endless = self._endless == len(self.groups)
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

"""The progress of a launch that is slow for its size: a thread executes a basic block for the first time.

In an endless loop, no thread does so after the first iterations, whatever the loop computes and stores. At a lock or in
a chain of blocks, one thread after the other does. Where counters end all loops around a block, each execution of it is
progress.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .lanes import Lanes, Shape


class Progress:
    """The lanes of a wave that have executed each basic block since the launch became slow.

    `is_counted` returns whether counters end all loops around a block.
    """

    def __init__(self, shape: Shape, is_counted: Callable[[int], bool]) -> None:
        self._lanes, self._is_counted = shape.threads * shape.columns, is_counted
        self._seen: dict[int, npt.NDArray[np.bool_]] = {}
        self._last: dict[int, Lanes] = {}

    def is_made(self, lanes: Lanes, block: int) -> bool:
        """Record that lanes execute a block; return whether this is progress."""
        return self._is_counted(block) or (self._last.get(block) is not lanes and self._is_first(lanes, block))

    def _is_first(self, lanes: Lanes, block: int) -> bool:
        self._last[block] = lanes
        seen = self._seen.setdefault(block, np.zeros(self._lanes, np.bool_))
        is_first = not seen[lanes.position].all()
        seen[lanes.position] = True
        return is_first

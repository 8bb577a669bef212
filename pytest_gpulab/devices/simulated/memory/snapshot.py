"""Copies of global memory, for another run from the same contents."""

import numpy as np

from .spaces import Allocation, Arena

MAX_BYTES = 256 << 20  # of global memory that is copied for another run


class Snapshot:
    """A copy of global memory and of its record of written bytes."""

    def __init__(self, arena: Arena) -> None:
        self._held = [
            (allocation, allocation.data.copy(), None if allocation.written is None else allocation.written.copy())
            for allocation in _lasting(arena)
        ]

    def restore(self) -> None:
        """Restore the contents of memory."""
        for allocation, data, written in self._held:
            allocation.data[:] = data
            allocation.written = written

    def differs(self) -> bool:
        """Return whether the contents of memory have changed."""
        return any(not np.array_equal(allocation.data, data) for allocation, data, _ in self._held)


def _lasting(arena: Arena) -> list[Allocation]:
    """Return the allocations that outlast a launch, which are all but its heap."""
    return [allocation for allocation in arena.allocations if not allocation.is_heap]


def snapshot(arena: Arena) -> Snapshot | None:
    """Copy memory before a launch that may run again; return None if it is too large."""
    size = sum(len(allocation.data) for allocation in _lasting(arena))
    return Snapshot(arena) if size <= MAX_BYTES else None

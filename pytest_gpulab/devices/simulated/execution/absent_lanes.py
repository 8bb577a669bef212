"""Check whether a launch depends on shuffles from lanes that are inactive or have exited.

CUDA leaves the value of such a shuffle undefined; an H100 returns 0. Many correct kernels ignore it, as in the upper
lanes of a tree or before a bounds check. So the launch runs again with other values, and only a difference is a hazard.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated.memory.spaces import Allocation, Arena

from .launch_state import LaunchState
from .launching import run_blocks

MAX_BYTES = 256 << 20  # of global memory that is copied for another run
# The largest float and the smallest one, which are extreme as integers, too.
_OTHERS = (np.uint32(0x7F7FFFFF), np.uint32(0xFF7FFFFF))


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


@contextmanager
def judged(launch: LaunchState, sms: int) -> Iterator[None]:
    """Report shuffles from absent lanes after a launch with shuffles, unless its results do not depend on them."""
    before = _snapshot(launch)
    yield
    if launch.absences and launch.checker is not None and (before is None or _depends(launch, before, sms)):
        launch.hazards.update(launch.absences)


def _snapshot(launch: LaunchState) -> Snapshot | None:
    """Copy memory before a launch that may run again; return None if it is too large."""
    size = sum(len(allocation.data) for allocation in _lasting(launch.arena))
    return Snapshot(launch.arena) if size <= MAX_BYTES else None


def _depends(launch: LaunchState, before: Snapshot, sms: int) -> bool:
    after = Snapshot(launch.arena)
    options = replace(launch.options, check=False)
    try:
        for value in _OTHERS:
            before.restore()
            again = replace(launch, options=options, absent=value, counters=None, hazards={})
            try:
                run_blocks(again, sms)
            except KernelFault as fault:
                return fault.code != "time-limit"  # a time limit proves nothing
            if after.differs():
                return True
        return False
    finally:
        after.restore()

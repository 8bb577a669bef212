"""Shuffles from lanes that are inactive or have exited: whether a launch depends on their undefined values.

CUDA leaves such a value undefined, an H100 gives 0. Many correct kernels drop it: the upper lanes of a tree, a bounds
check after the shuffle. So a launch that shuffles so runs again with other values, and only a difference is a hazard.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated.memory.printf import Printer
from pytest_gpulab.devices.simulated.memory.spaces import Allocation, Arena

from .launching import run_blocks
from .wave import Launch

MAX_BYTES = 256 << 20  # of memory that is kept for another run
_OTHERS = (np.uint32(0x7F7FFFFF), np.uint32(0xFF7FFFFF))  # the largest float and the smallest; far off as integers, too


class Snapshot:
    """The contents of global memory, and which of its bytes were written."""

    def __init__(self, arena: Arena) -> None:
        self._held = [
            (allocation, allocation.data.copy(), None if allocation.written is None else allocation.written.copy())
            for allocation in _lasting(arena)
        ]

    def restore(self) -> None:
        """Give memory its contents back."""
        for allocation, data, written in self._held:
            allocation.data[:] = data
            allocation.written = written

    def differs(self) -> bool:
        """Whether memory holds anything else now."""
        return any(not np.array_equal(allocation.data, data) for allocation, data, _ in self._held)


def _lasting(arena: Arena) -> list[Allocation]:
    """The allocations that outlast a launch: all but its heap."""
    return [allocation for allocation in arena.allocations if not allocation.is_heap]


def snapshot(launch: Launch) -> Snapshot | None:
    """Keep what a launch that may have to run again begins with; None where it need not, or cannot."""
    if not launch.options.check or not launch.program.shuffles:
        return None
    size = sum(len(allocation.data) for allocation in _lasting(launch.arena))
    return Snapshot(launch.arena) if size <= MAX_BYTES else None


def judge(launch: Launch, before: Snapshot | None, sms: int) -> None:
    """Report the shuffles of a launch that is over, unless it leaves the same behind whatever absent lanes give."""
    if launch.absences and launch.watch is not None and (before is None or _depends(launch, before, sms)):
        launch.hazards.update(launch.absences)


def _depends(launch: Launch, before: Snapshot, sms: int) -> bool:
    after = Snapshot(launch.arena)
    options = replace(launch.options, check=False)
    try:
        for value in _OTHERS:
            before.restore()
            again = replace(launch, options=options, absent=value, printer=Printer(), counters=None, hazards={})
            try:
                run_blocks(again, sms)
            except KernelFault as fault:
                return fault.code != "time-limit"  # nobody knows then
            if after.differs():
                return True
        return False
    finally:
        after.restore()

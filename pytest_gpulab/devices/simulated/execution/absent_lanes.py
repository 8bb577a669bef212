"""Check whether a launch depends on shuffles from lanes that are inactive or have exited.

CUDA leaves the value of such a shuffle undefined; an H100 returns 0. Many correct kernels ignore it, as in the upper
lanes of a tree or before a bounds check. So the launch runs again with other values, and only a difference is a hazard.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated.memory.snapshot import Snapshot, snapshot

from .launch_state import LaunchState
from .launching import run_blocks

# The largest float and the smallest one, which are extreme as integers, too.
_OTHERS = (np.uint32(0x7F7FFFFF), np.uint32(0xFF7FFFFF))


@contextmanager
def judged(launch: LaunchState, sms: int) -> Iterator[None]:
    """Report shuffles from absent lanes after a launch with shuffles, unless its results do not depend on them."""
    before = snapshot(launch.arena)
    yield
    if launch.absences and launch.checker is not None and (before is None or _depends(launch, before, sms)):
        launch.hazards.update(launch.absences)


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

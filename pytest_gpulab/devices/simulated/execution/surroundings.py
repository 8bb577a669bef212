"""Clocks and multiprocessor numbers, which differ at each launch, as on hardware.

No kernel may depend on them: a result that does differs between launches.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_gpulab.devices.simulated.groups.lanes import Lanes

if TYPE_CHECKING:
    from .wave import Wave


class Surroundings:
    """The clocks and multiprocessors of a launch.

    Args:
        sms: number of multiprocessors of the GPU.
    """

    def __init__(self, sms: int) -> None:
        self.sms = np.uint32(sms)
        self._cycles = int.from_bytes(os.urandom(6), "little")
        self._nanoseconds = time.time_ns()
        self._first = self._cycles % sms

    def clock(self, wave: Wave) -> Any:
        """Return `%clock64`: a random start plus the basic blocks executed; each read increases it."""
        return np.uint64(self._cycles + _progress(wave))

    def timer(self, wave: Wave) -> Any:
        """Return `%globaltimer`, in the same way."""
        return np.uint64(self._nanoseconds + _progress(wave))

    def multiprocessor(self, lanes: Lanes) -> Any:
        """Return `%smid`: blocks are assigned to the multiprocessors in turn."""
        return (lanes.block + np.uint32(self._first)) % self.sms


def _progress(wave: Wave) -> int:
    wave.clock_reads += 1
    return wave.steps + wave.clock_reads


def low(value: Any) -> Any:
    """Return the low half of a 64-bit value."""
    return np.uint32(int(value) & 0xFFFFFFFF)


def high(value: Any) -> Any:
    """Return the high half of a 64-bit value."""
    return np.uint32(int(value) >> 32)

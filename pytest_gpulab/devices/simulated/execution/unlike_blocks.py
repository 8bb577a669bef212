"""Blocks that pass other barriers than those of the watched wave.

If one wave of a large launch is watched for hazards, a barrier that few of the other blocks leave out goes unnoticed.
So the passed barriers are compared, as a number. One block for each other number runs once more, watched, after all
others. Memory is restored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated.memory.snapshot import snapshot

from .launch_state import LaunchState

MOST_BLOCKS = 64  # in the further wave
MOST_THREADS = 16_384

Blocks = npt.NDArray[np.intp]


class UnlikeBlocks:
    """One block for each number that stands for passed barriers, of a launch that watches one of its waves."""

    def __init__(self, launch: LaunchState) -> None:
        self._launch = launch
        self._first: dict[int, int] = {}  # a block for each number
        self._watched: set[int] = set()  # the numbers of blocks that were watched

    def end_wave(self, block_ids: Blocks, passed: npt.NDArray[Any]) -> None:
        """Note the number of each block of a wave; see `Barriers.passed`."""
        numbers, columns = np.unique(passed, return_index=True)
        if block_ids[0] == self._launch.watched:
            self._watched.update(numbers.tolist())
        elif len(self._first) < MOST_BLOCKS:
            self._first = dict(zip(numbers.tolist(), block_ids[columns].tolist(), strict=True)) | self._first

    def watch(self, run: Callable[[Blocks], None]) -> None:
        """Run blocks of the numbers that were not watched, if blocks do not depend on the order of all.

        Without the other blocks, a fault says nothing about the kernel. Then the hazards before it do not count either.
        """
        launch, most = self._launch, min(MOST_BLOCKS, max(1, MOST_THREADS // np.prod(self._launch.block)))
        unlike = sorted(block for number, block in self._first.items() if number not in self._watched)[:most]
        if not unlike or launch.program.communicates or (before := snapshot(launch.arena)) is None:
            return
        assert launch.checker is not None
        launch.checker.end()
        hazards, issued, longest = dict(launch.hazards), launch.tally.issued, dict(launch.longest)
        launch.watched, launch.last_wave = unlike[0], -1
        try:
            run(np.array(unlike))
        except KernelFault:
            launch.checker.end()
            launch.hazards.clear()
            launch.hazards.update(hazards)
        finally:
            before.restore()
            launch.tally.issued, launch.longest = issued, longest

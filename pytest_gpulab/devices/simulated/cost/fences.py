"""Memory fences: the time that warps wait at them, during which their SM has little else to do.

A fence waits until all earlier accesses of its warp are visible to the GPU, or to the whole system. The fences of an SM
are served one after another. Those that come meanwhile are served together, so each waits for half a fence more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_gpulab.devices.simulated.counting.paths import Rows
from pytest_gpulab.devices.simulated.gpus import Gpu
from pytest_gpulab.devices.simulated.translation.analysis.waits import fence_scope
from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock

_QUEUE = 0.5  # fences that are under way when another one comes


@dataclass(frozen=True)
class Fences:
    """The fences of an average block: those of its slowest warp, by scope, and the number of its warps with fences.

    Fences of a block's scope cost as little as a barrier.
    """

    of_gpu: float
    of_system: float
    warps: float

    def cycles(self, gpu: Gpu, blocks: float) -> float:
        """Return the cycles of waiting per block, for a number of blocks on an SM."""
        warps = max(self.warps * blocks, 1.0)
        queue = 1 + _QUEUE * (1 - 1 / warps)
        system = max(gpu.system_fence_latency * queue, gpu.system_fence_cycles * warps)
        return self.of_gpu * gpu.fence_latency * queue + self.of_system * system


def fences(steps: Sequence[TranslatedBlock], paths: Rows, weights: Rows) -> Fences:
    """Return the fences of the average of the blocks that ran, by their paths and weights; see `Paths.kept`."""
    scopes = [[fence_scope(statement) for statement in step.statements] for step in steps]
    executed = [np.tensordot([step.count(scope) for step in scopes], paths, axes=(0, 0)) for scope in ("gpu", "system")]
    of_gpu, of_system = (float(np.average(counts.max(axis=0), weights=weights)) for counts in executed)
    return Fences(
        of_gpu, of_system, float(np.average(np.count_nonzero(executed[0] + executed[1], axis=0), weights=weights))
    )

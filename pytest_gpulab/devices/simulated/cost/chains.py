"""Blocks that wait for one another: the number of consecutive waits (hops), and the time of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from pytest_gpulab.devices.simulated.counting.paths import Rows
from pytest_gpulab.devices.simulated.counting.workload import SITE_BITS, Workload
from pytest_gpulab.devices.simulated.gpus import Gpu
from pytest_gpulab.devices.simulated.translation.analysis.waits import hop_accesses


@dataclass(frozen=True)
class Chain:
    """The longest chain of blocks that wait for each other."""

    waits: float = 0.0  # number of blocks in it
    together: int = 1  # number of blocks that a warp polls at once
    looks_back: bool = False  # True if blocks need not wait for the results of those before, see `_looks_back`
    hop_cycles: float = 0.0  # cycles per hop
    waiting: Sequence[int] = ()  # basic blocks of loops that may wait for other blocks

    def cycles(self, resident: int) -> float:
        """Return the cycles of all hops.

        Blocks that look back pass `together` blocks per hop, until one knows its final sum. After t hops, the block
        that has passed t * together others knows its own. So t * together more blocks know per hop, and the resident
        ones need sqrt(2 * resident / together) hops.
        """
        one_by_one = self.waits / self.together
        saved = min(1.0, sqrt(2 * self.together / resident)) if self.looks_back else 1.0
        return one_by_one * saved * self.hop_cycles

    def alone(self, paths: Rows) -> Rows:
        """Return executions per basic block without repetitions of waiting loops: hops include them."""
        found: Rows = paths.copy()
        found[list(self.waiting)] = np.minimum(found[list(self.waiting)], 1)
        return found


def chain(workload: Workload, cycles: Sequence[float], gpu: Gpu, scale: float) -> Chain:
    """Return the chain of the blocks of a launch.

    A hop takes the flag's way to the L2 cache, the answer to the load that polls it, one answer for each further load
    that observes other threads, and each fence. If blocks walk over those before them, these are the accesses of one
    step of the walk, with its computation, and the fence of one flag. A flag that comes while a poll is under way waits
    for the next one: half a poll on average, and n / (n + 1) polls for the last of n flags.

    `cycles` are those of each basic block, `scale` is the number of all blocks per block that ran.
    """
    polled = workload.polled.distinct()
    if not len(polled):
        return Chain()
    together, looks_back = workload.polled_together, _looks_back(workload)
    walks = looks_back or together > 1
    found = hop_accesses(workload.program, walks)
    fences = found.fences * gpu.fence_latency + found.system_fences * gpu.system_fence_latency
    late = 1 - 1 / (together + (not looks_back))
    step = sum(cycles[i] for i in found.waiting) if walks else found.loads * gpu.l2_latency
    hop = (1 + late) * gpu.l2_latency + step + fences
    return Chain(len(polled) * (scale if len(polled) > 1 else 1.0), together, looks_back, hop, found.waiting)


def _looks_back(workload: Workload) -> bool:
    """Return True if two instructions write to most of the polled words.

    The first one publishes the block's own sum, the second one that of all blocks up to it. Other blocks can use the
    first sum, so they need not wait for the second.
    """
    published = workload.published.distinct() >> SITE_BITS  # once per instruction that writes there
    published = published[np.isin(published, workload.polled.distinct())]
    blocks = len(np.unique(published))
    return blocks > 1 and len(published) > 1.5 * blocks

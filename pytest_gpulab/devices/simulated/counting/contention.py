"""Contention within an SM: compare-and-swap loops, and misses of the constant cache."""

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.gpus import Gpu
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.translation.sites import Site

from .banks import fresh, met_again, wavefronts

_MOSTLY = 0.6  # share of a warp's cache lines that it read in its last access

Rows = npt.NDArray[np.int64]


class Contention:
    """Costs of contention within an SM, summed while a launch runs; gpus.toml has the constants.

    These are cycles of the load/store unit for loops of atomics on shared memory, and misses of the constant cache.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.loop_cycles = self.missed_constants = 0.0
        self._lines: dict[int, Rows] = {}  # lines of constant memory that each site read last

    def shared_loops(self, lanes: Lanes, site: Site, address: Value, rows: Rows, repeat: int) -> None:
        """Count compare-and-swap loops on shared memory; `rows` are the addresses by warp.

        A warp iterates once per lane at one address, and again if another warp of its block interferes. Lanes at
        several addresses in one bank delay each other, too.
        """
        column = np.broadcast_to(lanes.column.astype(np.int64), lanes.shape)
        met = np.unique((column << 32) + address.astype(np.int64), return_counts=True)[1]
        of_block = float((met * met).sum() / met.sum())  # lanes at a lane's address, on average
        of_warp, banks = met_again(rows).max(axis=1) + 1, wavefronts(rows, site.nbytes)
        gpu, wide = self._gpu, self._gpu.loop_wide_factor if site.nbytes == 8 else 1.0
        cycles = wide * (gpu.loop_lane_cycles * of_warp + gpu.loop_block_lane_cycles * of_block)
        cycles = cycles + gpu.loop_bank_cycles / wide * banks * banks
        self.loop_cycles += float(cycles.sum()) * repeat

    def scattered_constants(self, site: Site, rows: Rows, repeat: int) -> None:
        """Count reads of constant memory with different addresses per warp; `rows` are the addresses by warp.

        Lines of a warp's last access are mostly still in the cache: misses cluster, and other warps run meanwhile.
        """
        line_bytes, sets = self._gpu.constant_line_bytes, self._gpu.constant_cache_sets
        of_warps = np.unique((np.arange(len(rows)).reshape(-1, 1) << 32 | rows // line_bytes)[rows >= 0])
        known = np.isin(of_warps, self._lines.get(site.index, ())).mean()
        self._lines[site.index] = of_warps
        of_set = np.bincount(np.unique(of_warps & 0xFFFF_FFFF) % sets, minlength=sets)
        needed_bytes = sets * line_bytes * (of_set * of_set).sum() / of_set.sum()
        missed = max(0.0, 1 - self._gpu.constant_cache_bytes / needed_bytes) ** (3 if known > _MOSTLY else 1)
        # Other warps hide the first miss of a warp.
        further = np.count_nonzero(fresh(np.sort(rows, axis=1))) - len(rows)
        self.missed_constants += missed * further * repeat

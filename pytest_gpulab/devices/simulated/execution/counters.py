"""Counts of a launch under Nsight Compute's names: warps and lanes by basic block, memory traffic by instruction.

Memory counts follow how the hardware groups a warp's accesses: 32-byte sectors in global memory; 4-byte banks in
shared memory, where 8-byte accesses go by half warps and 16-byte ones by quarters.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.execution.lanes import WARP, Lanes, Value, to_warps
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.sites import Site

_SECTOR_SHIFT = np.uint64(5)
BANKS = 32


class Counters:
    """Counts of the blocks that ran; `totals` scales them to the whole grid.

    Attributes:
        warps, lanes: executions of each basic block, by warps and by lanes.
        requests: warp-level executions of each memory instruction, by site.
        units: sectors (global), wavefronts (shared) or distinct words (constant) of each memory instruction.
        touched: distinct sectors of global memory that were read or written.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.warps = [0] * len(program.steps)
        self.lanes = [0] * len(program.steps)
        self.requests: dict[int, int] = defaultdict(int)
        self.units: dict[int, int] = defaultdict(int)
        self.ideal: dict[int, int] = defaultdict(int)
        self._touched: list[npt.NDArray[np.int64]] = []

    def step(self, block: int, lanes: Lanes) -> None:
        """A group ran a basic block."""
        self.warps[block] += lanes.warp_count
        self.lanes[block] += lanes.n

    def arena(self, lanes: Lanes, site: Site, address: Value) -> None:
        """A group accessed global or constant memory."""
        if site.space == "const":
            self._add(site, lanes, address, lambda rows: _distinct(rows >> np.int64(2)))
            return
        sectors = self._add(site, lanes, address, lambda rows: _distinct(rows >> np.int64(5)))
        self._touched.append(np.unique(sectors >> np.int64(5)))

    def shared(self, lanes: Lanes, site: Site, address: Value) -> None:
        """A group accessed shared memory."""
        self._add(site, lanes, address, lambda rows: wavefronts(rows, site.nbytes))

    def _add(self, site: Site, lanes: Lanes, address: Value, units: Any) -> npt.NDArray[np.int64]:
        rows, repeat = _rows(lanes, address)
        active = rows.max(axis=1) >= 0
        rows = rows[active]
        self.requests[site.index] += len(rows) * repeat
        self.units[site.index] += int(units(rows).sum()) * repeat
        present: npt.NDArray[np.int64] = rows[rows >= 0]
        return present

    @property
    def touched(self) -> int:
        """Distinct sectors of global memory."""
        return len(np.unique(np.concatenate(self._touched))) if self._touched else 0

    def totals(self, scale: float) -> dict[str, float]:
        """Return the launch's counts; `scale` is blocks of the grid over blocks that ran."""
        result: dict[str, float] = dict.fromkeys((*_NAMES.values(), *_EXECUTION), 0.0)
        for warps, lanes, step in zip(self.warps, self.lanes, self.program.steps, strict=True):
            result["smsp__inst_executed.sum"] += warps * step.issue
            result["smsp__thread_inst_executed.sum"] += lanes * step.issue
            result["gpulab__ptx_thread_inst.sum"] += lanes * step.instructions
            result["gpulab__barriers.sum"] += warps * (step.end == "barrier")
        for site in self.program.sites:
            for what, counts in (("requests", self.requests), ("units", self.units)):
                name = _NAMES.get((_space(site), site.access, what))
                if name is not None:
                    result[name] += counts[site.index]
        result["gpulab__touched_sectors.sum"] = self.touched
        return {name: value * scale for name, value in result.items()}


_EXECUTION = (
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum",
    "gpulab__ptx_thread_inst.sum",
    "gpulab__barriers.sum",
)


def _space(site: Site) -> str:
    return "global" if site.space == "generic" else site.space


_NAMES = {
    ("global", "read", "requests"): "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    ("global", "read", "units"): "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    ("global", "write", "requests"): "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    ("global", "write", "units"): "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    ("global", "atomic", "requests"): "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
    ("global", "atomic", "units"): "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
    ("shared", "read", "requests"): "smsp__inst_executed_op_shared_ld.sum",
    ("shared", "read", "units"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    ("shared", "write", "requests"): "smsp__inst_executed_op_shared_st.sum",
    ("shared", "write", "units"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ("shared", "atomic", "units"): "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
    ("const", "read", "requests"): "idc__requests.sum",
    ("const", "read", "units"): "gpulab__constant_words.sum",
}


def _rows(lanes: Lanes, address: Value) -> tuple[npt.NDArray[np.int64], int]:
    """Return addresses as (warps, 32), -1 for absent lanes, and how many blocks each row stands for."""
    if address.ndim == 0 or (address.shape[0] == 1 and not lanes.flat):
        address = np.broadcast_to(address, (lanes.shape[0], address.shape[1] if address.ndim else 1))
    grid = to_warps(lanes, address.astype(np.int64), -1)
    repeat = len(lanes.columns) if grid.shape[2] == 1 and not lanes.flat else 1
    return np.ascontiguousarray(grid.transpose(0, 2, 1)).reshape(-1, WARP), repeat


def _distinct(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Distinct non-negative values of each row."""
    rows = np.sort(rows, axis=1)
    fresh = np.empty(rows.shape, np.bool_)
    fresh[:, 0] = True
    np.not_equal(rows[:, 1:], rows[:, :-1], out=fresh[:, 1:])
    return np.asarray((fresh & (rows >= 0)).sum(axis=1))


def wavefronts(rows: npt.NDArray[np.int64], nbytes: int) -> npt.NDArray[np.int64]:
    """Passes that each warp's shared-memory access takes: the most distinct words in one bank, summed over its parts.

    Args:
        rows: byte addresses, (warps, 32), -1 for absent lanes.
        nbytes: of one lane's access.
    """
    words_each = max(nbytes // 4, 1)
    parts = rows.reshape(len(rows) * words_each, WARP // words_each)
    words = parts >> np.int64(2)
    if words_each > 1:
        spread = words[:, :, None] + np.arange(words_each)
        words = np.where(parts[:, :, None] >= 0, spread, -1).reshape(len(parts), -1)
    words = np.sort(words, axis=1)
    fresh = np.empty(words.shape, np.bool_)
    fresh[:, 0] = True
    np.not_equal(words[:, 1:], words[:, :-1], out=fresh[:, 1:])
    fresh &= words >= 0
    key = np.arange(len(words))[:, None] * BANKS + (words & (BANKS - 1))
    longest = np.bincount(key[fresh], minlength=len(words) * BANKS).reshape(-1, BANKS).max(axis=1)
    return np.asarray(longest.reshape(len(rows), words_each).sum(axis=1))

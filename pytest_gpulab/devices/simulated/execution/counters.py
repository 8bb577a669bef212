"""What a launch did, counted: warps and lanes by basic block, memory traffic by instruction.

Memory counts follow how the hardware groups a warp's accesses: 32-byte sectors in global memory; 4-byte banks in
shared memory, where 8-byte accesses go by half warps and 16-byte ones by quarters. Loads that L1 would answer are
sectors, too: what is asked for is counted, not what is moved. `accounts` makes named figures of the counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.execution.banks import fresh, least_wavefronts, wavefronts, word_passes
from pytest_gpulab.devices.simulated.execution.footprint import Seen
from pytest_gpulab.devices.simulated.execution.joining import Joiner, SharedAccess
from pytest_gpulab.devices.simulated.execution.lanes import WARP, Lanes, Value, to_warps
from pytest_gpulab.devices.simulated.execution.workload import Asked, Workload
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.sites import Site

_WORD, _SECTOR, _SECTORS_OF_LINE = np.int64(2), np.int64(5), np.int64(2)  # address bits within one
Rows = npt.NDArray[np.int64]


@dataclass
class Traffic:
    """What one memory instruction moved in one memory space.

    Attributes:
        requests: executions by warps.
        units: sectors (global), wavefronts (shared) or distinct words (constant).
        ideal: wavefronts that as many bytes need without bank conflicts.
        addresses: distinct addresses within a request, added up.
        passes: lanes that met at one address, the most of each request added up (atomics only).
    """

    requests: int = 0
    units: int = 0
    ideal: int = 0
    addresses: int = 0
    passes: int = 0

    def add(self, requests: int, units: int) -> None:
        """Count more of them."""
        self.requests += requests
        self.units += units


class Counters:
    """Counts of the blocks that ran.

    Attributes:
        warps, lanes: executions of each basic block, by warps and by lanes.
        taken: lanes that followed the branch at the end of each basic block.
        parted: warps that the branch divided.
        traffic: by memory instruction (`Site.index`) and the space that it reached.
    """

    def __init__(self, program: Program, workload: Workload | None = None) -> None:
        self.program, self.workload = program, workload
        self._sectors = Seen()
        self.warps = [0] * len(program.steps)
        self.lanes = [0] * len(program.steps)
        self.taken = [0] * len(program.steps)
        self.parted = [0] * len(program.steps)
        self.traffic: dict[tuple[int, str], Traffic] = defaultdict(Traffic)
        self.joiner = Joiner({})

    def expect_joined(self, widths: Mapping[int, int]) -> None:
        """Count shared accesses as the assembler joins them: by `Site.index`, the bytes of the widest one."""
        self.joiner = Joiner(widths)

    def step(self, block: int, lanes: Lanes) -> None:
        """A group ran a basic block."""
        self.warps[block] += lanes.warp_count
        self.lanes[block] += lanes.n
        if self.workload is not None:
            self.workload.step(block, lanes)
        if not self.joiner.is_empty:
            self.finish()

    def finish(self) -> None:
        """Count what was kept back in the hope of neighbours."""
        for access in self.joiner.flush():
            self._shared(access)

    def branch(self, block: int, lanes: Lanes, taken: Value) -> None:
        """A group came to a branch; `taken` is true where it is followed."""
        count = np.count_nonzero(taken)
        self.taken[block] += int(count) * lanes.n // taken.size
        if 0 < count < taken.size:
            self.parted[block] += _divided(lanes, taken)

    def arena(self, lanes: Lanes, site: Site, address: Value) -> None:
        """A group accessed global or constant memory."""
        if site.space == "const":
            self._constant(lanes, site, address)
            return
        if self.workload is None and site.access != "atomic" and self._ascending(lanes, site, address):
            return
        rows, repeat = _rows(lanes, address)
        sectors = _in_order(rows >> _SECTOR)
        new, traffic = fresh(sectors), self.traffic[site.index, "global"]
        traffic.add(len(rows) * repeat, int(np.count_nonzero(new)) * repeat)
        if site.access == "atomic":
            again = _met_again(rows)
            traffic.passes += (len(rows) + int(again.max(axis=1).sum())) * repeat
            uniform = address.ndim == 0 or (address.shape[0] == 1 and not lanes.flat)  # one lane acts for all
            if site.op == "atom" and not uniform and again.any():
                traffic.units += _further_sectors(rows, again) * repeat
        if self.workload is not None:
            self.workload.access(lanes, site, address, _asked(site, rows, sectors, repeat))
        else:
            self._sectors.add(sectors[new].astype(np.uint64))

    def _constant(self, lanes: Lanes, site: Site, address: Value) -> None:
        traffic = self.traffic[site.index, "const"]
        if lanes.agree(address):
            traffic.add(lanes.warp_count, lanes.warp_count)
            traffic.addresses += lanes.warp_count
            return
        rows, repeat = _rows(lanes, address)
        words = _distinct(rows >> _WORD) * repeat
        traffic.add(len(rows) * repeat, words)
        traffic.addresses += words if site.nbytes >= 4 else _distinct(rows) * repeat

    def _ascending(self, lanes: Lanes, site: Site, address: Value) -> bool:
        """Count an access to global memory if no lane asks for a sector before that of its neighbour, as most do."""
        sectors = address >> np.uint64(_SECTOR)
        if lanes.agree(address):
            self._sectors.add(sectors.reshape(-1))
            self.traffic[site.index, "global"].add(lanes.warp_count, lanes.warp_count)
            return True
        if lanes.flat:
            return False
        falls, starts = sectors[1:] < sectors[:-1], lanes.warp_starts
        falls[starts[1:] - 1] = False
        if falls.any():
            return False
        new = np.empty(sectors.shape, np.bool_)
        np.not_equal(sectors[1:], sectors[:-1], out=new[1:])
        new[starts] = True
        found = sectors[new]
        self._sectors.add(found)
        repeat = len(lanes.columns) if sectors.shape[1] == 1 else 1
        self.traffic[site.index, "global"].add(lanes.warp_count, len(found) * repeat)
        return True

    def shared(self, lanes: Lanes, site: Site, address: Value) -> None:
        """A group accessed shared memory."""
        access = SharedAccess(lanes, site, address, site.nbytes)
        if site.index in self.joiner.widths:
            self.joiner.add(access)
        else:
            self._shared(access)

    def _shared(self, access: SharedAccess) -> None:
        site = access.site
        plain = site.access != "atomic" and access.nbytes <= 4
        if plain and (passes := word_passes(access.lanes, access.address)) is not None:
            traffic, count = self.traffic[site.index, "shared"], access.lanes.warp_count
            traffic.add(count, passes)
            traffic.ideal += count
            return
        rows, repeat = _rows(access.lanes, access.address)
        traffic = self._note(site, "shared", rows, repeat, wavefronts(rows, access.nbytes))
        traffic.ideal += int(least_wavefronts(rows, access.nbytes).sum()) * repeat
        if site.access == "atomic":
            again = _met_again(rows).max(axis=1)
            traffic.passes += (len(rows) + int(again.sum())) * repeat
            if site.serial:
                traffic.units += int(again.sum()) * repeat

    def _note(self, site: Site, space: str, rows: Rows, repeat: int, units: npt.NDArray[np.intp]) -> Traffic:
        traffic = self.traffic[site.index, space]
        traffic.add(len(rows) * repeat, int(units.sum()) * repeat)
        return traffic

    @property
    def touched(self) -> int:
        """Distinct sectors of global memory."""
        if self.workload is not None:
            return self.workload.footprint.touched_sectors
        return len(self._sectors.distinct())

    def sampling_error(self, blocks: int) -> float | None:
        """See `Workload.sampling_error`; launches without a workload run all their blocks."""
        return 0.0 if self.workload is None else self.workload.sampling_error(blocks)


def _divided(lanes: Lanes, taken: Value) -> int:
    """Warps with lanes on both ways of a branch."""
    if lanes.agree(taken):
        return 0
    if not lanes.flat:
        some = np.logical_or.reduceat(taken, lanes.warp_starts, axis=0)
        every = np.logical_and.reduceat(taken, lanes.warp_starts, axis=0)
        return int(np.count_nonzero(some & ~every)) * (len(lanes.columns) if taken.shape[1] == 1 else 1)
    grid = to_warps(lanes, taken.astype(np.int8), -1)
    both = (grid == 0).any(axis=1) & (grid == 1).any(axis=1)
    return int(both.sum())


def _rows(lanes: Lanes, address: Value) -> tuple[Rows, int]:
    """Return the addresses of each warp with a lane here as (warps, 32), and how many blocks each row stands for.

    Absent lanes have the address -1.
    """
    if address.ndim == 0 or (address.shape[0] == 1 and not lanes.flat):
        address = np.broadcast_to(address, (lanes.shape[0], address.shape[1] if address.ndim else 1))
    if lanes.whole_warps:
        repeat = len(lanes.columns) if address.shape[1] == 1 else 1
        return np.ascontiguousarray(address.T, np.int64).reshape(-1, WARP), repeat
    grid = to_warps(lanes, address.astype(np.int64), -1)
    repeat = len(lanes.columns) if grid.shape[2] == 1 and not lanes.flat else 1
    rows = np.ascontiguousarray(grid.transpose(0, 2, 1)).reshape(-1, WARP)
    if lanes.full:
        return rows, repeat
    return rows[rows.max(axis=1) >= 0], repeat


def _asked(site: Site, rows: Rows, sectors: Rows, repeat: int) -> Asked:
    """Say what warps ask of global memory, from their addresses and, sorted, their sectors.

    L1 looks up four lines at once; its banks are those of shared memory, so words of different lines conflict there.
    """
    lines = _changes(sectors >> _SECTORS_OF_LINE)
    passes = -(-lines // 4)
    scattered = lines > 1
    if scattered.any():
        passes[scattered] = np.maximum(passes[scattered], wavefronts(rows[scattered], site.nbytes))
    return Asked(rows, _changes(sectors), lines, passes, repeat)


def _in_order(rows: Rows) -> Rows:
    """Sort each row, unless they all are sorted already, as most are."""
    return rows if (rows[:, 1:] >= rows[:, :-1]).all() else np.sort(rows, axis=1)


def _changes(rows: Rows) -> Rows:
    """Distinct non-negative values of each sorted row."""
    fresh = (rows[:, 1:] != rows[:, :-1]) & (rows[:, 1:] >= 0)
    return np.asarray(fresh.sum(axis=1) + (rows[:, 0] >= 0))


def _distinct(rows: Rows) -> int:
    """Distinct non-negative values of each row, added up."""
    return int(np.count_nonzero(fresh(np.sort(rows, axis=1))))


def _met_again(rows: Rows) -> npt.NDArray[np.intp]:
    """For each lane of sorted-by-address rows, how many lanes before it have its address; 0 for absent lanes."""
    rows = np.sort(rows, axis=1)
    starts = np.where(fresh(rows), np.arange(WARP), 0)
    before = np.arange(WARP) - np.maximum.accumulate(starts, axis=1)
    return np.where(rows >= 0, before, 0)


def _further_sectors(rows: Rows, again: npt.NDArray[np.intp]) -> int:
    """Sectors that requests touch again: lanes that meet at an address take turns, each turn with its own sectors."""
    warp, lane = np.nonzero(again)
    sector = np.sort(rows, axis=1)[warp, lane] >> _SECTOR
    return len(np.unique(np.stack([warp, again[warp, lane], sector]), axis=1).T)

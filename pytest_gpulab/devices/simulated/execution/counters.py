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

from pytest_gpulab.devices.simulated.execution.joining import Joiner, SharedAccess
from pytest_gpulab.devices.simulated.execution.lanes import WARP, Lanes, Value, to_warps
from pytest_gpulab.devices.simulated.execution.workload import Asked, Workload
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.sites import Site

BANKS = 32
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


class Counters:
    """Counts of the blocks that ran.

    Attributes:
        warps, lanes: executions of each basic block, by warps and by lanes.
        taken: lanes that followed the branch at the end of each basic block.
        parted: warps that the branch divided.
        traffic: by memory instruction (`Site.index`) and the space that it reached.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.workload = program, Workload(program)
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
        rows, repeat = _rows(lanes, address)
        if site.space == "const":
            traffic = self._note(site, "const", rows, repeat, _distinct(rows >> _WORD))
            traffic.addresses += int(_distinct(rows).sum()) * repeat
            return
        sectors = _in_order(rows >> _SECTOR)
        asked = _asked(site, rows, sectors, repeat)
        traffic = self._note(site, "global", rows, repeat, asked.sectors)
        if site.access == "atomic":
            again = _met_again(rows)
            traffic.passes += (len(rows) + int(again.max(axis=1).sum())) * repeat
            uniform = address.ndim == 0 or (address.shape[0] == 1 and not lanes.flat)  # one lane acts for all
            if site.op == "atom" and not uniform and again.any():
                traffic.units += _further_sectors(rows, again) * repeat
        self.workload.access(lanes, site, address, asked)

    def shared(self, lanes: Lanes, site: Site, address: Value) -> None:
        """A group accessed shared memory."""
        access = SharedAccess(lanes, site, address, site.nbytes)
        if site.index in self.joiner.widths:
            self.joiner.add(access)
        else:
            self._shared(access)

    def _shared(self, access: SharedAccess) -> None:
        site = access.site
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
        traffic.requests += len(rows) * repeat
        traffic.units += int(units.sum()) * repeat
        return traffic

    @property
    def touched(self) -> int:
        """Distinct sectors of global memory."""
        return self.workload.footprint.touched_sectors


def _divided(lanes: Lanes, taken: Value) -> int:
    """Warps with lanes on both ways of a branch."""
    grid = to_warps(lanes, taken.astype(np.int8), -1)
    both = (grid == 0).any(axis=1) & (grid == 1).any(axis=1)
    repeat = len(lanes.columns) if grid.shape[2] == 1 and not lanes.flat else 1
    return int(both.sum()) * repeat


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


def _fresh(rows: Rows) -> npt.NDArray[np.bool_]:
    """Whether each value of sorted rows is not negative and the first of its kind in its row."""
    fresh = np.empty(rows.shape, np.bool_)
    fresh[:, 0] = True
    np.not_equal(rows[:, 1:], rows[:, :-1], out=fresh[:, 1:])
    fresh &= rows >= 0
    return fresh


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


def _distinct(rows: Rows) -> npt.NDArray[np.intp]:
    """Distinct non-negative values of each row."""
    return np.asarray(_fresh(np.sort(rows, axis=1)).sum(axis=1))


def _met_again(rows: Rows) -> npt.NDArray[np.intp]:
    """For each lane of sorted-by-address rows, how many lanes before it have its address; 0 for absent lanes."""
    rows = np.sort(rows, axis=1)
    starts = np.where(_fresh(rows), np.arange(WARP), 0)
    before = np.arange(WARP) - np.maximum.accumulate(starts, axis=1)
    return np.where(rows >= 0, before, 0)


def _further_sectors(rows: Rows, again: npt.NDArray[np.intp]) -> int:
    """Sectors that requests touch again: lanes that meet at an address take turns, each turn with its own sectors."""
    warp, lane = np.nonzero(again)
    sector = np.sort(rows, axis=1)[warp, lane] >> _SECTOR
    return len(np.unique(np.stack([warp, again[warp, lane], sector]), axis=1).T)


def least_wavefronts(rows: Rows, nbytes: int) -> npt.NDArray[np.intp]:
    """Passes that an access by so many lanes of so many bytes would take without bank conflicts."""
    parts = max(nbytes // 4, 1)
    if parts == 1:
        return np.ones(len(rows), np.intp)
    groups = rows.reshape(len(rows) * parts // 2, 2 * WARP // parts)
    active = (groups.reshape(2 * len(groups), -1) >= 0).any(axis=1).reshape(-1, 2).sum(axis=1)
    active[_together(groups)] = 1
    return np.asarray(active.reshape(len(rows), -1).sum(axis=1))


def wavefronts(rows: Rows, nbytes: int) -> npt.NDArray[np.intp]:
    """Passes that each warp's shared-memory access takes: the most distinct words in one bank, summed over its parts.

    8-byte accesses go by half warps, 16-byte ones by quarters; two neighbouring parts go together where every lane has
    the address of the lane beside it, or every lane that of the next but one, absent lanes aside.

    Args:
        rows: byte addresses, (warps, 32), -1 for absent lanes.
        nbytes: of one lane's access.
    """
    parts = max(nbytes // 4, 1)
    if parts == 1:
        words = rows >> _WORD
        return np.ones(len(rows), np.intp) if _is_conflict_free(words) else _longest(words)
    groups = rows.reshape(len(rows) * parts // 2, 2 * WARP // parts)  # of two neighbouring parts
    words = groups[:, :, None] >> _WORD
    words = np.where(groups[:, :, None] >= 0, words + np.arange(parts), -1)
    halves = words.reshape(2 * len(groups), -1)
    passes = _longest(halves).reshape(-1, 2).sum(axis=1)
    together = _together(groups)
    if together.any():
        passes[together] = _longest(words[together].reshape(int(together.sum()), -1))
    return np.asarray(passes.reshape(len(rows), -1).sum(axis=1))


def _together(groups: Rows) -> npt.NDArray[np.bool_]:
    """Whether both parts of each row go in one pass, bank conflicts aside; rows without lanes do not count."""
    return (_pairwise(groups, 1) | _pairwise(groups, 2)) & (groups >= 0).any(axis=1)


def _pairwise(groups: Rows, apart: int) -> npt.NDArray[np.bool_]:
    """Whether all lanes of a row agree with the lane whose number differs in one bit, absent ones aside."""
    partner = groups[:, np.arange(groups.shape[1]) ^ apart]
    return np.asarray(((groups == partner) | (groups < 0) | (partner < 0)).all(axis=1))


def _is_conflict_free(words: Rows) -> bool:
    """Whether neighbouring lanes have neighbouring words in every row, or all lanes of a row the same, none absent."""
    apart = words[:, 1:] - words[:, :-1]
    return bool(words[0, 0] >= 0 and ((apart == 1).all() or not apart.any()) and (words[:, 0] >= 0).all())


def _longest(words: Rows) -> npt.NDArray[np.intp]:
    """The most distinct non-negative words of each row that lie in one bank."""
    words = np.sort(words, axis=1)
    fresh = _fresh(words)
    key = np.arange(len(words))[:, None] * BANKS + (words & (BANKS - 1))
    return np.asarray(np.bincount(key[fresh], minlength=len(words) * BANKS).reshape(-1, BANKS).max(axis=1))

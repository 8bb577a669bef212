"""Raw counts of a launch: warps and lanes per basic block, memory traffic per instruction.

Accesses are grouped as in hardware: 32-byte sectors in global memory; 4-byte banks in shared memory, with 8-byte
accesses by half warps and 16-byte ones by quarters. Requested sectors are counted, also those of L1 hits. `accounts`
turns the counts into named figures.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, Lanes, Shape, Value, to_warps
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.sites import Site

from .banks import fresh, least_wavefronts, met_again, turns, wavefronts, word_passes
from .footprint import Seen
from .joining import Joiner, SharedAccess
from .requests import Requests, Traffic, Waiting
from .retries import WAVEFRONTS, RetryLoops
from .spread import BarrierSpread
from .workload import GlobalAccess, Workload

_WORD, _SECTOR, _LINE = np.int64(2), np.int64(5), np.int64(7)  # address bits within a word, a sector, a line
_SECTORS_OF_LINE = _LINE - _SECTOR
_ABSENT = np.iinfo(np.int64).min
_WIDE_AT_ONCE = 64  # accesses, and warps per access
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Joined:
    """Accesses that the assembler may have joined; see `sass.joins`."""

    widths: Mapping[int, int] = field(default_factory=dict)  # bytes of the widest machine access by `Site.index`
    atomics: frozenset[int] = frozenset()  # statements that one lane executes for its warp if all have one address
    loads: Mapping[int, int] = field(default_factory=dict)  # executions of a load that a warp waits for at once


class Counters:
    """Counts of the blocks that ran."""

    def __init__(self, program: Program, workload: Workload | None, joined: Joined) -> None:
        self.program, self.workload, self.joined_atomics = program, workload, joined.atomics
        self._sectors = Seen()
        self.warps = [0] * len(program.steps)  # executions of each basic block, by warps
        self.lanes = [0] * len(program.steps)  # the same, by lanes
        # those of both in further trips of loops, which are estimated; see `retries`
        self.further_warps, self.further_lanes = [0] * len(program.steps), [0] * len(program.steps)
        self.divergent = [0] * len(program.steps)  # divergent warps at the branch at its end
        self.traffic: dict[tuple[int, str], Traffic] = defaultdict(Traffic)  # by `Site.index` and memory space
        self.joiner = Joiner(joined.widths)
        self.spread = BarrierSpread()  # the warps that pass barriers of the block, or arrive at them
        self._retries = RetryLoops(program)
        self._barriers = Counter(block for block, _ in program.barrier_rows)
        self._waiting_shared, self._waiting_global = Waiting(word_passes), Waiting(self._sectors_of)
        self._waiting_constant = Waiting(lambda requests: requests.distinct(_WORD)[1])
        # by instruction and size: the addresses of the last access, from its first line on, and its counts
        self._known: dict[tuple[int, int], tuple[Rows, GlobalAccess]] = {}
        self._wide: dict[tuple[int, bool], list[tuple[Traffic, Rows, int]]] = defaultdict(list)

    def step(self, block: int, lanes: Lanes) -> None:
        """Count an execution of a basic block."""
        self.warps[block] += lanes.warp_count
        self.lanes[block] += lanes.n
        if block in self._barriers:
            self.spread.step(lanes, self._barriers[block])
        if self.workload is not None:
            self.workload.step(block, lanes)
        if not self.joiner.is_empty:
            self._joined()

    def end_wave(self, wave: Shape) -> None:
        """Note that all lanes of a wave have exited."""
        self.spread.end(wave)
        if self.workload is not None:
            self.workload.paths.end(wave)

    def _joined(self) -> None:
        """Count the accesses that were held back for joining."""
        for access in self.joiner.flush():
            if access.nbytes <= 4:
                self._words(access.lanes, access.site, access.address)
            else:
                self._passes(access)

    def finish(self) -> None:
        """Count all accesses that were held back."""
        self._joined()
        for waiting in (self._waiting_shared, self._waiting_global, self._waiting_constant):
            waiting.count()
        for nbytes, in_turn in self._wide:
            self._count_wide(nbytes, in_turn)
        for (index, space), traffic in self.traffic.items():
            if space == "const" and self.program.sites[index].nbytes >= 4:
                traffic.addresses = traffic.units

    def diverge(self, block: int, lanes: Lanes, ways: Sequence[Lanes]) -> None:
        """Count the divergent warps of the branch at the end of a basic block."""
        self.divergent[block] += sum(way.warp_count for way in ways) - lanes.warp_count

    def arena(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Count an access to global or constant memory."""
        if site.space == "const":
            self._constant(lanes, site, address)
            return
        if self.workload is None and site.access != "atomic":
            self._global(lanes, site, address)
            return
        if self.workload is not None and site.access != "atomic" and lanes.agree(address):
            self.traffic[site.index, "global"].add(lanes.warp_count, lanes.warp_count)
            rows = np.atleast_1d(address).reshape(-1, 1).astype(np.int64)  # a row per address, with one lane
            counts = GlobalAccess(*[len(rows)] * len(GlobalAccess._fields))
            self.workload.access(lanes, site, address, rows, lanes.warp_count // len(rows), counts)
            return
        rows, repeat = self._requests(lanes, site, address)
        traffic = self.traffic[site.index, "global"]
        if self.workload is not None:
            counts = self._counts(site, rows)
            self.workload.access(lanes, site, address, rows, repeat, counts)
            traffic.add(len(rows) * repeat, counts.sectors * repeat)
        else:
            sectors = _in_order(rows >> _SECTOR)
            new = sectors[fresh(sectors)]
            self._sectors.add(new.astype(np.uint64))
            traffic.add(len(rows) * repeat, len(new) * repeat)
        if site.access == "atomic":
            again = met_again(rows)
            traffic.passes += (len(rows) + int(again.max(axis=1).sum())) * repeat
            if again.any():
                traffic.units += _further_sectors(rows, again) * repeat

    def _counts(self, site: Site, rows: Rows) -> GlobalAccess:
        """Return `_counts_of` an access: in loops and in other blocks, addresses often move by whole lines only."""
        moved = np.where(rows < 0, _ABSENT, rows - (rows[:1, :1] >> _LINE << _LINE))
        known = self._known.get((site.index, site.nbytes))
        if known is None or not np.array_equal(known[0], moved):
            known = self._known[site.index, site.nbytes] = moved, _counts_of(rows, site.nbytes)
        return known[1]

    def texels(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Count the sectors of a texture or surface access, which is no request of the load/store unit."""
        rows, repeat = _rows(lanes, address)
        if self.workload is not None:
            self.workload.access(lanes, site, address, rows, repeat, self._counts(site, rows))
        else:
            sectors = _in_order(rows >> _SECTOR)
            self._sectors.add(sectors[fresh(sectors)].astype(np.uint64))

    def _requests(self, lanes: Lanes, site: Site, address: Value) -> tuple[Rows, int]:
        """Return `_rows` of an access; of an atomic that one lane executes for its warp, only that lane's address."""
        rows, repeat = _rows(lanes, address)
        if site.number not in self.joined_atomics:
            return rows, repeat
        alone = np.full_like(rows, -1)
        alone[:, 0] = rows.max(axis=1)
        return (alone if ((rows == alone[:, :1]) | (rows < 0)).all() else rows), repeat

    def _constant(self, lanes: Lanes, site: Site, address: Value) -> None:
        traffic = self.traffic[site.index, "const"]
        if lanes.agree(address):
            traffic.add(lanes.warp_count, lanes.warp_count)
            traffic.addresses += lanes.warp_count
            return
        if self.workload is not None:
            self.workload.contention.scattered_constants(site, *_rows(lanes, address))
        if site.nbytes >= 4:
            self._waiting_constant.add(traffic, lanes, address)
            return
        rows, repeat = _rows(lanes, address)
        traffic.add(len(rows) * repeat, _distinct(rows >> _WORD) * repeat)
        traffic.addresses += _distinct(rows) * repeat

    def _global(self, lanes: Lanes, site: Site, address: Value) -> None:
        traffic = self.traffic[site.index, "global"]
        if lanes.agree(address):
            self._sectors.add((address >> np.uint64(_SECTOR)).reshape(-1))
            traffic.add(lanes.warp_count, lanes.warp_count)
        else:
            self._waiting_global.add(traffic, lanes, address)

    def _sectors_of(self, requests: Requests) -> npt.NDArray[np.intp]:
        """Return the number of sectors per request, and add them to the touched sectors."""
        sectors, count = requests.distinct(_SECTOR)
        self._sectors.add(sectors.view(np.uint64))
        return count

    def local(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Count an access to local memory for the cost model: a word of all lanes of a warp is a line of L1."""
        if self.workload is not None:
            rows, repeat = _rows(lanes, address)
            laid_out = np.where(rows < 0, -1, (rows >> _WORD << _LINE) + (np.arange(WARP) << _WORD))
            self.workload.local(site, self._counts(site, laid_out).times(repeat))

    def shared(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Count an access to shared memory."""
        if site.index in self.joiner.widths:
            self.joiner.add(SharedAccess(lanes, site, address, site.nbytes))
        elif site.access != "atomic" and site.nbytes <= 4:
            self._words(lanes, site, address)
        else:
            self._passes(SharedAccess(lanes, site, address, site.nbytes))

    def retried(self, lanes: Lanes, site: Site, address: Value, unchanged: npt.NDArray[np.bool_]) -> None:
        """Count the further trips of warps through the loop that repeats a compare-and-swap; see `retries`."""
        block, around, rereads = self._retries.of(site)
        executed = sum(map(mul, self.warps, self._retries.lengths)) / self.warps[0]
        found = self._retries.trips(lanes, site, address, unchanged, executed)
        further, again = self._repeated(block, lanes, found.met.cells, found.trips - 1), found.tries - found.lanes
        self.lanes[block] += int(again.sum())
        self.further_lanes[block] += int(again.sum())
        for each in around:
            self._repeated(each, lanes, found.met.cells, found.parts - 1)
        if site.space == "shared":
            for reread in rereads:
                self.traffic[reread.index, "shared"].add(further, further)
            first = WAVEFRONTS * float(turns(_rows(lanes, address)[0], site.nbytes).mean())
            self.traffic[site.index, "shared"].add(further, int(found.wavefronts(first) - first * len(found.trips)))
        else:
            self.traffic[site.index, "global"].add(further, int(again.sum()))
        if self.workload is not None:
            self.workload.retried(site, found)

    def _repeated(self, block: int, lanes: Lanes, cells: Rows, further: npt.NDArray[np.float64]) -> int:
        """Count further executions of a basic block by warps, which are rounded; return their number."""
        whole = np.diff(np.floor(np.cumsum(further)), prepend=0.0).astype(np.int64)
        self.warps[block] += int(whole.sum())
        self.further_warps[block] += int(whole.sum())
        if self.workload is not None:
            self.workload.paths.repeat(block, lanes.wave, cells, whole)
        return int(whole.sum())

    def _passes(self, access: SharedAccess) -> None:
        """Count an access of elements larger than a word, or an atomic."""
        site = access.site
        rows, repeat = self._requests(access.lanes, site, access.address)
        in_turn = site.access == "atomic" and site.takes_turns and not site.loops
        traffic, wide = self.traffic[site.index, "shared"], self._wide[access.nbytes, in_turn]
        wide.append((traffic, rows, repeat))
        if max(len(wide), len(rows)) > _WIDE_AT_ONCE:
            self._count_wide(access.nbytes, in_turn)
        if site.kind == "cas":
            traffic.units += (WAVEFRONTS - 1) * int(turns(rows, access.nbytes).sum()) * repeat
        if site.access == "atomic":
            traffic.passes += (len(rows) + int(met_again(rows).max(axis=1).sum())) * repeat
            if site.loops and self.workload is not None:
                self.workload.contention.shared_loops(access.lanes, site, access.address, rows, repeat)

    def _count_wide(self, nbytes: int, in_turn: bool) -> None:
        """Count the pending shared accesses with this size per lane; `in_turn` means one lane per bank and pass."""
        wide, self._wide[nbytes, in_turn] = self._wide[nbytes, in_turn], []
        if not wide:
            return
        rows = np.concatenate([rows for _, rows, _ in wide]) if len(wide) > 1 else wide[0][1]
        starts = np.cumsum([0, *(len(rows) for _, rows, _ in wide[:-1])])
        counted = turns if in_turn else wavefronts
        passes, least = (np.add.reduceat(f(rows, nbytes), starts).tolist() for f in (counted, least_wavefronts))
        for (traffic, mine, repeat), units, ideal in zip(wide, passes, least, strict=True):
            traffic.add(len(mine) * repeat, units * repeat)
            traffic.ideal += ideal * repeat

    def _words(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Count an access of elements of at most a word, which take one pass per warp without bank conflicts."""
        traffic = self.traffic[site.index, "shared"]
        traffic.ideal += lanes.warp_count
        if lanes.agree(address):
            traffic.add(lanes.warp_count, lanes.warp_count)
        else:
            self._waiting_shared.add(traffic, lanes, address)

    @property
    def touched(self) -> int:
        """The number of distinct sectors of global memory."""
        if self.workload is not None:
            return self.workload.footprint.touched_sectors
        return len(self._sectors.distinct())

    def sampling_error(self, blocks: int) -> float | None:
        """See `Workload.sampling_error`; launches without a workload run all their blocks."""
        return 0.0 if self.workload is None else self.workload.sampling_error(blocks)


def _rows(lanes: Lanes, address: Value) -> tuple[Rows, int]:
    """Return addresses per warp, (warps, 32), -1 for absent lanes, and the number of blocks of each row."""
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


def _counts_of(rows: Rows, nbytes: int) -> GlobalAccess:
    """Return the counts of an access of `nbytes` per lane to global memory, from its addresses.

    L1 looks up four lines at once. Its banks are those of shared memory, so words of different lines conflict there.
    """
    sectors = _in_order(rows >> _SECTOR)
    lines = fresh(sectors >> _SECTORS_OF_LINE).sum(axis=1)
    passes = -(-lines // 4)
    scattered = lines > 1
    if scattered.any():
        passes[scattered] = np.maximum(passes[scattered], wavefronts(rows[scattered], nbytes))
    counts = (np.count_nonzero(fresh(sectors)), lines.sum(), _runs(sectors).sum(), passes.sum())
    return GlobalAccess(*map(int, counts))


def _in_order(rows: Rows) -> Rows:
    """Return sorted rows; most are sorted already."""
    return rows if (rows[:, 1:] >= rows[:, :-1]).all() else np.sort(rows, axis=1)


def _runs(sectors: Rows) -> Rows:
    """Return the number of runs of adjacent sectors within a line, per sorted row."""
    starts = (sectors[:, 1:] > sectors[:, :-1] + 1) | (
        sectors[:, 1:] >> _SECTORS_OF_LINE > sectors[:, :-1] >> _SECTORS_OF_LINE
    )
    return np.asarray((starts & (sectors[:, 1:] >= 0)).sum(axis=1) + (sectors[:, 0] >= 0))


def _distinct(rows: Rows) -> int:
    """Return the number of distinct non-negative values per row, summed."""
    return int(np.count_nonzero(fresh(np.sort(rows, axis=1))))


def _further_sectors(rows: Rows, again: npt.NDArray[np.intp]) -> int:
    """Return the number of repeated sectors: lanes at one address are serialised, each time with their sectors."""
    warp, lane = np.nonzero(again)
    if not len(warp):
        return 0
    sector = np.sort(rows, axis=1)[warp, lane] >> _SECTOR
    sector -= sector.min()
    return len(np.unique((warp * WARP + again[warp, lane]) * (1 + sector.max()) + sector))

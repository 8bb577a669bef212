"""Further input of the cost model from the blocks that ran."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pytest_gpulab.devices.simulated.gpus import Gpu
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.translation.analysis.regions import load_depths, regions
from pytest_gpulab.devices.simulated.translation.analysis.waits import polling_sites
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.sites import Site

from .banks import fresh
from .contention import Contention
from .footprint import Footprint, Seen
from .paths import Paths, Rows
from .retries import Floats, Trips

WORD_BYTES = 4
SITE_BITS = 8  # of an instruction, beside an address
MAX_ISSUED = 1_500_000  # warp instructions of a sample; batches after that are skipped
MAX_DEPTH = 64  # dependent loads per region


class GlobalAccess(NamedTuple):
    """The counts of an access of warps to global memory, summed over the warps."""

    sectors: int  # distinct sectors (32 bytes) per warp
    lines: int  # distinct lines (128 bytes) per warp
    runs: int  # runs of adjacent sectors within a line
    passes: int  # passes through L1's banks

    def times(self, repeat: int) -> GlobalAccess:
        """Return the counts of `repeat` blocks that do the same."""
        return self if repeat == 1 else GlobalAccess(*(repeat * count for count in self))


@dataclass
class LocalTraffic:
    """The traffic of local memory."""

    passes: int = 0  # passes of loads through L1
    stored_lines: int = 0  # lines of stores
    stored_sectors: int = 0  # their sectors
    sectors: int = 0  # sectors of both


class Workload:
    """The cost model's input, collected while a launch runs."""

    def __init__(self, program: Program, gpu: Gpu, joined_loads: Mapping[int, int] | None = None) -> None:
        self.program = program
        self.paths = Paths(program)
        self.written_sectors = 0  # of global stores and atomics
        self.stored_runs = 0  # of global stores
        self.passes = 0  # of global loads through L1
        self.uncached_sectors = 0  # of loads that observe other threads' writes, so L1 does not keep them
        self.local_traffic = LocalTraffic()
        # requests, sectors and bytes per memory instruction on global memory
        self.by_site: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.footprint = Footprint()
        self.contention = Contention(gpu)
        self.retried_trips = self.global_swaps = 0.0  # of loops that repeat a compare-and-swap: trips of warps, swaps
        # addresses, and the updates of lanes in such loops that change them, and all
        self._updates: list[tuple[Rows, Floats, Floats]] = []
        self.polled = Seen()  # addresses that waiting loops read, which other blocks write
        self.polled_together = 0  # largest number of them per request
        self.published = Seen()  # addresses of writes that are not plain, with `SITE_BITS` bits of the site's number
        self.last_block: Workload | None = None  # of the block that finished last, if it is not among the counted ones
        self._taken: Counter[int] = Counter()  # numbers taken from counters, by address
        self._polling = polling_sites(program)
        self._depths = load_depths(program.steps)
        self._heads = _iterations(program, joined_loads or {})
        self._last_head = self._repeated = 0
        self._time = self.issued = self._sectors = 0
        self._batches: list[tuple[int, int, int]] = []  # blocks, warp instructions and sectors until then

    def step(self, block: int, lanes: Lanes) -> None:
        """Count an execution of a basic block."""
        if block in self._heads:
            self._repeated = self._repeated + 1 if block == self._last_head else 0
            self._last_head = block
            self._time += self._repeated % self._heads[block] == 0
        self.issued += lanes.warp_count * len(self.program.steps[block].statements)
        self.paths.step(block, lanes)

    @property
    def blocks(self) -> int:
        """The number of blocks that ran."""
        return self.paths.blocks

    @property
    def polls(self) -> bool:
        """True if the program has loops that wait for other threads."""
        return bool(self._polling)

    def tickets(self) -> list[int]:
        """Return the addresses of counters from which each block takes one number."""
        return [address for address, taken in self._taken.items() if taken == self.blocks]

    def waits(self, block_ids: Rows, warps: int) -> Rows:
        """Return each warp's number of waits for sectors that its block had not read before: (warps, blocks)."""
        distinct, columns = np.unique(block_ids, return_inverse=True)
        counts = np.zeros((warps, len(distinct)), np.int64)
        blocks, of_warps, waits = self.footprint.waits()
        known = np.isin(blocks, distinct)
        np.add.at(counts, (of_warps[known], np.searchsorted(distinct, blocks[known])), waits[known])
        return np.asarray(counts[:, columns])

    def end_batch(self) -> None:
        """Record the counts at the end of a batch of a sample."""
        self._batches.append((self.blocks, self.issued, self._sectors))
        self.footprint.batch_ends.append(self._time)

    @property
    def is_enough(self) -> bool:
        """True if a sample is large enough: two batches, and more work than NumPy does in a second."""
        return len(self._batches) > 1 and self.issued > MAX_ISSUED

    def sampling_error(self, blocks: int) -> float | None:
        """Return the relative standard error of counts that are scaled to all blocks.

        It is the error of the mean over batches, of instructions or of global sectors, whichever is larger; 0 if all
        blocks ran, and None if there is only one batch.
        """
        if self.blocks >= blocks:
            return 0.0
        if len(self._batches) < 2:
            return None
        grown = np.diff(np.array([(0, 0, 0), *self._batches], np.float64), axis=0)
        rates = grown[:, 1:] / grown[:, :1]
        error = rates.std(axis=0, ddof=1) / np.sqrt(len(rates)) * np.sqrt(1 - self.blocks / blocks)
        return float((error / np.maximum(rates.mean(axis=0), 1e-12)).max())

    def access(
        self, lanes: Lanes, site: Site, address: Value, rows: Rows, repeat: int, requested: GlobalAccess
    ) -> None:
        """Add an access to global memory; `rows` are addresses by warp and lane (-1: absent), of `repeat` blocks."""
        requested = requested.times(repeat)
        counts = self.by_site[site.index]
        counts[0] += len(rows) * repeat
        counts[1] += requested.sectors
        self._sectors += requested.sectors
        counts[2] += lanes.n * site.nbytes
        polls = site.index in self._polling
        if site.modifies and not polls:
            self.written_sectors += requested.sectors
            if site.access != "atomic":  # L2 limits atomics, not the way to it
                self.stored_runs += requested.runs
        else:
            self.passes += requested.passes
            if site.order != "weak" and not polls:
                self.uncached_sectors += requested.sectors
        if site.access == "atomic" and not polls:
            self.footprint.atomics(rows, repeat, site.kind == "float")
        if site.counts_up and lanes.n <= self.blocks and address.min() == address.max():
            self._taken[int(address.max())] += lanes.n
        if polls:
            self._poll(rows)
        elif self._polling and site.modifies and not site.is_weak:
            addresses = rows[rows >= 0].astype(np.uint64)
            self.published.add(addresses << SITE_BITS | np.uint64(site.index % 2**SITE_BITS))
        time = self._time * MAX_DEPTH + min(self._depths.get(site.number, 0), MAX_DEPTH - 1)
        self.footprint.access(lanes, site, address, time)

    def retried(self, site: Site, found: Trips) -> None:
        """Add the trips of a group through a loop that repeats a compare-and-swap."""
        if site.space == "shared":
            self.retried_trips += float(found.trips.sum())
            return
        self.global_swaps += float(found.tries.sum())
        self.footprint.meet(found.met.address, found.met.lanes * found.again)
        self._updates.append((found.met.address, found.met.own, found.met.lanes))

    def most_updates(self, scale: float) -> float:
        """Return the most updates of a word of global memory by such loops, if `scale` times as many blocks run.

        A maximum changes less and less often; the exponent is that of `retries`.
        """
        if not self._updates:
            return 0.0
        addresses, changes, lanes = (np.concatenate(parts) for parts in zip(*self._updates, strict=True))
        where = np.unique(addresses, return_inverse=True)[1]
        updates = np.bincount(where, changes)
        most = updates.argmax()
        if self.blocks == 1 or updates[most] <= changes.sum() / self.blocks:  # no more by further blocks
            return float(updates[most])
        return float(updates[most] * scale ** np.sqrt(updates[most] / np.bincount(where, lanes)[most]))

    def local(self, site: Site, requested: GlobalAccess) -> None:
        """Add an access of a group to local memory, by the addresses of its first words in L1."""
        words, traffic = -(-site.nbytes // WORD_BYTES), self.local_traffic
        traffic.sectors += words * requested.sectors
        if site.modifies:
            traffic.stored_lines += words * requested.lines
            traffic.stored_sectors += words * requested.sectors
        else:
            traffic.passes += words * requested.passes

    def _poll(self, rows: Rows) -> None:
        together = fresh(np.sort(rows, axis=1)).sum(axis=1)
        self.polled_together = max(self.polled_together, int(together.max()))
        self.polled.add(np.unique(rows[rows >= 0]).astype(np.uint64))


def _iterations(program: Program, joined_loads: Mapping[int, int]) -> dict[int, int]:
    """Return how many consecutive executions of each region have their loads waited for at once, by its first block."""
    found = {}
    for region in regions(program.steps):
        statements = (statement for i in region for statement in program.steps[i].statements)
        joined = [joined_loads[statement.number] for statement in statements if statement.number in joined_loads]
        found[region[0]] = min(joined, default=1)
    return found

"""What the cost model needs to know of the blocks that ran, beyond their counters.

The way of a warp is how often it ran each basic block of the program: from it follows how long the warp takes alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.gpus import Gpu
from pytest_gpulab.devices.simulated.groups.lanes import WARP, Lanes, Shape, Value
from pytest_gpulab.devices.simulated.translation.analysis.regions import load_depths, regions
from pytest_gpulab.devices.simulated.translation.analysis.waits import polling_sites
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.sites import Site

from .contention import Contention
from .footprint import Footprint, Seen

MAX_ISSUED = 1_500_000  # instructions of warps in a sample, as far as it can be cut short
MAX_DEPTH = 64  # loads of a region that wait for each other
MAX_WAYS = 4096  # warps whose ways are kept; the others go the same, as far as the model knows

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Asked:
    """What warps ask of global memory with one instruction: one row a warp, each for `repeat` blocks.

    Attributes:
        rows: addresses of the lanes in bytes, -1 where there is none.
        sectors, lines: distinct pieces of 32 and of 128 bytes.
        passes: through L1's banks.
    """

    rows: Rows
    sectors: Rows
    lines: Rows
    passes: Rows
    repeat: int

    def total(self, counts: Rows) -> int:
        """Add up something of each row."""
        return int(counts.sum()) * self.repeat


class Workload:
    """Gathers it while a launch runs.

    Attributes:
        blocks: that ran.
        passes: of global loads through L1.
        written_sectors, stored_lines: of global stores and atomics.
        contention: what lanes cost that get in each other's way within an SM.
        by_site: requests, sectors and bytes of each memory instruction on global memory.
        issued: instructions of warps.
        polled: addresses of other blocks' words that were looked at in loops that wait; at most `polled_together` by
            a warp at once.
    """

    def __init__(self, program: Program, gpu: Gpu) -> None:
        self.program = program
        self.blocks = 0
        self.written_sectors = self.stored_lines = self.passes = 0
        self.by_site: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.footprint = Footprint()
        self.contention = Contention(gpu)
        self.polled, self.polled_together = Seen(), 0
        self._polling = polling_sites(program)
        self._depths = load_depths(program.steps)
        self._heads = frozenset(region[0] for region in regions(program.steps))
        self._ways: dict[int, tuple[Shape, Rows | None]] = {}
        self._kept = self._time = self.issued = self._asked = 0
        self._batches: list[tuple[int, int, int]] = []  # blocks, instructions of warps and sectors until then

    def step(self, block: int, lanes: Lanes) -> None:
        """A group begins to run a basic block."""
        self._time += block in self._heads
        self.issued += lanes.warp_count * len(self.program.steps[block].statements)
        ways = self._ways_of(lanes.wave)
        if ways is None:
            return
        if lanes.full:
            ways[block] += 1
        elif lanes.flat:
            cells = np.unique(lanes.threads // WARP * lanes.wave.columns + lanes.columns)
            ways[block].reshape(-1)[cells] += 1
        else:
            ways[block][np.ix_(np.unique(lanes.threads // WARP), lanes.columns)] += 1

    def _ways_of(self, wave: Shape) -> Rows | None:
        if id(wave) not in self._ways:
            self.blocks += wave.columns
            ways = None
            if self._kept <= MAX_WAYS:
                ways = np.zeros((len(self.program.steps), wave.warps, wave.columns), np.int64)
                self._kept += wave.warps * wave.columns
            self._ways[id(wave)] = wave, ways  # the wave, too, so that no other gets its id
        return self._ways[id(wave)][1]

    def ways(self) -> Rows:
        """Return how often each warp ran each basic block: (basic blocks, warps of a block, blocks)."""
        return np.concatenate([ways for _, ways in self._ways.values() if ways is not None], axis=2)

    def waits(self) -> Rows:
        """Return how often each warp waited for something that its block had not read before: (warps, blocks)."""
        waves = [wave for wave, ways in self._ways.values() if ways is not None]
        columns = {int(block): i for i, block in enumerate(np.concatenate([wave.block_ids for wave in waves]))}
        counts = np.zeros((waves[0].warps, len(columns)), np.int64)
        for block, warp, count in self.footprint.waits():
            if block in columns:
                counts[warp, columns[block]] += count
        return counts

    def end_batch(self) -> None:
        """Note what has been counted until now: some of the blocks of a sample have ended."""
        self._batches.append((self.blocks, self.issued, self._asked))

    @property
    def is_enough(self) -> bool:
        """Whether a sample is large enough to stop: two batches, and more work than NumPy does in a second."""
        return len(self._batches) > 1 and self.issued > MAX_ISSUED

    def sampling_error(self, blocks: int) -> float | None:
        """Return how far counts scaled to so many blocks may be off: the standard error, relative to the count.

        It is that of the mean of the batches, of instructions or of sectors of global memory, whichever is larger; 0 if
        all blocks ran, and None where there is one batch only.
        """
        if self.blocks >= blocks:
            return 0.0
        if len(self._batches) < 2:
            return None
        grown = np.diff(np.array([(0, 0, 0), *self._batches], np.float64), axis=0)
        rates = grown[:, 1:] / grown[:, :1]
        error = rates.std(axis=0, ddof=1) / np.sqrt(len(rates)) * np.sqrt(1 - self.blocks / blocks)
        return float((error / np.maximum(rates.mean(axis=0), 1e-12)).max())

    def access(self, lanes: Lanes, site: Site, address: Value, asked: Asked) -> None:
        """A group accessed global memory."""
        counts = self.by_site[site.index]
        counts[0] += len(asked.rows) * asked.repeat
        counts[1] += asked.total(asked.sectors)
        self._asked += asked.total(asked.sectors)
        counts[2] += lanes.n * site.nbytes
        if site.modifies:
            self.written_sectors += asked.total(asked.sectors)
            self.stored_lines += asked.total(asked.lines)
        else:
            self.passes += asked.total(asked.passes)
        if site.access == "atomic":
            self.footprint.atomics(asked.rows, asked.repeat, site.kind == "float")
        if site.index in self._polling:
            self._poll(asked.rows)
        time = self._time * MAX_DEPTH + min(self._depths.get(site.number, 0), MAX_DEPTH - 1)
        self.footprint.access(lanes, site, address, time)

    def _poll(self, rows: Rows) -> None:
        ordered = np.sort(rows, axis=1)
        fresh = (ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        together = fresh.sum(axis=1) + (ordered[:, 0] >= 0)
        self.polled_together = max(self.polled_together, int(together.max()))
        self.polled.add(np.unique(rows[rows >= 0]).astype(np.uint64))

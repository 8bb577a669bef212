"""What the cost model needs to know of the blocks that ran, beyond their counters.

The way of a warp is how often it ran each basic block of the program: from it follows how long the warp takes alone.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.execution.footprint import Footprint, Seen
from pytest_gpulab.devices.simulated.execution.lanes import WARP, Lanes, Shape, Value
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.regions import regions
from pytest_gpulab.devices.simulated.translation.sites import Site
from pytest_gpulab.devices.simulated.translation.waits import polling_sites

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
        by_site: requests, sectors and bytes of each memory instruction on global memory.
        polled: addresses of other blocks' words that were looked at in loops that wait; at most `polled_together` by
            a warp at once.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.blocks = 0
        self.written_sectors = self.stored_lines = self.passes = 0
        self.by_site: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.footprint = Footprint()
        self.polled, self.polled_together = Seen(), 0
        self._polling = polling_sites(program)
        self._heads = frozenset(region[0] for region in regions(program.steps))
        self._ways: dict[int, tuple[Shape, Rows | None]] = {}
        self._kept = self._time = 0

    def step(self, block: int, lanes: Lanes) -> None:
        """A group begins to run a basic block."""
        self._time += block in self._heads
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
        for block, warp in self.footprint.waits():
            if block in columns:
                counts[warp, columns[block]] += 1
        return counts

    def access(self, lanes: Lanes, site: Site, address: Value, asked: Asked) -> None:
        """A group accessed global memory."""
        counts = self.by_site[site.index]
        counts[0] += len(asked.rows) * asked.repeat
        counts[1] += asked.total(asked.sectors)
        counts[2] += lanes.n * site.nbytes
        if site.modifies:
            self.written_sectors += asked.total(asked.sectors)
            self.stored_lines += asked.total(asked.lines)
        else:
            self.passes += asked.total(asked.passes)
        if site.access == "atomic":
            self.footprint.atomics(asked.rows, asked.repeat)
        if site.index in self._polling:
            self._poll(asked.rows)
        self.footprint.access(lanes, site, address, self._time)

    def _poll(self, rows: Rows) -> None:
        ordered = np.sort(rows, axis=1)
        fresh = (ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] >= 0)
        together = fresh.sum(axis=1) + (ordered[:, 0] >= 0)
        self.polled_together = max(self.polled_together, int(together.max()))
        self.polled.add(np.unique(rows[rows >= 0]).astype(np.uint64))

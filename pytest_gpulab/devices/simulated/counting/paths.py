"""The paths of warps: how often a warp executes each basic block. A path determines its time without other warps."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Shape
from pytest_gpulab.devices.simulated.translation.program import Program

MAX_PATHS = 4096  # warps; of each wave after them, the paths of one block are kept, which represents the wave

Rows = npt.NDArray[np.int64]


class _Kept(NamedTuple):
    """Paths of some blocks: (basic blocks, warps of a block, blocks), and the number of blocks that each represents."""

    block_ids: Rows
    paths: Rows
    weights: Rows


class Paths:
    """The paths of the warps of the blocks that ran.

    The paths of the longest block are kept, too: one block with all the work takes as long as the launch.
    """

    def __init__(self, program: Program) -> None:
        self.blocks = 0
        self._statements = np.array([len(step.statements) for step in program.steps])
        self._of_waves: dict[Shape, Rows | None] = {}
        self._representatives: list[_Kept] = []
        self._longest: tuple[int, _Kept | None] = -1, None
        self._warps = 0

    def step(self, block: int, lanes: Lanes) -> None:
        """Count an execution of a basic block."""
        paths = self._of(lanes.wave)
        if lanes.full:
            paths[block] += 1
        else:
            paths[block].reshape(-1)[lanes.warp_cells] += 1

    def repeat(self, block: int, wave: Shape, cells: Rows, further: Rows) -> None:
        """Count further executions of a basic block by warps; `cells` are their flat indices in the wave."""
        self._of(wave)[block].reshape(-1)[cells] += further

    def _of(self, wave: Shape) -> Rows:
        if wave not in self._of_waves:
            self.blocks += wave.columns
            self._of_waves[wave] = np.zeros((len(self._statements), wave.warps, wave.columns), np.int64)
        paths = self._of_waves[wave]
        assert paths is not None  # the wave has not ended
        return paths

    def end(self, wave: Shape) -> None:
        """Keep all paths of a wave that has ended, or those of one block if enough are kept."""
        if (paths := self._of_waves.get(wave)) is None:
            return
        if self._warps <= MAX_PATHS:
            self._warps += wave.warps * wave.columns
            return
        self._of_waves[wave] = None
        column = len(self._representatives) % wave.columns
        self._representatives.append(self._kept(wave, paths, column, wave.columns))
        lengths = np.tensordot(self._statements, paths, axes=(0, 0)).max(axis=0)
        if int(lengths.max()) > self._longest[0]:
            column = int(lengths.argmax())
            self._longest = int(lengths[column]), self._kept(wave, paths, column, 0)

    @staticmethod
    def _kept(wave: Shape, paths: Rows, column: int, weight: int) -> _Kept:
        return _Kept(wave.block_ids[[column]], paths[:, :, [column]].copy(), np.array([weight]))

    def kept(self) -> tuple[Rows, Rows, Rows]:
        """Return indices of blocks, paths (basic blocks, warps, blocks), and how many blocks each represents."""
        whole = [
            _Kept(wave.block_ids, paths, np.ones(wave.columns, np.int64))
            for wave, paths in self._of_waves.items()
            if paths is not None
        ]
        longest = [self._longest[1]] if self._longest[1] is not None else []
        parts = [*whole, *self._representatives, *longest]
        block_ids, paths, weights = zip(*parts, strict=True)
        return np.concatenate(block_ids), np.concatenate(paths, axis=2), np.concatenate(weights)

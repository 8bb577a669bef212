"""The warps among which a launch's barriers are spread: warps without barriers must not lower the average."""

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Shape


class BarrierSpread:
    """The barriers of each warp, b, as the number of warps that would have as many, evenly: sum(b)^2 / sum(b^2)."""

    def __init__(self) -> None:
        self._running: dict[Shape, npt.NDArray[np.int64]] = {}
        self._barriers = self._squares = 0

    def step(self, lanes: Lanes, barriers: int) -> None:
        """Count barriers, and arrivals at them, of the warps that have these lanes."""
        wave = lanes.wave
        if wave not in self._running:
            self._running[wave] = np.zeros((wave.warps, wave.columns), np.int64)
        if lanes.full:
            self._running[wave] += barriers
        else:
            self._running[wave].reshape(-1)[lanes.warp_cells] += barriers

    def end(self, wave: Shape) -> None:
        """Add the barriers of a wave that has ended."""
        counts = self._running.pop(wave, np.zeros(1, np.int64))
        self._barriers += int(counts.sum())
        self._squares += int((counts**2).sum())

    @property
    def warps(self) -> float:
        """The number of warps; 0 without barriers."""
        return self._barriers**2 / self._squares if self._squares else 0.0

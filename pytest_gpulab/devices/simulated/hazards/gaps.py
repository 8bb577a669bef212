"""Unwritten bytes that a copy propagates: a struct is copied with its padding and with members that were never set.

The copy may read them. But the copied bytes still count as unwritten, so a later read of such a member is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Shape
from pytest_gpulab.devices.simulated.translation.analysis.loads import Carried

from .vector_clocks import Mask


class Gaps:
    """The unwritten bytes in each thread's last execution of loads for copies, in one wave."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._of: dict[int, npt.NDArray[np.uint32]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def record(self, load: int, lanes: Lanes, nbytes: int, missing: Callable[[int], Mask | None] | None) -> None:
        """Record the unwritten bytes of a load.

        Args:
            load: number of the load.
            lanes: the lanes that load.
            nbytes: bytes per lane.
            missing: returns a mask of the lanes with an unwritten n-th byte; None if there are no unwritten bytes.
        """
        if missing is None and load not in self._of:
            return
        bits = np.zeros(lanes.shape, np.uint32)
        for k in range(nbytes if missing is not None else 0):
            mask = missing(k) if missing is not None else None
            if mask is not None:
                bits |= np.left_shift(mask.astype(np.uint32), np.uint32(k))
        if load not in self._of:
            self._of[load] = np.zeros((self._shape.threads, self._shape.columns), np.uint32)
        self._of[load][lanes.threads.reshape(-1, 1), lanes.column] = bits

    def carried(self, pieces: Sequence[Carried], lanes: Lanes) -> Iterator[tuple[int, Mask]]:
        """Yield the bytes of a store that stay unwritten, each with a mask of lanes."""
        for piece in pieces:
            if piece.load in self._of:
                bits = self._of[piece.load][lanes.threads.reshape(-1, 1), lanes.column]
                for k in range(piece.nbytes):
                    mask = (bits >> np.uint32(piece.at_load + k)) & np.uint32(1) != 0
                    if mask.any():
                        yield piece.at_store + k, mask

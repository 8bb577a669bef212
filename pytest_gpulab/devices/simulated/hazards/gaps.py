"""Unwritten bytes that a copy carries on: a struct is copied with its padding, and with members that nobody has set.

The copy may read them. But what it writes there counts as unwritten still: who reads such a member by itself is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Shape
from pytest_gpulab.devices.simulated.translation.analysis.loads import Carried

from .vector_clocks import Mask


class Gaps:
    """For the loads of a wave whose values are only copied: which bytes each thread's last one has found unwritten."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._of: dict[int, npt.NDArray[np.uint32]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def note(self, load: int, lanes: Lanes, nbytes: int, missing: Callable[[int], Mask | None] | None) -> None:
        """Note what a load has found.

        Args:
            load: its number.
            lanes: that load.
            nbytes: of each lane.
            missing: returns which lanes find the n-th byte unwritten; None where none is.
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

    def carried(self, parts: Sequence[Carried], lanes: Lanes) -> Iterator[tuple[int, Mask]]:
        """Yield the bytes of a store that are written as unwritten ones, each with its lanes."""
        for part in parts:
            if part.load in self._of:
                bits = self._of[part.load][lanes.threads.reshape(-1, 1), lanes.column]
                for k in range(part.nbytes):
                    mask = (bits >> np.uint32(part.at_load + k)) & np.uint32(1) != 0
                    if mask.any():
                        yield part.at_store + k, mask

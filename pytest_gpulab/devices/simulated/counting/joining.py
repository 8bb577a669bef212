"""Shared-memory accesses that the assembler joins to wider ones, put together again as hardware would issue them.

PTX may load four neighbouring floats one by one where the machine code has one 16-byte load. Which instructions may be
part of a wider one is known from the machine code; whether they are is seen from the addresses: those of one basic
block that lie side by side in every lane, on a boundary of the wider access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.translation.sites import Site

WIDEST = 16


@dataclass(frozen=True)
class SharedAccess:
    """An access of a group, of `nbytes` a lane."""

    lanes: Lanes
    site: Site
    address: Value
    nbytes: int


class Joiner:
    """Collects the accesses of one execution of a basic block.

    Args:
        widths: bytes of the widest access that the assembler makes of a memory instruction, by `Site.index`.
    """

    def __init__(self, widths: Mapping[int, int]) -> None:
        self.widths = widths
        self._waiting: list[dict[int, SharedAccess]] = []  # neighbours by their distance from the first

    def add(self, access: SharedAccess) -> None:
        """Keep an access until the end of its block."""
        for neighbours in self._waiting:
            first = neighbours[0]
            apart = _distance(first, access)
            if apart is not None and abs(apart) < WIDEST and apart not in neighbours:
                neighbours[apart] = access
                return
        self._waiting.append({0: access})

    def flush(self) -> Iterator[SharedAccess]:
        """Yield what was kept as hardware issues it, and forget it."""
        waiting, self._waiting = self._waiting, []
        for neighbours in waiting:
            yield from self._joined(neighbours)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept."""
        return not self._waiting

    def _joined(self, neighbours: dict[int, SharedAccess]) -> Iterator[SharedAccess]:
        for apart in sorted(neighbours):
            access = neighbours.get(apart)
            if access is None:
                continue  # it went with one before it
            width = self._width(neighbours, apart)
            for other in range(apart, apart + width, access.nbytes):
                neighbours.pop(other, None)
            yield SharedAccess(access.lanes, access.site, access.address, width)

    def _width(self, neighbours: dict[int, SharedAccess], apart: int) -> int:
        access = neighbours[apart]
        lowest = int(np.bitwise_or.reduce(access.address, axis=None))
        for width in (WIDEST, WIDEST // 2):
            complete = all(other in neighbours for other in range(apart, apart + width, access.nbytes))
            if width <= self.widths[access.site.index] and complete and not lowest & (width - 1):
                return width
        return access.nbytes


def _distance(first: SharedAccess, other: SharedAccess) -> int | None:
    """Bytes between two accesses of the same lanes and kind, if they are the same in every lane."""
    same = first.lanes is other.lanes and first.nbytes == other.nbytes and first.site.op == other.site.op
    if not same or first.address.shape != other.address.shape:
        return None
    apart = other.address.astype(np.int64) - first.address.astype(np.int64)
    least = int(apart.min())
    return least if least == int(apart.max()) else None

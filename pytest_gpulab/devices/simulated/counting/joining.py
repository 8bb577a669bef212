"""Shared-memory accesses that the assembler merges, joined again as hardware issues them.

PTX may load four neighbouring floats one by one; the machine code has one 16-byte load. The machine code shows the
instructions that may be part of a wider one. They are part of it if the addresses of one basic block are contiguous in
every lane and aligned for the wider access.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value
from pytest_gpulab.devices.simulated.translation.sites import Site

WIDEST = 16  # bytes, the widest access of a thread


@dataclass(frozen=True)
class SharedAccess:
    """An access of a group, with `nbytes` per lane."""

    lanes: Lanes
    site: Site
    address: Value
    nbytes: int


class Joiner:
    """The accesses of one basic block; `widths` has the bytes of the widest machine access by `Site.index`."""

    def __init__(self, widths: Mapping[int, int]) -> None:
        self.widths = widths
        self._waiting: list[dict[int, SharedAccess]] = []  # neighbours by distance from the first one

    def add(self, access: SharedAccess) -> None:
        """Store an access until the end of its block."""
        for neighbours in self._waiting:
            first = neighbours[0]
            apart = _distance(first, access)
            if apart is not None and apart not in neighbours:
                neighbours[apart] = access
                return
        self._waiting.append({0: access})

    def flush(self) -> Iterator[SharedAccess]:
        """Yield the stored accesses as hardware issues them, and remove them."""
        waiting, self._waiting = self._waiting, []
        for neighbours in waiting:
            yield from self._joined(neighbours)

    @property
    def is_empty(self) -> bool:
        """True if no access is stored."""
        return not self._waiting

    def _joined(self, neighbours: dict[int, SharedAccess]) -> Iterator[SharedAccess]:
        for apart in sorted(neighbours):
            access = neighbours.get(apart)
            if access is None:
                continue  # joined with an earlier one
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
    """Return the distance of two accesses in bytes if it is below `WIDEST` and the same in every lane, else None."""
    apart = int(other.address.item(0)) - int(first.address.item(0))  # at once, where most are too far apart
    if abs(apart) >= WIDEST or first.lanes is not other.lanes or first.address.shape != other.address.shape:
        return None
    same = first.nbytes == other.nbytes and first.site.op == other.site.op
    apart_in_lanes = other.address.astype(np.int64) - first.address.astype(np.int64)
    return apart if same and (apart_in_lanes == apart).all() else None

"""Requests of warps in one array, so that many small accesses are counted at once.

A request is one instruction of one warp: the addresses of its lanes, in order. A NumPy call takes as long as counting
some thousand lanes, and small launches have many accesses of few lanes each.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Lanes, Value

AT_ONCE = 16_384  # lanes; intermediate arrays stay in the processor's cache
_SPREAD = 8  # range of pieces per lane, up to which marking is faster than sorting
Pieces = npt.NDArray[np.int64]


@dataclass
class Traffic:
    """The traffic of one memory instruction in one memory space."""

    requests: int = 0  # executions by warps
    units: int = 0  # sectors (global), wavefronts (shared) or distinct words (constant)
    ideal: int = 0  # wavefronts without bank conflicts
    addresses: int = 0  # distinct addresses per request, summed
    passes: int = 0  # largest number of lanes at one address per request, summed (atomics only)

    def add(self, requests: int, units: int) -> None:
        """Add requests and units."""
        self.requests += requests
        self.units += units


class Requests(NamedTuple):
    """Some requests: the byte address of each lane, and the index of each request's first lane."""

    address: npt.NDArray[np.int64]
    starts: IndexArray

    def for_lanes(self, values: Pieces) -> Pieces:
        """Repeat each request's value for each of its lanes."""
        if len(self.address) == WARP * len(self.starts):
            return np.repeat(values, WARP)
        return np.repeat(values, np.append(self.starts[1:], len(self.address)) - self.starts)

    def span(self, pieces: Pieces) -> tuple[Pieces, Pieces]:
        """Return the lowest and the highest piece of each request."""
        return np.minimum.reduceat(pieces, self.starts), np.maximum.reduceat(pieces, self.starts)

    def distinct(self, shift: np.int64) -> tuple[Pieces, npt.NDArray[np.intp]]:
        """Return the distinct pieces of 2^shift bytes of each request, in order, and their number per request."""
        pieces = self.address >> shift
        falls = pieces[1:] < pieces[:-1]
        falls[self.starts[1:] - 1] = False
        if falls.any():
            lowest, highest = self.span(pieces)
            # Float, because unchecked addresses may have a huge range.
            spread = (highest - lowest).sum(dtype=np.float64)
            if spread < _SPREAD * len(pieces):
                return self._marked(pieces, lowest, highest)
            # NumPy is fast at sorting many short rows
            rows = np.sort(self.rows(pieces, np.iinfo(np.int64).max), axis=1)
            pieces = rows.reshape(-1) if rows.size == len(pieces) else rows.reshape(-1)[self._place]
        new = np.empty(len(pieces), np.bool_)
        np.not_equal(pieces[1:], pieces[:-1], out=new[1:])
        new[self.starts] = True
        return pieces[new], np.add.reduceat(new, self.starts, dtype=np.intp)

    def _marked(self, pieces: Pieces, lowest: Pieces, highest: Pieces) -> tuple[Pieces, npt.NDArray[np.intp]]:
        """Return the distinct pieces of dense requests by marking them."""
        ends = np.cumsum(highest - lowest + 1)
        first = np.append(0, ends[:-1])
        marks = np.zeros(int(ends[-1]), np.bool_)
        marks[pieces + self.for_lanes(first - lowest)] = True
        count = np.add.reduceat(marks, first, dtype=np.intp)
        return marks.nonzero()[0] - np.repeat(first - lowest, count), count

    def rows(self, pieces: Pieces, absent: int) -> Pieces:
        """Return values per lane as (requests, 32), with `absent` for missing lanes."""
        count = len(self.starts)
        if len(pieces) == WARP * count:
            return pieces.reshape(count, WARP)
        rows = np.full(WARP * count, absent)
        rows[self._place] = pieces
        return rows.reshape(count, WARP)

    @property
    def _place(self) -> IndexArray:
        """The index of each lane in flattened rows."""
        first = np.arange(0, WARP * len(self.starts), WARP) - self.starts
        return np.arange(len(self.address)) + self.for_lanes(first)


class Waiting:
    """Accesses that are counted together later; `count` returns the increment of `Traffic.units` for each request."""

    def __init__(self, count: Callable[[Requests], npt.NDArray[np.intp]]) -> None:
        self._count_each = count
        self._accesses: list[tuple[Traffic, Lanes, Value]] = []
        self._lanes = 0

    def add(self, traffic: Traffic, lanes: Lanes, address: Value) -> None:
        """Add an access with different addresses per lane, to count it in `traffic`."""
        self._accesses.append((traffic, lanes, address))
        self._lanes += len(address) * address.shape[1]
        if self._lanes > AT_ONCE:
            self.count()

    def count(self) -> None:
        """Count all waiting accesses."""
        accesses, self._accesses, self._lanes = self._accesses, [], 0
        if not accesses:
            return
        addresses, starts = zip(*(_laid_out(lanes, address) for _, lanes, address in accesses), strict=True)
        lanes_before = np.cumsum([0, *map(len, addresses[:-1])])
        counts = np.array([len(each) for each in starts])
        requests = Requests(
            np.concatenate(addresses, dtype=np.int64, casting="unsafe"),
            np.concatenate(starts) + np.repeat(lanes_before, counts),
        )
        units = np.add.reduceat(self._count_each(requests), np.cumsum(counts) - counts)
        for (traffic, lanes, address), count, unit in zip(accesses, counts.tolist(), units.tolist(), strict=True):
            repeat = len(lanes.columns) if address.shape[1] == 1 and not lanes.flat else 1
            traffic.add(count * repeat, unit * repeat)


def _laid_out(lanes: Lanes, address: Value) -> tuple[npt.NDArray[np.generic], IndexArray]:
    """Return the addresses by thread, of all blocks or of one for all, and the index of each request's first lane."""
    if lanes.flat:
        order, starts = lanes.by_block
        return address.reshape(-1)[order], starts
    if address.shape[1] == 1:
        return address.reshape(-1), lanes.warp_starts
    return address.T.reshape(-1), lanes.all_starts

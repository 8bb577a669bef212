"""Groups of blocks with the same synchronisations: a replay needs one block of each group."""

from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import IndexArray

from .classes import Record, threads_of

# The finaliser of SplitMix64, https://prng.di.unimi.it/splitmix64.c: each bit of the input changes half of the result.
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)  # odd, for thread, offset and record


def representatives(records: Sequence[Record]) -> IndexArray | None:
    """Return for each block the first one with the same synchronisations.

    None without records, for a single block, and if a record has a location in global memory: then a block may
    synchronise with another one.
    """
    blocks = prod(records[0].lanes.wave.grid) if records else 0
    if blocks < 2 or any(record.memory is not None for record in records):
        return None
    digests = np.zeros(blocks, np.uint64)
    for number, record in enumerate(records, 1):
        block, thread = threads_of(record.lanes).T
        offset = np.broadcast_to(0 if record.address is None else record.address, record.lanes.shape).ravel(order="F")
        parts = zip(_FACTORS, (thread, offset, np.array([number])), strict=True)
        keys = np.zeros(len(block), np.uint64)
        for factor, part in parts:
            keys += np.uint64(factor) * _mixed(part.astype(np.uint64))
        np.add.at(digests, block, _mixed(keys))
    _, first, which = np.unique(digests, return_index=True, return_inverse=True)
    return first[which]


def records_of(records: Sequence[Record], blocks: IndexArray) -> list[Record]:
    """Return the records with the lanes of some blocks only."""
    found = []
    for record in records:
        mine = np.isin(record.lanes.wave.block_ids[record.lanes.columns], blocks)
        subset = record.lanes.subset(mine.reshape((-1, 1) if record.lanes.flat else (1, -1)))
        if subset.lanes.n:
            address = None if record.address is None else subset.take(np.asarray(record.address))
            found.append(record._replace(lanes=subset.lanes, address=address))
    return found


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    for shift, factor in _STEPS:
        values = (values ^ values >> np.uint64(shift)) * np.uint64(factor)
    mixed: npt.NDArray[np.uint64] = values ^ values >> np.uint64(_LAST_SHIFT)
    return mixed

"""Reads that return changed values. They show whether a result depends on the value."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import DisturbedRead
from pytest_gpulab.devices.simulated.groups.lanes import WARP, Lanes, Value

from .spaces import Arena


def disturb(read: DisturbedRead, arena: Arena, lanes: Lanes, address: Value, values: list[Value]) -> list[Value]:
    """Count the reads per warp, and return the values; those of the chosen read are changed."""
    number = read.nth - read.seen
    read.seen += lanes.warp_count
    if not 0 <= number < lanes.warp_count:
        return values
    if read.space == "constant" and ((memory := arena.find(int(address.item(0)))) is None or not memory.is_set):
        return values
    chosen = _of_warp(lanes, number)
    return [_flipped(value, chosen, read.flipped) for value in values]


def _of_warp(lanes: Lanes, number: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the lanes of one warp, by its number in the group."""
    thread, column, _ = lanes.each
    warp = column * lanes.wave.warps + thread // WARP
    return np.asarray(warp == np.unique(warp)[number]).reshape(lanes.shape)


def _flipped(value: Value, chosen: npt.NDArray[np.bool_], flipped: int) -> Value:
    bits = np.broadcast_to(value, chosen.shape).copy().view(f"u{value.dtype.itemsize}")
    bits[chosen] ^= bits.dtype.type(flipped & ((1 << 8 * bits.dtype.itemsize) - 1))
    return bits.view(value.dtype)

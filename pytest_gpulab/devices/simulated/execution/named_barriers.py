"""Named barriers: numbers and thread counts of block barriers (PTX ISA 9.7.13, `barrier`).

A block has 16 barriers. A barrier without a thread count waits for all threads of the block, one with a count for
exactly that many. Lanes that have exited or that exceed the block arrive together with the rest of their warp.
"""

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.hardware.architectures import BARRIERS
from pytest_gpulab.devices.protocol import KernelFault, SourceLine
from pytest_gpulab.devices.simulated.groups.lanes import WARP, Lanes, Subset, Value, first_lane, to_warps

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def pieces(lanes: Lanes, number: Value, threads: Value | None) -> list[tuple[Subset | None, int, int | None]]:
    """Split lanes by barrier number and thread count; the subset is None if all lanes have the same."""
    if number.size == 1 and (threads is None or threads.size == 1):
        return [(None, int(number.item()), None if threads is None else int(threads.item()))]
    key = _key(lanes, number, threads)
    found: list[tuple[Subset | None, int, int | None]] = []
    for value in np.unique(key).tolist():
        count = None if threads is None else value & 0xFFFFFFFF
        found.append((lanes.subset(np.ascontiguousarray(key == value)), value >> 32, count))
    return found


def check(where: SourceLine | None, lanes: Lanes, number: Value, threads: Value | None) -> None:
    """Raise KernelFault if there is no such barrier, or its thread count is no multiple of the warp size."""
    if int(number.max()) >= BARRIERS:
        bad = number >= BARRIERS
        what = f"invalid arguments: barrier {int(number.max())}; a block has the barriers 0 to {BARRIERS - 1}"
        raise KernelFault("barrier", what, where, first_lane(lanes, bad))
    if threads is None:
        return
    bad = (threads % np.uint32(WARP) != 0) | (threads == 0)
    if bad.any():
        count = int(np.broadcast_to(threads, lanes.shape)[np.broadcast_to(bad, lanes.shape)][0])
        what = f"invalid arguments: a barrier for {count} threads; the count must be a multiple of {WARP}"
        raise KernelFault("barrier", what, where, first_lane(lanes, bad))


def differs_in_warp(lanes: Lanes, number: Value, threads: Value | None) -> Mask | None:
    """Return a mask of lanes with operands other than those of their warp's first lane, or None if there are none."""
    if number.size == 1 and (threads is None or threads.size == 1):
        return None
    key = _key(lanes, number, threads)
    least = to_warps(lanes, key, np.iinfo(np.int64).max).min(axis=1)
    width = least.shape[1]
    of_warp = least[(lanes.threads // WARP).reshape(-1, 1), lanes.column if width > 1 else 0]
    bad: Mask = key != of_warp
    return bad if bad.any() else None


def _key(lanes: Lanes, number: Value, threads: Value | None) -> npt.NDArray[np.int64]:
    counts = np.uint32(0) if threads is None else threads
    return np.broadcast_to(number.astype(np.int64) << 32 | counts.astype(np.int64), lanes.shape)


def arrivals(lanes: list[Lanes], alive: Mask) -> Counts:
    """Return the arrived threads by warp and block; `alive` (threads, blocks) are those that have not exited."""
    wave = lanes[0].wave
    came = np.zeros((wave.warps, wave.columns), np.int64)
    for each in lanes:
        warps = each.threads // WARP
        if each.flat:
            places = warps * wave.columns + each.columns
            came += np.bincount(places, minlength=came.size).reshape(came.shape)
        else:
            came[:, each.columns] += np.bincount(warps, minlength=wave.warps).reshape(-1, 1)
    gone = WARP - alive.reshape(wave.warps, WARP, -1).sum(axis=1, dtype=np.uint8)  # three times as fast as int64
    return np.where(came > 0, came + gone, 0)


def first_warps(came: Counts, needed: Counts) -> Mask:
    """Return the threads that go on if more have arrived than are needed: the lowest warps, (threads, blocks)."""
    before = np.cumsum(came, axis=0) - came
    return np.repeat(before < needed, WARP, axis=0)

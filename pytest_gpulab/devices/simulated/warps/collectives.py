"""Warp-level primitives: shuffles, votes, matches, reductions (PTX ISA 9.7.9 and 9.7.13).

Only lanes of the executing group take part. The scheduler reconverges the lanes of the mask beforehand.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Hazard
from pytest_gpulab.devices.simulated.groups.lanes import (
    LANE_BITS,
    WARP,
    Lanes,
    Value,
    as_bits,
    first_lane,
    from_warps,
    to_warps,
)

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.execution.wave import Wave
    from pytest_gpulab.devices.simulated.translation.sites import Site

U4 = np.dtype(np.uint32)
OTHERS = LANE_BITS.reshape(WARP, 1, 1, 1)  # (32, warps, 1, blocks): the bits of lanes that are compared with their warp


ALL_LANES = np.uint32(0xFFFFFFFF)


def lanemask(which: str, laneid: Value) -> Value:
    """Return `%lanemask_eq`, `%lanemask_lt` and so on."""
    bit = np.uint32(1) << laneid
    return {
        "eq": bit,
        "lt": bit - np.uint32(1),
        "le": bit | (bit - np.uint32(1)),
        "gt": ~(bit | (bit - np.uint32(1))),
        "ge": ~(bit - np.uint32(1)),
    }[which]


def _source(mode: str, lane: Value, b: Value, c: Value) -> tuple[Value, Value]:
    """Return the source lane and the predicate *in range* of `shfl.sync`, as the PTX ISA defines them."""
    b, clamp, segment = (
        x.astype(np.int64) for x in (b & np.uint32(31), c & np.uint32(31), (c >> np.uint32(8)) & np.uint32(31))
    )
    lane = lane.astype(np.int64)
    top = (lane & segment) | (clamp & ~segment)
    bottom = lane & segment
    if mode == "up":
        source = lane - b
        inside = source >= top
    elif mode == "down":
        source = lane + b
        inside = source <= top
    elif mode == "bfly":
        source = lane ^ b
        inside = source <= top
    else:
        source = bottom | (b & ~segment)
        inside = source <= top
    return np.where(inside, source, lane), inside


@lru_cache
def _sources(mode: str, b: int, c: int) -> tuple[Value, Value]:
    """Return `_source` for each lane of a warp, with the same arguments in all of them."""
    return _source(mode, np.arange(WARP, dtype=np.uint32), np.uint32(b), np.uint32(c))


def shuffle(
    wave: Wave, lanes: Lanes, site: Site, mode: str, value: Value, b: Value, c: Value, mask: Value = ALL_LANES
) -> tuple[Value, Value]:
    """Return the value of another lane (`absent` if it is outside of the group), and the predicate *in range*."""
    if b.ndim == c.ndim == 0:
        source, inside = (of_lane[lanes.laneid] for of_lane in _sources(mode, int(b) & 31, int(c) & 0x1F1F))
    else:
        source, inside = _source(mode, lanes.laneid, b, c)
    if wave.checker is not None:
        wave.checker.shuffle(lanes, site, source, value)
    found = _of_lanes(wave, lanes, site, source, value)
    if mask.ndim == 0 and mask == ALL_LANES:
        return found, inside
    unnamed = (mask >> source) & 1 == 0
    if unnamed.any() and ((mask >> lanes.laneid) & 1).all():  # else that hazard is the mistake
        _note(wave, lanes, site, unnamed, "its mask does not name")
        if wave.launch.absent:  # else hardware usually gives the value
            found = np.where(unnamed, wave.launch.absent.view(found.dtype), found)
    return found, inside


def _of_lanes(wave: Wave, lanes: Lanes, site: Site, source: Value, value: Value) -> Value:
    if (value.ndim == 0 or (value.shape[0] == 1 and not lanes.flat)) and lanes.whole_warps:
        return value
    thread = (lanes.warpid.astype(np.intp) * WARP) + source  # (threads, 1 or blocks)
    if not lanes.flat and thread.shape[1] == 1:
        if lanes.whole_warps:
            return value.take(thread[:, 0] - lanes.threads[0], axis=0)
        row = _rows(lanes)[thread[:, 0]]
        if value.ndim == 0 or value.shape[0] == 1:
            value = np.broadcast_to(value, (lanes.shape[0], value.shape[1] if value.ndim else 1))
        return _present(wave, lanes, site, value.take(row, axis=0), (row < 0).reshape(-1, 1))
    position = np.broadcast_to(thread, lanes.shape) * lanes.wave.columns + lanes.column
    place = np.full(lanes.wave.warps * WARP * lanes.wave.columns, -1, np.intp)
    place[lanes.position.ravel()] = np.arange(lanes.n)
    index = place[position]
    flat = np.broadcast_to(value, lanes.shape).ravel()
    return _present(wave, lanes, site, flat[index], index < 0)


def _present(wave: Wave, lanes: Lanes, site: Site, found: Value, absent: npt.NDArray[np.bool_]) -> Value:
    """Return the values that lanes have read; those of absent source lanes are replaced."""
    if not absent.any():
        return found
    _note(wave, lanes, site, absent, "is inactive or has exited")
    return np.where(absent, wave.launch.absent.view(found.dtype), found)


def _note(wave: Wave, lanes: Lanes, site: Site, bad: Value, which: str) -> None:
    """Note the source lanes that take no part, once per line."""
    key = ("barrier", "shuffle", site.where)
    if key not in wave.launch.absences:
        what = f"invalid arguments: a shuffle from a lane that {which}; its value is undefined"
        bad = np.broadcast_to(bad, lanes.shape)
        wave.launch.absences[key] = Hazard("barrier", what, site.where, first_lane(lanes, bad), int(bad.sum()))


def _rows(lanes: Lanes) -> Any:
    """Return the row of each thread of the block in a rectangle; -1 if it has none."""
    rows = np.full(lanes.wave.warps * WARP, -1, np.intp)
    rows[lanes.threads] = np.arange(len(lanes.threads))
    return rows


def ballot(lanes: Lanes, predicate: Value) -> Value:
    """Return a bit per lane of the warp: 1 if the lane is in the group and the predicate is True."""
    return as_bits(lanes, to_warps(lanes, np.asarray(predicate), False))


def activemask(lanes: Lanes) -> Value:
    """Return the bits of the warp's lanes in the group."""
    return ballot(lanes, np.ones((lanes.shape[0], 1), np.bool_))


def vote(lanes: Lanes, mode: str, predicate: Value, mask: Value) -> Value:
    """Return the result of `vote.sync` over the lanes of the mask."""
    yes = ballot(lanes, predicate) & mask
    if mode == "ballot":
        return yes
    here = activemask(lanes) & mask
    if mode == "all":
        return yes == here
    if mode == "any":
        return yes != 0
    return (yes == here) | (yes == 0)


def match_any(lanes: Lanes, value: Value, mask: Value) -> Value:
    """Return the lanes of the mask that have the same value, as bits."""
    grid = to_warps(lanes, np.broadcast_to(value, lanes.shape), 0)
    present = to_warps(lanes, np.ones(lanes.shape, np.bool_), False)
    others, has_other = (of.transpose(1, 0, 2)[:, :, None] for of in (grid, present))  # (32, warps, 1, blocks)
    same = (grid == others) & has_other
    return from_warps(lanes, np.bitwise_or.reduce(same * OTHERS, axis=0)) & mask


def match_all(lanes: Lanes, value: Value, mask: Value) -> tuple[Value, Value]:
    """Return the mask if all its lanes have the same value, else 0; and a predicate that they do."""
    here = activemask(lanes) & mask
    same = (match_any(lanes, value, mask) & here) == here
    return np.where(same, here, np.uint32(0)).astype(U4), same


_REDUCE: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def redux(lanes: Lanes, operation: str, value: Value, mask: Value) -> Value:
    """Return the result of `redux.sync` over the lanes of the mask."""
    full = np.broadcast_to(value, lanes.shape)
    result = np.zeros(lanes.shape, value.dtype)
    masks = np.broadcast_to(mask, lanes.shape)
    for one in np.unique(masks):  # usually a single mask
        member = (masks == one) & ((one >> lanes.laneid) & np.uint32(1) != 0)
        identity = _identity(operation, value.dtype)
        grid = to_warps(lanes, np.where(member, full, identity), identity)
        total = _REDUCE[operation].reduce(grid, axis=1, keepdims=True, dtype=value.dtype)
        result = np.where(member, from_warps(lanes, total), result)
    return result


def _identity(operation: str, dtype: np.dtype[Any]) -> Any:
    limits = np.iinfo(dtype)
    value = {"add": 0, "or": 0, "xor": 0, "and": -1, "min": limits.max, "max": limits.min}[operation]
    return np.array(value).astype(dtype)[()]


def elect(lanes: Lanes) -> tuple[Value, Value]:
    """Return the lowest lane of each warp in the group, and a predicate of that lane."""
    mask = activemask(lanes)
    lowest = mask & (~mask + np.uint32(1))
    leader = (np.frexp(lowest.astype(np.float64))[1] - 1).astype(np.uint32)
    return leader, leader == lanes.laneid

"""Shorten long sequences of accesses that contain `__syncwarp`, without losing races.

An access is *settled* once it happens before the next access of every other lane of its warp. Then only other warps can
race with it, so accesses of two warps represent all. Other accesses are thinned only between two syncs.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import Shape
from pytest_gpulab.devices.simulated.hazards.accesses import Event, MemoryAccess, WarpSync, chosen
from pytest_gpulab.devices.simulated.hazards.vector_clocks import VectorClock, advance, sync_bits

from .thinning import Owner

_ALL_LANES = np.uint32(0xFFFFFFFF)
Thin = Callable[[Sequence[MemoryAccess], Owner], list[MemoryAccess]]


def shortened(events: Sequence[Event], shape: Shape, thin: Thin) -> list[Event]:
    """Return events that represent all accesses and warp syncs since a barrier; `events` has no named barriers."""
    syncs = [position for position, event in enumerate(events) if isinstance(event, WarpSync)]
    if not syncs:
        return [*thin(_accesses(events), Owner.thread)]
    over = _over(events, syncs, shape)
    settled: list[MemoryAccess] = []
    kept: list[Event] = []
    for start, end in zip([0, *(sync + 1 for sync in syncs)], [*syncs, len(events)], strict=True):
        rest: list[MemoryAccess] = []
        for position, access in zip(range(start, end), _accesses(events[start:end]), strict=True):
            columns = access.lanes.column if len(over) > 1 else np.zeros((1, 1), np.intp)
            is_over = over[columns, access.lanes.threads.reshape(-1, 1)] >= position
            settled += chosen(access, is_over)
            rest += chosen(access, ~is_over)
        kept += thin(rest, Owner.thread) if rest else []
        if kept and end < len(events):
            kept.append(events[end])
    if not settled:
        return kept
    everyone = WarpSync(shape.all_lanes(), _ALL_LANES, settled[-1].time)
    return [event for access in thin(settled, Owner.warp) for event in (access, everyone)] + kept


def outstanding(events: Sequence[Event], shape: Shape) -> list[Event]:
    """Return events, in order, without the accesses that are ordered before all other threads of their block."""
    one_block = all(event.same_in_all_blocks for event in events if _is_local(event))
    columns = np.arange(1 if one_block else shape.columns)
    clocks = VectorClock(len(columns), shape.warps, across_warps=True)
    for position, event in enumerate(events):
        advance(clocks, event, position, columns, one_block)
    over = clocks.known_to_all(shape.threads)
    kept: list[Event] = []
    for position, event in enumerate(events):
        if isinstance(event, MemoryAccess):
            where = event.lanes.column if len(over) > 1 else np.zeros((1, 1), np.intp)
            kept += chosen(event, over[where, event.lanes.threads.reshape(-1, 1)] < position)
        elif kept:  # an earlier synchronisation has no access left to order
            kept.append(event)
    return kept


def _accesses(events: Sequence[Event]) -> list[MemoryAccess]:
    return [event for event in events if isinstance(event, MemoryAccess)]


def _over(events: Sequence[Event], syncs: Sequence[int], shape: Shape) -> npt.NDArray[np.int32]:
    """Return the position up to which each thread's accesses precede the rest of its warp: (blocks, threads).

    There is one row for all blocks if they do the same.
    """
    one_block = all(event.same_in_all_blocks for event in events if _is_local(event))
    columns = np.arange(1 if one_block else shape.columns)
    clocks = VectorClock(len(columns), shape.warps, across_warps=False)
    for position in syncs:
        sync = events[position]
        assert isinstance(sync, WarpSync)
        if sync.lanes.full and sync.mask.ndim == 0 and sync.mask == _ALL_LANES:
            clocks.sync_all(position)
        else:
            clocks.warp_sync(sync_bits(sync, columns, one_block), position)
    return clocks.by_all_others(shape.threads)


def _is_local(event: Event) -> bool:
    """Return True if an event concerns each block alone: it is no access to global memory."""
    return not isinstance(event, MemoryAccess) or event.memory is None

"""Warps of a traced block: the active lanes per line, the banks and the sectors of their accesses."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pytest_gpulab.devices.trace_events import AccessEvent, LaunchTrace, LineEvent

WARP, BANKS, WORD_BYTES, SECTOR_BYTES = 32, 32, 4, 32
MAX_LINES = 120  # executed lines of a warp


@dataclass(frozen=True)
class LineRun:
    """An execution of a line by a warp; `lanes` are the active ones."""

    line: int
    lanes: frozenset[int]


@dataclass(frozen=True)
class WarpAccess:
    """An access of one warp."""

    line: int
    kind: str  # `read`, `write` or `atomic`
    space: str  # `shared` or `global`
    # bank or sector to the lanes that access it; sectors are counted from the first one
    places: dict[int, tuple[int, ...]]
    cost: int  # passes of shared memory, or sectors of global memory
    best: int  # the cost of the same lanes with neighbouring elements, at most `cost`: a broadcast costs even less


def line_runs(trace: LaunchTrace, block: int, warp: int) -> list[LineRun]:
    """Return the lines that a warp executes, in order, at most `MAX_LINES`."""
    found: list[LineRun] = []
    for event in trace.events:
        if not isinstance(event, LineEvent) or event.block != block:
            continue
        lanes = frozenset((event.threads[event.threads // WARP == warp] % WARP).tolist())
        for where in event.lines if lanes else ():
            run = LineRun(where.line, lanes)
            if not found or found[-1] != run:
                found.append(run)
    return found[:MAX_LINES]


def warp_accesses(trace: LaunchTrace, block: int, space: str) -> list[WarpAccess]:
    """Return the most expensive access of each line and kind, in the order of the lines."""
    worst: dict[tuple[int, str], WarpAccess] = {}
    for access in _accesses(trace, block, space):
        key = access.line, access.kind
        if key not in worst or access.cost > worst[key].cost:
            worst[key] = access
    return [worst[key] for key in sorted(worst)]


def _accesses(trace: LaunchTrace, block: int, space: str) -> Iterator[WarpAccess]:
    for event in trace.events:
        if not isinstance(event, AccessEvent) or (event.block, event.space) != (block, space) or event.where is None:
            continue
        for warp in np.unique(event.threads // WARP).tolist():
            mine = event.threads // WARP == warp
            yield _access(event, (event.threads[mine] % WARP).tolist(), event.offsets[mine].tolist())


def _access(event: AccessEvent, lanes: list[int], offsets: list[int]) -> WarpAccess:
    places: dict[int, list[int]] = {}
    words: dict[int, set[int]] = {}  # or sectors, by place
    assert event.where is not None
    is_shared, needed = event.space == "shared", len(lanes) * event.nbytes
    unit = WORD_BYTES if is_shared else SECTOR_BYTES
    for lane, offset in zip(lanes, offsets, strict=True):
        for word in range(offset // unit, (offset + event.nbytes - 1) // unit + 1):
            place = word % BANKS if is_shared else word - min(offsets) // unit
            places.setdefault(place, []).append(lane)
            words.setdefault(place, set()).add(word)
    cost = max(map(len, words.values())) if is_shared else len(places)
    best = -(-needed // (BANKS * unit if is_shared else unit))
    shown = {place: tuple(dict.fromkeys(of)) for place, of in sorted(places.items())}
    return WarpAccess(event.where.line, event.kind, event.space, shown, cost, min(cost, best))

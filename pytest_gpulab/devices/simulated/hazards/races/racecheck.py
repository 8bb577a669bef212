"""Race detection in one wave: accesses of the threads of a block between two barriers, checked at the second.

A cheap filter comes first: without a word that two threads use and one changes, there is no race. Words that do not
pass go through `sweep`, which has the order by `__syncwarp`, named barriers and mbarriers. The rest goes through
`fences`. Shuffles, votes and matches do not order memory accesses: CUDA guarantees this for `__syncwarp` only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Shape
from pytest_gpulab.devices.simulated.hazards.accesses import (
    MAX_KEPT,
    MAX_LANES,
    SELF_LANES,
    WORD_BYTES,
    AccessPiece,
    Event,
    Mask,
    MbarrierEvent,
    MemoryAccess,
    NamedBarrierEvent,
    Repeats,
    WarpSync,
    in_batches,
    pieces_of,
    restricted,
    small_keys,
    split_phase,
    spread,
    unit_of,
    weight,
)
from pytest_gpulab.devices.simulated.memory.spaces import Allocation

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.hazards.checker import LaunchHazardChecker
    from pytest_gpulab.devices.simulated.hazards.sweep import Positions

MAX_MEMO, MAX_MEMO_BYTES = 4096, 64 << 20  # number and size of the race-free sequences that are kept
MAX_WORDS = 1 << 16  # words per sweep
MAX_SWEEP_KEY = 4096  # lanes of suspects, up to which the result of their sweep is kept


class Racecheck:
    """The events of one wave since the last barrier."""

    def __init__(self, shape: Shape, launch: LaunchHazardChecker) -> None:
        self.shape, self._launch = shape, launch
        self.clean = launch.program.clean
        self.repeats = Repeats()
        self._scratch = np.empty(0, np.int32)
        self._reset()

    def _reset(self) -> None:
        self.repeats.clear()
        self.events: list[Event] = []
        self._limit = MAX_LANES
        self._global = self._shared = self._shared_alike = 0  # weights; the last one if one block represents all
        self._is_alike = True
        self._arrived: dict[int, int | None] = {}  # per mbarrier, the event at which all threads arrived together
        self._complete: dict[int, int | None] = {}  # the same, for phases that are complete

    def add(self, event: Event) -> None:
        """Record an event."""
        if self._launch.is_saturated:
            return
        if isinstance(event, MemoryAccess) and event.memory is not None:
            self._global += weight(event)
        else:
            if self._is_alike and not event.same_in_all_blocks:
                if self._global + self._shared > self._limit:  # cheaper while one block represents all
                    self._thin()
                self._is_alike = False
            self._shared += weight(event) if isinstance(event, MemoryAccess) else SELF_LANES
            self._shared_alike += weight(event, one_block=True) if isinstance(event, MemoryAccess) else SELF_LANES
        self.events.append(event)
        if self._global + (self._shared_alike if self._is_alike else self._shared) > self._limit:
            self._thin()

    def add_global(self, access: MemoryAccess) -> bool:
        """Record an access to global memory; return False if it repeats an earlier one."""
        is_new = not self.repeats.has(access)
        if is_new:
            self.add(access)
        return is_new

    def phase(self, event: MbarrierEvent) -> None:
        """Record that threads arrive at mbarriers, complete a phase, or have waited for it."""
        barrier = int(event.address.flat[0]) if event.address.size == 1 else -1
        if event.what == "arrive":
            self._arrived[barrier] = len(self.events) if event.lanes.full else None
        elif event.what == "complete":
            arrived = self._arrived.pop(split_phase(barrier)[0], None)
            self._complete[barrier] = arrived if event.lanes.all_columns else None
        elif event.lanes.full and (start := self._complete.get(barrier)) is not None:
            self._synchronised(start)
            return
        self.add(event)

    def _synchronised(self, start: int) -> None:
        """Check all events if all threads are ordered after those before `start`; keep the later ones."""
        events = self.events
        self._reset()
        self._check(events)
        accesses = (at for at in range(start, len(events)) if isinstance(events[at], MemoryAccess))
        for event in events[next(accesses, len(events)) :]:
            self.add(event)

    def barrier(self, columns: Mask | None) -> None:
        """Check and discard the events of some blocks (None: of all) at a barrier of all their threads."""
        events = self.events
        self._reset()
        if columns is None or columns.all():
            self._check(events)
            return
        self._check([piece for event in events if (piece := _of_columns(event, columns)) is not None])
        for event in events:
            rest = _of_columns(event, ~columns)
            if rest is not None:
                self.add(rest)

    def _thin(self) -> None:
        """Check the recorded events, and keep representatives of them."""
        events = self.events
        self._check(events)
        self._reset()
        self._limit = 1 << 62
        if any(isinstance(event, NamedBarrierEvent | MbarrierEvent) for event in events):
            from .settling import outstanding

            for event in outstanding(events, self.shape):
                self.add(event)
            if self._global + self._shared > MAX_LANES // 2:
                self._reset()
                self._launch.add_unchecked("accesses before a barrier of some warps and after it by others")
            self._limit = MAX_LANES
            return
        for event in self._shortened(events):
            self.add(event)
        self._limit = MAX_LANES + self._global + self._shared
        if self._limit > MAX_LANES + MAX_KEPT:
            self._reset()
            self._launch.add_unchecked("accesses of a block between two barriers")

    def _shortened(self, events: list[Event]) -> list[Event]:
        if self._launch.fences is None:  # words of several blocks are covered by the races between blocks
            from .settling import shortened
            from .thinning import thinned

            thin = partial(thinned, shared_counts=False)
            return shortened(events, self.shape, thin)
        from .distinct import by_thread, distinct

        accesses = [event for event in events if isinstance(event, MemoryAccess)]
        fences = self._launch.fences
        times = by_thread([] if fences is None else fences.times)
        kept = distinct(accesses, times, self._launch.check_time)
        syncs = [event for event in events if isinstance(event, WarpSync)]
        return sorted([*kept, *syncs], key=lambda event: event.time)

    # --- checks ------------------------------------------------------------------------------------------------

    def _check(self, events: list[Event]) -> None:
        by_memory: dict[Allocation | None, list[tuple[int, MemoryAccess]]] = defaultdict(list)
        kinds: dict[Allocation | None, set[str]] = defaultdict(set)
        for position, event in enumerate(events):
            if isinstance(event, MemoryAccess):
                by_memory[event.memory].append((position, event))
                kinds[event.memory].add(event.site.access)
        for memory in by_memory:
            if kinds[memory] not in ({"read"}, {"atomic"}) and not self._launch.is_saturated:
                self._check_memory(memory, by_memory[memory], events)

    def _check_memory(
        self, memory: Allocation | None, accesses: list[tuple[int, MemoryAccess]], events: list[Event]
    ) -> None:
        mine = [event for event in events if not isinstance(event, MemoryAccess) or event.memory is memory]
        one_block = memory is None and all(event.same_in_all_blocks for event in mine)
        nbytes = sum(event.address.nbytes + SELF_LANES for event in mine if isinstance(event, MemoryAccess))
        key = _signature(mine) if one_block and nbytes <= MAX_MEMO_BYTES else None
        if key is not None and key in self.clean:
            return
        if memory is not None and len(accesses) == 1 and _ascending(accesses[0][1]):
            return
        if self._launch.fences is not None:
            from .pairing import flag_reads

            for pairs in flag_reads([access for _, access in accesses], across_blocks=False):
                self._launch.reporter.pairs(pairs)
        unit = unit_of([access for _, access in accesses])
        suspects = self._suspects(accesses, unit, one_block)
        if (not suspects or self._is_clean(suspects, events, unit, one_block)) and key is not None:
            self._keep_clean(key, nbytes)

    def _is_clean(self, suspects: list[AccessPiece], events: list[Event], unit: int, one_block: bool) -> bool:
        """Report the races among suspects; return True if there is none."""
        is_global = suspects[0].access.memory is not None
        is_short = sum(len(piece.unit) for piece in suspects) <= MAX_SWEEP_KEY
        key = (is_global, unit, one_block, _sweep_key(events, suspects)) if is_short else None
        if key is not None and key in self.clean:
            return True
        if self._only_fences_order(suspects, events):
            return self._is_ordered(suspects, unit)
        any_order = self._launch.fences is not None or any(
            isinstance(event, NamedBarrierEvent | MbarrierEvent) for event in events
        )
        from pytest_gpulab.devices.simulated.hazards.sweep import races

        batches = in_batches(suspects, MAX_WORDS)
        strong, is_clean = _PermittedPairs(events, is_global), True
        search = partial(races, events, strong=strong, unit_bytes=unit, one_block=one_block, any_order=any_order)
        for race in (race for pieces in batches for race in search(pieces, check_time=self._launch.check_time)):
            self._launch.reporter.race(race, events, one_block)
            is_clean = False
            if self._launch.is_saturated:
                break
        if is_clean and key is not None:
            self._keep_clean(key, MAX_SWEEP_KEY * WORD_BYTES)
        return is_clean

    def _only_fences_order(self, suspects: list[AccessPiece], events: list[Event]) -> bool:
        """Return True if nothing but fences orders threads."""
        is_global = suspects[0].access.memory is not None
        return (
            self._launch.fences is not None and is_global and all(isinstance(event, MemoryAccess) for event in events)
        )

    def _is_ordered(self, suspects: list[AccessPiece], unit: int) -> bool:
        """Report the pairs that only fences can order; return True if there is none."""
        from .pairing import Pairing

        assert self._launch.fences is not None
        is_clean, classes = True, self._launch.fences.classes()
        pairings = [Pairing(pieces, unit, classes, "block") for pieces in in_batches(suspects, MAX_WORDS)]
        # See `_PermittedPairs`: the pairs of volatile accesses that need an order are those within a warp.
        sites = ((piece, piece.access.site) for piece in suspects)
        in_warps = [piece for piece, site in sites if not (site.is_weak or site.is_awaited)]
        if any(not piece.access.site.is_strong for piece in in_warps):
            pairings += [Pairing(pieces, unit, classes, "warp") for pieces in in_batches(in_warps, MAX_WORDS)]
        for pairing in pairings:
            self._launch.check_time()
            for pairs in pairing.pairs():
                self._launch.reporter.pairs(pairs)
                is_clean = False
            if not pairing.is_complete:
                self._launch.add_unchecked("all pairs of accesses of a block to the same array")
        return is_clean

    def _keep_clean(self, key: object, nbytes: int) -> None:
        if len(self.clean) < MAX_MEMO and sum(self.clean.values()) + nbytes <= MAX_MEMO_BYTES:
            self.clean[key] = nbytes

    def _suspects(self, accesses: list[tuple[int, MemoryAccess]], unit: int, one_block: bool) -> list[AccessPiece]:
        """Return the pieces that access a word which two threads use and one changes."""
        by_block = accesses[0][1].memory is None and not one_block
        key, thread = spread([access for _, access in accesses], unit, one_block, by_block)
        key -= key.min()
        key = small_keys(key)
        size = int(key.max()) + 1
        if len(self._scratch) < size:
            self._scratch = np.empty(size, np.int32)
        owner = self._scratch
        owner[key] = thread
        met = owner[key] != thread
        return _contested(list(pieces_of(accesses, unit, one_block)), key, key[met], size) if met.any() else []


def _contested(pieces: list[AccessPiece], key: IndexArray, met: IndexArray, size: int) -> list[AccessPiece]:
    """Return the pieces for the lanes that access a shared word which is changed, and accessed weakly by one thread."""
    counts = [len(piece.unit) for piece in pieces]
    sites, waiting = [piece.access.site for piece in pieces], [_waits(piece.access) for piece in pieces]

    def have(marks: list[bool]) -> Mask:
        """Return a mask of the shared words with an access that is marked."""
        words = np.zeros(size, np.bool_)
        words[key[np.repeat(marks, counts)]] = True
        return words & shared

    shared = np.zeros(size, np.bool_)
    shared[met] = True
    is_weak = [not site.is_strong and not waits for site, waits in zip(sites, waiting, strict=True)]
    hot = have(is_weak) & have([site.modifies for site in sites])
    if not hot.any():
        return []
    plain = hot & have([site.is_weak for site in sites])
    chosen = np.where(np.repeat(waiting, counts), plain[key], hot[key])
    masks = np.split(chosen, np.cumsum(counts)[:-1])
    return [piece.where(mask) for piece, mask in zip(pieces, masks, strict=True) if mask.any()]


def _waits(access: MemoryAccess) -> bool:
    """Return True for a read that waits for a volatile flag: it may race with weak accesses only."""
    return access.site.is_awaited and access.site.is_volatile and access.memory is not None


class _PermittedPairs:
    """The pairs of accesses that the memory model permits without an order: those of which neither is weak.

    Volatile accesses count as strong between different warps in global memory, because flags need that. In shared
    memory they do so only with a fence before the write: without one they are a tree reduction that lacks its barriers.
    Within a warp `volatile` orders nothing, although kernels from before Volta relied on it. But also there, a thread
    may wait until a volatile flag changes.
    """

    def __init__(self, events: Sequence[Event], is_global: bool) -> None:
        sites = [event.site if isinstance(event, MemoryAccess) else None for event in events]
        self._strong = np.array([site is not None and site.is_strong for site in sites])
        self._volatile = np.array([site is not None and site.is_volatile for site in sites])
        self._awaited = np.array([site is not None and site.is_awaited for site in sites])
        self._announces = np.array([isinstance(event, MemoryAccess) and event.announces for event in events])
        self._global = is_global

    def __call__(self, at: Positions, thread: IndexArray, piece: AccessPiece, mine: IndexArray) -> Mask:
        site = piece.access.site
        both: Mask = self._strong[at] & site.is_strong
        if site.order != "weak":
            apart = (thread // WARP != mine // WARP) | self._awaited[at] | site.is_awaited
            allowed = self._strong[at] | self._volatile[at]
            if not self._global and not piece.access.announces:
                allowed &= self._announces[at]
            both = both | (apart & allowed)
        return both


def _signature(events: Iterable[Event]) -> object:
    """Return a key of a sequence of events in which all blocks do the same."""
    return tuple(
        (event.site.index, event.lanes.threads_key, event.address.tobytes(), event.announces)
        if isinstance(event, MemoryAccess)
        else _sync_signature(event)
        for event in events
    )


def _sync_signature(event: WarpSync | NamedBarrierEvent | MbarrierEvent) -> object:
    lanes = event.lanes
    key = (lanes.threads_key, lanes.columns.tobytes(), lanes.flat)
    if isinstance(event, MbarrierEvent):
        return (*key, event.what, event.address.tobytes())
    return (*key, event.mask.tobytes()) if isinstance(event, WarpSync) else (*key, event.number, event.leaving)


def _sweep_key(events: Sequence[Event], suspects: Sequence[AccessPiece]) -> object:
    """Return a key of suspects and of the synchronisations that may order them."""
    keys = [(at, _sync_signature(event)) for at, event in enumerate(events) if not isinstance(event, MemoryAccess)]
    for piece in suspects:
        lanes = (piece.unit.tobytes(), piece.thread.tobytes(), piece.column.tobytes())
        keys.append((piece.position, (piece.access.site.index, piece.nth, piece.access.announces, lanes)))
    return tuple(what for _, what in sorted(keys, key=lambda entry: entry[0]))


def _ascending(access: MemoryAccess) -> bool:
    """Return True if the addresses of all threads of all blocks are ascending and disjoint."""
    address = access.address
    if address.shape != access.lanes.shape or access.lanes.flat:
        return False
    size = address.dtype.type(access.site.nbytes)
    return bool((address[1:] >= address[:-1] + size).all() and (address[0, 1:] >= address[-1, :-1] + size).all())


def _of_columns(event: Event, columns: Mask) -> Event | None:
    """Return an event for the lanes of some blocks, or None."""
    mine = columns[event.lanes.column]
    if mine.all():
        return event
    if not mine.any():
        return None
    if isinstance(event, MemoryAccess):
        return restricted(event, mine)
    subset = event.lanes.subset(mine)
    if isinstance(event, WarpSync):
        return event._replace(lanes=subset.lanes, mask=subset.take(event.mask))
    if isinstance(event, MbarrierEvent):
        return event._replace(lanes=subset.lanes, address=subset.take(event.address))
    return event._replace(lanes=subset.lanes)

"""Race detection in one wave: what the threads of a block did since their last barrier, judged at the next one.

A quick look first: if no word is used by two threads, one of which writes, there is no race. What fails it goes through
`sweep`, which knows what `__syncwarp`, named barriers and mbarriers put in order, and what fails that through `fences`.
Shuffles, votes and matches order nothing: CUDA promises memory ordering for `__syncwarp` only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.simulated.groups.lanes import WARP, IndexArray, Shape
from pytest_gpulab.devices.simulated.hazards.accesses import (
    WORD_BYTES,
    Access,
    Arrival,
    Event,
    Part,
    Phase,
    WarpSync,
    in_pieces,
    parts_of,
    split_phase,
    spread,
    unit_of,
)
from pytest_gpulab.devices.simulated.hazards.reporting import Reporter
from pytest_gpulab.devices.simulated.hazards.sweep import Positions, races
from pytest_gpulab.devices.simulated.hazards.vector_clocks import Mask
from pytest_gpulab.devices.simulated.memory.spaces import Allocation

from .distinct import by_thread, distinct
from .pairing import relied_on
from .repeats import Repeats
from .settling import outstanding, shortened
from .thinning import MAX_KEPT, MAX_LANES, SELF_LANES, numbered, thinned, weight

MAX_MEMO, MAX_MEMO_BYTES = 4096, 64 << 20  # stretches found clean
MAX_WORDS = 1 << 16  # that are swept at once
MAX_STORY = 4096  # lanes of one that took a sweep
_WEAK, _CHANGED = np.uint8(1), np.uint8(2)


class Racecheck:
    """The accesses of one wave since the last barrier.

    Args:
        clean: stretches that were found free of races before, shared by all launches of a program; with their bytes.
    """

    def __init__(self, shape: Shape, reporter: Reporter, clean: dict[object, int]) -> None:
        self.shape, self.reporter, self.clean = shape, reporter, clean
        self.repeats = Repeats()
        self._scratch: dict[int, npt.NDArray[np.int32]] = {}
        self._forget()

    def _forget(self) -> None:
        self.repeats.clear()
        self.events: list[Event] = []
        self._limit = MAX_LANES
        self._global = self._shared = self._shared_alike = 0  # weights; the last if one block stands for all
        self._is_alike = True
        self._arrived: dict[int, int | None] = {}  # the event at which all threads arrived at an mbarrier together
        self._complete: dict[int, int | None] = {}  # the same, where the phase has ended

    def add(self, event: Event) -> None:
        """Remember an event."""
        if self.reporter.is_enough:
            return
        if isinstance(event, Access) and event.memory is not None:
            self._global += weight(event)
        else:
            if self._is_alike and not event.same_in_all_blocks:
                if self._global + self._shared > self._limit:  # cheaper while one block stands for all
                    self._thin()
                self._is_alike = False
            self._shared += weight(event) if isinstance(event, Access) else SELF_LANES
            self._shared_alike += weight(event, one_block=True) if isinstance(event, Access) else SELF_LANES
        self.events.append(event)
        if self._global + (self._shared_alike if self._is_alike else self._shared) > self._limit:
            self._thin()

    def add_global(self, access: Access) -> bool:
        """Remember an access to global memory, unless it is known; return whether it is not."""
        is_new = not self.repeats.has(access)
        if is_new:
            self.add(access)
        return is_new

    def phase(self, event: Phase) -> None:
        """Threads arrive at mbarriers, end a phase, or go on after it."""
        place = int(event.address.flat[0]) if event.address.size == 1 else -1
        if event.what == "arrive":
            self._arrived[place] = len(self.events) if event.lanes.full else None
        elif event.what == "complete":
            arrived = self._arrived.pop(split_phase(place)[0], None)
            self._complete[place] = arrived if event.lanes.all_columns else None
        elif event.lanes.full and (start := self._complete.get(place)) is not None:
            self._meet(start)
            return
        self.add(event)

    def _meet(self, start: int) -> None:
        """All threads know of all that was done before an event: judge it, and keep what was done since then."""
        events = self.events
        self._forget()
        self._judge(events)
        accesses = (at for at in range(start, len(events)) if isinstance(events[at], Access))
        for event in events[next(accesses, len(events)) :]:
            self.add(event)

    def barrier(self, columns: Mask | None) -> None:
        """All threads of some blocks (None: of all) have met: judge what they did, and forget it."""
        events = self.events
        self._forget()
        if columns is None or columns.all():
            self._judge(events)
            return
        self._judge([part for event in events if (part := _of_columns(event, columns)) is not None])
        for event in events:
            rest = _of_columns(event, ~columns)
            if rest is not None:
                self.add(rest)

    def _thin(self) -> None:
        """Judge what there is, and keep what stands for it."""
        events = self.events
        self._judge(events)
        self._forget()
        self._limit = 1 << 62
        if any(isinstance(event, Arrival | Phase) for event in events):
            for event in outstanding(events, self.shape):
                self.add(event)
            if self._global + self._shared > MAX_LANES // 2:
                self._forget()
                self.reporter.cut_short("accesses before a barrier of some warps and after it by others")
            self._limit = MAX_LANES
            return
        for event in self._shortened(events):
            self.add(event)
        self._limit = max(MAX_LANES, 2 * (self._global + self._shared))
        if self._limit > 2 * MAX_KEPT:
            self._forget()
            self.reporter.cut_short("accesses of a block between two barriers")

    def _shortened(self, events: list[Event]) -> list[Event]:
        if self.reporter.fences is None:  # races between blocks show all that words of several blocks can
            thin = partial(thinned, shared_counts=False)
            return shortened(events, self.shape, thin)
        accesses = [event for event in events if isinstance(event, Access)]
        kept = distinct(accesses, by_thread(self.reporter.moments))
        syncs = [event for event in events if isinstance(event, WarpSync)]
        return sorted([*kept, *syncs], key=lambda event: event.time)

    # --- judging ------------------------------------------------------------------------------------------------

    def _judge(self, events: list[Event]) -> None:
        by_memory: dict[Allocation | None, list[tuple[int, Access]]] = defaultdict(list)
        changed: set[Allocation | None] = set()
        for position, event in enumerate(events):
            if isinstance(event, Access):
                by_memory[event.memory].append((position, event))
                if event.site.modifies:
                    changed.add(event.memory)
        for memory in by_memory:
            if memory in changed and not self.reporter.is_enough:
                self._judge_memory(memory, by_memory[memory], events)

    def _judge_memory(self, memory: Allocation | None, accesses: list[tuple[int, Access]], events: list[Event]) -> None:
        mine = [event for event in events if not isinstance(event, Access) or event.memory is memory]
        one_block = memory is None and all(event.same_in_all_blocks for event in mine)
        nbytes = sum(event.address.nbytes + SELF_LANES for event in mine if isinstance(event, Access))
        key = _signature(mine) if one_block and nbytes <= MAX_MEMO_BYTES else None
        if key is not None and key in self.clean:
            return
        if memory is not None and len(accesses) == 1 and _ascending(accesses[0][1]):
            return
        if self.reporter.fences is not None:
            for pairs in relied_on([access for _, access in accesses], across_blocks=False):
                self.reporter.pairs(pairs)
        unit = unit_of([access for _, access in accesses])
        suspects = self._suspects(accesses, unit, one_block)
        if (not suspects or self._is_clean(suspects, events, unit, one_block)) and key is not None:
            self._remember(key, nbytes)

    def _is_clean(self, suspects: list[Part], events: list[Event], unit: int, one_block: bool) -> bool:
        """Report the races among suspects; return whether there is none."""
        is_global = suspects[0].access.memory is not None
        is_short = sum(len(part.unit) for part in suspects) <= MAX_STORY
        key = (is_global, unit, one_block, _story(events, suspects)) if is_short else None
        if key is not None and key in self.clean:
            return True
        any_order = self.reporter.fences is not None or any(isinstance(event, Arrival | Phase) for event in events)
        pieces = in_pieces(suspects, MAX_WORDS)
        strong, is_clean = _Strong(events, is_global), True
        for race in (race for parts in pieces for race in races(events, parts, strong, unit, one_block, any_order)):
            self.reporter.race(race, events, one_block)
            is_clean = False
            if self.reporter.is_enough:
                break
        if is_clean and key is not None:
            self._remember(key, MAX_STORY * WORD_BYTES)
        return is_clean

    def _remember(self, key: object, nbytes: int) -> None:
        if len(self.clean) < MAX_MEMO and sum(self.clean.values()) + nbytes <= MAX_MEMO_BYTES:
            self.clean[key] = nbytes

    def _suspects(self, accesses: list[tuple[int, Access]], unit: int, one_block: bool) -> list[Part]:
        """Return what touches a word that two threads use and one changes."""
        by_block = accesses[0][1].memory is None and not one_block
        key, who = spread([access for _, access in accesses], unit, one_block, by_block)
        key -= key.min()
        key = numbered(key)
        size = int(key.max()) + 1
        owner = self._scratch_of(size)
        owner[key] = who
        met = owner[key] != who
        return _contested(list(parts_of(accesses, unit, one_block)), key, key[met], size) if met.any() else []

    def _scratch_of(self, size: int) -> npt.NDArray[np.int32]:
        known = self._scratch.get(0)
        if known is None or len(known) < size:
            known = self._scratch[0] = np.empty(size, np.int32)
        return known


def _contested(parts: list[Part], key: IndexArray, met: IndexArray, size: int) -> list[Part]:
    """Return the lanes of parts, whose keys stand end to end, that touch what is met at, changed and not all strong."""
    flags, shared = np.zeros(size, np.uint8), np.zeros(size, np.bool_)
    shared[met] = True
    ends = np.cumsum([len(part.unit) for part in parts])
    keys = [key[end - len(part.unit) : end] for part, end in zip(parts, ends.tolist(), strict=True)]
    for part, mine in zip(parts, keys, strict=True):
        site = part.access.site
        flags[mine] |= _WEAK * (not site.is_strong) | _CHANGED * site.modifies
    hot = shared & (flags == _WEAK | _CHANGED)
    if not hot.any():
        return []
    chosen = [(part, hot[mine]) for part, mine in zip(parts, keys, strict=True)]
    return [part.where(mask) for part, mask in chosen if mask.any()]


class _Strong:
    """Which pairs of accesses the memory model allows without an order: those of which neither is weak.

    Volatile accesses of different warps to global memory are such, as flags need; in shared memory only where a fence
    stands before the write: without one they are a tree that lacks its barriers. Inside a warp `volatile` orders
    nothing, whatever kernels from before Volta relied on.
    """

    def __init__(self, events: Sequence[Event], is_global: bool) -> None:
        sites = [event.site if isinstance(event, Access) else None for event in events]
        self._strong = np.array([site is not None and site.is_strong for site in sites])
        self._volatile = np.array([site is not None and site.is_volatile for site in sites])
        self._announces = np.array([isinstance(event, Access) and event.announces for event in events])
        self._global = is_global

    def __call__(self, at: Positions, thread: IndexArray, part: Part, mine: IndexArray) -> Mask:
        site = part.access.site
        both: Mask = self._strong[at] & site.is_strong
        if site.order != "weak":
            apart = thread // WARP != mine // WARP
            allowed = self._strong[at] | self._volatile[at]
            if not self._global and not part.access.announces:
                allowed &= self._announces[at]
            both = both | (apart & allowed)
        return both


def _signature(events: Iterable[Event]) -> object:
    """What tells one stretch from another, if all blocks do the same in both."""
    return tuple(
        (event.site.index, event.lanes.threads_key, event.address.tobytes(), event.announces)
        if isinstance(event, Access)
        else _sync_signature(event)
        for event in events
    )


def _sync_signature(event: WarpSync | Arrival | Phase) -> object:
    lanes = event.lanes
    who = (lanes.threads_key, lanes.columns.tobytes(), lanes.flat)
    if isinstance(event, Phase):
        return (*who, event.what, event.address.tobytes())
    return (*who, event.mask.tobytes()) if isinstance(event, WarpSync) else (*who, event.number, event.leaving)


def _story(events: Sequence[Event], suspects: Sequence[Part]) -> object:
    """What tells some accesses of one stretch, and what may put them in order, from those of another."""
    told = [(at, _sync_signature(event)) for at, event in enumerate(events) if not isinstance(event, Access)]
    for part in suspects:
        lanes = (part.unit.tobytes(), part.thread.tobytes(), part.column.tobytes())
        told.append((part.position, (part.access.site.index, part.nth, part.access.announces, lanes)))
    return tuple(what for _, what in sorted(told, key=lambda entry: entry[0]))


def _ascending(access: Access) -> bool:
    """Whether every thread of every block accesses a place of its own behind the last one's."""
    address = access.address
    if address.shape != access.lanes.shape or access.lanes.flat:
        return False
    size = address.dtype.type(access.site.nbytes)
    return bool((address[1:] >= address[:-1] + size).all() and (address[0, 1:] >= address[-1, :-1] + size).all())


def _of_columns(event: Event, columns: Mask) -> Event | None:
    """Return an event as the lanes of some blocks see it."""
    mine = columns[event.lanes.column]
    if mine.all():
        return event
    if not mine.any():
        return None
    subset = event.lanes.subset(mine)
    if isinstance(event, Access):
        values = [subset.take(value) for value in event.values]
        return event._replace(lanes=subset.lanes, address=subset.take(event.address), values=values)
    if isinstance(event, WarpSync):
        return event._replace(lanes=subset.lanes, mask=subset.take(event.mask))
    if isinstance(event, Phase):
        return event._replace(lanes=subset.lanes, address=subset.take(event.address))
    return event._replace(lanes=subset.lanes)

"""The hazard checker of a launch: waves, barriers and generated code report accesses and synchronisations to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Hazard, Location, SourceLine
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Shape, Subset, Value
from pytest_gpulab.devices.simulated.hazards.races.racecheck import Racecheck
from pytest_gpulab.devices.simulated.memory.spaces import Allocation, Arena
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.sites import POINTER_BYTES, Site

from .accesses import CLUSTER_BARRIER, Mask, MbarrierEvent, MemoryAccess, NamedBarrierEvent, WarpSync, in_phase
from .initcheck import Initcheck

if TYPE_CHECKING:  # imported by the launches that need them
    from pytest_gpulab.devices.simulated.hazards.races.inter_block import InterBlockRaceDetector

    from .fences import Fences
    from .polls import FailedSwaps, LastWrites, Polls, Spins
    from .reporting import Reporter

Locate = Callable[[Site, str, int], Location | None]
MAX_RACING = 1 << 18  # racing lanes, after which the search stops


class LaunchHazardChecker:
    """The hazard checks of one launch: the logical time of all waves, and races between blocks.

    `locate` returns the array of an instruction's access from its memory space and address. `changing` are the arrays
    that the launch may change; None if it may be any. `check_time` raises an exception if the launch has exceeded its
    time limit; long searches call it.
    """

    def __init__(
        self,
        program: Program,
        hazards: dict[Any, Hazard],
        locate: Locate,
        changing: frozenset[Allocation] | None,
        blocks: int,
        check_time: Callable[[], None],
    ) -> None:
        self.program, self._hazards, self.locate = program, hazards, locate
        self.changing, self.check_time = changing, check_time
        self.time = 0  # logical time of the last event
        self.orders = 0  # number of events that may order threads: barriers, fences, writes that are not weak
        self.racing = 0  # number of lanes that race for certain
        self.unchecked: list[str] = []  # discarded accesses that may have raced with later ones, in words; each once
        self.has_copied_unwritten = False  # True once a load that is only copied has read unwritten bytes
        self.read_bytes: dict[Allocation, int] = defaultdict(int)  # by all threads
        self.fences: Fences | None = None  # the record of synchronisations, if threads communicate
        self.strong_writes: LastWrites | None = None
        self.plain_writes: LastWrites | None = None  # all that are no atomics
        self.inter_block: InterBlockRaceDetector | None = None
        if program.communicates:
            from .fences import Fences

            self.fences = Fences()
        if blocks > 1:
            from pytest_gpulab.devices.simulated.hazards.races.inter_block import InterBlockRaceDetector

            self.inter_block = InterBlockRaceDetector(self)

    @cached_property
    def reporter(self) -> Reporter:
        """The reporter of hazards, which right kernels do not need."""
        from .reporting import Reporter

        return Reporter(self, self._hazards)

    @property
    def is_saturated(self) -> bool:
        """True if enough races are certain for the search to stop."""
        return self.fences is None and self.racing > MAX_RACING

    def add_unchecked(self, unchecked: str) -> None:
        """Record that some accesses were not checked."""
        if unchecked not in self.unchecked:
            self.unchecked.append(unchecked)

    def tick(self) -> int:
        """Return the time of the next event."""
        self.time += 1
        return self.time

    def order(self) -> int:
        """Return the time of the next event, which may order threads."""
        self.orders += 1
        return self.tick()

    def is_changing(self, memory: Allocation, site: Site) -> bool:
        """Return True if the launch may change an array. After an unexpected change it may change any."""
        if self.changing is None or memory.is_heap or memory in self.changing:
            return True
        if site.modifies:
            self.changing = None
            self.add_unchecked("accesses to an array before a pointer to another one was used to change it")
        return site.modifies

    def end(self) -> None:
        """End the launch: find the races that depend on all its events."""
        if self.inter_block is not None:
            self.inter_block.check()
        if "reporter" in vars(self):
            self.reporter.settle()


class HazardChecker:
    """The hazard checks of one wave."""

    def __init__(self, launch: LaunchHazardChecker, shape: Shape, shared_bytes: int, local_bytes: int) -> None:
        self.launch, self.shape = launch, shape
        self.races = Racecheck(shape, launch)
        self.initcheck = Initcheck(launch, shape, shared_bytes, local_bytes)
        self._polls: Polls | None = None
        if launch.fences is not None:
            from .polls import LastWrites, Polls

            launch.strong_writes = launch.strong_writes or LastWrites()
            self._polls = Polls(shape, launch.strong_writes)
        self._orders_seen = 0
        self._swaps: FailedSwaps | None = None
        self._spins: Spins | None = None
        self._failed: Mask | None = None  # lanes of the compare-and-swap that is being recorded
        self.pending_copies: Callable[[], None] | None = None  # repeats the accesses of asynchronous copies
        self._fenced = np.zeros((shape.threads, shape.columns if launch.program.fences else 0), np.bool_)

    # --- accesses -----------------------------------------------------------------------------------------

    def access_shared(self, lanes: Lanes, site: Site, address: Value, values: list[Value]) -> None:
        """Check a read (no values), write or atomic of shared memory by a group."""
        announces = site.modifies and site.order != "weak" and self._have_fenced(lanes)
        access = MemoryAccess(site, lanes, address, values, None, self.launch.tick(), announces)
        racing = self._racing(access)
        if racing is not None and (site.order != "weak" or not self._is_reserved(address)):
            self.races.add(racing)
        if site.order != "weak" and self._polls is not None:
            self._polls.synchronised(lanes, access.time)
        self._strong(access)
        self.initcheck.access_shared(lanes, site, address, access.same_in_all_blocks)

    def shuffle(self, lanes: Lanes, site: Site, source: Value, value: Value) -> None:
        """No-op: a shuffle orders nothing and is checked where it is executed."""

    def stuck(self, waiting: Sequence[Lanes], where: SourceLine | None, is_loop: bool) -> None:
        """No-op: the fault that ends the launch is no hazard."""

    def _is_reserved(self, address: Value) -> bool:
        """Return True for shared memory of NVIDIA's libraries, which rely on more than CUDA guarantees."""
        reserved = self.launch.program.reserved_shared
        return bool(reserved) and int(address.max()) < reserved

    def start_copy(self, lanes: Lanes, site: Site, address: Value, values: list[Value]) -> None:
        """Record the start of a copy to shared memory, a write from now on. Its end is a separate write."""
        self.races.add(MemoryAccess(site, lanes, address, values, None, self.launch.tick()))

    def land_copy(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Record that a started copy is complete."""
        self.initcheck.shared.write(lanes.column, address, site.nbytes, lanes.alike(address))

    def access_mbarrier(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Check an access to mbarriers: initialise, arrive, test. `phase` has the order that they establish."""
        access = MemoryAccess(site, lanes, address, [], None, self.launch.tick())
        self.races.add(access)
        if site.access == "write":
            self.initcheck.shared.write(lanes.column, address, site.nbytes, access.same_in_all_blocks)

    def access_local(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Check a read or write of local memory by a group."""
        self.initcheck.access_local(lanes, site, address)

    def access_global(
        self, lanes: Lanes, site: Site, memory: Allocation, address: Value, offset: Value, values: list[Value]
    ) -> None:
        """Check a read (no values), write or atomic; `address` is the value of the group's address register."""
        launch = self.launch
        if site.access == "read":
            launch.read_bytes[memory] += lanes.n * site.nbytes
        if launch.is_changing(memory, site):
            access = MemoryAccess(site, lanes, offset, values, memory, launch.tick())
            if not self._record_global(access) and not self.initcheck.gaps:
                return
        self.initcheck.access_global(lanes, site, memory, offset)

    def access_atomic(
        self,
        lanes: Lanes,
        site: Site,
        memory: Allocation | None,
        address: Value,
        offset: Value,
        unchanged: Mask,
        failed: Mask | None,
    ) -> None:
        """Check an atomic with a used result; see `access_global` and, for shared memory (None), `access_shared`.

        `unchanged` masks the lanes that changed nothing, `failed` those with a failed compare-and-swap, if it is one.
        """
        access = MemoryAccess(site, lanes, offset, [], memory, self.launch.time)
        for subset, reads in self._parts(access, unchanged):
            part, inner = (lanes, offset) if subset is None else (subset.lanes, subset.take(offset))
            if reads:
                self._read_again(access._replace(lanes=part, address=inner, time=self.launch.tick()))
                continue
            self._failed = failed if subset is None or failed is None else subset.take(failed)
            if memory is None:
                self.access_shared(part, site, inner, [])
            else:
                self.access_global(part, site, memory, address if subset is None else subset.take(address), inner, [])
            self._failed = None
            if self._spins is not None:
                self._spins.acted(access._replace(lanes=part, address=inner, time=self.launch.time))

    def _parts(self, access: MemoryAccess, unchanged: Mask) -> list[tuple[Subset | None, bool]]:
        if self.launch.fences is None:
            return [(None, False)]
        self._spins = self._spins or _spins(self.shape, self.launch)
        return self._spins.parts(access, unchanged)

    def _read_again(self, access: MemoryAccess) -> None:
        """Record an atomic that repeats the last access of its threads and changes nothing; see `Spins`."""
        assert self._spins is not None and self._polls is not None
        self._spins.read(access)
        self._polls.synchronised(access.lanes, access.time)

    def _record_global(self, access: MemoryAccess) -> bool:
        """Record an access to global memory; return False if it repeats an earlier one."""
        launch, racing = self.launch, self._racing(access)
        if self._polls is not None and access.site.order != "weak":
            new = self._polls.new(access)
            if new is None:
                return False
            access, racing = new, new if racing is access else racing
        if self._orders_seen != launch.orders:
            self._orders_seen = launch.orders
            self.races.repeats.clear()
            if launch.fences is not None and launch.inter_block is not None:
                launch.inter_block.repeats.clear()
        is_new = racing is not None and self.races.add_global(racing)
        if launch.inter_block is not None and racing is not None and (is_new or access.site.modifies):
            launch.inter_block.add(racing)
        if is_new or racing is not access:
            self._strong(access)
        return is_new

    def _racing(self, access: MemoryAccess) -> MemoryAccess | None:
        """Return the lanes of an access that may race with others than an earlier access; see `FailedSwaps`."""
        if self._spins is not None and (access.site.order == "weak" or access.site.modifies):
            self._spins.interrupted(access.lanes)
        if self.launch.plain_writes is not None and access.site.access == "write":
            self.launch.plain_writes.add(access)
        if self._failed is None or access.site.releases:
            if self._swaps is not None and access.site.order != "weak":
                self._swaps.synchronised(access.lanes)
            return access
        if self._swaps is None:
            from .polls import FailedSwaps

            self._swaps = FailedSwaps(self.shape)
        return self._swaps.racing(access, self._failed)

    def _strong(self, access: MemoryAccess) -> None:
        """Record a strong access, by which threads may synchronise, for the fences."""
        fences, site = self.launch.fences, access.site
        if site.order == "weak" or fences is None:
            return
        self.launch.orders += site.modifies
        if self._spins is not None and site.access == "read":
            self._spins.read(access)
            return
        if site.releases:
            fences.add(access.time, "fence" if site.releases == "device" else "block fence", access.lanes)
        what = site.access if site.access != "atomic" else "exchange" if site.returns else "update"
        fences.add(access.time, what, access.lanes, access.address, access.memory)

    # --- synchronisation ----------------------------------------------------------------------------------------

    def _synchronised(self, lanes: Lanes, time: int) -> None:
        if self._polls is not None:
            self._polls.synchronised(lanes, time)
        if self._swaps is not None:
            self._swaps.synchronised(lanes)
        if self._spins is not None:
            self._spins.interrupted(lanes)

    def warp_sync(self, lanes: Lanes, mask: Value) -> None:
        """Record that lanes have waited for the lanes of a mask in their warp."""
        time = self.launch.order()
        self._synchronised(lanes, time)
        self.races.add(WarpSync(lanes, mask, time))
        if self.launch.fences is not None:
            self.launch.fences.add(time, "warps", lanes, mask)

    def _have_fenced(self, lanes: Lanes) -> bool:
        """Return True if all lanes have executed a fence since the last barrier of their block."""
        return bool(self._fenced.size) and bool(self._fenced[lanes.cells].all())

    def fence(self, lanes: Lanes, whole_device: bool) -> None:
        """Record a fence, for the device or for the block only."""
        time = self.launch.order()
        self._synchronised(lanes, time)
        if self._fenced.size:
            self._fenced[lanes.cells] = True
        if self.launch.fences is not None:
            self.launch.fences.add(time, "fence" if whole_device else "block fence", lanes)

    def barrier(self, columns: npt.NDArray[np.bool_] | None) -> None:
        """Record a barrier of all threads of some blocks (None: of all blocks)."""
        time = self.launch.order()
        self.races.barrier(columns)
        if self.pending_copies is not None:
            self.pending_copies()
        self.initcheck.shared.update_complete()
        if self._fenced.size:
            self._fenced[:, slice(None) if columns is None else columns] = False
        if self.launch.fences is not None or self._swaps is not None:
            which = np.arange(self.shape.columns) if columns is None else np.flatnonzero(columns)
            self._synchronised(Lanes(self.shape, np.arange(self.shape.threads), which, False), time)
        if self.launch.fences is not None:
            one_each = Lanes(self.shape, np.zeros(1, np.intp), which, False)
            self.launch.fences.add(time, "blocks", one_each)

    def named_barrier(self, lanes: Lanes, number: int, leaving: bool) -> None:
        """Record that threads arrive at a barrier for a part of their block, or leave it."""
        time = self.launch.order()
        self._synchronised(lanes, time)
        self.races.add(NamedBarrierEvent(lanes, number, leaving, time))
        if leaving and self.launch.fences is not None:
            self.launch.fences.add(time, "threads", lanes)

    def phase(self, lanes: Lanes, address: Value, what: str) -> None:
        """Record that lanes arrive at mbarriers, complete a phase, or have waited for one; see `MbarrierEvent.what`."""
        time = self.launch.order()
        self._synchronised(lanes, time)
        self.races.phase(MbarrierEvent(lanes, address, what, time))
        if self.launch.fences is not None:
            self.launch.fences.add(time, what, lanes, address)

    def cluster_arrival(self, lanes: Lanes) -> None:
        """Record that lanes arrive at the barrier of their cluster, which is their block."""
        self.phase(lanes, CLUSTER_BARRIER, "arrive")

    def cluster_wait(self, lanes: Lanes) -> None:
        """Record that all threads of some blocks have waited for the arrivals of their cluster."""
        one_each = Lanes(self.shape, np.zeros(1, np.intp), np.unique(lanes.columns), False)
        phase = in_phase(CLUSTER_BARRIER, np.uint32(0))
        self.phase(one_each, phase, "complete")
        self.phase(lanes, phase, "wait")

    def end(self) -> None:
        """End the wave."""
        self.races.barrier(None)


def _spins(shape: Shape, launch: LaunchHazardChecker) -> Spins:
    from .polls import LastWrites, Spins

    assert launch.fences is not None and launch.strong_writes is not None
    launch.plain_writes = launch.plain_writes or LastWrites()
    return Spins(shape, launch.fences, launch.strong_writes, launch.plain_writes)


def may_change(program: Program, parameters: bytes, arena: Arena) -> frozenset[Allocation] | None:
    """Return the arrays that a launch may change; None if it may be any."""
    if program.targets.anywhere:
        return None
    addresses = set(program.targets.variables)
    for number in program.targets.parameters:
        offset, nbytes = program.parameters[number]
        pointers = parameters[offset : offset + nbytes - nbytes % POINTER_BYTES]
        addresses.update(np.frombuffer(pointers, np.uint64).tolist())
    found = (arena.find(address) for address in addresses)
    return frozenset(allocation for allocation in found if allocation is not None)

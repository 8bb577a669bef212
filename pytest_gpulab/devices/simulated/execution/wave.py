"""A wave: blocks of a launch that run together, with their shared and local memory.

Generated code calls the `Wave` `w`. It executes loads, stores and atomics. The scheduler chooses the group that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Hazard, KernelFault, SourceLine
from pytest_gpulab.devices.simulated.groups.group import Union
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Shape, Subset, Value, first_lane, lane_at
from pytest_gpulab.devices.simulated.hazards.checker import HazardChecker, LaunchHazardChecker
from pytest_gpulab.devices.simulated.memory.spaces import Banked
from pytest_gpulab.devices.simulated.translation.sites import LOCAL_WINDOW, SHARED_WINDOW, Site

from .launch_state import Clock, LaunchState

if TYPE_CHECKING:  # imported by the kernels that use them
    from pytest_gpulab.devices.simulated.memory.async_copies import AsyncCopies
    from pytest_gpulab.devices.simulated.memory.atomics import Operation
    from pytest_gpulab.devices.simulated.memory.bulk_copies import BulkCopies

    from .mbarriers import Mbarriers
    from .stack import Stack

Dtype = np.dtype[Any]
ORDINARY_LAUNCH = (
    "grid synchronisation in an ordinary launch: the exercise launches this kernel without cooperation, "
    "so its blocks cannot wait for each other"
)
_WINDOW = np.uint64(1 << 40)  # bytes of each window of generic addresses: shared, local, global


class Wave:
    """The memories and extents of some blocks; see the module's docstring."""

    def __init__(self, launch: LaunchState, block_ids: npt.NDArray[np.intp], is_counted: bool) -> None:
        self.launch, self.program, self.arena = launch, launch.program, launch.arena
        self.shape = Shape(launch.grid, launch.block, block_ids)
        self.counters = launch.counters_of(block_ids, is_counted)
        self.steps = 0  # number of basic blocks executed, over all groups
        self.length = 0  # number of statements in them: the longest path of a thread, or more if paths diverge
        self.exchanges = 0  # number of lanes of atomics with a used result, over all executions
        self.clock = Clock()
        self._doubles: dict[int, tuple[Value, Value]] = {}
        fill = launch.options.fill
        self.shared = Banked("shared", launch.shared_bytes, self.shape.columns, fill)
        self.local = Banked("local", launch.program.local, self.shape.columns * self.shape.threads, fill)
        self.checker: HazardChecker | None = None
        if launch.checker is not None and launch.watched in (-1, block_ids[0]):
            self.checker = self._hazard_checker(launch.checker)
        self.stack = None if launch.program.stack is None else self._stack(*launch.program.stack)
        self.ntid_x, self.ntid_y, self.ntid_z = map(np.uint32, launch.block)
        self.nctaid_x, self.nctaid_y, self.nctaid_z = map(np.uint32, launch.grid)
        self.nwarpid = np.uint32(self.shape.warps)
        self.warp_size, self.zero, self.one = np.uint32(32), np.uint32(0), np.uint32(1)
        self.dynamic_shared = np.uint32(launch.shared_bytes - launch.program.static_shared)
        self.total_shared = np.uint32(launch.shared_bytes - launch.program.reserved_shared)

    def _hazard_checker(self, checks: LaunchHazardChecker) -> HazardChecker:
        extents = self.shape, self.launch.shared_bytes, self.launch.program.local
        if self.launch.trace is None or self.launch.options.trace is None:
            return HazardChecker(checks, *extents)
        from pytest_gpulab.devices.simulated.trace.recorder import RecordingChecker  # for figures only

        return RecordingChecker(checks, *extents, self.launch.trace, self.launch.options.trace.blocks, self.shared)

    def _stack(self, start: int, nbytes: int) -> Stack:
        from .stack import Stack

        return Stack(self.shape.threads * self.shape.columns, self.checker, start, nbytes)

    @cached_property
    def copies(self) -> AsyncCopies:
        """The asynchronous copies (`cp.async`) on their way."""
        from pytest_gpulab.devices.simulated.memory.async_copies import AsyncCopies

        return AsyncCopies(self)

    @cached_property
    def bulk_copies(self) -> BulkCopies:
        """The bulk copies (`cp.async.bulk`) on their way."""
        from pytest_gpulab.devices.simulated.memory.bulk_copies import BulkCopies

        return BulkCopies(self)

    @cached_property
    def mbarriers(self) -> Mbarriers:
        """The asynchronous barriers in shared memory."""
        from .mbarriers import Mbarriers

        return Mbarriers(self)

    def as_f64(self, register: int, value: Value) -> Value:
        """Convert a float32 register to float64. The last conversion is cached."""
        held = self._doubles.get(register)
        if held is None or held[0] is not value:
            held = self._doubles[register] = (value, value.astype(np.float64))
        return held[1]

    def check_time(self) -> None:
        """Raise TimeIsUp after the time limit; long basic blocks call this periodically."""
        self.launch.deadline.check()

    def parameter(self, offset: Any, dtype: Dtype) -> Value:
        """Return a kernel argument at byte offsets; raise KernelFault if inline assembly reads beyond the arguments."""
        raw = self.launch.parameters
        last = offset if isinstance(offset, int) else int(offset.max())
        if not 0 <= last <= len(raw) - dtype.itemsize:
            what = f"a read of {dtype.itemsize} bytes beyond the {len(raw)} bytes of the kernel's arguments"
            raise KernelFault("out-of-bounds", what)
        if isinstance(offset, int):
            return np.frombuffer(raw, dtype, 1, offset)[0]
        every = np.lib.stride_tricks.sliding_window_view(np.frombuffer(raw, np.uint8), dtype.itemsize)
        return np.ascontiguousarray(every[offset.astype(np.intp)]).view(dtype)[..., 0]

    def note_lanes(self, what: str, where: SourceLine | None, lanes: Lanes, bad: npt.NDArray[np.bool_]) -> None:
        """Note a `barrier` hazard of the lanes in a mask, once per source line."""
        key = ("barrier", what, where)
        if key not in self.launch.hazards:
            bad = np.broadcast_to(bad, lanes.shape)
            self.launch.hazards[key] = Hazard("barrier", what, where, first_lane(lanes, bad), int(bad.sum()))

    def workspace(self, register: str) -> Value:
        """Return `%envreg1` or `%envreg2`: half of the address of the workspace for grid synchronisation."""
        high, low = divmod(self.launch.workspace, 1 << 32)
        return np.uint32(high if register == "%envreg1" else low)

    # --- loads and stores -------------------------------------------------------------------------

    def check_shared(self, lanes: Lanes, site: Site, address: Value) -> None:
        """Raise KernelFault if a lane accesses beyond the shared array that its address is based on."""
        bounds = self.launch.bounds.get(site.number)
        if bounds is None:
            from pytest_gpulab.devices.simulated.memory.locating import shared_bounds

            bounds = shared_bounds(self.launch, site)
        self.shared.check(lanes, site, address, bounds)

    def _access_shared(self, lanes: Lanes, site: Site, address: Value, values: list[Value], check: bool = True) -> None:
        """Check and count an access to shared memory, and record it for the hazard checks."""
        self.check_shared(lanes, site, address)
        if self.counters is not None:
            self.counters.shared(lanes, site, address)
        if self.checker is not None and check:
            self.checker.access_shared(lanes, site, address, values)

    def load_global(self, lanes: Lanes, site: Site, address: Value, dtype: Dtype, count: int) -> list[Value]:
        """Read `count` elements per lane from global memory."""
        if self.counters is not None:
            self.counters.arena(lanes, site, address)
        return self.arena.load(lanes, site, address, dtype, count, self.checker)

    def load_const(self, lanes: Lanes, site: Site, address: Value, dtype: Dtype, count: int) -> list[Value]:
        """Read `count` elements per lane from constant memory."""
        return self.load_global(lanes, site, address, dtype, count)

    def store_global(self, lanes: Lanes, site: Site, address: Value, values: list[Value]) -> None:
        """Write elements to global memory."""
        if self.counters is not None:
            self.counters.arena(lanes, site, address)
        self.arena.store(lanes, site, address, values, self.checker)

    def load_shared(
        self, lanes: Lanes, site: Site, address: Value, dtype: Dtype, count: int, check: bool = True
    ) -> list[Value]:
        """Read `count` elements per lane from shared memory."""
        self._access_shared(lanes, site, address, [], check)
        return self._load_banked(self.shared, lanes.column, lanes, address, dtype, count)

    def check_chosen(self, lanes: Lanes, site: Site, address: Value, chosen: Value) -> None:
        """Check a read of shared memory by the lanes that use its value."""
        if self.checker is not None and chosen.any():
            part = lanes.subset(np.broadcast_to(chosen, lanes.shape))
            self.checker.access_shared(part.lanes, site, part.take(address), [])

    def store_shared(self, lanes: Lanes, site: Site, address: Value, values: list[Value]) -> None:
        """Write elements to shared memory."""
        self._access_shared(lanes, site, address, values)
        self._store_banked(self.shared, lanes.column, lanes, address, values)

    def land_shared(self, lanes: Lanes, site: Site, address: Value, values: list[Value]) -> None:
        """Write elements at the end of an asynchronous copy; the race check has recorded the write at its start."""
        if self.counters is not None:
            self.counters.shared(lanes, site, address)
        if self.checker is not None:
            self.checker.land_copy(lanes, site, address)
        self._store_banked(self.shared, lanes.column, lanes, address, values)

    def load_local(self, lanes: Lanes, site: Site, address: Value, dtype: Dtype, count: int) -> list[Value]:
        """Read `count` elements per lane from local memory."""
        self._access_local(lanes, site, address)
        return self._load_banked(self.local, lanes.position, lanes, address, dtype, count)

    def store_local(self, lanes: Lanes, site: Site, address: Value, values: list[Value]) -> None:
        """Write elements to local memory."""
        if self.program.only_prints_local and self.launch.printer.is_full:
            self.local.check(lanes, site, address)
            if self.counters is not None:
                self.counters.local(lanes, site, address)
            return
        self._access_local(lanes, site, address)
        self._store_banked(self.local, lanes.position, lanes, address, values)

    def _access_local(self, lanes: Lanes, site: Site, address: Value) -> None:
        self.local.check(lanes, site, address)
        if self.checker is not None:
            self.checker.access_local(lanes, site, address)
        if self.counters is not None:
            self.counters.local(lanes, site, address)

    @staticmethod
    def _load_banked(
        memory: Banked, column: Any, lanes: Lanes, address: Value, dtype: Dtype, count: int
    ) -> list[Value]:
        values = [memory.load(lanes, column, address, dtype)]
        for k in range(1, count):
            values.append(memory.load(lanes, column, address + address.dtype.type(k * dtype.itemsize), dtype))
        return values

    @staticmethod
    def _store_banked(memory: Banked, column: Any, lanes: Lanes, address: Value, values: list[Value]) -> None:
        memory.store(lanes, column, address, values[0])
        for k in range(1, len(values)):
            memory.store(lanes, column, address + address.dtype.type(k * values[k].dtype.itemsize), values[k])

    # --- generic addresses --------------------------------------------------------------------------

    def _by_space(self, lanes: Lanes, address: Value) -> list[tuple[str, Subset | None, Value]]:
        """Split generic addresses into (space, lanes or None for all, address in that space)."""
        low, high = int(address.min()) // int(_WINDOW), int(address.max()) // int(_WINDOW)
        if low == high:
            space, base = _space_of(low)
            return [(space, None, address - np.uint64(base))]
        full = np.ascontiguousarray(np.broadcast_to(address, lanes.shape))
        window = full // _WINDOW
        pieces: list[tuple[str, Subset | None, Value]] = []
        for which in np.unique(window):
            space, base = _space_of(int(which))
            subset = lanes.subset(window == which)
            pieces.append((space, subset, subset.take(full) - np.uint64(base)))
        return pieces

    def in_shared(self, lanes: Lanes, site: Site, address: Value) -> Value:
        """Convert generic addresses to addresses in shared memory, and check them."""
        inner = address - np.uint64(SHARED_WINDOW)
        self.shared.check(lanes, site, inner)
        return inner

    def load_generic(self, lanes: Lanes, site: Site, address: Value, dtype: Dtype, count: int) -> list[Value]:
        """Read `count` elements per lane through generic addresses."""
        pieces = self._by_space(lanes, address)
        found = []
        for space, subset, inner in pieces:
            load: Callable[..., list[Value]] = getattr(self, f"load_{space}")
            found.append(load(subset.lanes if subset else lanes, site, inner, dtype, count))
        if len(pieces) == 1:
            return found[0]
        union = Union([subset.lanes for _, subset, _ in pieces if subset], lanes)
        return [union.join(values) for values in zip(*found, strict=True)]

    def store_generic(self, lanes: Lanes, site: Site, address: Value, values: list[Value]) -> None:
        """Write elements through generic addresses."""
        for space, subset, inner in self._by_space(lanes, address):
            store: Callable[..., None] = getattr(self, f"store_{space}")
            parts = [subset.take(value) for value in values] if subset else values
            store(subset.lanes if subset else lanes, site, inner, parts)

    # --- atomics --------------------------------------------------------------------------------------

    def atomic(
        self,
        lanes: Lanes,
        site: Site,
        operation: Operation,
        address: Value,
        dtype: Dtype,
        values: list[Value],
        wanted: bool,
    ) -> Value:
        """Execute an atomic operation; return the old values (zeros if not `wanted`)."""
        self.exchanges += lanes.n if wanted else 0
        out = np.zeros(lanes.shape, dtype)
        spaces = self._by_space(lanes, address) if site.space == "generic" else [(site.space, None, address)]
        for space, subset, inner in spaces:
            group = subset.lanes if subset else lanes
            parts = [subset.take(value) for value in values] if subset else values
            found = self._atomic_in(space, group, site, operation, inner, dtype, parts, wanted)
            if subset is None:
                return found
            out.ravel()[lanes.locate(group).flat if group.flat else _indices(lanes, group)] = found.ravel()
        return out

    def _atomic_in(
        self,
        space: str,
        lanes: Lanes,
        site: Site,
        operation: Operation,
        address: Value,
        dtype: Dtype,
        values: list[Value],
        wanted: bool,
    ) -> Value:
        from pytest_gpulab.devices.simulated.memory.atomics import FLUSHED_ADD, apply_in_order, outcome

        is_noted = wanted and (self.checker is not None or (site.is_retried and self.counters is not None))
        if space == "shared":
            self._access_shared(lanes, site, address, [], check=not wanted)
            found = self._atomic_shared(lanes, operation, address, dtype, values, wanted)
            if is_noted:
                self._note(lanes, site, None, address, address, outcome(operation, found, values))
            return found
        if self.counters is not None:
            self.counters.arena(lanes, site, address)
        if operation == "add" and dtype == np.float32:
            operation = FLUSHED_ADD
        out = np.zeros(lanes.shape, dtype)
        for subset, allocation, offset in self.arena.locate(lanes, site, address):
            group = subset.lanes if subset else lanes
            if not wanted or self.checker is None:
                allocation.report(group, site, address, offset, [], self.checker)
            parts = [subset.take(value) for value in values] if subset else values
            index = offset.astype(np.intp) // dtype.itemsize
            found = apply_in_order(group, allocation.typed(dtype), index, operation, parts, wanted)
            if is_noted:
                self._note(group, site, allocation, address, offset, outcome(operation, found, parts))
            if subset is None:
                return found
            out.ravel()[_indices(lanes, group)] = found.ravel()
        return out

    def _note(self, lanes: Lanes, site: Site, place: Any, address: Value, offset: Value, outcome: Any) -> None:
        """Record the outcome of an atomic for the hazard checks, and for the counts of loops that repeat it."""
        if self.checker is not None:
            self.checker.access_atomic(lanes, site, place, address, offset, *outcome)
        if site.is_retried and self.counters is not None:
            self.counters.retried(lanes, site, address, outcome[0])

    def _atomic_shared(
        self, lanes: Lanes, operation: Operation, address: Value, dtype: Dtype, values: list[Value], wanted: bool
    ) -> Value:
        from pytest_gpulab.devices.simulated.memory.atomics import apply_in_order

        memory = self.shared
        if dtype.itemsize <= 4:
            view, index = memory.words.view(dtype).reshape(-1), memory.index(address, lanes.column, dtype.itemsize)
            return apply_in_order(lanes, view, index, operation, values, wanted)
        # the halves of a 64-bit word are in two rows: work on a copy with whole words
        copy = np.ascontiguousarray(memory.words.reshape(-1, 2, memory.columns).transpose(0, 2, 1)).view(dtype)
        index = (address >> address.dtype.type(3)).astype(np.intp) * memory.columns + lanes.column
        found = apply_in_order(lanes, copy.reshape(-1), index, operation, values, wanted)
        memory.words[:] = copy.view(np.uint32).transpose(0, 2, 1).reshape(memory.words.shape)
        return found

    # --- calls to the driver -----------------------------------------------------------------------

    def printf(self, lanes: Lanes, site: Site, text: Value, arguments: Value) -> None:
        """Execute `vprintf`: append every lane's line to the launch's output."""
        self.launch.printer.print(self, lanes, text, arguments)

    def assertion(self, lanes: Lanes, site: Site, message: Value, file: Value, line: Value) -> NoReturn:
        """Execute `__assertfail`."""
        from pytest_gpulab.devices.simulated.memory.printf import columns_of, string_at

        text = string_at(self, columns_of(lanes)[0], int(np.broadcast_to(message, lanes.shape).flat[0]))
        raise KernelFault("assert", f"assertion `{text}` failed", site.where, lane_at(lanes, 0))

    def trap(self, lanes: Lanes, site: Site) -> NoReturn:
        """Execute `trap` or `brkpt`."""
        if site.access == "brkpt":
            raise KernelFault("breakpoint", "the kernel reached a breakpoint", site.where, lane_at(lanes, 0))
        if self.program.grid_syncs and not self.launch.workspace:  # how cooperative groups refuse a null workspace
            raise KernelFault("barrier", ORDINARY_LAUNCH, site.where, lane_at(lanes, 0))
        raise KernelFault("trap", "the kernel stopped itself with __trap()", site.where, lane_at(lanes, 0))


def _space_of(window: int) -> tuple[str, int]:
    if window == SHARED_WINDOW // int(_WINDOW):
        return "shared", SHARED_WINDOW
    if window == LOCAL_WINDOW // int(_WINDOW):
        return "local", LOCAL_WINDOW
    return "global", 0


def _indices(lanes: Lanes, part: Lanes) -> npt.NDArray[np.intp]:
    """Return the positions of a subset's lanes in the flattened shape of all lanes."""
    return lanes._index[part.position.ravel()]

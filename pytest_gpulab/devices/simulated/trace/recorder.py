"""The recorder of a traced launch: it observes a wave through the interface of the hazard checker."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.groups.lanes import WARP, Lanes, Shape, Value
from pytest_gpulab.devices.simulated.hazards.checker import HazardChecker, LaunchHazardChecker
from pytest_gpulab.devices.simulated.memory.spaces import Allocation, Banked
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.sites import Site
from pytest_gpulab.devices.trace_events import (
    AccessEvent,
    BarrierEvent,
    LaunchTrace,
    LineEvent,
    MissedBarrierEvent,
    ShuffleEvent,
    StuckThreads,
)

Bits = npt.NDArray[Any]
Kind = Literal["read", "write", "atomic"]


class RecordingChecker(HazardChecker):
    """The hazard checks of one wave, which also records the accesses of the chosen blocks.

    The memory still holds the old value when an atomic is reported. So the new value is read at the next event.
    """

    def __init__(
        self,
        launch: LaunchHazardChecker,
        shape: Shape,
        shared_bytes: int,
        local_bytes: int,
        trace: LaunchTrace,
        blocks: frozenset[int],
        shared: Banked,
    ) -> None:
        super().__init__(launch, shape, shared_bytes, local_bytes)
        self._trace, self._blocks, self._memory = trace, blocks, shared
        self._late: list[Callable[[], None]] = []

    def access_shared(self, lanes: Lanes, site: Site, address: Value, values: list[Value]) -> None:
        """Record and check an access to shared memory."""
        self._record(lanes, site, address, values, 0, lambda offsets, column: self._shared_bits(offsets, column, site))
        super().access_shared(lanes, site, address, values)

    def access_global(
        self, lanes: Lanes, site: Site, memory: Allocation, address: Value, offset: Value, values: list[Value]
    ) -> None:
        """Record and check an access to global memory."""
        self._record(lanes, site, offset, values, memory.base, lambda offsets, _: _global_bits(memory, offsets, site))
        super().access_global(lanes, site, memory, address, offset, values)

    def shuffle(self, lanes: Lanes, site: Site, source: Value, value: Value) -> None:
        """Record a shuffle."""
        self._catch_up()
        for block, _, where, threads in _of_blocks(lanes, self._blocks):
            sources = threads - threads % WARP + np.broadcast_to(source, lanes.shape)[where].ravel()
            bits = _joined([np.broadcast_to(value, lanes.shape)[where].ravel()])
            self._trace.add(ShuffleEvent(block, threads, sources, bits, site.where))

    def barrier(self, columns: npt.NDArray[np.bool_] | None) -> None:
        """Record and check a barrier."""
        self._catch_up()
        for column, block in enumerate(self.shape.block_ids.tolist()):
            if block in self._blocks and (columns is None or columns[column]):
                self._trace.add(BarrierEvent(block))
        super().barrier(columns)

    def missed_barrier(
        self, arrived: Sequence[Lanes], where: SourceLine | None, columns: npt.NDArray[np.bool_], expected: int | None
    ) -> None:
        """Record a barrier that not all threads of the blocks in a mask reach, or more than it expects."""
        self._catch_up()
        present: dict[int, set[int]] = {}
        for lanes in arrived:
            for block, column, _, threads in _of_blocks(lanes, self._blocks):
                if columns[column]:
                    present.setdefault(block, set()).update(threads.tolist())
        for block, there in present.items():
            absent = () if expected else tuple(sorted({*range(self.shape.threads)} - there))
            self._trace.add(MissedBarrierEvent(block, absent, expected, where))

    def stuck(self, waiting: Sequence[Lanes], where: SourceLine | None, is_loop: bool) -> None:
        """Record threads that stay in a loop, or at an mbarrier, when a fault ends the launch."""
        found: dict[int, set[int]] = {}
        for lanes in waiting:
            for block, _, _, threads in _of_blocks(lanes, self._blocks):
                found.setdefault(block, set()).update(threads.tolist())
        self._trace.stuck += [
            StuckThreads(block, tuple(sorted(there)), is_loop, where) for block, there in found.items()
        ]

    def end(self) -> None:
        """End the wave."""
        self._catch_up()
        super().end()

    def _catch_up(self) -> None:
        for add in self._late:
            add()
        self._late.clear()

    def _record(
        self,
        lanes: Lanes,
        site: Site,
        offset: Value,
        values: list[Value],
        base: int,
        read: Callable[[npt.NDArray[np.int64], int], Bits],
    ) -> None:
        self._catch_up()
        kind: Kind = "atomic" if site.access == "atomic" else "write" if site.modifies else "read"
        for block, column, where, threads in _of_blocks(lanes, self._blocks):
            offsets = np.broadcast_to(offset, lanes.shape)[where].astype(np.int64).ravel()

            def add(bits: Bits, block: int = block, threads: Any = threads, offsets: Any = offsets) -> None:
                space: Literal["shared", "global"] = "global" if base else "shared"
                event = AccessEvent(kind, space, base, block, threads, offsets, bits, site.nbytes, site.where)
                self._trace.add(event)

            if kind == "atomic":
                self._late.append(lambda add=add, offsets=offsets, column=column: add(read(offsets, column)))  # type: ignore[misc]
            elif kind == "write":
                add(_joined([np.broadcast_to(value, lanes.shape)[where].ravel() for value in values]))
            else:
                add(read(offsets, column))

    def _shared_bits(self, offsets: npt.NDArray[np.int64], column: int, site: Site) -> Bits:
        column_bytes = np.ascontiguousarray(self._memory.words[:, column]).view(np.uint8)
        return _bits_at(column_bytes, offsets, site.nbytes)


def _of_blocks(lanes: Lanes, blocks: frozenset[int]) -> Iterator[tuple[int, int, Any, npt.NDArray[np.intp]]]:
    """Yield (block, column, index of its lanes in values, threads) of the chosen blocks."""
    ids = lanes.wave.block_ids
    if lanes.flat:
        for column in np.unique(lanes.columns).tolist():
            if int(ids[column]) in blocks:
                mine = lanes.columns == column
                yield int(ids[column]), column, mine, lanes.threads[mine]
        return
    for position, column in enumerate(lanes.columns.tolist()):
        if int(ids[column]) in blocks:
            yield int(ids[column]), column, (slice(None), slice(position, position + 1)), lanes.threads


def _global_bits(memory: Allocation, offsets: npt.NDArray[np.int64], site: Site) -> Bits:
    return _bits_at(memory.data, offsets, site.nbytes)


def _bits_at(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], nbytes: int) -> Bits:
    """Return the bytes at offsets, shape (threads, words) for more than 8 bytes, else (threads,)."""
    index = offsets[:, None] + np.arange(nbytes)
    return np.ascontiguousarray(data[np.minimum(index, len(data) - 1)])


def _joined(values: Sequence[Bits]) -> Bits:
    """Return the bytes of consecutive values, shape (threads, bytes)."""
    return np.concatenate([np.ascontiguousarray(value).reshape(-1, 1).view(np.uint8) for value in values], axis=1)


class LineRecorder:
    """A recorder of the executed source lines; it replaces the counters of a wave."""

    def __init__(self, program: Program, trace: LaunchTrace, blocks: frozenset[int]) -> None:
        self._trace, self._blocks = trace, blocks
        self._lines = [
            tuple(dict.fromkeys(statement.where for statement in step.statements if statement.where))
            for step in program.steps
        ]

    def step(self, block: int, lanes: Lanes) -> None:
        """Record an execution of a basic block."""
        for of, _, _, threads in _of_blocks(lanes, self._blocks):
            if self._lines[block]:
                self._trace.add(LineEvent(of, threads, self._lines[block]))

    def diverge(self, block: int, lanes: Lanes, ways: Sequence[Lanes]) -> None:
        """No-op: the paths are recorded by their steps."""

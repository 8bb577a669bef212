"""Block barriers: waiting and exited threads, completion, and hazards.

As on hardware since Volta, threads arrive one by one, and exited threads do not count (PTX ISA 9.7.13, `barrier`).
Hardware accepts a barrier that not all threads of the block reach together, but CUDA forbids it: it is a hazard.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.hardware.architectures import BARRIERS
from pytest_gpulab.devices.protocol import Hazard, SourceLine
from pytest_gpulab.devices.simulated.groups.group import Group, Union, reconverge
from pytest_gpulab.devices.simulated.groups.lanes import WARP, Lanes, Value, as_bits, lane_at
from pytest_gpulab.devices.simulated.hazards.checker import HazardChecker
from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock

from .wave import Wave


@dataclass
class _Waiting:
    """A group at a barrier: its basic block, the barrier's number and thread count, the predicate."""

    group: Group
    block: int
    step: TranslatedBlock
    number: int
    threads: int | None
    predicate: Value


class Barriers:
    """The barriers of one wave's blocks."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.alive = np.ones((wave.shape.warps * WARP, wave.shape.columns), np.bool_)
        self.alive[wave.shape.threads :] = False
        self.waiting: list[_Waiting] = []
        self.arrived_early: dict[int, npt.NDArray[np.int64]] = {}  # `bar.arrive`: threads per block, by barrier
        self.early_counts: dict[int, set[int | None]] = {}  # the thread counts of those arrivals
        # per block: the threads that passed a barrier, each times a number of the barrier
        self.passed = np.zeros(wave.shape.columns, np.int64)

    def exit(self, group: Group) -> None:
        """Remove the lanes of a group that exits."""
        group.exit()
        self.alive[slice(None) if group.lanes.full else group.lanes.cells] = False

    def alive_bits(self, lanes: Lanes, leaving: Sequence[Lanes] = ()) -> Value:
        """Return the lanes of each lane's warp that have not exited and are not leaving, as a bit mask."""
        alive = self.alive.copy() if leaving else self.alive
        for each in leaving:
            alive[each.cells] = False
        return as_bits(lanes, alive.reshape(self.wave.shape.warps, WARP, -1))

    def arrive(
        self, group: Group, block: int, step: TranslatedBlock, value: tuple[Value, Value, Value]
    ) -> Group | None:
        """Let a group wait; return it if its blocks are complete already."""
        number, threads, predicate = value
        assert step.barrier is not None
        pieces: list[Any]
        if number.ndim == 0 and threads is None and number < BARRIERS:
            pieces = [(None, int(number), None)]
        else:
            from . import named_barriers

            named_barriers.check(step.barrier.where, group.lanes, number, threads)
            self._check_warps(group.lanes, step, number, threads)
            pieces = named_barriers.pieces(group.lanes, number, threads)
        if "arrive" in step.barrier.op:
            for subset, which, count in pieces:
                self._arrive_early(subset.lanes if subset else group.lanes, which, count)
            return group
        if len(pieces) > 1:
            self._wait_apart(group, block, step, predicate, pieces)
            return None
        _, which, count = pieces[0]
        entry = _Waiting(group, block, step, which, count, predicate)
        if group.lanes.full and entry.threads in (None, self.wave.shape.warps * WARP):
            self._reduce([entry], group)
            self.passed += self.wave.shape.threads * (1 + block) ** 2
            if self.wave.checker is not None and "cluster" in step.barrier.op:
                self.wave.checker.cluster_wait(group.lanes)
            elif self.wave.checker is not None:
                self.wave.checker.barrier(None)
            return group
        self.waiting.append(entry)
        return None

    def _wait_apart(self, group: Group, block: int, step: TranslatedBlock, predicate: Value, pieces: list[Any]) -> None:
        """Let lanes wait at barriers of different numbers or thread counts."""
        live = step.live_in | step.writes | self._after(step)
        children = group.diverge([subset for subset, _, _ in pieces], [live] * len(pieces))
        for child, (subset, number, threads) in zip(children, pieces, strict=True):
            own = None if predicate is None else subset.take(np.asarray(predicate))
            self.waiting.append(_Waiting(child, block, step, number, threads, own))

    def _check_warps(self, lanes: Lanes, step: TranslatedBlock, number: Value, threads: Value | None) -> None:
        """Note a hazard if lanes of a warp pass different operands to a barrier for whole warps."""
        assert step.barrier is not None
        if step.barrier.op[0] == "barrier" and "aligned" not in step.barrier.op:
            return
        from .named_barriers import differs_in_warp

        bad = differs_in_warp(lanes, number, threads)
        if bad is not None:
            what = "invalid arguments: the threads of a warp pass different barrier numbers or thread counts"
            self.wave.note_lanes(what, self.line(step), lanes, bad)

    def _arrive_early(self, lanes: Lanes, number: int, threads: int | None) -> None:
        from .named_barriers import arrivals

        self.early_counts.setdefault(number, set()).add(threads)
        counts = self.arrived_early.setdefault(number, np.zeros(self.wave.shape.columns, np.int64))
        counts += arrivals([lanes], self.alive).sum(axis=0)
        if self.wave.checker is not None:
            self.wave.checker.named_barrier(lanes, number, leaving=False)

    def _per_block(self, lanes: Lanes) -> npt.NDArray[np.int64]:
        """Return the number of these lanes per block."""
        counts = np.bincount(lanes.columns, minlength=self.wave.shape.columns)
        return counts if lanes.flat else counts * len(lanes.threads)

    def release(self, stuck: Callable[[Group, int], None] | None) -> list[tuple[Group, int]]:
        """Return the groups at complete barriers, with their next basic blocks.

        `stuck` is called with a waiting group if none is complete; None if other groups can still run.
        """
        if not self.waiting:
            return []
        alive = self.alive.sum(axis=0)
        released: list[tuple[Group, int]] = []
        kept: list[_Waiting] = []
        for number in sorted({entry.number for entry in self.waiting}):
            entries = [entry for entry in self.waiting if entry.number == number]
            going = self._complete(entries, alive, number)
            if going.shape[0] == 1:
                self._judge(entries, going[0])
            if self.wave.checker is not None and going.any():
                self._record_order(self.wave.checker, entries, going)
            released += self._let_go(entries, going, kept)
        self.waiting = kept
        if not released and stuck is not None:
            stuck(kept[0].group, kept[0].block)
        return released

    def _complete(self, entries: list[_Waiting], alive: npt.NDArray[Any], number: int) -> npt.NDArray[np.bool_]:
        """Return a mask of complete blocks (1, blocks), or of threads (threads, blocks) if only some may go on."""
        counts = {entry.threads for entry in entries} | self.early_counts.get(number, set())
        if len(counts) > 1:
            what = f"invalid arguments: threads arrive at barrier {number} with different thread counts"
            self.hazard(what, self.line(entries[0].step), entries[0].group.lanes)
        early = self.arrived_early.get(number)
        if None in counts:
            arrived = sum((self._per_block(entry.group.lanes) for entry in entries), np.zeros(len(alive), np.int64))
            done: npt.NDArray[np.bool_] = (arrived + (0 if early is None else early) >= alive) & (arrived > 0)
            return done.reshape(1, -1)
        from .named_barriers import arrivals, first_warps

        came = arrivals([entry.group.lanes for entry in entries], self.alive)
        arrived = came.sum(axis=0)
        total = arrived if early is None else arrived + early
        needed = np.full(len(alive), max(count for count in counts if count is not None))
        done = (total >= needed) & (arrived > 0)
        if early is not None and done.any():
            early[done] = 0
            self.early_counts.pop(number, None)
        if not (done & (total > needed)).any():
            return done.reshape(1, -1)
        self._too_many(entries, needed, done & (total > needed))
        going: npt.NDArray[np.bool_] = done & first_warps(came, needed - (total - arrived))
        return going

    def _too_many(self, entries: list[_Waiting], needed: npt.NDArray[np.int64], over: npt.NDArray[np.bool_]) -> None:
        """Note a hazard if more warps arrive at a barrier than it expects: their order decides the outcome."""
        if needed[0] > WARP:
            column = int(np.flatnonzero(over)[0])
            there = next(entry for entry in entries if column in entry.group.lanes.columns)
            what = f"divergent threads in block: barrier {there.number} expects {needed[0]} threads, but more arrive"
            self.hazard(what, self.line(there.step), there.group.lanes, column)
            self._record_missed(entries, over, int(needed[0]))

    def _judge(self, entries: list[_Waiting], done: npt.NDArray[np.bool_]) -> None:
        """Note a hazard if a block completes a barrier with missing threads or at different barriers of the source."""
        if entries[0].threads is not None:
            return  # the student chose a barrier for some of the threads
        for position in sorted({entry.block for entry in entries}):
            here = [entry for entry in entries if entry.block == position]
            arrived = sum((self._per_block(entry.group.lanes) for entry in here), np.zeros(len(done), np.int64))
            short = done & (arrived > 0) & (arrived < self.wave.shape.threads)
            if short.any():
                column = int(np.flatnonzero(short)[0])
                there = next(entry for entry in here if column in entry.group.lanes.columns)
                self._report(there, column, entries, int(arrived[short].sum()))
                self._record_missed(here, short)

    def judge_waiting(self) -> None:
        """Note a hazard if threads wait at a barrier and other threads of their block have exited."""
        short = self.alive.sum(axis=0) < self.wave.shape.threads
        for entry in self.waiting:
            waits = short & (self._per_block(entry.group.lanes) > 0)
            if entry.threads is None and waits.any():
                count = int(self._per_block(entry.group.lanes)[waits].sum())
                self._report(entry, int(np.flatnonzero(waits)[0]), [entry], count)
                self._record_missed([entry], waits)

    def record_waiting(self) -> None:
        """Record the barriers at which threads wait without end, if the launch is traced."""
        for line in dict.fromkeys(self.line(entry.step) for entry in self.waiting):
            here = [entry for entry in self.waiting if self.line(entry.step) == line]
            self._record_missed(here, np.ones(self.wave.shape.columns, np.bool_))

    def _record_missed(
        self, entries: list[_Waiting], columns: npt.NDArray[np.bool_], expected: int | None = None
    ) -> None:
        if self.wave.launch.trace is None:
            return
        from pytest_gpulab.devices.simulated.trace.recorder import RecordingChecker  # for figures only

        if isinstance(self.wave.checker, RecordingChecker):
            lanes, where = [entry.group.lanes for entry in entries], self.line(entries[0].step)
            self.wave.checker.missed_barrier(lanes, where, columns, expected)

    def _record_order(self, checker: HazardChecker, entries: list[_Waiting], going: npt.NDArray[np.bool_]) -> None:
        """Report to the race check the threads that a barrier has ordered."""
        number, threads, barrier = entries[0].number, entries[0].threads, entries[0].step.barrier
        is_cluster = barrier is not None and "cluster" in barrier.op
        if not is_cluster and (
            threads is None or (threads >= self.wave.shape.threads and number not in self.arrived_early)
        ):
            checker.barrier(going[0])
            return
        leaving = []
        for entry in entries:
            mine = _of(going, entry.group.lanes)
            if mine.any():
                leaving.append(entry.group.lanes if mine.all() else entry.group.lanes.subset(mine).lanes)
        if leaving and is_cluster:
            checker.cluster_wait(Union(leaving).lanes)
        elif leaving:
            checker.named_barrier(Union(leaving).lanes, number, leaving=True)

    def _report(self, entry: _Waiting, column: int, entries: list[_Waiting], count: int) -> None:
        others = sorted({str(self.line(e.step)) for e in entries if e.block != entry.block})
        exited = self.wave.shape.threads - int(self.alive[:, column].sum())
        reasons = [f"{exited} thread{'s' * (exited > 1)} of the block had already ended"] if exited else []
        reasons += [f"others wait at {' and '.join(others)}"] if others else []
        what = f"divergent threads in block: not all threads reach this barrier together ({'; '.join(reasons)})"
        self.hazard(what, self.line(entry.step), entry.group.lanes, column, count)

    def deadlock_sentence(self, group: Group, at_mbarriers: Counter[SourceLine | None] | None = None) -> str:
        """Describe a deadlock: the waiting threads by source line, and the exited ones, of the first block of a group.

        `at_mbarriers` has the number of threads of that block that wait for phases of mbarriers, by source line.
        """
        column = int(group.lanes.columns[0])
        counts: Counter[SourceLine | None] = Counter(at_mbarriers)
        numbers: dict[SourceLine | None, set[int]] = defaultdict(set)
        for entry in self.waiting:
            if count := int(self._per_block(entry.group.lanes)[column]):
                counts[self.line(entry.step)] += count
                numbers[self.line(entry.step)].add(entry.number)
        waits = [
            f"{_threads_wait(count)} at {where or 'a barrier'}{_named(numbers[where])}"
            for where, count in counts.items()
        ]
        exited = self.wave.shape.threads - int(self.alive[:, column].sum())
        waits += [f"{exited} have ended"] if exited else []
        return f"{', '.join(waits)}; no other thread arrives"

    @staticmethod
    def line(step: TranslatedBlock) -> SourceLine | None:
        """Return the source line of a barrier."""
        return step.barrier.where if step.barrier is not None else step.where

    def hazard(
        self, what: str, where: SourceLine | None, lanes: Lanes, column: int | None = None, count: int = 1
    ) -> None:
        """Note a hazard once per source line, with its first lane."""
        key = ("barrier", what.split("(")[0], where)
        if key in self.wave.launch.hazards:
            return
        first = 0
        if column is not None:
            first = int(np.flatnonzero(np.broadcast_to(lanes.column == column, lanes.shape))[0])
        self.wave.launch.hazards[key] = Hazard("barrier", what, where, lane_at(lanes, first), count)

    def _let_go(
        self, entries: list[_Waiting], may_go: npt.NDArray[np.bool_], kept: list[_Waiting]
    ) -> list[tuple[Group, int]]:
        released = []
        for position in sorted({entry.block for entry in entries}):
            here = [entry for entry in entries if entry.block == position]
            step = here[0].step
            for entry in here:
                entry.group.tag = 0
            going: list[Group] = []
            for entry in here:
                mine = _of(may_go, entry.group.lanes)
                if mine.all():
                    self._reduce(here, entry.group)
                    going.append(entry.group)
                elif not mine.any():
                    kept.append(entry)
                else:
                    subsets = [entry.group.lanes.subset(where) for where in (mine, ~mine)]
                    self._reduce(here, entry.group)
                    go, stay = entry.group.diverge(subsets, [step.live_in | step.writes | self._after(step)] * 2)
                    going.append(go)
                    predicate = None if entry.predicate is None else subsets[1].take(np.asarray(entry.predicate))
                    kept.append(_Waiting(stay, entry.block, step, entry.number, entry.threads, predicate))
            if going:
                self.passed += sum(self._per_block(group.lanes) for group in going) * (1 + position) ** 2
                released.append((reconverge(going, self._after(step)), step.targets[0]))
        return released

    def _after(self, step: TranslatedBlock) -> int:
        return self.wave.program.steps[step.targets[0]].live_in

    def _reduce(self, entries: list[_Waiting], group: Group) -> None:
        """Execute `bar.red`: write the count of true predicates of the block, or whether all or any are true."""
        step = entries[0].step
        if step.result is None or step.barrier is None:
            return
        yes = np.zeros(self.wave.shape.columns, np.int64)
        everyone = np.zeros(self.wave.shape.columns, np.int64)
        for entry in entries:
            lanes = entry.group.lanes
            true = np.broadcast_to(entry.predicate, lanes.shape)
            yes += np.bincount(np.broadcast_to(lanes.column, lanes.shape)[true], minlength=len(yes))
            everyone += self._per_block(lanes)
        op = step.barrier.op
        result = yes.astype(np.uint32) if "popc" in op else yes == everyone if "and" in op else yes > 0
        register, code = step.result
        values = result[group.lanes.column]
        group.regs[register] = values if code == "?" or "popc" not in op else values.astype(code)
        group.dirty |= 1 << register


def _named(numbers: set[int]) -> str:
    """Return the numbers of barriers in brackets, or nothing if only `__syncthreads()` is meant."""
    if numbers <= {0}:
        return ""
    return f" (barrier{'s' * (len(numbers) > 1)} {', '.join(map(str, sorted(numbers)))})"


def _threads_wait(count: int) -> str:
    return "1 thread waits" if count == 1 else f"{count} threads wait"


def _of(going: npt.NDArray[np.bool_], lanes: Lanes) -> npt.NDArray[np.bool_]:
    """Return a mask of blocks or threads as a mask of these lanes, broadcastable to their shape."""
    mine: npt.NDArray[np.bool_] = going[0, lanes.column] if len(going) == 1 else going[lanes.cells]
    return mine

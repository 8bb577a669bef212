"""The scheduler of a wave: groups of lanes execute basic blocks, diverge, reconverge and wait at barriers.

The group at the lowest basic block runs first, so diverged lanes reconverge at the end of a branch. Lanes that wait for
each other make progress for two reasons. A group that spins on other threads' writes is set aside (stalled) until the
others have run, and so is a group in a loop that changes nothing (`groups.cycles`). If all groups of a wave are
stalled and no lane has left its loop, `run` returns False and other waves run. Other loops are limited by the
launch's deadline. If the number of iterations that are left is known and too large for it, the launch ends at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated.execution.launch_state import TimeIsUp
from pytest_gpulab.devices.simulated.groups.group import SPIN_LIMIT, Group, StalledGroups, reconverge
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, lane_at
from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock

from .barriers import Barriers
from .launch_state import LOCKSTEP, LaunchState
from .wave import Wave

if TYPE_CHECKING:  # imported by the kernels that need them
    from pytest_gpulab.devices.simulated.groups.cycles import CycleDetector
    from pytest_gpulab.devices.simulated.groups.progress import Progress

    from .convergence import PartialWarps
    from .endless import EndlessFaults, WaveState

Key = tuple[int, int]
"""The tag of a group and its basic block; the scheduler runs the lowest key first."""
MORE_LANES = 1024  # of a wave: they take about as long as the overhead of a basic block
CHECKED_ITERATIONS = 1 << 10  # of a loop, before the first look at the number that is left: faults show up until then
FIRST_COMPARISON = 16  # iterations of a loop before its states are compared: most loops have fewer
ITERATIONS_WITHOUT_END = 64  # of a loop without exit; further hazards in it show up until then


class Scheduler:
    """The groups of one wave; see the module's docstring."""

    def __init__(self, launch: LaunchState, block_ids: npt.NDArray[np.intp], is_counted: bool = True) -> None:
        self.wave = _wave(launch, block_ids, is_counted)
        own = self.wave.counters
        self.counters = launch.line_recorder or (own if is_counted else own or launch.tally)
        self.launch, self.steps = launch, launch.program.steps
        self.ready: dict[Key, list[Group]] = {}
        self.heap: list[Key] = []
        # groups that spin until other threads write; in turn, unless polls are counted
        self.stalled = StalledGroups(in_turn=self.counters is None)
        self.phase_waits: list[tuple[Group, int]] = []  # groups that wait for a phase of an mbarrier, with their block
        self._changes = 0  # of mbarriers, when those groups last resumed
        self.barriers = Barriers(self.wave)
        self.partial_warps: dict[Key, list[Group]] = {}  # groups that wait for other lanes of their warps
        self._forget_states()
        self.changes = 0  # count of steps that may have changed more than the registers of one group
        self.left_waits = 0  # number of times that lanes left a loop with `TranslatedBlock.results`
        self._iterations_without_end = 0
        self._iterations = [0] * len(self.steps)  # per first block of a loop
        self._charged = 0  # steps of the wave, in the limit of work
        self._weight = launch.program.step_work * (1 + self.wave.shape.threads * self.wave.shape.columns // MORE_LANES)
        self.running: tuple[Group, int] | None = None  # with its block
        self.looping: tuple[Group, int] | None = None  # the last group that began an iteration, with its block
        self._admit(Group(self.wave.shape.all_lanes(), list(launch.unwritten)), 0)

    def run(self) -> bool:
        """Run until all lanes have exited (True) or all remaining lanes spin in loops (False).

        Raises:
            KernelFault: a lane caused a fault, or the launch exceeded its time limit.
            DeviceUnavailable: the process got too little processor time.
        """
        self.stalled.begin()
        self._forget_states()
        try:
            while True:
                while self.heap:
                    self._advance(*self._pop())
                    self._check_limits()
                if self._resume_phase_waits():
                    continue
                if self.stalled:
                    # Threads behind the barrier may write the value that the stalled groups wait for.
                    if self._wake_next() or self._release_barriers():
                        continue
                    self._wake(self.stalled.end())
                    return False
                if not self._release_barriers() and not self._release_partial():
                    if self.phase_waits:
                        raise self.faults.of_phases()
                    assert not self.barriers.alive.any(), "the scheduler lost threads"
                    if self.wave.checker is not None:
                        self.wave.checker.end()
                    return True
        except TimeIsUp as up:
            raise self.faults.out_of_time(up) from None

    @cached_property
    def _partial(self) -> PartialWarps:
        from .convergence import PartialWarps

        return PartialWarps(self.wave, self.barriers, self.partial_warps, self.ready)

    def _wake_next(self) -> bool:
        """Wake the stalled groups at once if the last ones that were woken went on: the next may follow them."""
        woken = self.stalled.next()
        if woken:
            self._forget_states()
            self._wake(woken)
        return bool(woken)

    def _wake(self, woken: list[tuple[Group, int]]) -> None:
        for group, block in woken:
            self._push(group, block)

    def judge_stopped(self, fault: KernelFault) -> None:
        """Note the hazards that are certain when a fault ends the launch."""
        if fault.code != "deadlock":  # a deadlock's message lists the waiting threads already
            self.barriers.judge_waiting()
        else:
            self.barriers.record_waiting()
        if self.wave.checker is not None:
            self.wave.checker.end()

    # --- the ready groups -------------------------------------------------------------------------------

    def _admit(self, group: Group, block: int) -> None:
        """Add a group of whole blocks to the ready groups, split as the schedule requires."""
        self._count_iteration(group, block)
        turns = self.launch.turns(group.lanes, block)
        tags = [tag for tag, _ in turns] or [0]
        live = [self.steps[block].live_in] * len(turns)
        children = group.diverge([subset for _, subset in turns], live) if len(turns) > 1 else [group]
        for child, tag in zip(children, tags, strict=True):
            child.tag = tag
            self._push(child, block)

    def _push(self, group: Group, block: int) -> None:
        key = (group.tag, block)
        if key in self.ready:
            self.ready[key].append(group)
        else:
            self.ready[key] = [group]
            heapq.heappush(self.heap, key)

    def _pop(self) -> tuple[Group, int]:
        key = heapq.heappop(self.heap)
        self.changes += 1
        return reconverge(self.ready.pop(key), self.steps[key[1]].live_in), key[1]

    # --- running --------------------------------------------------------------------------------------------

    def _advance(self, group: Group, block: int) -> None:
        """Run a group from a block on until it diverges, waits or exits, or another group is at a lower block."""
        wave, steps, counters, deadline = self.wave, self.steps, self.counters, self.launch.deadline
        while True:
            step = steps[block]
            # also the simulated clock
            wave.steps += 1
            wave.length += len(step.statements)
            self.running = group, block
            if deadline.is_slow:
                deadline.note(self._progress.is_made(group.lanes, block))
            if step.mask is not None:
                whole = self._partial.complete(group, block, step)
                if whole is None:
                    return
                group = whole
            if counters is not None:
                counters.step(block, group.lanes)
            value = step.run(wave, group)
            group.dirty |= step.writes
            self.changes += step.changes
            following = self._follow(group, block, step, value)
            if following is None:
                return
            if step.waits and following <= block:
                self.phase_waits.append((group, following))
                return
            if following <= block and self._must_yield(group, following, step):
                self.stalled.add(group, following)
                return
            # A group at a lower block goes first, so that diverged groups reconverge.
            if self.heap and self.heap[0] <= (group.tag, following):
                self._push(group, following)
                return
            block = following

    def _follow(self, group: Group, block: int, step: TranslatedBlock, value: Any) -> int | None:
        """Return the next block of the whole group, or None if it diverges, waits or exits."""
        if step.end == "goto":
            return step.targets[0]
        if step.end == "branch":
            return self._branch(group, block, step, value)
        if step.end == "exit":
            self.barriers.exit(group)
            return None
        if step.end == "switch":
            return self._switch(group, step, value)
        released = self.barriers.arrive(group, block, step, value)
        if released is None:
            return None
        if self.launch.options.schedule in LOCKSTEP:
            return step.targets[0]
        self._admit(released, step.targets[0])
        return None

    def _branch(self, group: Group, block: int, step: TranslatedBlock, taken: Any) -> int | None:
        yes, no = step.targets
        count = int(taken.item()) if taken.size == 1 else np.count_nonzero(taken)
        following = no if count == 0 else yes if count == taken.size else None
        if step.spins and following != min(step.targets):
            self._leave(step)
        if following is None:
            ways = self._diverge(group, [(taken, yes), (~taken, no)], block if step.spins else -1)
            if self.counters is not None:
                self.counters.diverge(block, group.lanes, ways)
        return following

    def _leave(self, step: TranslatedBlock) -> None:
        """Note that lanes leave a loop that may wait, so that its results (`TranslatedBlock.results`) matter again."""
        if self.steps[min(step.targets)].results:
            self.left_waits += 1
            self._forget_states()

    def _switch(self, group: Group, step: TranslatedBlock, index: Any) -> int | None:
        values = [int(value) for value in np.unique(index)]
        if values[-1] >= len(step.targets):
            what = f"a jump through a table of {len(step.targets)} labels with index {values[-1]}"
            raise KernelFault("device-fault", what, step.where, lane_at(group.lanes, 0))
        if len(values) == 1:
            return step.targets[values[0]]
        self._diverge(group, [(index == value, step.targets[value]) for value in values])
        return None

    def _diverge(self, group: Group, ways: Iterable[tuple[Any, int]], spinning: int = -1) -> list[Lanes]:
        """Split a group at a branch; return the lanes of each path. `spinning` is the block of a spin loop's branch."""
        subsets = [(group.lanes.subset(where), target) for where, target in ways]
        live = [self.steps[target].live_in for _, target in subsets]
        children = group.diverge([subset for subset, _ in subsets], live)
        for child, (_, target) in zip(children, subsets, strict=True):
            child.loops = group.loops + (target <= spinning)
            if target <= spinning and child.loops >= SPIN_LIMIT and self.stalled.takes_turns:
                self.stalled.add(child, target)
            else:
                self._push(child, target)
        return [subset.lanes for subset, _ in subsets]

    def _must_yield(self, group: Group, block: int, step: TranslatedBlock) -> bool:
        """Return whether a group at a back edge must let others run, which may write the value that it waits for."""
        self.looping = group, block
        self._check_limits()
        self._count_iteration(group, block)
        self._iterations[block] += 1
        if self._iterations[block] % CHECKED_ITERATIONS == 0:
            self.faults.check_iterations_left(group, block, self._iterations[block])
        if step.loops and self._is_repeated(group, block):
            others = self.heap or self.stalled or self.partial_warps or self.phase_waits
            self.stalled.add_endless(is_alone=not others)
            return True
        group.loops += step.spins
        return step.spins and group.loops >= SPIN_LIMIT

    def _check_limits(self) -> None:
        """Raise TimeIsUp after the launch's limit of time or work."""
        limit = self.launch.options.work_limit
        if limit is not None:
            limit.left -= (self.wave.steps - self._charged) * self._weight
            self._charged = self.wave.steps
            if limit.left < 0:
                raise TimeIsUp
        self.launch.deadline.check()

    def _count_iteration(self, group: Group, block: int) -> None:
        """Count iterations of loops without exit; raise KernelFault after `ITERATIONS_WITHOUT_END` of them."""
        self._iterations_without_end += block in self.launch.program.without_end
        if self._iterations_without_end > ITERATIONS_WITHOUT_END:
            raise self.faults.without_exit(group, block)

    @cached_property
    def _progress(self) -> Progress:
        from pytest_gpulab.devices.simulated.groups.progress import Progress

        return Progress(self.wave.shape, self.launch.program.is_counted)

    @cached_property
    def faults(self) -> EndlessFaults:
        """The faults of a launch that does not end."""
        from .endless import EndlessFaults

        return EndlessFaults(self)

    def _forget_states(self) -> None:
        """Discard the states of loops, because others may have changed memory."""
        self._repetitions = [0] * len(self.steps)  # iterations since, per first block of a loop
        self._cycles: CycleDetector | None = None

    def _is_repeated(self, group: Group, block: int) -> bool:
        """Count an iteration of a loop; return True if the wave was in this state before."""
        self._repetitions[block] += 1
        if self._repetitions[block] < FIRST_COMPARISON:
            return False
        if self._cycles is None:
            from pytest_gpulab.devices.simulated.groups.cycles import CycleDetector

            self._cycles = CycleDetector(self._repetitions, self.state())
        return self._cycles.is_seen_at(group, block)

    def state(self) -> WaveState:
        """Return the state of the wave, for the detection of endless loops."""
        from .endless import WaveState

        return WaveState(self)

    def _release_partial(self) -> bool:
        """If no other group can run, let lanes go on without the rest of their warp, and note a hazard."""
        if not self.partial_warps:
            return False
        for (_tag, block), groups in self.partial_warps.items():
            step = self.steps[block]
            group = reconverge(groups, step.live_in)
            if not step.is_maskless:  # tensor-core operations note missing lanes themselves
                what = "divergent threads in warp: not all threads that the mask names reach this _sync operation"
                self.barriers.hazard(what, step.where, group.lanes)
            value = step.run(self.wave, group)
            group.dirty |= step.writes
            following = self._follow(group, block, step, value)
            if following is not None:
                self._push(group, following)
        self.partial_warps.clear()
        return True

    def _release_barriers(self) -> bool:
        others = self.stalled or self.partial_warps or self.phase_waits
        released = self.barriers.release(None if others else self._raise_deadlock)
        for group, block in released:
            self._admit(group, block)
            self.stalled.note_release()
        return bool(released)

    def _raise_deadlock(self, group: Group, block: int) -> None:
        raise self.faults.of_barriers(group, block)

    def _resume_phase_waits(self) -> bool:
        """Resume all groups that wait for phases of mbarriers if any phase may have ended since."""
        if not self.phase_waits or self.wave.mbarriers.changes == self._changes:
            return False
        self._changes = self.wave.mbarriers.changes
        for group, block in self.phase_waits:
            self._push(group, block)
        self.phase_waits = []
        return True


def _wave(launch: LaunchState, block_ids: npt.NDArray[np.intp], is_counted: bool) -> Wave:
    if launch.options.disturbed is None:
        return Wave(launch, block_ids, is_counted)
    from .disturbed_wave import DisturbedWave  # for `uses` checks only

    return DisturbedWave(launch, block_ids, is_counted)

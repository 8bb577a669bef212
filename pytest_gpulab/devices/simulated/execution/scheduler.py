"""Run a wave to its end: groups of lanes advance block by block, part at branches, meet again, wait at barriers.

The group in the lowest block always goes first, so diverged lanes meet at the end of a branch. Two things keep lanes
that wait for each other from starving: a group that keeps looping over a block that can see other threads'
writes is set aside for the others, and a wave that only waits gives way to other waves (`run` returns False).
So is a group in a loop that changes nothing (`repetition`). Loops that do change something have no limit but the
launch's deadline.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault, SourceLine
from pytest_gpulab.devices.simulated.groups.group import Group, bits, reconverge
from pytest_gpulab.devices.simulated.groups.lanes import WARP, Lanes, Subset, Value
from pytest_gpulab.devices.simulated.groups.repetition import Repetition, Rest, Threads, hashed
from pytest_gpulab.devices.simulated.memory.spaces import lane_at
from pytest_gpulab.devices.simulated.translation.blocks import TranslatedBlock
from pytest_gpulab.devices.simulated.warps.collectives import activemask

from .barriers import Barriers
from .deadline import MOST, TimeIsUp
from .wave import Launch, Wave

MAX_WARPS = 32  # of a block
SPIN_LIMIT = 64  # rounds of a waiting loop before other lanes get a turn
NO_WAITED_FOR = "it waits for a change that no thread makes"
NO_CHANGE, NO_WAY_OUT = "this loop changes nothing", "nothing in this loop can end it"
ROUNDS_WITHOUT_END = 64  # of a loop that nothing ends: enough to see what else goes wrong in it
Key = tuple[int, int]  # (tag, block): what runs first


class Scheduler:
    """One wave's groups; see the module's docstring."""

    def __init__(self, launch: Launch, block_ids: npt.NDArray[np.intp], is_counted: bool = True) -> None:
        self.wave = Wave(launch, block_ids, is_counted)
        self.counters = launch.counters if is_counted else launch.tally
        self.launch, self.steps = launch, launch.program.steps
        self.ready: dict[Key, list[Group]] = {}
        self.heap: list[Key] = []
        self.stalled: list[tuple[Group, int]] = []  # spinning, with their block
        self.phase_waits: list[tuple[Group, int]] = []  # waiting for a phase of an mbarrier, with their block
        self._changes = 0  # of mbarriers, when those were last let go on
        self.partial: dict[Key, list[Group]] = {}  # waiting for the rest of their warps at a block
        self.barriers = Barriers(self.wave)
        self.repetition = Repetition(len(self.steps))
        self.is_endless = False  # all that is left takes loops that change nothing, unless other waves do
        self.is_alone = False  # and one group takes such a loop that no other thread of the wave can change
        self._endless_loops, self._rounds_without_end = list[int](), 0
        self._at: tuple[Group, int] | None = None  # what runs, for the finding of a missed deadline
        self._admit(Group(self.wave.shape.all_lanes(), list(launch.unwritten)), 0)

    def run(self) -> bool:
        """Advance until all lanes have exited (True), or all that are left are waiting in loops (False).

        Raises:
            KernelFault: a lane did something that ends the launch, or the launch has used up its time.
            DeviceUnavailable: the machine left it too little processor time.
        """
        self.is_endless, self.is_alone, self._endless_loops = False, False, []
        self.repetition.forget()
        try:
            while True:
                while self.heap:
                    self._advance(*self._pop())
                    self.launch.deadline.check()
                if self._resume_phase_waits():
                    continue
                if self.stalled:
                    if self._release_barriers():
                        continue
                    self._wake_stalled()
                    return False
                if not self._release_barriers() and not self._release_partial():
                    if self.phase_waits:
                        raise self._endless_phase()
                    self.barriers.check_all_left()
                    if self.wave.watch is not None:
                        self.wave.watch.end()
                    return True
        except TimeIsUp:
            raise self._out_of_time() from None

    def _wake_stalled(self) -> None:
        self.is_endless = len(self._endless_loops) == len(self.stalled)
        for group, block in self.stalled:
            group.loops = 0
            self._push(group, block)
        self.stalled = []

    def judge_stopped(self, fault: KernelFault) -> None:
        """A fault ends the launch: note what is certainly wrong with what threads have done so far."""
        if fault.code != "deadlock":  # which says already who waits
            self.barriers.judge_waiting()
        if self.wave.watch is not None:
            self.wave.watch.end()

    # --- the ready groups -------------------------------------------------------------------------------

    def _admit(self, group: Group, block: int) -> None:
        """Let a group that stands for whole blocks go on, cut into what goes one after the other by the schedule."""
        self._count_round(group, block)
        turns = self._turns(group.lanes, block)
        tags = [tag for tag, _ in turns] or [0]
        live = [self.steps[block].live_in] * len(turns)
        children = group.diverge([subset for _, subset in turns], live) if len(turns) > 1 else [group]
        for child, tag in zip(children, tags, strict=True):
            child.tag = tag
            self._push(child, block)

    def _turns(self, lanes: Lanes, block: int) -> list[tuple[int, Subset]]:
        """Return which lanes go together, with a tag that says which go first: warps, of every other block.

        Which half of the blocks goes first changes at barriers, in one order of warps at each of them, in the other one
        at the first. So a block that looks at what another one publishes may find nothing yet, a part of it, or all.
        """
        schedule, warp = self.launch.options.schedule, lanes.threads // WARP
        if schedule == "lockstep":
            return []
        sign = -1 if schedule == "warps-reversed" else 1
        late = np.zeros(len(lanes.columns), np.intp)
        if self.launch.program.sees_order:
            barriers = sum(step.end == "barrier" for step in self.steps[:block])
            late = (lanes.columns + (barriers if sign == 1 else min(barriers, 1))) % 2
        return [
            (sign * number + turn * MAX_WARPS, lanes.crossing(warp == number, late == turn))
            for number in np.unique(warp).tolist()
            for turn in np.unique(late).tolist()
        ]

    def _push(self, group: Group, block: int) -> None:
        key = (group.tag, block)
        if key in self.ready:
            self.ready[key].append(group)
        else:
            self.ready[key] = [group]
            heapq.heappush(self.heap, key)

    def _pop(self) -> tuple[Group, int]:
        key = heapq.heappop(self.heap)
        return reconverge(self.ready.pop(key), self.steps[key[1]].live_in), key[1]

    # --- running --------------------------------------------------------------------------------------------

    def _advance(self, group: Group, block: int) -> None:
        """Run a group from a block on, until it parts, waits, exits or another group is behind it."""
        wave, steps, counters = self.wave, self.steps, self.counters
        while True:
            step = steps[block]
            wave.steps += 1
            self._at = group, block
            if step.mask is not None:
                whole = self._whole_warps(group, block, step)
                if whole is None:
                    return
                group = whole
            if counters is not None:
                counters.step(block, group.lanes)
            value = step.run(wave, group)
            group.dirty |= step.writes
            following = self._follow(group, block, step, value)
            if following is None:
                return
            if step.waits and following <= block:
                self.phase_waits.append((group, following))
                return
            if following <= block and self._gives_way(group, following, step):
                self.stalled.append((group, following))
                return
            if self.heap and self.heap[0] <= (group.tag, following):
                self._push(group, following)
                return
            block = following

    def _follow(self, group: Group, block: int, step: TranslatedBlock, value: Any) -> int | None:
        """Return where the whole group goes next, or None if it parts, waits or ends."""
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
        if self.launch.options.schedule == "lockstep":
            return step.targets[0]
        self._admit(released, step.targets[0])
        return None

    def _branch(self, group: Group, block: int, step: TranslatedBlock, taken: Any) -> int | None:
        yes, no = step.targets
        if taken.size == 1:
            return yes if taken.item() else no
        count = np.count_nonzero(taken)
        if count in (0, taken.size):
            return yes if count else no
        ways = self._part(group, [(taken, yes), (~taken, no)])
        if self.counters is not None:
            self.counters.part(block, group.lanes, ways)
        return None

    def _switch(self, group: Group, step: TranslatedBlock, index: Any) -> int | None:
        values = [int(value) for value in np.unique(index)]
        if values[-1] >= len(step.targets):
            what = f"a jump through a table of {len(step.targets)} labels with the index {values[-1]}"
            raise KernelFault("device-fault", what, step.where, lane_at(group.lanes, 0))
        if len(values) == 1:
            return step.targets[values[0]]
        self._part(group, [(index == value, step.targets[value]) for value in values])
        return None

    def _part(self, group: Group, ways: Iterable[tuple[Any, int]]) -> list[Lanes]:
        """Send lanes different ways; return those of each."""
        subsets = [(group.lanes.subset(where), target) for where, target in ways]
        live = [self.steps[target].live_in for _, target in subsets]
        children = group.diverge([subset for subset, _ in subsets], live)
        for child, (_, target) in zip(children, subsets, strict=True):
            child.loops = group.loops
            self._push(child, target)
        return [subset.lanes for subset, _ in subsets]

    def _gives_way(self, group: Group, block: int, step: TranslatedBlock) -> bool:
        """Whether a group that goes back to a block should let others go on: they may change what it waits for."""
        self.launch.deadline.check()
        self._count_round(group, block)
        if step.loops and self.repetition.is_seen_at(group, block, self):
            self._endless_loops.append(block)
            self.is_alone = not (self.heap or self.stalled or self.partial or self.phase_waits)
            return True
        group.loops += step.spins
        return step.spins and group.loops >= SPIN_LIMIT

    def _count_round(self, group: Group, block: int) -> None:
        """Count the rounds of loops that nothing ends, until there were enough to see what else goes wrong."""
        self._rounds_without_end += block in self.launch.program.without_end
        if self._rounds_without_end > ROUNDS_WITHOUT_END:
            raise self._endless(group, block, NO_WAY_OUT)

    def _where(self, block: int) -> SourceLine | None:
        """Return the line that decides whether the innermost loop around a block goes on.

        That of a loop with no decision is its first one, that of no loop the block's own.
        """
        backs = [(i - min(step.targets), i) for i, step in enumerate(self.steps) if step.targets]
        around = [(length, i) for length, i in backs if length >= 0 and i - length <= block <= i]
        if not around:
            return next((step.where for step in self.steps[block:] if step.where), None)
        length, end = min(around)
        loop = self.steps[end - length : end + 1]
        decisions = [
            step.statements for step in reversed(loop) if min(step.targets, default=end) <= end < max(step.targets)
        ]
        chosen = (statement for statements in decisions for statement in reversed(statements))
        every = (statement for step in loop for statement in step.statements)
        line = next((each.where for each in chosen if each.where), None)
        return line or min((each.where for each in every if each.where), default=None, key=_line)

    def _out_of_time(self) -> KernelFault | DeviceUnavailable:
        """Return what a missed deadline means, with the line that the launch was at."""
        limit_s = self.launch.deadline.limit_s
        if self.launch.deadline.was_starved:
            got = f"the kernel got less than half of a core for {MOST * limit_s:.3g} s"
            return DeviceUnavailable(f"the machine is too busy: {got}")
        assert self._at is not None
        group, block = self._at
        what = f"time limit: the kernel had not ended after {limit_s:.3g} s"
        return KernelFault("time-limit", what, self._where(block), lane_at(group.lanes, 0))

    def endless(self) -> KernelFault:
        """Return the fault of the first of the threads that only wait."""
        (_, block), groups = min(self.ready.items())
        waits = any(step.spins for step in self.steps if block in step.targets)
        return self._endless(groups[0], block, NO_WAITED_FOR if waits else NO_CHANGE)

    def _endless(self, group: Group, block: int, reason: str) -> KernelFault:
        said, lane = f"the kernel does not end: {reason}", lane_at(group.lanes, 0)
        return KernelFault("endless-loop", said, self._where(block), lane)

    # --- the state that decides what a wave does next ----------------------------------------------------------

    def own(self, group: Group, block: int) -> Threads:
        """Return the registers of a group that goes back to a block."""
        return (group.tag, block), group.lanes, self._live(group, block)

    def rest(self) -> Rest:
        """Return the registers of all other groups, and a hash of what all threads have in common."""
        return list(self._others()), self._memory()

    def _others(self) -> Iterator[Threads]:
        for key in sorted(self.ready):
            for group in self.ready[key]:
                yield key, group.lanes, self._live(group, key[1])
        for kind, groups in (("stalled", self.stalled), ("phase", self.phase_waits)):
            for group, block in groups:
                yield (kind, block), group.lanes, self._live(group, block)
        for key in sorted(self.partial):
            for group in self.partial[key]:
                yield ("partial", key), group.lanes, self._live(group, key[1])
        for entry in self.barriers.waiting:
            values = self._live(entry.group, entry.step.targets[0])
            known = values if entry.predicate is None else [*values, np.asarray(entry.predicate)]
            yield ("waiting", entry.block, entry.number, entry.threads), entry.group.lanes, known

    def _live(self, group: Group, block: int) -> list[Value]:
        return [group.get(register) for register in bits(self.steps[block].live_in)]

    def _memory(self) -> bytes:
        """A hash of what threads have in common; a look at the clock is a change."""
        wave, barriers = self.wave, self.barriers
        early = barriers.arrived_early
        arrays = [*wave.arena.contents(), *self._own_memories(), barriers.alive, *early.values()]
        return hashed(arrays, [wave.looks, *early])

    def _own_memories(self) -> list[npt.NDArray[Any]]:
        wave = self.wave
        return [wave.shared.words, wave.local.words, *([] if wave.stack is None else [wave.stack.slots])]

    def fingerprint(self) -> int:
        """Return a checksum of registers and of the memories that are the wave's own."""
        check = zlib.crc32(np.packbits(self.barriers.alive).tobytes(), self.wave.looks)
        for array in self._own_memories():
            check = zlib.crc32(array.data if array.size else b"", check)
        for _, _, values in self._others():
            for value in values:
                check = zlib.crc32(value.tobytes(), check)
        return check

    # --- warp-synchronising instructions -------------------------------------------------------------------

    def _whole_warps(self, group: Group, block: int, step: TranslatedBlock) -> Group | None:
        """Return the lanes that can go on together; where hazards are looked for, hold them to the rules of masks."""
        whole = self._gathered(group, block, step)
        if whole is not None and step.mask is not None and self.wave.watch is not None:
            self.barriers.check_mask(whole.lanes, step.mask(self.wave, whole), step.where)
        return whole

    def _gathered(self, group: Group, block: int, step: TranslatedBlock) -> Group | None:
        """Keep back the lanes whose mask names others that are still on their way; return the rest."""
        key = (group.tag, block)
        if key in self.partial:
            group = reconverge([group, *self.partial.pop(key)], step.live_in)
        missing = self._missing(group, step)
        if missing is None or not missing.any():
            return group
        if missing.all():
            self.partial.setdefault(key, []).append(group)
            return None
        missing = np.ascontiguousarray(np.broadcast_to(missing, group.lanes.shape))
        subsets: list[Subset] = [group.lanes.subset(missing), group.lanes.subset(~missing)]
        waiting, complete = group.diverge(subsets, [step.live_in] * 2)
        self.partial.setdefault(key, []).append(waiting)
        return complete

    def _missing(self, group: Group, step: TranslatedBlock) -> Any:
        lanes = group.lanes
        if lanes.full or _has_whole_warps(lanes) or step.mask is None:
            return None
        alive = self.barriers.alive_bits(lanes)
        return step.mask(self.wave, group) & alive & ~activemask(lanes) != 0

    def _release_partial(self) -> bool:
        """Nobody else can move: lanes that wait for the rest of their warp go on without it, which is a hazard."""
        if not self.partial:
            return False
        for (_tag, block), groups in self.partial.items():
            step = self.steps[block]
            group = reconverge(groups, step.live_in)
            if not step.is_maskless:  # a tensor-core operation sees for itself that lanes are missing
                what = "divergent threads in warp: not all threads that the mask names reach this _sync operation"
                self.barriers.hazard(what, step.where, group.lanes)
            value = step.run(self.wave, group)
            group.dirty |= step.writes
            following = self._follow(group, block, step, value)
            if following is not None:
                self._push(group, following)
        self.partial = {}
        return True

    def _release_barriers(self) -> bool:
        others = self.stalled or self.partial or self.phase_waits
        released = self.barriers.release(None if others else self._endless_wait)
        for group, block in released:
            self._admit(group, block)
        return bool(released)

    def _resume_phase_waits(self) -> bool:
        """Let all that wait for phases of mbarriers look again, if any phase may have ended since."""
        if not self.phase_waits or self.wave.mbarriers.changes == self._changes:
            return False
        self._changes = self.wave.mbarriers.changes
        for group, block in self.phase_waits:
            self._push(group, block)
        self.phase_waits = []
        return True

    def _endless_phase(self) -> KernelFault:
        group, block = self.phase_waits[0]
        column = int(group.lanes.columns[0])
        waits = Counter(
            self._where(at) for waiting, at in self.phase_waits for _ in range(waiting.lanes.in_block(column))
        )
        what = f"deadlock: {self.barriers.who_waits(group, waits)}"
        return KernelFault("deadlock", what, self._where(block), lane_at(group.lanes, 0))

    def _endless_wait(self, group: Group, block: int) -> None:
        what = f"deadlock: {self.barriers.who_waits(group)}"
        raise KernelFault("deadlock", what, self.barriers.line(self.steps[block]), lane_at(group.lanes, 0))


def _line(where: SourceLine) -> int:
    return where.line


def _has_whole_warps(lanes: Lanes) -> bool:
    """Whether every warp that is here is here with all the lanes it was born with."""
    if lanes.flat:
        return False
    last = lanes.wave.threads % WARP
    expected = lanes.warp_count // len(lanes.columns) * WARP
    if last and lanes.threads[-1] // WARP == lanes.wave.warps - 1:
        expected -= WARP - last
    return len(lanes.threads) == expected

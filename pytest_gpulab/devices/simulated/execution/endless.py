"""Launches that do not end: the state of a wave, which an endless loop repeats (`groups.cycles`), and the faults."""

import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault, SourceLine
from pytest_gpulab.devices.simulated.groups.cycles import Rest, Threads, hashed
from pytest_gpulab.devices.simulated.groups.group import Group, bits
from pytest_gpulab.devices.simulated.groups.lanes import Value, lane_at
from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock

from .launch_state import MAX_STRETCH, TimeIsUp
from .scheduler import Scheduler

NO_WAITED_FOR = "it waits for a change that no thread makes"
NO_CHANGE, NO_WAY_OUT = "this loop changes nothing", "nothing in this loop can end it"
NOT_STARTED = "the kernel waits for a block that has not started; CUDA starts blocks in any order"
REPEATED = "only repeat the same lines"
PAST_BOUND = "the counter of this loop never meets its bound"
CHECKED_IF_MOVING = 1 << 16  # iterations of a loop that moves on in memory: it may run past the end of an array
LEAST_ITERATION_S = 5e-7  # usual ones take 40 us, an empty one 2.2 us
LEAST_INSTRUCTION_S = 2e-8  # the fastest operations of NumPy take 100 ns; moves and jumps take no time


class WaveState:
    """The registers, memory and barriers of a scheduler's wave."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._of = scheduler

    def own(self, group: Group, block: int) -> Threads:
        """Return the registers of a group at the back edge to a block."""
        return (group.tag, block), group.lanes, self._live(group, block)

    def rest(self) -> Rest:
        """Return the registers of all other groups, and a hash of all memory and barriers."""
        return list(self._others()), self._memory()

    def changes(self) -> int:
        """Return the count of steps that may have changed more than the registers of one group."""
        return self._of.changes

    def _others(self) -> Iterator[Threads]:
        for key in sorted(self._of.ready):
            for group in self._of.ready[key]:
                yield key, group.lanes, self._live(group, key[1])
        for kind, groups in (("stalled", self._of.stalled.groups), ("phase", self._of.phase_waits)):
            for group, block in groups:
                yield (kind, block), group.lanes, self._live(group, block)
        for key in sorted(self._of.partial_warps):
            for group in self._of.partial_warps[key]:
                yield ("partial", key), group.lanes, self._live(group, key[1])
        for entry in self._of.barriers.waiting:
            values = self._live(entry.group, entry.step.targets[0])
            known = values if entry.predicate is None else [*values, np.asarray(entry.predicate)]
            yield ("waiting", entry.block, entry.number, entry.threads), entry.group.lanes, known

    def _live(self, group: Group, block: int) -> list[Value]:
        step = self._of.steps[block]
        return [group.get(register) for register in bits(step.live_in & ~step.results)]

    def _memory(self) -> bytes:
        """Return a hash of memory and barriers. A read of the clock counts as a change."""
        wave, barriers = self._of.wave, self._of.barriers
        early = barriers.arrived_early
        arrays = [*wave.arena.contents(), *self._own_memories(), barriers.alive, *early.values()]
        return hashed(arrays, [wave.clock.reads, *early])

    def _own_memories(self) -> list[npt.NDArray[Any]]:
        wave = self._of.wave
        return [wave.shared.words, wave.local.words, *([] if wave.stack is None else [wave.stack.slots])]

    def fingerprint(self) -> int:
        """Return a checksum of registers and of shared and local memory."""
        changes = self._of.wave.clock.reads + self._of.left_waits
        check = zlib.crc32(np.packbits(self._of.barriers.alive).tobytes(), changes)
        for array in self._own_memories():
            check = zlib.crc32(array.data if array.size else b"", check)
        for _, _, values in self._others():
            for value in values:
                check = zlib.crc32(value.tobytes(), check)
        return check


class EndlessFaults:
    """The faults of a scheduler's wave that does not end, or not in time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._of = scheduler
        self._lines = _LoopLines(scheduler.steps)

    def check_iterations_left(self, group: Group, block: int, iteration: int) -> None:
        """End a launch with a loop that is known to go on for too long; look at the first and the last thread.

        Raises KernelFault if the iterations that are left do not fit into the time limit, however fast they are.
        """
        program, limit_s = self._of.launch.program, self._of.launch.deadline.limit_s
        loop = program.counted_loop(block)
        is_slow = self._of.launch.deadline.is_slow  # its arrays are small: by now it would have run past their ends
        if loop is None or (loop.moves_on and iteration % CHECKED_IF_MOVING != 0 and not is_slow):
            return
        if loop.takes_long and iteration & (iteration - 1):  # no power of two
            return
        numbers = program.register_numbers
        for index in {0, group.lanes.n - 1}:
            left = loop.iterations_left({name: group.value_at(numbers[name], index) for name in loop.registers})
            if math.isinf(left):
                raise self._endless(group, block, PAST_BOUND)
            if left * (LEAST_ITERATION_S + loop.instructions * LEAST_INSTRUCTION_S) > limit_s:
                self._note_stuck(group, block)
                remains = f"at least {left:,} iterations of this loop are left"
                what = f"time limit: the kernel cannot end within {limit_s:.3g} s: {remains}"
                raise KernelFault("time-limit", what, self._where(block), lane_at(group.lanes, index), remains=remains)

    def out_of_time(self, up: TimeIsUp) -> KernelFault | DeviceUnavailable:
        """Return the fault of a missed deadline, at the line that the launch had reached."""
        deadline = self._of.launch.deadline
        limit_s = deadline.limit_s
        if up.was_starved:
            got = f"the kernel got less than half of a core for {MAX_STRETCH * limit_s:.3g} s"
            return DeviceUnavailable(f"the machine is too busy: {got}")
        what = f"time limit: the kernel had not ended after {limit_s:.3g} s"
        if up.was_stalled:
            what = f"time limit: the kernel had not ended after {deadline.charged_s:.0f} s, and its threads {REPEATED}"
        running = self._of.running
        if running is None:
            return KernelFault("time-limit", what)
        # code outside of loops takes no time
        looping = next(self._looping(running), self._of.looping)
        if looping is not None:
            self._note_stuck(*looping)
        group, block = looping or running
        return KernelFault("time-limit", what, self._where(block), lane_at(group.lanes, 0), is_stalled=up.was_stalled)

    def of_waits(self, absent: str = "") -> KernelFault:
        """Return the fault at the first group that waits; `absent` is a clause about blocks that have not started."""
        (_, block), groups = min(self._of.ready.items())
        waits = any(step.spins for step in self._of.steps if block in step.targets)
        if waits and block in self._of.launch.program.without_end:  # such as a fence in a loop without a condition
            return self.without_exit(groups[0], block)
        return self._endless(groups[0], block, NO_WAITED_FOR + absent if waits else NO_CHANGE)

    def of_unstarted_blocks(self) -> KernelFault:
        """Return the fault of a wait for blocks that start after those that wait, at the first group that waits."""
        (_, block), groups = min(self._of.ready.items())
        return KernelFault("block-order", NOT_STARTED, self._where(block), lane_at(groups[0].lanes, 0))

    def without_exit(self, group: Group, block: int) -> KernelFault:
        """Return the fault of a loop that has no exit."""
        return self._endless(group, block, NO_WAY_OUT)

    def of_phases(self) -> KernelFault:
        """Return the fault of a deadlock at mbarriers."""
        group, block = self._of.phase_waits[0]
        column = int(group.lanes.columns[0])
        waits = Counter(
            self._where(at) for waiting, at in self._of.phase_waits for _ in range(waiting.lanes.in_block(column))
        )
        what = f"deadlock: {self._of.barriers.deadlock_sentence(group, waits)}"
        if self._of.wave.checker is not None:
            for where in waits:
                at_it = [each.lanes for each, at in self._of.phase_waits if self._where(at) == where]
                self._of.wave.checker.stuck(at_it, where, is_loop=False)
        return KernelFault("deadlock", what, self._where(block), lane_at(group.lanes, 0))

    def of_barriers(self, group: Group, block: int) -> KernelFault:
        """Return the fault of a deadlock at a barrier."""
        barriers = self._of.barriers
        what = f"deadlock: {barriers.deadlock_sentence(group)}"
        return KernelFault("deadlock", what, barriers.line(self._of.steps[block]), lane_at(group.lanes, 0))

    def _looping(self, first: tuple[Group, int]) -> Iterator[tuple[Group, int]]:
        """Yield the groups in loops, with their basic blocks."""
        ready = ((group, block) for (_, block), groups in self._of.ready.items() for group in groups)
        yield from (entry for entry in (first, *self._of.stalled.groups, *ready) if self._lines.is_in_loop(entry[1]))

    def _note_stuck(self, group: Group, block: int) -> None:
        """Report the threads in the loop of a group to the checker."""
        if self._of.wave.checker is not None:
            where = self._where(block)
            others = [each.lanes for each, at in self._looping((group, block)) if self._where(at) == where]
            self._of.wave.checker.stuck([group.lanes, *others], where, is_loop=True)

    def _where(self, block: int) -> SourceLine | None:
        return self._lines.of_condition(block)

    def _endless(self, group: Group, block: int, reason: str) -> KernelFault:
        said, lane = f"the kernel does not end: {reason}", lane_at(group.lanes, 0)
        where = self._lines.without_exit(block) if reason == NO_WAY_OUT else self._where(block)
        self._note_stuck(group, block)
        return KernelFault("endless-loop", said, where, lane)


class _LoopLines:
    """The source lines of a kernel's loops."""

    def __init__(self, steps: Sequence[TranslatedBlock]) -> None:
        self._steps = steps

    def is_in_loop(self, block: int) -> bool:
        """Return whether a basic block is in a loop."""
        return any(min(step.targets) <= block <= i for i, step in enumerate(self._steps) if step.targets)

    def of_condition(self, block: int) -> SourceLine | None:
        """Return the source line of the condition of the innermost loop around a basic block.

        A loop without a condition has its first line instead. A block outside of loops has its own line.
        """
        steps = self._steps
        backs = [(i - min(step.targets), i) for i, step in enumerate(steps) if step.targets]
        around = [(length, i) for length, i in backs if length >= 0 and i - length <= block <= i]
        if not around:
            return next((step.where for step in steps[block:] if step.where), None)
        length, end = min(around)
        loop = steps[end - length : end + 1]
        decisions = [
            step.statements for step in reversed(loop) if min(step.targets, default=end) <= end < max(step.targets)
        ]
        chosen = (statement for statements in decisions for statement in reversed(statements))
        line = next((each.where for each in chosen if each.where), None)
        return line or self._first(loop)

    def without_exit(self, block: int) -> SourceLine | None:
        """Return the first source line of all blocks that are reached from one that never reaches the kernel's end."""
        reached, open_blocks = {block}, [block]
        while open_blocks:
            new = set(self._steps[open_blocks.pop()].targets) - reached
            reached |= new
            open_blocks += new
        return self._first([self._steps[each] for each in reached])

    def _first(self, loop: Iterable[TranslatedBlock]) -> SourceLine | None:
        """Return the first source line of a loop: of the kernel's own lines, or else of inlined functions."""
        kernel = next((step.where for step in self._steps if step.where), None)
        lines = {statement.where for step in loop for statement in step.statements if statement.where}
        return min(lines, default=None, key=lambda where: (_is_outside(kernel, where), where.line))


def _is_outside(kernel: SourceLine | None, where: SourceLine) -> bool:
    """Return whether a line is in another file than a kernel's first line, or above it."""
    return kernel is not None and (where.file != kernel.file or where.line < kernel.line)

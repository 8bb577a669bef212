"""The state that all waves of a launch share, and its time limit.

Clocks differ at each launch, as on hardware; multiprocessor numbers differ between grids and between the replays of a
case. No kernel may depend on them: a result that does differs between launches.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Hazard, LaunchOptions, Location
from pytest_gpulab.devices.simulated.groups.lanes import MAX_WARPS, WARP, Lanes, Subset
from pytest_gpulab.devices.simulated.hazards.checker import LaunchHazardChecker, may_change
from pytest_gpulab.devices.simulated.memory.spaces import Arena, Range
from pytest_gpulab.devices.simulated.translation.program import Program
from pytest_gpulab.devices.simulated.translation.sites import Site
from pytest_gpulab.devices.system.processes import SHARE, charged_s

if TYPE_CHECKING:  # imported by the launches that use them
    from pytest_gpulab.devices.simulated.counting.counters import Counters
    from pytest_gpulab.devices.simulated.device import SimulatedDevice
    from pytest_gpulab.devices.simulated.memory.heap import Heap
    from pytest_gpulab.devices.simulated.memory.printf import Printer
    from pytest_gpulab.devices.simulated.trace.recorder import LineRecorder
    from pytest_gpulab.devices.trace_events import LaunchTrace, Trace

    from .unlike_blocks import UnlikeBlocks
    from .wave import Wave

OTHER_CHECK_S = 0.25  # between checks of a limit of work
SLOW_SHARE = 1 / 8  # of the limit of a launch without progress; progress is noted only after it, as that takes time
MAX_TURNS_KEPT = 64  # of a wave: mostly the same lanes meet at each barrier
MAX_STRETCH = 4.0  # wall-clock limit over time limit, for a process that gets little processor time


LOCKSTEP = ("lockstep", "blocks-reversed")


class TimeIsUp(Exception):
    """The launch exceeded its time limit, or that of a launch without progress if it `was_stalled`.

    It `was_starved` if other processes left this thread too little processor time.
    """

    def __init__(self, was_starved: bool = False, was_stalled: bool = False) -> None:
        super().__init__(was_starved, was_stalled)
        self.was_starved, self.was_stalled = was_starved, was_stalled


class Deadline:
    """The time limits of a running launch from now on, if there are any.

    The scheduler checks them at every iteration of a loop: a thread of the grading process cannot be stopped otherwise.
    """

    def __init__(self, limit_s: float | None, stall_limit_s: float | None = None) -> None:
        self.limit_s = math.inf if limit_s is None else limit_s
        self._stall_s = math.inf if stall_limit_s is None or stall_limit_s >= self.limit_s else stall_limit_s
        self._slow_s, self._progress_s = self._stall_s * SLOW_SHARE, 0.0
        self.charged_s = 0.0  # the time so far, at the last check
        # A launch is slow once it has used an eighth of its limit without progress; from then on, progress is noted.
        self.is_slow = self._is_repeating = self._has_progressed = False
        self._begin_s, self._begin_cpu_s = time.perf_counter(), time.thread_time()
        self._next_check_s = self._begin_s + min(self.limit_s, self._slow_s)
        self._other_limit: Callable[[], None] | None = None

    def add(self, limit: Callable[[], None]) -> None:
        """Also call a function several times a second, which raises an exception if another limit is exceeded."""
        self._other_limit, self._next_check_s = limit, min(self._next_check_s, self._begin_s + OTHER_CHECK_S)

    def note(self, is_progress: bool) -> None:
        """Note whether the next basic block of a slow launch is progress; the next check reads the time."""
        self._is_repeating = not is_progress
        if is_progress:
            self._has_progressed, self._next_check_s = True, 0.0

    def check(self) -> None:
        """Raise TimeIsUp if a limit has passed."""
        if time.perf_counter() > self._next_check_s:
            self._check()

    def _check(self) -> None:
        now_s = time.perf_counter()
        elapsed_s = now_s - self._begin_s
        self.charged_s = charged_s(elapsed_s, time.thread_time() - self._begin_cpu_s)
        left_s = self.limit_s - self.charged_s
        if left_s <= 0 or elapsed_s > MAX_STRETCH * self.limit_s:
            raise TimeIsUp(was_starved=left_s > 0)
        self._next_check_s = now_s + min(left_s, self._stall_left_s()) * SHARE
        if self._other_limit is not None:
            self._next_check_s = min(self._next_check_s, now_s + OTHER_CHECK_S)
            self._other_limit()

    def _stall_left_s(self) -> float:
        """Return the time until the launch is slow or stalled; raise TimeIsUp if it is stalled."""
        if not self.is_slow:
            self.is_slow, self._progress_s = self.charged_s >= self._slow_s, self.charged_s
            return max(self._slow_s - self.charged_s, OTHER_CHECK_S)
        if self._has_progressed:
            self._progress_s, self._has_progressed = self.charged_s, False
        left_s = self._progress_s + self._stall_s - self._slow_s - self.charged_s
        if left_s <= 0 and self._is_repeating:
            raise TimeIsUp(was_stalled=True)
        return max(left_s, OTHER_CHECK_S)


ABSENT_VALUE = np.uint32(0)  # as on an H100


SPIN_BLOCKS = 8  # most basic blocks between two reads of a clock in a loop that waits for it
SPIN_READS = 256
MAX_DOUBLINGS = 16
READ_CYCLES = 8  # of one read by all warps of a block: four schedulers issue for up to 32 warps
# multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4): the top bits have READ_CYCLES values
_MIX, _TOP_BITS = np.uint64(0x9E3779B97F4A7C15), np.uint64(61)


class Clock:
    """The clock of a wave: it advances with the executed basic blocks and with its own reads."""

    def __init__(self) -> None:
        self.reads = 0
        self.start = -1  # cycle of the launch at the first read; -1 before it
        self._in_a_row = self._extra = self._blocks = 0

    def read(self, blocks: int) -> int:
        """Return the cycles after a number of basic blocks.

        The more often a loop that only waits has read the clock, the more each read advances it: else a wait of
        milliseconds would take minutes.
        """
        self.reads += 1
        self._in_a_row = self._in_a_row + 1 if blocks - self._blocks <= SPIN_BLOCKS else 0
        self._extra += READ_CYCLES << min(self._in_a_row // SPIN_READS, MAX_DOUBLINGS)
        self._blocks = blocks
        return blocks + self._extra


class Surroundings:
    """The clocks and multiprocessors of a launch.

    `varied` is data of the launch that determines `%gridid` and the first block's multiprocessor: a kernel that depends
    on them is wrong in the same way each time it is graded.
    """

    def __init__(self, sms: int, *varied: object) -> None:
        self.sms = np.uint32(sms)
        self._cycles = int.from_bytes(os.urandom(6), "little")
        self._nanoseconds = time.time_ns()
        self.grid = np.uint64(crc32(repr(varied).encode()))  # any number, as after other programs' launches
        self._latest = 0  # the last cycle that a wave has read

    def clock(self, wave: Wave, lanes: Lanes) -> Any:
        """Return `%clock64`: a random start plus the cycles of the launch, for each lane."""
        return self._read(self._cycles, wave.clock, wave.steps, lanes)

    def timer(self, wave: Wave, lanes: Lanes) -> Any:
        """Return `%globaltimer`, in the same way."""
        return self._read(self._nanoseconds, wave.clock, wave.steps, lanes)

    def _read(self, begun: int, clock: Clock, blocks: int, lanes: Lanes) -> Any:
        """Return a time that is one number per warp, later than in all earlier reads of the wave.

        Warps read a clock one after another, and most blocks begin after others. A result that the time decides
        differs between them, as it does on hardware.
        """
        clock.start = self._latest if clock.start < 0 else clock.start
        now = clock.start + clock.read(blocks)
        self._latest = max(self._latest, now)
        turn = (lanes.warps_of_grid + np.uint64(self._cycles)) * _MIX >> _TOP_BITS
        return np.uint64(begun + now) + turn

    def multiprocessor(self, lanes: Lanes) -> Any:
        """Return `%smid`: blocks are assigned to the multiprocessors in turn."""
        return (lanes.block + np.uint32(self.grid % self.sms)) % self.sms


def low(value: Any) -> Any:
    """Return the low half of a 64-bit value."""
    return value.astype(np.uint32)


def high(value: Any) -> Any:
    """Return the high half of a 64-bit value."""
    return (value >> np.uint64(32)).astype(np.uint32)


class Tally:
    """The instructions of the blocks that are not counted, to compare them with those of the counted blocks."""

    def __init__(self, program: Program) -> None:
        self.issued = 0  # warp instructions
        self._statements = [len(step.statements) for step in program.steps]

    def step(self, block: int, lanes: Lanes) -> None:
        """Count an execution of a basic block."""
        self.issued += lanes.warp_count * self._statements[block]

    def diverge(self, block: int, lanes: Lanes, ways: Sequence[Lanes]) -> None:
        """No-op: divided groups are counted by their steps."""


@dataclass
class LaunchState:
    """The state that all waves of one launch share."""

    program: Program
    device: SimulatedDevice
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    parameters: bytes  # the kernel's arguments as bytes, in the program's layout
    shared_bytes: int
    options: LaunchOptions
    counters: Counters | None
    deadline: Deadline
    unwritten: list[Any]  # initial contents of the registers
    surroundings: Surroundings
    hazards: dict[Any, Hazard] = field(default_factory=dict)  # hazards by kind, sentence and source line
    workspace: int = 0  # address of the memory for grid synchronisation; 0 if the launch is not cooperative
    heap: Heap | None = None  # heap of a kernel that allocates memory, while the launch runs
    absent: np.uint32 = ABSENT_VALUE  # result of a shuffle from a lane that is inactive or has exited
    # shuffles from such lanes, by source line; hazards if the launch depends on the results
    absences: dict[Any, Hazard] = field(default_factory=dict)
    bounds: dict[int, Range] = field(init=False)  # range of shared memory that an instruction may access, by its number
    # the check for races and uninitialised reads; None if the launch runs without it
    checker: LaunchHazardChecker | None = field(init=False)
    tally: Tally = field(init=False)  # instructions of the waves that are not counted
    work: float = math.inf  # the work of all blocks, see `LaunchProfile`; known at the end
    # largest `Wave.length` of the waves that are counted, and of the others
    longest: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    # counters of the wave that runs last, and its first block, if it is not counted; see `block_sampling`
    last_counters: Counters | None = None
    last_wave: int = -1
    watched: int = -1  # the first block of the wave to watch, see `LaunchOptions`; -1: of all waves
    unlike: UnlikeBlocks | None = None  # blocks unlike those of the watched wave; None if all waves are watched
    trace: LaunchTrace | None = None  # the trace of this launch
    line_recorder: LineRecorder | None = None  # the recorder of its lines; None without a trace

    def __post_init__(self) -> None:
        self.tally, self.checker = Tally(self.program), None
        self.bounds = self.program.bounds.setdefault(self.shared_bytes, {})
        if self.options.check or self.options.watch:
            changing = may_change(self.program, self.parameters, self.arena)
            blocks = prod(self.grid) if self.options.check else 1  # most blocks are not watched
            self.checker = LaunchHazardChecker(
                self.program, self.hazards, self._locate, changing, blocks, self.deadline.check
            )
        if self.options.trace is not None:
            self._begin_trace(self.options.trace)

    def counters_of(self, block_ids: npt.NDArray[np.intp], is_counted: bool) -> Counters | None:
        """Return the counters of a wave, if it has any."""
        return self.counters if is_counted else self.last_counters if block_ids[0] == self.last_wave else None

    def end_wave(self, wave: Wave, passed: npt.NDArray[Any]) -> None:
        """Note the length of a wave that has ended, and the barriers that each block has passed."""
        is_counted = wave.counters is not None
        self.longest[is_counted] = max(self.longest[is_counted], wave.length)
        if self.unlike is not None:
            self.unlike.end_wave(wave.shape.block_ids, passed)

    def turns(self, lanes: Lanes, block: int) -> list[tuple[int, Subset]]:
        """Return the lanes that run together, with their tag: single warps, of every other block. Low tags run first.

        The half of the blocks that runs first changes at barriers: at each of them if the warps run in ascending order,
        at the first one only if they run in descending order. So a block that reads another block's results may find
        none, a part, or all of them.
        """
        schedule = self.options.schedule
        if schedule in LOCKSTEP:
            return []
        sign = -1 if schedule == "warps-reversed" else 1
        shift = 0
        if self.program.sees_order:
            barriers = sum(step.end == "barrier" for step in self.program.steps[:block])
            shift = (barriers if sign == 1 else min(barriers, 1)) % 2
        key = lanes.flat, lanes.threads_key, lanes.columns.tobytes(), shift
        known = lanes.wave.turns
        if key not in known:
            if len(known) == MAX_TURNS_KEPT:
                known.clear()
            known[key] = self._new_turns(lanes, sign, shift)
        return known[key]

    def _new_turns(self, lanes: Lanes, sign: int, shift: int) -> list[tuple[int, Subset]]:
        warp, late = lanes.threads // WARP, np.zeros(len(lanes.columns), np.intp)
        if self.program.sees_order:
            late = (lanes.columns + shift) % 2
        turns = [
            (sign * number + turn * MAX_WARPS, lanes.crossing(warp == number, late == turn))
            for number in np.unique(warp).tolist()
            for turn in np.unique(late).tolist()
        ]
        return [turn for turn in turns if turn[1].lanes.n]  # exited threads may leave blocks of different warps

    def _begin_trace(self, trace: Trace) -> None:
        from pytest_gpulab.devices.simulated.memory.locating import shared_variables
        from pytest_gpulab.devices.simulated.trace.recorder import LineRecorder
        from pytest_gpulab.devices.trace_events import LaunchTrace

        self.trace = LaunchTrace(self.program.name, self.grid, self.block, shared_variables(self))
        trace.launches.append(self.trace)
        self.line_recorder = LineRecorder(self.program, self.trace, trace.blocks)

    def _locate(self, site: Site, space: str, address: int) -> Location | None:
        from pytest_gpulab.devices.simulated.memory.locating import locate

        return locate(self, site, space, address)

    @property
    def arena(self) -> Arena:
        """Global memory."""
        return self.device.arena

    @cached_property
    def printer(self) -> Printer:
        """The output of the launch's `printf`."""
        from pytest_gpulab.devices.simulated.memory.printf import Printer

        return Printer(self.options.print_limit)

    @property
    def output(self) -> str:
        """The text that the launch has printed."""
        return self.printer.text if "printer" in vars(self) else ""

    @property
    def is_clean(self) -> bool:
        """True if all accesses were checked for hazards and none was found."""
        return self.options.check and not self.hazards and not self.unchecked

    @property
    def is_order_free(self) -> bool:
        """True if no order of warps can change the results; see `LaunchProfile.order_free`."""
        return self.is_clean and self.program.is_orderly

    @property
    def is_garbage_free(self) -> bool:
        """True if no unwritten contents can change the results; see `LaunchProfile.garbage_free`."""
        has_read_any = self.checker is None or self.checker.has_copied_unwritten
        return self.is_order_free and self.program.is_set and not has_read_any

    @property
    def may_wait(self) -> bool:
        """True if a loop may wait for a block that has not started; see `LaunchProfile.may_wait`."""
        return self.program.may_wait and prod(self.grid) > 1 and not self.options.cooperative

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Accesses that the race check had to leave out."""
        return () if self.checker is None else tuple(self.checker.unchecked)

    def read_per_thread(self, args: Sequence[object]) -> dict[int, float]:
        """Return `LaunchProfile.read_per_thread`, given the launch's arguments."""
        if self.checker is None or self.options.watch:
            return {}
        threads = prod((*self.grid, *self.block))
        held = {position: getattr(argument, "allocation", None) for position, argument in enumerate(args)}
        read = self.checker.read_bytes
        return {position: read[memory] / threads for position, memory in held.items() if memory in read}


Blocks = npt.NDArray[np.intp]


class Batch(NamedTuple):
    """Waves of a launch; those that wait for each other run concurrently."""

    waves: Sequence[Blocks]
    is_counted: Sequence[bool]

    @property
    def counted(self) -> int:
        """The number of blocks that are counted."""
        return sum(len(wave) for wave, is_counted in zip(self.waves, self.is_counted, strict=True) if is_counted)


def all_counted(chosen: Blocks, width: int) -> Batch:
    """Return a batch of blocks, at most `width` per wave, in which all are counted."""
    waves = cut(chosen, width)
    return Batch(waves, [True] * len(waves))


def cut(chosen: Blocks, width: int) -> list[Blocks]:
    """Return the blocks in waves of at most `width`."""
    return [chosen[start : start + width] for start in range(0, len(chosen), width)]

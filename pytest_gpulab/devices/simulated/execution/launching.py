"""Launches: check of the extents, layout of the arguments, execution of the blocks in waves."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_gpulab.devices.hardware.architectures import LOCAL_BYTES
from pytest_gpulab.devices.protocol import CannotSimulate, Hazard, KernelFault, LaunchError, TooMuchWork
from pytest_gpulab.devices.simulated.execution.launch_state import TimeIsUp

from .launch_state import Batch, LaunchState, all_counted, cut
from .scheduler import Scheduler
from .wave import Wave

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.counting.counters import Counters

WAVE_LANES = 32_768  # NumPy is fastest while the values of a whole wave fit into the cache
WAVE_LOCAL_BYTES = 256 << 20  # local memory per wave; kernels that use much of it run in smaller waves
WAVE_SHARED_BYTES = 4 << 20  # shared memory per wave
WAVE_STACK_BYTES = 32 << 20  # stacks per wave; saved registers and the hazard check take as much again
MAX_THREADS = 1024  # per block, on every GPU
STEP_WORK = 100  # overhead of a basic block, in warp instructions
EXCHANGE_WORK = 2  # overhead of each lane of an atomic with a used result, in warp instructions
WORKSPACE_BYTES = 1024  # zeroed; cooperative groups of CUDA 13 use the first few words
MAX_IDLE_ROUNDS = 40  # rounds in which all waves wait and no register or byte changes; then the kernel is endless


Extents = tuple[int, int, int]


def three_extents(extents: Sequence[int]) -> Extents:
    """Return one to three extents as (x, y, z), or raise LaunchError if there are more, or one is below 1."""
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise LaunchError(f"grid and block need one to three extents of at least 1, not {tuple(extents)}")
    x, y, z = (*map(int, extents), 1, 1)[:3]
    return x, y, z


def check_extents(
    kernel: str, grid: Extents, block: Extents, shared_bytes: int, largest_shared_bytes: int, most_threads: int | None
) -> None:
    """Check a launch against CUDA's limits and launch bounds; raise LaunchError if one is exceeded."""
    threads = block[0] * block[1] * block[2]
    if threads > MAX_THREADS or block[2] > 64:
        raise LaunchError(f"{kernel}: a block of {block} is too large (at most {MAX_THREADS} threads, 64 in z)")
    if most_threads is not None and threads > most_threads:
        what = f"a block of {threads} threads is too large; its __launch_bounds__ allow {most_threads}"
        raise LaunchError(f"{kernel}: {what}")
    if max(grid[1:]) > 65535 or grid[0] > 2**31 - 1:
        raise LaunchError(f"{kernel}: a grid of {grid} is too large (at most 2147483647 blocks in x, 65535 in y and z)")
    if shared_bytes > largest_shared_bytes:
        raise LaunchError(
            f"{kernel}: {shared_bytes} bytes of shared memory per block; the limit is {largest_shared_bytes}"
        )


def pack(parameters: Sequence[tuple[int, int]], kernel: str, args: Sequence[Any]) -> bytes:
    """Return arrays and NumPy scalars as bytes in the kernel's layout, (byte offset, size) of each parameter.

    Raises LaunchError if an argument has the wrong type or size, or if the number of arguments is wrong.
    """
    if len(args) != len(parameters):
        raise LaunchError(f"{kernel} takes {len(parameters)} arguments, not {len(args)}")
    end = max((offset + size for offset, size in parameters), default=0)
    packed = bytearray(end)
    for number, (argument, (offset, size)) in enumerate(zip(args, parameters, strict=True), 1):
        if hasattr(argument, "address"):
            raw = argument.address.to_bytes(8, "little")
        elif isinstance(argument, np.generic):
            raw = argument.tobytes()
        else:
            kind = type(argument).__name__
            raise LaunchError(
                f"{kernel}: argument {number} has the Python type {kind}; "
                "it must be an array of this device or a NumPy scalar such as np.int32(1)"
            )
        if len(raw) != size:
            raise LaunchError(f"{kernel}: argument {number} has {len(raw)} bytes, the kernel's parameter {size}")
        packed[offset : offset + size] = raw
    return bytes(packed)


@contextmanager
def prepared(launch: LaunchState, sms: int) -> Iterator[None]:
    """Provide a launch with a workspace and a heap, and check its shuffles afterwards. Raises as `_cooperating`."""
    with ExitStack() as provided:
        if launch.options.cooperative:
            provided.enter_context(_cooperating(launch, _resident(launch, sms)))
        if launch.program.allocates:
            from pytest_gpulab.devices.simulated.memory.heap import heap_of

            provided.enter_context(heap_of(launch))
        if launch.options.check and launch.program.shuffles:
            from .absent_lanes import judged

            provided.enter_context(judged(launch, sms))
        yield


@contextmanager
def _cooperating(launch: LaunchState, resident: int) -> Iterator[None]:
    """Allocate the workspace of `grid.sync()` for a cooperative launch (`cudaLaunchCooperativeKernel`) while it runs.

    Cooperative groups find it through the special registers `%envreg1` and `%envreg2`, the halves of its address.
    Raises LaunchError for more blocks than can be resident at once, which would wait forever.
    """
    blocks = prod(launch.grid)
    if blocks > resident:
        raise LaunchError(f"a cooperative launch of {blocks} blocks: at most {resident} can be resident at once")
    workspace = launch.arena.allocate(WORKSPACE_BYTES)
    launch.workspace = workspace.base
    if launch.checker is not None and launch.checker.changing is not None:
        launch.checker.changing |= {workspace}
    try:
        yield
    finally:
        launch.arena.free(workspace)


def run_blocks(launch: LaunchState, sms: int) -> int:
    """Run the blocks of a launch, or a sample of them; return the number of counted blocks.

    Raises KernelFault with the output and hazards so far if the kernel failed, CannotSimulate if with inlined functions
    a thread needs too much local memory, and TooMuchWork: see `LaunchOptions.complete_within`.
    """
    chosen = _batches(launch)
    _watch(launch, chosen)
    if launch.heap is not None and launch.device.heap is None:
        launch.heap.rewind()
    resident = _resident(launch, sms)
    effort = Effort(launch, sum(len(batch.waves) for batch in chosen))
    has_last_block = _prepare_last_block(launch, chosen)
    workload = launch.counters.workload if launch.counters is not None else None
    is_sample = launch.options.complete_within is None
    counted = 0
    try:
        with np.errstate(all="ignore"):
            for batch in chosen:
                if is_sample and workload is not None and workload.is_enough:
                    break
                _run_waves(launch, batch, resident, effort)
                counted += batch.counted
                if workload is not None and batch.counted:
                    workload.end_batch()
            if has_last_block:
                from .block_sampling import finish_last_block

                finish_last_block(launch, lambda wave: _run_waves(launch, Batch([wave], [False]), resident, effort))
            if launch.unlike is not None:
                launch.unlike.watch(lambda wave: _run_waves(launch, Batch([wave], [False]), resident, effort))
            if launch.checker is not None:
                launch.checker.end()
            launch.work = effort.of_all(prod(launch.grid))
    except TimeIsUp:  # raised by the hazard check, outside of the waves
        what = f"time limit: the kernel had not ended after {launch.deadline.limit_s:.3g} s"
        raise KernelFault("time-limit", what, output=launch.output) from None
    except KernelFault as fault:
        from pytest_gpulab.devices.simulated.memory.locating import located

        raise located(launch, fault, _hazards_until(launch, fault)) from None
    return counted


def _prepare_last_block(launch: LaunchState, chosen: list[Batch]) -> bool:
    """Return True if the path of the last block counts; its counters are prepared then."""
    if launch.counters is None or launch.counters.workload is None:
        return False
    from .block_sampling import count_last_wave, may_take_numbers

    if may_take_numbers(launch):
        count_last_wave(launch, chosen)
        return True
    return False


def _batches(launch: LaunchState) -> list[Batch]:
    """Return the blocks to run, in order."""
    blocks, width = prod(launch.grid), _wave_blocks(launch)
    if launch.options.schedule == "blocks-reversed":
        waves = cut(np.arange(blocks), min(width, -(-blocks // 2)))
        return [Batch(waves[::-1], [True] * len(waves))]
    if launch.options.sample_blocks is None or blocks <= launch.options.sample_blocks:
        return [all_counted(np.arange(blocks), width)]
    from .block_sampling import MANY_WAVES_LANES, sample

    return sample(launch, blocks, width, _wave_blocks(launch, MANY_WAVES_LANES))


def _watch(launch: LaunchState, batches: list[Batch]) -> None:
    """Choose the wave to watch, if it is only one. Of a sample, only the first waves run for sure."""
    if not launch.options.watch:
        return
    from .unlike_blocks import UnlikeBlocks

    is_complete = launch.options.sample_blocks is None or launch.options.complete_within is not None
    waves = [wave for batch in batches for wave in batch.waves][: None if is_complete else 1]
    launch.watched = int(waves[np.random.default_rng(launch.options.sample_seed).integers(len(waves))][0])
    launch.unlike = UnlikeBlocks(launch)


def _resident(launch: LaunchState, sms: int) -> int:
    """Return the number of blocks that the GPU can run at once; at least one wave of blocks always runs."""
    if _starts_in_any_order(launch) and not launch.options.cooperative:
        return 1
    return sms * max(1, 2048 // prod(launch.block))


def _starts_in_any_order(launch: LaunchState) -> bool:
    """Return True if blocks that wait for others do not start in the order of the grid; see `block_sampling`."""
    is_mixed = launch.options.sample_blocks is not None and launch.options.complete_within is not None
    return is_mixed or launch.options.schedule == "blocks-reversed"


def _wave_blocks(launch: LaunchState, lanes: int = WAVE_LANES) -> int:
    """Return the blocks per wave; raise CannotSimulate if a thread needs more local memory than it may have."""
    local, threads = launch.program.local, prod(launch.block)
    if local > LOCAL_BYTES:
        what = f"{local:,} bytes of local memory per thread with inlined functions; {LOCAL_BYTES:,} are allowed"
        raise CannotSimulate(what)
    width = max(1, min(lanes, WAVE_LOCAL_BYTES // max(local, 1)) // threads)
    width = max(1, min(width, WAVE_SHARED_BYTES // max(launch.shared_bytes * _shared_units(launch), 1)))
    if launch.program.stack is not None:
        width = max(1, min(width, WAVE_STACK_BYTES // (launch.program.stack[1] * threads)))
    return width


def _shared_units(launch: LaunchState) -> int:
    """Return the units in a word of shared memory. Each takes as much memory of the race check as a word."""
    if not (launch.options.check or launch.options.watch):
        return 1
    sizes = (site.nbytes for site in launch.program.sites if site.space in ("shared", "generic"))
    return max(1, 4 // min(sizes, default=4))


class Effort:
    """The work of a launch, compared with `LaunchOptions.complete_within`."""

    def __init__(self, launch: LaunchState, waves: int) -> None:
        self._launch, self._waves = launch, waves
        self._statements = [len(step.statements) for step in launch.program.steps]
        self._overhead = self._ended = self._done = self._blocks = 0
        self._least: float = math.inf  # work of a wave
        self.running: Sequence[Scheduler] = ()
        if launch.options.sample_blocks is None and launch.options.complete_within is not None:
            launch.deadline.add(self.check)

    def check(self) -> None:
        """Raise TooMuchWork if a launch of all blocks exceeds the limit within its running waves."""
        limit, counters = self._launch.options.complete_within, self._launch.counters
        overhead = sum(_overhead(scheduler.wave) for scheduler in self.running)
        if limit is not None and counters is not None and self._counted(counters) + overhead > limit:
            raise _too_much(limit)

    def _counted(self, counters: Counters) -> int:
        """Return the work of all waves, without the overhead of running ones."""
        counted = sum(map(mul, counters.warps, self._statements))
        return int(counted) + self._launch.tally.issued + self._overhead

    def of_all(self, blocks: int) -> float:
        """Return the work of this number of blocks, from those that have ended; infinite if it is not counted."""
        counters = self._launch.counters
        return math.inf if counters is None else self._counted(counters) * blocks / self._blocks

    def end_wave(self, wave: Wave) -> None:
        """Record the end of a wave; raise TooMuchWork if at this rate all waves together exceed the limit.

        The waves of a sample are alike. If they are not, few blocks have most of the work, and another sample would
        miss them. So the wave with the least work represents the others, and an uneven launch runs to its end.
        """
        self._overhead += _overhead(wave)
        self._ended += 1
        self._blocks += wave.shape.columns
        limit, counters = self._launch.options.complete_within, self._launch.counters
        if limit is None or counters is None:
            return
        before, self._done = self._done, self._counted(counters)
        self._least = min(self._least, self._done - before)
        is_sample = self._launch.options.sample_blocks is not None
        if is_sample and self._ended == 1 < self._waves:
            return
        rate = self._least if is_sample else self._done / self._ended
        if rate * self._waves > limit:
            raise _too_much(limit)


def _overhead(wave: Wave) -> int:
    return STEP_WORK * wave.steps + EXCHANGE_WORK * wave.exchanges


def _too_much(limit: int) -> TooMuchWork:
    return TooMuchWork(f"the launch would issue more than {limit} warp instructions")


def _run_waves(launch: LaunchState, batch: Batch, resident: int, effort: Effort) -> None:
    """Run waves one after the other. Waves that wait for each other run concurrently if they fit on the GPU."""
    waiting = list(zip(batch.waves, batch.is_counted, strict=True))[::-1]
    active: list[Scheduler] = []
    effort.running = active
    seen, idle = 0, 0
    while waiting or active:
        held = sum(scheduler.wave.shape.columns for scheduler in active)
        started = bool(waiting and (not active or held < resident))
        if started:
            active.append(Scheduler(launch, *waiting.pop()))
        ended: list[Scheduler] = []
        with _noting_hazards(active):
            for scheduler in active:
                if scheduler.run():
                    ended.append(scheduler)
        for scheduler in ended:
            active.remove(scheduler)
            if scheduler.wave.counters is not None:
                scheduler.wave.counters.end_wave(scheduler.wave.shape)
            effort.end_wave(scheduler.wave)
            launch.end_wave(scheduler.wave, scheduler.barriers.passed)
        # A wave that has just ended may have written what the last one waits for.
        if not (waiting or ended) and len(active) == 1 and active[0].stalled.is_alone:
            raise active[0].faults.of_waits()
        if not active or started or ended:
            idle = 0
            continue
        state = _fingerprint(active)
        idle = idle + 1 if state == seen else 0
        seen = state
        if idle >= (1 if all(scheduler.stalled.is_endless for scheduler in active) else MAX_IDLE_ROUNDS):
            raise _waits_in_vain(launch, active[0], resident, bool(waiting))


def _waits_in_vain(launch: LaunchState, scheduler: Scheduler, resident: int, lacks_blocks: bool) -> KernelFault:
    """Return the fault of waves that all wait."""
    if lacks_blocks and _starts_in_any_order(launch):
        return scheduler.faults.of_unstarted_blocks()
    absent = f", and the GPU holds {resident:,} of its {prod(launch.grid):,} blocks at once" if lacks_blocks else ""
    return scheduler.faults.of_waits(absent)


def _hazards_until(launch: LaunchState, fault: KernelFault) -> tuple[Hazard, ...]:
    """Return the hazards found before a fault. After the time limit, no further check is made."""
    if launch.checker is not None and fault.code != "time-limit":
        with suppress(TimeIsUp):
            launch.checker.end()
    return tuple(launch.hazards.values())


@contextmanager
def _noting_hazards(active: list[Scheduler]) -> Iterator[None]:
    """Note the hazards of all waves before a fault in one of them ends the launch."""
    try:
        yield
    except KernelFault as fault:
        with suppress(TimeIsUp):
            for scheduler in active if fault.code != "time-limit" else ():
                scheduler.judge_stopped(fault)
        raise


def _fingerprint(active: list[Scheduler]) -> int:
    """Return a checksum of everything that threads may wait for, and of their own state."""
    check = 0
    for data in active[0].wave.arena.contents():
        check = zlib.crc32(data.data, check)
    own = [scheduler.state().fingerprint() for scheduler in active]
    return zlib.crc32(repr(own).encode(), check)

"""Carry out a launch: check its extents, lay out its arguments, run its blocks in waves."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from operator import mul
from typing import Any

import numpy as np

from pytest_gpulab.devices.compiler.static_limits import LOCAL_BYTES
from pytest_gpulab.devices.protocol import CannotSimulate, Hazard, KernelFault, LaunchError, TooMuchWork
from pytest_gpulab.devices.simulated.memory.locating import located

from .block_sampling import Batch, batches
from .deadline import TimeIsUp
from .scheduler import Scheduler
from .wave import Launch

WAVE_LANES = 32_768  # NumPy is fastest while the values of a whole wave fit into the cache
WAVE_LOCAL_BYTES = 256 << 20  # local memory of a wave; kernels that use much of it run in smaller waves
WAVE_SHARED_BYTES = 4 << 20  # and so much shared memory
WAVE_STACK_BYTES = 32 << 20  # and so much for recursive calls, which saved registers and hazards take again
MAX_THREADS = 1024
STEP_WORK = 100  # instructions of warps that take as long as what a basic block takes besides
PATIENCE = 40  # times that all waves only wait, no register and no byte changing, before the kernel counts as endless


Extents = tuple[int, int, int]


def three_extents(extents: Sequence[int]) -> Extents:
    """Return one to three extents as (x, y, z).

    Raises:
        LaunchError: too many, or one below 1.
    """
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise LaunchError(f"grid and block need one to three extents of at least 1, not {tuple(extents)}")
    x, y, z = (*map(int, extents), 1, 1)[:3]
    return x, y, z


def check_extents(
    kernel: str,
    grid: Extents,
    block: Extents,
    shared_bytes: int,
    largest_shared_bytes: int,
    most_threads: int | None = None,
) -> None:
    """Hold a launch to CUDA's limits, which but for shared memory are the same for all GPUs, and to launch bounds.

    Raises:
        LaunchError: beyond one of them.
    """
    threads = block[0] * block[1] * block[2]
    if threads > MAX_THREADS or block[2] > 64:
        raise LaunchError(f"{kernel}: a block of {block} is too large (at most {MAX_THREADS} threads, 64 in z)")
    if most_threads is not None and threads > most_threads:
        what = f"a block of {threads} threads is too large; its __launch_bounds__ allow {most_threads}"
        raise LaunchError(f"{kernel}: {what}")
    if max(grid[1:]) > 65535 or grid[0] > 2**31 - 1:
        raise LaunchError(f"{kernel}: a grid of {grid} is too large (at most 2147483647 blocks in x, 65535 in y and z)")
    if shared_bytes > largest_shared_bytes:
        raise LaunchError(f"{kernel}: {shared_bytes} bytes of shared memory a block exceed {largest_shared_bytes}")


def pack(parameters: Sequence[tuple[int, int]], kernel: str, args: Sequence[Any]) -> bytes:
    """Lay the arguments out as the kernel expects them.

    Args:
        parameters: (byte offset, size) of each of the kernel's parameters.
        kernel: its name, for messages.
        args: arrays of the device and NumPy scalars.

    Raises:
        LaunchError: wrong number, kind or size.
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


def run_blocks(launch: Launch, sms: int) -> int:
    """Run all (or a sample of the) blocks of a launch on a GPU with `sms` multiprocessors; return how many it counted.

    Raises:
        KernelFault: with the kernel's output and hazards until then.
        CannotSimulate: the copies of its functions need more local memory than a thread has.
        TooMuchWork: see `LaunchOptions.complete_within`.
    """
    chosen = batches(launch, launch.grid[0] * launch.grid[1] * launch.grid[2], _wave_blocks(launch))
    if launch.heap is not None:
        launch.heap.rewind()
    resident = sms * max(1, 2048 // prod(launch.block))
    effort = Effort(launch, sum(len(batch.waves) for batch in chosen))
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
            if launch.watch is not None:
                launch.watch.end()
    except TimeIsUp:  # outside of the waves: while hazards were looked for
        what = f"time limit: the kernel had not ended after {launch.deadline.limit_s:.3g} s"
        raise KernelFault("time-limit", what, output=launch.printer.text) from None
    except KernelFault as fault:
        raise located(launch, fault, _hazards_until(launch, fault)) from None
    return counted


def _wave_blocks(launch: Launch) -> int:
    """Return the number of blocks per wave, at least 1.

    Raises:
        CannotSimulate: the copies of its functions need more local memory than a thread has.
    """
    local, threads = launch.program.local, prod(launch.block)
    if local > LOCAL_BYTES:
        what = f"{local:,} bytes of local memory per thread, functions unfolded; {LOCAL_BYTES:,} are allowed"
        raise CannotSimulate(what)
    width = max(1, min(WAVE_LANES, WAVE_LOCAL_BYTES // max(local, 1)) // threads)
    width = max(1, min(width, WAVE_SHARED_BYTES // max(launch.shared_bytes, 1)))
    if launch.program.stack is not None:
        width = max(1, min(width, WAVE_STACK_BYTES // (launch.program.stack[1] * threads)))
    return width


class Effort:
    """The work of a launch, held to a limit if there is one.

    Args:
        launch: counts the instructions of its warps.
        waves: that it has.
    """

    def __init__(self, launch: Launch, waves: int) -> None:
        self._launch, self._waves = launch, waves
        self._statements = [len(step.statements) for step in launch.program.steps]
        self._steps = self._ended = 0

    def end_wave(self, steps: int) -> None:
        """Note that a wave has ended.

        Raises:
            TooMuchWork: all waves together will take more than the limit.
        """
        self._steps, self._ended = self._steps + steps, self._ended + 1
        limit, counters = self._launch.options.complete_within, self._launch.counters
        if limit is None or counters is None:
            return
        counted = sum(map(mul, counters.warps, self._statements))
        done = counted + self._launch.tally.issued + STEP_WORK * self._steps
        if done * self._waves > limit * self._ended:
            raise TooMuchWork(f"the launch would issue more than {limit} instructions of warps")


def _run_waves(launch: Launch, batch: Batch, resident: int, effort: Effort) -> None:
    """Run waves one after the other; side by side, as far as they fit on the GPU, while they wait for each other."""
    waiting = list(zip(batch.waves, batch.is_counted, strict=True))[::-1]
    active: list[Scheduler] = []
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
            effort.end_wave(scheduler.wave.steps)
        if not active or started or ended:
            idle = 0
            if not waiting and len(active) == 1 and active[0].is_alone:
                raise active[0].endless()
            continue
        state = _fingerprint(active)
        idle = idle + 1 if state == seen else 0
        seen = state
        if idle >= (1 if all(scheduler.is_endless for scheduler in active) else PATIENCE):
            raise active[0].endless()


def _hazards_until(launch: Launch, fault: KernelFault) -> tuple[Hazard, ...]:
    """Return the hazards that were seen before a fault; there is no time to look for more when it is up."""
    if launch.watch is not None and fault.code != "time-limit":
        with suppress(TimeIsUp):
            launch.watch.end()
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
    """A checksum of all that threads could be waiting for, and of how they wait."""
    check = 0
    for data in active[0].wave.arena.contents():
        check = zlib.crc32(data.data, check)
    own = [scheduler.fingerprint() for scheduler in active]
    return zlib.crc32(repr(own).encode(), check)

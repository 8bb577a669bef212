"""Carry out a launch: check its extents, lay out its arguments, choose the blocks to run, run them in waves."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import CannotSimulate, Hazard, KernelFault, LaunchError
from pytest_gpulab.devices.simulated.execution.deadline import TimeIsUp
from pytest_gpulab.devices.simulated.execution.locating import located
from pytest_gpulab.devices.simulated.execution.scheduler import Scheduler
from pytest_gpulab.devices.simulated.execution.wave import Launch
from pytest_gpulab.devices.static_limits import LOCAL_BYTES

WAVE_LANES = 32_768  # NumPy is fastest while the values of a whole wave fit into the cache
WAVE_LOCAL_BYTES = 256 << 20  # local memory of a wave; kernels that use much of it run in smaller waves
WAVE_SHARED_BYTES = 4 << 20  # and so much shared memory
MAX_THREADS = 1024
BATCHES = 4  # of a sample, whose differences tell how far it may be off
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


def _batches(blocks: int, launch: Launch) -> list[npt.NDArray[np.intp]]:
    """Choose the blocks to run: all, or evenly spread ones in batches; the first ones if blocks talk to each other."""
    wanted = launch.options.sample_blocks
    if wanted is None or blocks <= wanted:
        return [np.arange(blocks)]
    if any(step.spins for step in launch.program.steps):
        return [np.arange(wanted)]
    spread = np.unique(np.linspace(0, blocks - 1, wanted).astype(np.intp))
    count = BATCHES if len(spread) >= 4 * BATCHES else 1
    return [spread[start::count] for start in reversed(range(count))]  # the last block, often the longest, at first


def run_blocks(launch: Launch, sms: int) -> int:
    """Run all (or a sample of the) blocks of a launch on a GPU with `sms` multiprocessors; return how many.

    Raises:
        KernelFault: with the kernel's output and hazards until then.
        CannotSimulate: the copies of its functions need more local memory than a thread has.
    """
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    local = launch.program.local
    if local > LOCAL_BYTES:
        what = f"{local:,} bytes of local memory per thread, functions unfolded; {LOCAL_BYTES:,} are allowed"
        raise CannotSimulate(what)
    width = max(1, min(WAVE_LANES, WAVE_LOCAL_BYTES // max(local, 1)) // threads)
    width = max(1, min(width, WAVE_SHARED_BYTES // max(launch.shared_bytes, 1)))
    ran, workload = 0, launch.counters.workload if launch.counters is not None else None
    try:
        with np.errstate(all="ignore"):
            for chosen in _batches(launch.grid[0] * launch.grid[1] * launch.grid[2], launch):
                if workload is not None and workload.is_enough:
                    break
                waves = [chosen[start : start + width] for start in range(0, len(chosen), width)]
                _run_waves(launch, waves, sms * max(1, 2048 // threads))
                ran += len(chosen)
                if workload is not None:
                    workload.end_batch()
            if launch.watch is not None:
                launch.watch.end()
    except TimeIsUp:  # outside of the waves: while hazards were looked for
        what = f"time limit: the kernel had not ended after {launch.deadline.limit_s:.3g} s"
        raise KernelFault("time-limit", what, output=launch.printer.text) from None
    except KernelFault as fault:
        raise located(launch, fault, _hazards_until(launch, fault)) from None
    return ran


def _run_waves(launch: Launch, waves: list[npt.NDArray[np.intp]], resident: int) -> None:
    """Run waves one after the other; side by side, as far as they fit on the GPU, while they wait for each other."""
    waiting = waves[::-1]
    active: list[Scheduler] = []
    seen, idle = 0, 0
    while waiting or active:
        held = sum(scheduler.wave.shape.columns for scheduler in active)
        started = bool(waiting and (not active or held < resident))
        if started:
            active.append(Scheduler(launch, waiting.pop()))
        count = len(active)
        active = _advanced(active)
        if not active or started or len(active) < count:
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


def _advanced(active: list[Scheduler]) -> list[Scheduler]:
    """Let waves run; return those that have not ended.

    Raises:
        KernelFault: in one of them; the hazards of all until then are noted.
    """
    try:
        return [scheduler for scheduler in active if not scheduler.run()]
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

"""The work of a launch for each unit of the modelled GPU, from the blocks that ran: the cost model's input."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pytest_gpulab.devices.protocol import LargerLaunch, SourceLine
from pytest_gpulab.devices.simulated.counting.counters import Counters
from pytest_gpulab.devices.simulated.counting.footprint import SECTOR_BYTES, Touched
from pytest_gpulab.devices.simulated.counting.workload import LocalTraffic, Workload
from pytest_gpulab.devices.simulated.gpus import Gpu
from pytest_gpulab.devices.simulated.groups.lanes import starts_of
from pytest_gpulab.devices.simulated.memory.spaces import Arena

from .chains import Chain, chain
from .critical_path import Machine, warp_cycles
from .fences import Fences, fences
from .pipes import SHUFFLE, SPECIAL, TABLE_JUMP, pipes

L1_SHARE = 0.5  # share of L1 and shared memory together, for data that all blocks read
LONG = 2.0  # critical path over that of the average block, from which a block has work of others
FETCH_BYTES = 64  # size of a request of L2 to memory
# Passes of an atomic in the time of a plain store of a warp to a sector that several warps write. Measured on an H200:
# any_above_large (0.84), mark_seen_*_large (0.68, 0.78), bfs_level_large (0.95); on an H100: breadth_first (1.09).
STORE_PASSES = 0.85
_SHARED_OUT: Mapping[str, float] = {SHUFFLE: 1.0, SPECIAL: 1.0}
"""Pipes by which a lane that acts for its warp tells the others their results: it counts those before each."""


@dataclass(frozen=True)
class Scattered:
    """Accesses to global memory at one source line: averages per request."""

    where: SourceLine | None
    sectors: float  # sectors that a request accesses
    least_sectors: float  # sectors that would hold its lanes' bytes


@dataclass(frozen=True)
class Demands:
    """The demands of a whole launch, unless a comment says "block"."""

    pipes: Mapping[str, float]  # warp instructions by pipe, see `pipes.pipes`
    global_passes: float  # passes of loads from global and local memory through the banks of L1
    # runs of adjacent sectors, within 128-byte lines, that a warp's store to such memory writes to; those of local
    # memory count more if their sectors take longer
    stored_runs: float
    local_accesses: float  # those of them that are of local memory
    l2_bytes: float  # bytes between L1 and L2, which include every store to global memory
    local_l2_bytes: float  # those of them that are of local memory
    memory_bytes: float  # bytes between L2 and memory
    hot_atomics: float  # passes of atomics and stores at the most contended place: a sector, 256 or 1024 bytes
    atomic_passes: float  # passes of all atomics on global memory
    updates_in_turn: float  # updates of one word of global memory by loops that repeat a compare-and-swap
    loop_cycles: float  # SM cycles of compare-and-swap loops on shared memory
    missed_constants: float  # misses of the SM's constant cache, by address
    chain: Chain  # the longest chain of blocks that wait for each other
    fences: Fences  # memory fences of a block
    block_cycles: float  # average critical path of a block
    longest_block_cycles: float  # longest critical path of a block
    # what a block waits longer while other blocks read the same data at the same time: all of them wait for memory
    first_reads_cycles: float
    last_block_cycles: float  # what the last block takes longer if it finds by a counter that all others are done
    most_scattered: Scattered | None = None  # the source line with most unnecessary sectors, if there are any


@dataclass(frozen=True)
class Resident:
    """The blocks that an SM holds at once, with their local and shared memory."""

    local_bytes: int
    shared_bytes: int


def demands(
    counters: Counters,
    workload: Workload,
    arena: Arena,
    gpu: Gpu,
    blocks: int,
    resident: Resident,
    estimated: LargerLaunch,
    machine: Machine | None,
) -> Demands:
    """Return the demands of a launch, scaled from the blocks that ran to all of its blocks.

    Args:
        counters, workload, blocks: counts of the blocks that ran, and the number of blocks of their launch.
        arena, gpu: global memory, and the modelled GPU.
        resident: memory of an SM's blocks. Without local memory, the assembler keeps the arrays in registers.
        estimated, machine: the launch to estimate; the machine code and its executions, if it can be read.
    """
    growth = estimated.blocks / blocks
    scale = growth * estimated.block_work * blocks / workload.blocks
    local_passes, local_runs, local_missed, local_moved = _of_local(workload.local_traffic, resident, gpu, scale)
    missed, fetched, written = _of_arrays(workload, arena, scale, growth * estimated.block_work, gpu)
    paths = _of_paths(counters, workload, gpu, scale, fetched, machine)
    hot, passes, updates = _atomics(workload, arena, gpu, scale)
    return Demands(
        pipes=_pipes(counters, scale),
        global_passes=workload.passes * scale + local_passes,
        stored_runs=workload.stored_runs * scale + local_runs,
        local_accesses=local_passes + local_runs,
        l2_bytes=(local_missed + missed + workload.written_sectors * scale) * SECTOR_BYTES,
        local_l2_bytes=local_missed * SECTOR_BYTES,
        memory_bytes=local_moved + fetched + written,
        hot_atomics=hot,
        atomic_passes=passes,
        updates_in_turn=updates,
        loop_cycles=(workload.contention.loop_cycles + workload.retried_trips * gpu.swap_trip_cycles) * scale,
        missed_constants=workload.contention.missed_constants * scale,
        chain=paths.waiting,
        fences=paths.fenced,
        block_cycles=paths.average * estimated.block_work,
        longest_block_cycles=_longest(paths.average, paths.longest, growth) * estimated.block_work,
        first_reads_cycles=(paths.in_step - paths.average) * estimated.block_work,
        last_block_cycles=paths.last * growth,
        most_scattered=_most_scattered(workload),
    )


class _Paths(NamedTuple):
    """The chain of waiting blocks, the fences of a block, and its critical path in cycles."""

    waiting: Chain
    fenced: Fences
    average: float
    in_step: float  # the average of blocks that read the same data from memory at the same time
    longest: float
    last: float  # what the last block has more


def _of_paths(
    counters: Counters, workload: Workload, gpu: Gpu, scale: float, fetched_bytes: float, machine: Machine | None
) -> _Paths:
    steps = counters.program.steps
    cycles = warp_cycles(steps, counters.warps, gpu, machine)
    block_ids, paths, weights = workload.paths.kept()
    waiting = chain(workload, cycles, gpu, scale)
    paths = waiting.alone(paths)
    waits = workload.waits(block_ids, paths.shape[1])
    of_warps = np.tensordot(np.array(cycles), paths, axes=(0, 0))
    far = workload.footprint.shares_from_memory(fetched_bytes / FETCH_BYTES / scale)
    of_blocks, of_blocks_in_step = ((of_warps + waits * _wait_cycles(gpu, share)).max(axis=0) for share in far)
    fenced = fences(steps, paths, weights)
    average, in_step = (float(np.average(each, weights=weights)) for each in (of_blocks, of_blocks_in_step))
    longest = float(of_blocks.max())
    if workload.last_block is not None:  # the results of the other blocks are in the L2 cache
        block_ids, paths, _ = workload.last_block.paths.kept()
        waits = workload.last_block.waits(block_ids, paths.shape[1])
        of_warps = np.tensordot(np.array(cycles), paths, axes=(0, 0)) + waits * _wait_cycles(gpu, 0.0)
        longest = max(longest, float(of_warps.max()))
    last = longest - average if workload.tickets() else 0.0
    return _Paths(waiting, fenced, average, in_step, longest - last, last)


def _longest(average: float, longest: float, growth: float) -> float:
    """Return the longest critical path in a launch with more blocks: one that has work of others becomes longer."""
    return longest + max(longest - LONG * average, 0.0) * (growth - 1)


def _of_arrays(workload: Workload, arena: Arena, scale: float, grown: float, gpu: Gpu) -> tuple[float, float, float]:
    """Return sectors that miss L1, and bytes of memory read and written, for all arrays."""
    missed = read_bytes = written_bytes = 0.0
    for touched in workload.footprint.touched(arena):
        of_one = _of_array(touched, scale, grown, gpu)
        missed, read_bytes, written_bytes = missed + of_one[0], read_bytes + of_one[1], written_bytes + of_one[2]
    # most sectors that bypass L1 are first reads, too
    return max(missed, workload.uncached_sectors * scale), read_bytes, written_bytes


def _of_array(touched: Touched, scale: float, grown: float, gpu: Gpu) -> tuple[float, float, float]:
    """Return sectors that miss L1, and bytes of memory read and written, for one array.

    Blocks that share sectors run at about the same time, so a larger launch uses the L2 cache like the one that ran.
    """
    missed = touched.read * scale
    if touched.nbytes <= L1_SHARE * gpu.l1_bytes:  # each SM reads it once
        missed = min(missed, gpu.sms * touched.nbytes / SECTOR_BYTES)
    fetched, written = touched.fetched * FETCH_BYTES * scale, touched.written * SECTOR_BYTES * scale
    if touched.nbytes <= gpu.l2_bytes:  # each byte is transferred once
        return missed, min(fetched, grown * touched.nbytes), min(written, grown * touched.nbytes)
    partly = min(2 * (1 - touched.filled), 1.0)  # sectors with half or more of their bytes unwritten are read, too
    return missed, fetched, (1 - partly) * written + partly * 2 * touched.written_pairs * FETCH_BYTES * scale


def _of_local(local: LocalTraffic, resident: Resident, gpu: Gpu, scale: float) -> tuple[float, float, float, float]:
    """Return passes of loads, runs of stores, sectors that miss L1, and bytes of memory."""
    if not resident.local_bytes:
        return 0.0, 0.0, 0.0, 0.0
    runs = max(local.stored_lines, local.stored_sectors * gpu.local_sector_cycles / gpu.store_cycles) * scale
    missed = local.sectors * scale * _excess(resident.local_bytes, gpu.l1_bytes - resident.shared_bytes)
    moved = missed * SECTOR_BYTES * _excess(resident.local_bytes * gpu.sms, gpu.l2_bytes)
    return local.passes * scale, runs, missed, moved


def _excess(nbytes: int, cache_bytes: int) -> float:
    return min(max(0.0, 1 - cache_bytes / nbytes), 1.0)


def _most_scattered(workload: Workload) -> Scattered | None:
    wasted, worst = 0.0, None
    for index, (requests, sectors, nbytes) in workload.by_site.items():
        least = max(nbytes / SECTOR_BYTES, requests)
        if sectors - least > wasted:
            wasted = sectors - least
            where = workload.program.sites[index].where
            worst = Scattered(where, sectors / requests, least / requests)
    return worst


def _wait_cycles(gpu: Gpu, far: float) -> float:
    """Return the mean latency of first reads beyond that of L1, in cycles: L2's, or memory's for its share."""
    return gpu.l2_latency - gpu.l1_latency + far * (gpu.memory_latency - gpu.l2_latency)


def _pipes(counters: Counters, scale: float) -> dict[str, float]:
    result: dict[str, float] = {}
    shared_out = {site.number for site in counters.program.sites if site.returns} & counters.joined_atomics
    for i, (step, warps) in enumerate(zip(counters.program.steps, counters.warps, strict=True)):
        for statement in step.statements if warps else ():
            needed = _SHARED_OUT if statement.number in shared_out else pipes(statement)
            for pipe, count in needed.items():
                result[pipe] = result.get(pipe, 0.0) + warps * count * scale
        if step.end == "switch":  # a warp jumps once to each of its lanes' targets
            result[TABLE_JUMP] = result.get(TABLE_JUMP, 0.0) + counters.divergent[i] * scale
    return result


def _atomics(workload: Workload, arena: Arena, gpu: Gpu, scale: float) -> tuple[float, float, float]:
    """Return the passes at the most contended place, and of all atomics; and swaps of one word in turn."""
    sectors, (passes, of_floats, stores) = workload.footprint.met_in(arena)
    updates = workload.most_updates(scale)
    if not len(sectors):
        return 0.0, 0.0, updates
    of_any = passes + STORE_PASSES * stores
    hot = float((of_any + (gpu.float_atomic_passes - 1) * of_floats).max())
    for nbytes, share in ((256, gpu.atomic_share_256), (1024, gpu.atomic_share_1024)):
        pieces = sectors // np.uint64(nbytes // SECTOR_BYTES)
        together = np.add.reduceat(of_any, starts_of(pieces))
        hot = max(hot, share * float(together.max()))
    # if only one block contends, more blocks change nothing
    of_many = workload.blocks > 1 and together.max() > together.sum() / workload.blocks
    hot *= scale if of_many else 1.0
    return hot, (float(passes.sum()) + (gpu.global_swap_passes - 1) * workload.global_swaps) * scale, updates

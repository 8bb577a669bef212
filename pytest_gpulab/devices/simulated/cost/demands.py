"""What a launch asks of each part of a described GPU, from the blocks that ran: the input of the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pytest_gpulab.devices.protocol import SourceLine
from pytest_gpulab.devices.simulated.counting.counters import Counters
from pytest_gpulab.devices.simulated.counting.footprint import SECTOR_BYTES, Touched
from pytest_gpulab.devices.simulated.counting.workload import Workload
from pytest_gpulab.devices.simulated.gpus import Gpu
from pytest_gpulab.devices.simulated.memory.spaces import Arena
from pytest_gpulab.devices.simulated.translation.analysis.waits import places_that_wait_for_l2

from .critical_path import step_cycles
from .pipes import pipes

L1_SHARE = 0.5  # of L1 and shared memory together, for data that all blocks read
FETCH_BYTES = 64  # that L2 asks of memory at once


@dataclass(frozen=True)
class Scattered:
    """Accesses of warps to global memory at one place of the source: averages of a request.

    Attributes:
        sectors: that it touches.
        least_sectors: that would hold the bytes that its lanes ask for.
    """

    where: SourceLine | None
    sectors: float
    least_sectors: float


@dataclass(frozen=True)
class Demands:
    """The whole launch's demands, except where it says block.

    Attributes:
        pipes: warp instructions by pipe, see `pipes.pipes`.
        global_passes: of loads through the banks of L1.
        stored_lines: 128-byte lines of which a warp's store or atomic writes something.
        l2_bytes: between L1 and L2; every store goes there.
        memory_bytes: between L2 and memory.
        hot_atomics: passes of the atomics where most meet: in one sector, or within 256 or 1024 bytes.
        atomic_passes: of all atomics on global memory.
        loop_cycles: of SMs, for atomics on shared memory that are loops around compare-and-swap.
        missed_constants: reads of constant memory, by address, that the SM's cache does not answer.
        hops: how often one block has to wait for another in a row.
        hop_answers: of the L2 cache that each hop takes.
        block_cycles, longest_block_cycles: the average and the longest way of a block.
        most_scattered: where most sectors are touched beyond those that the bytes fill, if anywhere.
    """

    pipes: Mapping[str, float]
    global_passes: float
    stored_lines: float
    l2_bytes: float
    memory_bytes: float
    hot_atomics: float
    atomic_passes: float
    loop_cycles: float
    missed_constants: float
    hops: float
    hop_answers: int
    block_cycles: float
    longest_block_cycles: float
    most_scattered: Scattered | None = None


def demands(counters: Counters, workload: Workload, arena: Arena, gpu: Gpu, blocks: int) -> Demands:
    """Return what a launch of so many blocks asks for, of which some ran."""
    scale = blocks / workload.blocks
    l1_missed, fetched, memory_bytes = 0.0, 0.0, 0.0
    for touched in workload.footprint.touched(arena):
        missed, read_bytes, written_bytes = _of_array(touched, scale, gpu)
        l1_missed += missed
        fetched += read_bytes
        memory_bytes += read_bytes + written_bytes
    cycles = np.array(step_cycles(counters.program.steps, gpu))
    waits = workload.waits()
    alone = np.tensordot(cycles, workload.ways(), axes=(0, 0)) + waits * _wait_cycles(gpu, fetched, waits.sum() * scale)
    longest = alone.max(axis=0)  # of each block's warps
    hops, answers = _waits(workload, scale)
    hot, passes = _atomics(workload, gpu, scale)
    return Demands(
        pipes=_pipes(counters, scale),
        global_passes=workload.passes * scale,
        stored_lines=workload.stored_lines * scale,
        l2_bytes=(l1_missed + workload.written_sectors * scale) * SECTOR_BYTES,
        memory_bytes=memory_bytes,
        hot_atomics=hot,
        atomic_passes=passes,
        loop_cycles=workload.contention.loop_cycles * scale,
        missed_constants=workload.contention.missed_constants * scale,
        hops=hops,
        hop_answers=answers,
        block_cycles=float(longest.mean()),
        longest_block_cycles=float(longest.max()),
        most_scattered=_most_scattered(workload),
    )


def _of_array(touched: Touched, scale: float, gpu: Gpu) -> tuple[float, float, float]:
    """Return sectors that miss L1, and bytes of memory read and written, for one array."""
    missed = touched.read * scale
    if touched.nbytes <= L1_SHARE * gpu.l1_bytes:  # every SM reads it once
        missed = min(missed, gpu.sms * touched.nbytes / SECTOR_BYTES)
    fetched, written = touched.fetched * FETCH_BYTES * scale, touched.written * SECTOR_BYTES * scale
    if touched.nbytes <= gpu.l2_bytes:  # memory sees each byte once
        return missed, min(fetched, touched.nbytes), min(written, touched.nbytes)
    partly = min(2 * (1 - touched.filled), 1.0)  # sectors of which half or more is missing are read, too
    return missed, fetched, (1 - partly) * written + partly * 2 * touched.written_pairs * FETCH_BYTES * scale


def _most_scattered(workload: Workload) -> Scattered | None:
    wasted, worst = 0.0, None
    for index, (requests, sectors, nbytes) in workload.by_site.items():
        least = max(nbytes / SECTOR_BYTES, requests)
        if sectors - least > wasted:
            wasted = sectors - least
            where = workload.program.sites[index].where
            worst = Scattered(where, sectors / requests, least / requests)
    return worst


def _wait_cycles(gpu: Gpu, fetched_bytes: float, waits: float) -> float:
    """Cycles of waiting for L2, and for memory as often as something comes from there, beyond the latency of L1."""
    far = min(fetched_bytes / FETCH_BYTES / max(waits, 1.0), 1.0)
    return gpu.l2_latency - gpu.l1_latency + far * (gpu.memory_latency - gpu.l2_latency)


def _pipes(counters: Counters, scale: float) -> dict[str, float]:
    result: dict[str, float] = {}
    for step, warps in zip(counters.program.steps, counters.warps, strict=True):
        for statement in step.statements if warps else ():
            for pipe, count in pipes(statement).items():
                result[pipe] = result.get(pipe, 0.0) + warps * count * scale
    return result


def _atomics(workload: Workload, gpu: Gpu, scale: float) -> tuple[float, float]:
    """Return the passes of atomics where most meet, and those of all."""
    sectors, passes, of_floats = workload.footprint.met()
    if not len(sectors):
        return 0.0, 0.0
    hot = float((passes + (gpu.float_atomic_passes - 1) * of_floats).max())
    for nbytes, share in ((256, gpu.atomic_share_256), (1024, gpu.atomic_share_1024)):
        pieces = sectors // np.uint64(nbytes // SECTOR_BYTES)
        starts = np.flatnonzero(np.concatenate(([True], pieces[1:] != pieces[:-1])))
        together = np.add.reduceat(passes, starts)
        hot = max(hot, share * float(together.max()))
    # where a block's own atomics meet no others, more blocks change nothing
    of_many = workload.blocks > 1 and together.max() > together.sum() / workload.blocks
    return hot * (scale if of_many else 1.0), float(passes.sum()) * scale


def _waits(workload: Workload, scale: float) -> tuple[float, int]:
    """How often blocks wait in a row, and how many answers of the L2 cache each wait takes.

    One answer for the flag to arrive, one for each read or fence between a flag and the next: all of the kernel where a
    block looks at one other block, a pass of the loop where it looks at several.
    """
    polled = workload.polled.distinct()
    if not len(polled):
        return 0.0, 0
    at_once = workload.polled_together
    hops = len(polled) * (scale if len(polled) > 1 else 1.0) / at_once
    return hops, 1 + places_that_wait_for_l2(workload.program, inside_loops=at_once > 1)

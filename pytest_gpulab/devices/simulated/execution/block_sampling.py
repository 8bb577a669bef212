"""Sampling of a launch's blocks: blocks that run, their order, and blocks that are counted.

A kernel must not be able to detect that a block is counted, since it could skip the work of counted blocks only. So if
all blocks run and some are counted, all waves look alike: each has one random block of every section of the grid, and
the counted waves are chosen at random.

Blocks that may wait for each other run in random order, one wave after the other: CUDA may start blocks in any order.

In many kernels, a thread of each block increments a counter, and the block that finds all others done has further work.
Nothing overlaps with that work. A sample of blocks, or its counted part, misses that block, so its path is recorded
apart: it adds to the estimated time, but not to the counters.
"""

from __future__ import annotations  # NumPy would load `np.random`, which few launches need, to evaluate them

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated.memory.snapshot import snapshot

from .launch_state import Batch, LaunchState, all_counted, cut

BATCHES = 4  # per sample; their spread gives the sampling error
SAMPLED_WAVE_LANES = 16_384  # if some waves are counted: half of the fastest size, for twice as many waves
MANY_WAVES = 64  # per launch; with as many, waves have the fastest size
MANY_WAVES_LANES = 65_536  # the fastest size without hazard checks: fewer steps outweigh misses of the cache
COUNTED_WAITING_LANES = 1 << 18  # counted lanes of blocks that may wait for each other

Blocks = npt.NDArray[np.intp]


def sample(launch: LaunchState, blocks: int, width: int, many_width: int) -> list[Batch]:
    """Return the blocks to run, in order, of a launch that counts only some of them.

    A wave has at most `width` blocks, one of `MANY_WAVES_LANES` at most `many_width`.
    """
    options, wanted = launch.options, launch.options.sample_blocks
    assert wanted is not None
    rng = None if options.sample_seed is None else np.random.default_rng(options.sample_seed)
    may_wait = any(step.spins for step in launch.program.steps)
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if options.complete_within is None:
        return _sample(blocks, wanted, width, may_wait, rng)
    rng = rng or np.random.default_rng()
    if may_wait:
        return [_in_any_order(blocks, width, -(-COUNTED_WAITING_LANES // (width * threads)), rng)]
    few_width = min(width, SAMPLED_WAVE_LANES // threads)
    return _alike(blocks, wanted, max(1, few_width, min(many_width, blocks // MANY_WAVES)), rng)


def _sample(blocks: int, wanted: int, width: int, may_wait: bool, rng: np.random.Generator | None) -> list[Batch]:
    """Choose a sample of blocks: the first ones if blocks may wait for earlier ones."""
    if may_wait:
        return [all_counted(np.arange(wanted), width)]
    if rng is None:
        spread = np.unique(np.linspace(0, blocks - 1, wanted).astype(np.intp))
    else:
        starts = np.linspace(0, blocks, wanted + 1).astype(np.intp)
        spread = rng.integers(starts[:-1], starts[1:])
    count = BATCHES if len(spread) >= 4 * BATCHES else 1
    # the last block, often the longest, comes first
    return [all_counted(spread[start::count], width) for start in reversed(range(count))]


def _in_any_order(blocks: int, width: int, counted: int, rng: np.random.Generator) -> Batch:
    waves = [np.sort(wave) for wave in cut(rng.permutation(blocks), width)]
    return Batch(waves, _chosen(len(waves), counted, rng))


def _alike(blocks: int, wanted: int, width: int, rng: np.random.Generator) -> list[Batch]:
    """Distribute the blocks of each of `width` sections of the grid to the waves."""
    count = -(-blocks // width)
    starts = np.linspace(0, blocks, width + 1).astype(np.intp)
    dealt = np.full((width, count), -1, np.intp)
    for row, (first, end) in enumerate(pairwise(starts)):
        order = rng.permutation(end - first)
        dealt[row, np.sort(rng.permutation(count)[: len(order)])] = first + order
    waves = [wave[wave >= 0] for wave in dealt.T]
    is_counted = _chosen(count, max(2, -(-wanted // width)), rng)
    return [Batch([wave], [counted]) for wave, counted in zip(waves, is_counted, strict=True)]


def _chosen(count: int, wanted: int, rng: np.random.Generator) -> list[bool]:
    """Choose `wanted` of the waves at random."""
    chosen = set(rng.permutation(count)[:wanted].tolist())
    return [which in chosen for which in range(count)]


def may_take_numbers(launch: LaunchState) -> bool:
    """Return True if blocks may take numbers from a counter but do not wait for each other."""
    workload = None if launch.counters is None else launch.counters.workload
    if workload is None or workload.polls:
        return False
    return any(site.counts_up for site in launch.program.sites)


def count_last_wave(launch: LaunchState, batches: Sequence[Batch]) -> None:
    """Give the last wave of a complete launch counters of its own, if it is not counted."""
    if launch.options.complete_within is not None and not batches[-1].is_counted[-1]:
        _count_apart(launch, int(batches[-1].waves[-1][0]))


def finish_last_block(launch: LaunchState, run: Callable[[Blocks], None]) -> None:
    """Record the path of the block that finished last, if it was not counted.

    After a sample, one more block runs with all counters at the number of the last block, and without a check of
    hazards. Garbage in place of other blocks' results may cause a fault; then the path up to it counts. Memory is
    restored.
    """
    assert launch.counters is not None and launch.counters.workload is not None
    workload, blocks = launch.counters.workload, prod(launch.grid)
    if launch.options.complete_within is None and workload.blocks < blocks:
        tickets = workload.tickets() if launch.checker is None or launch.watched != -1 else []
        if not tickets or (before := snapshot(launch.arena)) is None:
            return
        for address in tickets:
            _add(launch, address, blocks - 1 - workload.blocks)
        _count_apart(launch, blocks - 1 if launch.watched != blocks - 1 else 0)
        with suppress(KernelFault):
            run(np.array([launch.last_wave]))
        before.restore()
    if launch.last_counters is not None and (last := launch.last_counters.workload) is not None:
        launch.tally.issued += last.issued if launch.options.complete_within is not None else 0
        workload.last_block = last


def _count_apart(launch: LaunchState, wave: int) -> None:
    from pytest_gpulab.devices.simulated.counting.counters import Counters, Joined
    from pytest_gpulab.devices.simulated.counting.workload import Workload

    launch.last_counters = Counters(launch.program, Workload(launch.program, launch.device.gpu), Joined())
    launch.last_wave = wave


def _add(launch: LaunchState, address: int, blocks: int) -> None:
    """Add the blocks that did not run to a counter."""
    allocation = launch.arena.find(address)
    if allocation is not None:
        allocation.typed(np.dtype(np.uint32))[(address - allocation.base) // 4] += np.uint32(blocks)

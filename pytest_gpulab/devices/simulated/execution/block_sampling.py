"""Sampling of a launch's blocks: blocks that run, their order, and blocks that are counted.

A kernel must not be able to detect that a block is counted, since it could skip the work of counted blocks only. So if
all blocks run and some are counted, all waves look alike: each has one random block of every section of the grid, and
the counted waves are chosen at random. Blocks that may wait for each other run in the order of the grid instead.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .launch_state import Batch, LaunchState, all_counted, cut

BATCHES = 4  # per sample; their spread gives the sampling error
SAMPLED_WAVE_LANES = 16_384  # if some waves are counted: half of the fastest size, for twice as many waves
MANY_WAVES = 64  # per launch; with as many, waves have the fastest size
MANY_WAVES_LANES = 65_536  # the fastest size without hazard checks: fewer steps outweigh misses of the cache
COUNTED_IN_ORDER_LANES = 1 << 18  # counted lanes of blocks that may wait for each other


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
        return [_in_order(blocks, width, -(-COUNTED_IN_ORDER_LANES // (width * threads)), rng)]
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


def _in_order(blocks: int, width: int, counted: int, rng: np.random.Generator) -> Batch:
    waves = cut(np.arange(blocks), width)
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

"""Which blocks of a launch run, in what order, and which of them are counted.

A kernel must not be able to tell whether a block is counted: it would save the work there. So where all blocks run and
some are counted, all waves look alike. Each holds one block of every stretch of the grid, chosen at random; the waves
that are counted are chosen at random, too. Blocks that may wait for each other run in the order of the grid instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .wave import Launch

Blocks = npt.NDArray[np.intp]
BATCHES = 4  # of a sample, whose differences tell how far it may be off
SAMPLED_WAVE_LANES = 16_384  # of a wave where some waves are counted: half of what is fastest, and twice as many waves
MANY_WAVES = 64  # of a launch; where there are as many, they are as wide as is fastest
COUNTED_IN_ORDER_LANES = 1 << 18  # that are counted of blocks that may wait for each other


@dataclass(frozen=True)
class Batch:
    """Waves that run side by side where they wait for each other.

    Attributes:
        waves: the blocks of each.
        is_counted: of each.
    """

    waves: Sequence[Blocks]
    is_counted: Sequence[bool]

    @property
    def counted(self) -> int:
        """The number of blocks that are counted."""
        return sum(len(wave) for wave, is_counted in zip(self.waves, self.is_counted, strict=True) if is_counted)


def batches(launch: Launch, blocks: int, width: int) -> list[Batch]:
    """Return the blocks to run, in order.

    Args:
        launch: says what is wanted.
        blocks: of the grid.
        width: the most blocks in a wave.
    """
    options, wanted = launch.options, launch.options.sample_blocks
    if wanted is None or blocks <= wanted:
        return [_all_counted(np.arange(blocks), width)]
    rng = None if options.sample_seed is None else np.random.default_rng(options.sample_seed)
    may_wait = any(step.spins for step in launch.program.steps)
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if options.complete_within is None:
        return _sample(blocks, wanted, width, may_wait, rng)
    rng = rng or np.random.default_rng()
    if may_wait:
        return [_in_order(blocks, width, -(-COUNTED_IN_ORDER_LANES // (width * threads)), rng)]
    return _alike(blocks, wanted, max(1, min(width, max(SAMPLED_WAVE_LANES // threads, blocks // MANY_WAVES))), rng)


def _all_counted(chosen: Blocks, width: int) -> Batch:
    waves = _cut(chosen, width)
    return Batch(waves, [True] * len(waves))


def _cut(chosen: Blocks, width: int) -> list[Blocks]:
    return [chosen[start : start + width] for start in range(0, len(chosen), width)]


def _sample(blocks: int, wanted: int, width: int, may_wait: bool, rng: np.random.Generator | None) -> list[Batch]:
    """Choose some blocks; the first ones if they may wait for earlier ones."""
    if may_wait:
        return [_all_counted(np.arange(wanted), width)]
    if rng is None:
        spread = np.unique(np.linspace(0, blocks - 1, wanted).astype(np.intp))
    else:
        starts = np.linspace(0, blocks, wanted + 1).astype(np.intp)
        spread = rng.integers(starts[:-1], starts[1:])
    count = BATCHES if len(spread) >= 4 * BATCHES else 1
    # the last block, often the longest, at first
    return [_all_counted(spread[start::count], width) for start in reversed(range(count))]


def _in_order(blocks: int, width: int, counted: int, rng: np.random.Generator) -> Batch:
    waves = _cut(np.arange(blocks), width)
    return Batch(waves, _chosen(len(waves), counted, rng))


def _alike(blocks: int, wanted: int, width: int, rng: np.random.Generator) -> list[Batch]:
    """Deal the blocks of each of `width` stretches of the grid to the waves."""
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
    """Choose some of the waves."""
    chosen = set(rng.permutation(count)[:wanted].tolist())
    return [which in chosen for which in range(count)]

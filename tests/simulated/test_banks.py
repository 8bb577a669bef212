"""Passes of shared accesses: the quick ways against counting words by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.devices.simulated.execution.banks import word_passes
from pytest_gpulab.devices.simulated.execution.lanes import WARP, Lanes, Shape, Value


def by_hand(lanes: Lanes, address: Value) -> int:
    """Add up the most distinct words in one bank over all warps of all blocks."""
    words: dict[tuple[int, int], set[int]] = {}
    thread, column, _ = lanes.each
    for t, c, byte in zip(thread, column, np.broadcast_to(address, lanes.shape).ravel(), strict=True):
        words.setdefault((int(t) // WARP, int(c)), set()).add(int(byte) // 4)
    return sum(max(np.bincount([word % 32 for word in found])) for found in words.values())


def some_lanes(rng: np.random.Generator, threads: int, blocks: int) -> Lanes:
    """All lanes of a wave, some of its threads, some of its blocks, or any."""
    lanes = Shape((blocks, 1, 1), (threads, 1, 1), np.arange(blocks)).all_lanes()
    shape = [(threads, 1), (1, blocks), (threads, blocks), None][rng.integers(4)]
    if shape is None:
        return lanes
    where = rng.random(shape) < 0.5
    where.flat[0] = True
    return lanes.subset(where).lanes


@pytest.mark.parametrize("words", [32, 40, 300, 2000])
@pytest.mark.parametrize("threads", [1, 33, 64, 1024])
def test_passes_are_those_that_one_counts_by_hand(words: int, threads: int) -> None:
    rng = np.random.default_rng([words, threads])
    for blocks in (1, 2, 12):
        for _ in range(3):
            lanes = some_lanes(rng, threads, blocks)
            shape = [lanes.shape, (lanes.shape[0], 1), (1, lanes.shape[1])][rng.integers(3)]
            address = rng.integers(0, words, shape, np.uint64) * np.uint64(4)
            assert word_passes(lanes, address) == by_hand(lanes, address)


def test_words_that_lie_far_apart_are_left_to_sorting() -> None:
    lanes = Shape((1, 1, 1), (32, 1, 1), np.arange(1)).all_lanes()
    assert word_passes(lanes, np.arange(32, dtype=np.uint64).reshape(-1, 1) * np.uint64(1024)) is None

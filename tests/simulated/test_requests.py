"""Counts of many accesses at once, compared with counts per warp."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pytest

from pytest_gpulab.devices.simulated.counting.banks import word_passes
from pytest_gpulab.devices.simulated.counting.requests import AT_ONCE, Requests, Traffic, Waiting
from pytest_gpulab.devices.simulated.groups.lanes import WARP, Lanes, Shape, Value

pytestmark = pytest.mark.unit

SECTOR_BITS = np.int64(5)


def addresses(lanes: Lanes, address: Value) -> list[set[int]]:
    """Return what each warp of each block asks for."""
    asked: dict[tuple[int, int], set[int]] = defaultdict(set)
    thread, column, _ = lanes.each
    for t, c, byte in zip(thread, column, np.broadcast_to(address, lanes.shape).ravel(), strict=True):
        asked[int(t) // WARP, int(c)].add(int(byte))
    return list(asked.values())


def passes_by_hand(lanes: Lanes, address: Value) -> int:
    """Add up the most distinct words in one bank over all warps of all blocks."""
    words = ({byte // 4 for byte in asked} for asked in addresses(lanes, address))
    return sum(max(np.bincount([word % 32 for word in found])) for found in words)


def sectors_by_hand(lanes: Lanes, address: Value) -> int:
    """Add up the distinct sectors of all warps of all blocks."""
    return sum(len({byte // 32 for byte in asked}) for asked in addresses(lanes, address))


def sectors(requests: Requests) -> npt.NDArray[np.intp]:
    """Return the sectors of each request."""
    return requests.distinct(SECTOR_BITS)[1]


COUNTED = {"passes": (word_passes, passes_by_hand), "sectors": (sectors, sectors_by_hand)}


def some_lanes(rng: np.random.Generator, threads: int, blocks: int) -> Lanes:
    """All lanes of a wave, some of its threads, some of its blocks, or any."""
    lanes = Shape((blocks, 1, 1), (threads, 1, 1), np.arange(blocks)).all_lanes()
    shape = [(threads, 1), (1, blocks), (threads, blocks), None][rng.integers(4)]
    if shape is None:
        return lanes
    where = rng.random(shape) < 0.5
    where.flat[0] = True
    return lanes.subset(where).lanes


@pytest.mark.parametrize("what", COUNTED)
@pytest.mark.parametrize("words", [32, 40, 300, 50_000])
@pytest.mark.parametrize("threads", [1, 33, 64, 1024])
def test_counts_are_those_that_one_makes_by_hand(what: str, words: int, threads: int) -> None:
    count, by_hand = COUNTED[what]
    rng = np.random.default_rng([words, threads])
    waiting, charged = Waiting(count), []
    for blocks in (1, 2, 12):
        for _ in range(3):
            lanes = some_lanes(rng, threads, blocks)
            shape = [lanes.shape, (lanes.shape[0], 1)][rng.integers(2)]
            address = rng.integers(0, words, shape, [np.uint32, np.uint64][rng.integers(2)]) * 4
            charged.append((Traffic(), by_hand(lanes, address), lanes))
            waiting.add(charged[-1][0], lanes, address)
    waiting.count()
    assert [traffic.units for traffic, _, _ in charged] == [units for _, units, _ in charged]
    assert [traffic.requests for traffic, _, _ in charged] == [lanes.warp_count for _, _, lanes in charged]


def test_accesses_wait_only_until_they_are_many() -> None:
    lanes = Shape((1, 1, 1), (1024, 1, 1), np.arange(1)).all_lanes()
    waiting, traffic = Waiting(word_passes), Traffic()
    for _ in range(AT_ONCE // 1024):
        waiting.add(traffic, lanes, np.arange(0, 4096, 4).reshape(-1, 1))
    assert traffic.requests == 0
    waiting.add(traffic, lanes, np.arange(0, 4096, 4).reshape(-1, 1))
    assert traffic.requests == traffic.units == 32 * (AT_ONCE // 1024 + 1)
    waiting.count()
    assert traffic.requests == 32 * (AT_ONCE // 1024 + 1)

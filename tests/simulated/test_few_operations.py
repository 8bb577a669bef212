"""Operations that launches must not repeat or spread: hashes of memory, flat groups, divided barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from places import Run

from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions
from pytest_gpulab.devices.simulated.execution import named_barriers
from pytest_gpulab.devices.simulated.execution.endless import WaveState
from pytest_gpulab.devices.simulated.groups.lanes import Shape

SHAPE = Shape((4, 1, 1), (64, 1, 1), np.arange(4))


def hashes_of(run: Run, monkeypatch: pytest.MonkeyPatch, body: str) -> int:
    """Return how often all memory is hashed until an endless loop is found."""
    hashed: list[Any] = []
    rest = WaveState.rest
    monkeypatch.setattr(WaveState, "rest", lambda self: hashed.append(self) or rest(self))
    source = f"__global__ void wait(volatile int *flags) {{\n{body}\n}}"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(64, np.int32), options=LaunchOptions(check=True))
    assert caught.value.code == "endless-loop"
    return len(hashed)


def test_a_loop_that_only_reads_is_endless_without_a_hash_of_memory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hashes_of(run, monkeypatch, "while (flags[1] == 0) {}") == 0


def test_a_loop_that_writes_is_endless_if_memory_repeats(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hashes_of(run, monkeypatch, "while (flags[1] == 0) flags[2] = 1 - flags[2];") > 0


@pytest.mark.unit
@pytest.mark.parametrize("rows", [slice(5, 9), slice(None)])
@pytest.mark.parametrize("columns", [slice(1, 3), slice(None)])
def test_lanes_of_whole_rows_or_columns_are_a_rectangle(rows: slice, columns: slice) -> None:
    lanes, mask = SHAPE.all_lanes(), np.zeros((64, 4), np.bool_)
    mask[rows, columns] = True
    chosen = lanes.subset(mask).lanes
    assert chosen.n == mask.sum() and chosen.flat == (mask.sum() == 8)  # 4 threads of 2 blocks are listed one by one


@pytest.mark.unit
def test_a_barrier_of_equal_operands_is_not_divided() -> None:
    lanes = SHAPE.all_lanes()
    number, threads = np.full((1, 1), 3, np.uint32), np.full((1, 1), 64, np.uint32)
    assert named_barriers.pieces(lanes, number, threads) == [(None, 3, 64)]
    assert named_barriers.differs_in_warp(lanes, number, threads) is None
    apart = np.where(np.arange(64).reshape(-1, 1) < 32, 3, 4).astype(np.uint32)
    assert [(which, count) for _, which, count in named_barriers.pieces(lanes, apart, threads)] == [(3, 64), (4, 64)]

"""Each launch at a small size has its counterpart at the size for a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.plans.replay import StandIn
from pytest_gpulab.grading.speed.costs import standing_in

pytestmark = pytest.mark.unit


def plan(elements: int, *blocks: int, threads: int = 256) -> Plan:
    buffers = Buffer("in", "input", np.float32, (elements,)), Buffer("out", "output", np.float32, (elements,))
    return Plan(buffers, tuple(Launch("f", (count,), (threads,), ("in", "out")) for count in blocks))


@pytest.mark.parametrize(
    ("small", "full", "expected"),
    [
        (plan(64, 32), plan(1024, 512), [(512, 1)]),
        (plan(64, 32, 4), plan(1024, 512, 64, 1), [(512, 1), (64, 1)]),
        (plan(64, 4, 32), plan(1024, 64, 512), [(64, 1), (512, 1)]),
        (plan(64, 32), plan(1024, 32), [(32, 16)]),
        (plan(64, 32), plan(1024, 512, threads=128), [None]),
    ],
    ids=["one", "levels down", "levels up", "the same grid has more work", "another block"],
)
def test_each_launch_stands_for_the_one_of_the_same_kernel_block_and_rank(
    small: Plan, full: Plan, expected: list[tuple[int, float] | None]
) -> None:
    found = [one.larger if isinstance(one, StandIn) else None for one in standing_in(small, full).launches]
    assert [one and (one.blocks, one.block_work) for one in found] == expected
    assert all(one.share == 1 / 16 for one in found if one)

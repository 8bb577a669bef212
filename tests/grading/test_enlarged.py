"""Launches at a small size stand for those at the size for a GPU."""

from __future__ import annotations

import pytest

from pytest_gpulab.exercise import Launch, Plan
from pytest_gpulab.grading.plans.enlarged import enlarged

pytestmark = pytest.mark.unit


def plan(*launches: tuple[str, int, int]) -> Plan:
    return Plan((), tuple(Launch(kernel, (blocks,), (threads,), ()) for kernel, blocks, threads in launches))


@pytest.mark.parametrize(
    ("small", "full", "expected"),
    [
        ([("f", 32, 256)], [("f", 512, 256)], [512]),
        ([("f", 64, 256), ("f", 1, 256)], [("f", 4096, 256), ("f", 16, 256), ("f", 1, 256)], [4096, 16]),
        ([("f", 1, 256), ("f", 64, 256)], [("f", 1, 256), ("f", 16, 256), ("f", 4096, 256)], [16, 4096]),
        ([("f", 8, 256), ("g", 8, 256)], [("f", 80, 256), ("g", 8, 256)], [80, 8]),
        ([("f", 32, 256)], [("f", 512, 128)], [None]),
        ([("f", 32, 256)], [("f", 16, 256)], [32]),
    ],
    ids=["one", "levels down", "levels up", "by kernel", "another block", "never fewer"],
)
def test_each_launch_stands_for_the_one_of_the_same_kernel_block_and_rank(
    small: list[tuple[str, int, int]], full: list[tuple[str, int, int]], expected: list[int | None]
) -> None:
    assert [launch.full_blocks for launch in enlarged(plan(*small), plan(*full)).launches] == expected

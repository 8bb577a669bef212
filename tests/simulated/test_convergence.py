"""Lanes that part at indexed jumps, and warp-synchronising instructions that wait for the lanes of their mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from places import Run

from pytest_gpulab.devices.protocol import LaunchOptions, Schedule

SWITCH = """
__global__ void pick(const int *which, int *out) {
    int i = which[threadIdx.x + blockIdx.x * blockDim.x], x;
    asm volatile("{\\n"
                 " ways: .branchtargets ZERO, ONE, TWO;\\n"
                 " brx.idx %1, ways;\\n"
                 " ZERO: mov.b32 %0, 10; bra.uni DONE;\\n"
                 " ONE: mov.b32 %0, 11; bra.uni DONE;\\n"
                 " TWO: mov.b32 %0, 12;\\n"
                 " DONE:\\n"
                 "}" : "=r"(x) : "r"(i));
    out[threadIdx.x + blockIdx.x * blockDim.x] = x;
}
"""


@pytest.mark.parametrize(
    "which", [np.arange(128) % 3, np.full(128, 2), np.arange(128) // 64], ids=["each", "one", "by block"]
)
def test_an_indexed_jump_takes_every_lane_to_its_place(run: Run, which: np.ndarray[Any, Any]) -> None:
    out = np.zeros(128, np.int32)
    run(SWITCH, which.astype(np.int32), out, grid=(2,), block=(64,))
    np.testing.assert_array_equal(out, which + 10)


WAIT = """
__global__ void wait(volatile int *flag, int *out) {
    unsigned t = threadIdx.x;
    if (t >= 16 && t < 32)
        while (flag[0] == 0) {}
    int sum = t;
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    out[t] = sum;
    if (t == 40) flag[0] = 1;
}
"""


@pytest.mark.parametrize("schedule", ["lockstep", "warps", "warps-reversed"])
def test_a_shuffle_waits_for_lanes_that_are_still_in_a_loop(run: Run, schedule: Schedule) -> None:
    out = np.zeros(64, np.int32)
    profile = run(WAIT, np.zeros(1, np.int32), out, block=(64,), options=LaunchOptions(schedule=schedule))
    np.testing.assert_array_equal(out, np.repeat([np.arange(32).sum(), np.arange(32, 64).sum()], 32))
    assert profile.hazards == ()


MISSING = """
__global__ void half(int *out) {
    unsigned t = threadIdx.x;
    int x = t;
    if (t < 48) {
        x += 1;
        x = __shfl_sync(~0u, x, 0); // HERE
    }
    __syncthreads();
    out[t] = x;
}
"""


def test_lanes_of_the_mask_that_never_come_are_a_hazard(run: Run) -> None:
    out = np.zeros(64, np.int32)
    profile = run(MISSING, out, block=(64,))
    (hazard,) = profile.hazards
    assert hazard.kind == "barrier"
    assert "not all threads that the mask names reach this _sync operation" in hazard.what
    assert hazard.where is not None
    assert hazard.where.line == 7
    assert hazard.lane is not None
    assert hazard.lane.thread[0] == 32
    np.testing.assert_array_equal(out, [1] * 32 + [33] * 16 + list(range(48, 64)))

"""Estimated times of kernels in which the last block adds the results of the other blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated import SimulatedDevice

GRID = 2048
SOURCE = """
extern "C" __global__ void f(const float *in, volatile float *partial, float *out, unsigned *done, int tail) {{
    __shared__ bool last;
    if (threadIdx.x == 0) {{
        partial[blockIdx.x] = in[blockIdx.x];
        __threadfence();
        last = {take};
    }}
    __syncthreads();
    if (last && threadIdx.x == 0) {{
        float sum = 0;
        for (int i = 0; i < tail; i++) sum += partial[i];
        *out = sum;
    }}
}}
"""
BY_ADDITION, BY_WRAP = "atomicAdd(done, 1) == gridDim.x - 1", "atomicInc(done, gridDim.x - 1) == gridDim.x - 1"
SAMPLE = LaunchOptions(sample_blocks=32)
COMPLETE = LaunchOptions(sample_blocks=32, sample_seed=3, complete_within=1 << 30)


def launched(take: str, tail: int, options: LaunchOptions, grid: int = GRID) -> tuple[LaunchProfile, float]:
    device = SimulatedDevice()
    module = device.compile(SOURCE.format(take=take), "kernel.cu")
    out = device.array(np.zeros(1, np.float32))
    arrays = [device.array(np.ones(grid, np.float32)), device.array(np.zeros(grid, np.float32)), out]
    done = device.array(np.zeros(1, np.uint32))
    profile = module.launch("f", (grid,), (64,), [*arrays, done, np.int32(tail)], options=options)
    return profile, float(out.get()[0])


@pytest.mark.parametrize("take", [BY_ADDITION, BY_WRAP])
@pytest.mark.parametrize(("options", "grid"), [(SAMPLE, GRID), (COMPLETE, GRID), (SAMPLE, 24)])
def test_the_work_of_the_last_block_adds_to_the_time(take: str, options: LaunchOptions, grid: int) -> None:
    short, long = (launched(take, tail, options, grid)[0].estimated_ms for tail in (0, grid))
    assert short is not None
    assert long is not None
    # one thread reads each value, and machine code has at most 16 reads under way at once
    assert long - short > grid / 16 * 200 / 1.98e6


def test_a_sample_leaves_no_trace_of_the_last_block() -> None:
    (short, _), (long, out) = (launched(BY_ADDITION, tail, SAMPLE) for tail in (0, GRID))
    assert out == 0
    assert short.counters == long.counters


def test_a_complete_launch_ends_as_usual() -> None:
    profile, out = launched(BY_ADDITION, GRID, COMPLETE)
    assert out == GRID
    assert profile.representative


def test_a_kernel_without_a_counter_has_no_last_block() -> None:
    short, long = (launched("false", tail, SAMPLE)[0].estimated_ms for tail in (0, GRID))
    assert short == long


def test_hazard_checks_see_no_run_of_the_last_block() -> None:
    profile, _ = launched(BY_ADDITION, GRID, replace(SAMPLE, estimate=True, check=True))
    assert profile.hazards == ()

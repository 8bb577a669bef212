"""Counts of a large launch come from some of its blocks, and say how far they may be off."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated import SimulatedDevice

SOURCE = """
__global__ void even(float *x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
__global__ void uneven(float *x) {
    unsigned rounds = blockIdx.x * 2654435761u >> 24;
    float a = 0;
    for (unsigned k = 0; k < rounds; k++) a = a * 0.5f + k;
    x[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
__global__ void lengthy(float *x) {
    unsigned n = gridDim.x * blockDim.x;
    for (unsigned k = 0; k < 512; k++) x[(blockIdx.x * blockDim.x + threadIdx.x + k * 4096) % n] = k;
}
__global__ void in_a_row(volatile float *x) {
    if (threadIdx.x == 0) {
        while (blockIdx.x > 0 && x[blockIdx.x - 1] == 0) {}
        x[blockIdx.x] = 1;
    }
}
"""
BLOCKS = 2048
ERROR, ISSUED = "gpulab__sampling_error.pct", "smsp__inst_executed.sum"


def counted(kernel: str, sample_blocks: int | None = 64) -> LaunchProfile:
    device = SimulatedDevice()
    x = device.array(np.zeros(BLOCKS * 128, np.float32))
    options = LaunchOptions(sample_blocks=sample_blocks, count=True)
    return device.compile(SOURCE).launch(kernel, (BLOCKS,), (128,), (x,), options=options)


def test_blocks_that_all_do_the_same_give_no_error() -> None:
    sample, whole = counted("even"), counted("even", None)
    assert sample.counters[ERROR] == whole.counters[ERROR] == 0
    assert sample.counters[ISSUED] == whole.counters[ISSUED]


def test_the_error_of_uneven_blocks_is_told() -> None:
    sample, whole = counted("uneven"), counted("uneven", None)
    off = abs(sample.counters[ISSUED] / whole.counters[ISSUED] - 1)
    assert 0.01 < sample.counters[ERROR] / 100 < 0.3
    assert off < 3 * sample.counters[ERROR] / 100


def test_a_sample_of_long_blocks_is_cut_short() -> None:
    sample = counted("lengthy")
    requests = sample.counters["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"]
    assert requests == BLOCKS * 4 * 512
    assert sample.estimated_ms == pytest.approx(counted("lengthy", 16).estimated_ms, rel=0.05)


def test_blocks_that_wait_for_each_other_have_no_error_to_tell() -> None:
    assert ERROR not in counted("in_a_row").counters

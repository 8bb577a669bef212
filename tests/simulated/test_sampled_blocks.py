"""Counts of a large launch come from some of its blocks, and say how far they may be off."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions, LaunchProfile, TooMuchWork
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
__device__ unsigned arrived, taken;
__global__ void idle_for_the_first(float *x) {
    __shared__ unsigned order;
    if (threadIdx.x == 0) order = atomicAdd(&arrived, 1);
    __syncthreads();
    float a = 0;
    for (unsigned k = 0; order >= 1024 && k < 64; k++) a = a * 0.5f + threadIdx.x;
    x[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
__global__ void one_does_it_all(float *x) {
    if (blockIdx.x == 77)
        for (unsigned k = threadIdx.x; k < gridDim.x * 128; k += 128) x[k] = k;
}
__global__ void one_takes_long(float *x) {
    float a = 0;
    for (unsigned k = 0; blockIdx.x == 77 && threadIdx.x == 5 && k < 1000; k++) a = a * 0.5f + k;
    x[blockIdx.x * blockDim.x + threadIdx.x] = a;
}
__global__ void retries(float *x) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    int old = sum, seen, tries = 0;
    do { seen = old; tries++; old = atomicCAS(&sum, seen, seen + 1); } while (old != seen);
    __syncthreads();
    x[blockIdx.x * blockDim.x + threadIdx.x] = tries;
}
__global__ void in_a_row(volatile float *x) {
    if (threadIdx.x == 0) {
        while (blockIdx.x > 0 && x[blockIdx.x - 1] != 1) {}
        x[blockIdx.x] = 1;
    }
}
__global__ void no_barrier_from_the_third_on(float *x) {
    __shared__ unsigned order, part[128];
    if (threadIdx.x == 0) order = atomicAdd(&arrived, 1);
    __syncthreads();
    part[threadIdx.x] = threadIdx.x;
    if (order < 2) __syncthreads();
    x[blockIdx.x * blockDim.x + threadIdx.x] = part[127 - threadIdx.x];
}
__global__ void no_barrier_in_turn(float *x) {
    __shared__ float before;
    __shared__ unsigned turn;
    if (threadIdx.x == 0) {
        turn = atomicAdd(&taken, 1);
        while (*(volatile unsigned *)&arrived < turn) {}
        *(volatile unsigned *)&arrived = turn + 1;
    }
    __syncthreads();
    if (threadIdx.x == 0) before = turn;
    if (turn < 2) __syncthreads();
    if (threadIdx.x == 32) x[turn] = before;
}
__global__ void one_without_barrier(float *x) {
    __shared__ unsigned part[128];
    part[threadIdx.x] = threadIdx.x;
    if (blockIdx.x != 300) __syncthreads();
    x[blockIdx.x * blockDim.x + threadIdx.x] += part[127 - threadIdx.x];
}
__global__ void barriers_by_data(float *x) {
    __shared__ float part[128];
    part[threadIdx.x] = 0;
    for (unsigned k = 0; k < blockIdx.x % 100; k++) {
        __syncthreads();
        part[threadIdx.x ^ 1] += 1;
    }
    __syncthreads();
    x[blockIdx.x * blockDim.x + threadIdx.x] = part[threadIdx.x];
}
__global__ void faults_the_second_time(float *x) {
    __shared__ unsigned part[128];
    part[threadIdx.x] = threadIdx.x;
    if (blockIdx.x != 300) __syncthreads();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (x[i] != -1) x[1u << 28] = 0;
    x[i] = part[127 - threadIdx.x];
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


def test_the_error_of_uneven_blocks_is_reported() -> None:
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


def complete(
    kernel: str, seed: int, limit: int = 10**9, blocks: int = BLOCKS, watch: bool = False
) -> tuple[LaunchProfile, np.ndarray]:
    device = SimulatedDevice()
    x = device.array(np.full(blocks * 128, -1, np.float32))
    options = LaunchOptions(sample_blocks=64, sample_seed=seed, complete_within=limit, watch=watch)
    profile = device.compile(SOURCE).launch(kernel, (blocks,), (128,), (x,), options=options)
    return profile, x.get()


@pytest.mark.parametrize("kernel", ["even", "uneven", "no_barrier_in_turn"])
def test_all_blocks_run_and_some_are_counted(kernel: str) -> None:
    profile, x = complete(kernel, seed=1)
    assert (x != -1).sum() == (BLOCKS if kernel == "no_barrier_in_turn" else BLOCKS * 128)
    assert 64 <= profile.counted_share * BLOCKS <= BLOCKS
    if kernel != "no_barrier_in_turn":  # how long blocks wait depends on what they run beside
        whole = counted(kernel, None).counters[ISSUED]
        assert profile.counters[ISSUED] == pytest.approx(whole, rel=0.15)


def test_the_seed_chooses_the_blocks_that_are_counted() -> None:
    found = [complete("uneven", seed)[0].counters[ISSUED] for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_a_block_cannot_tell_from_the_order_that_it_is_counted() -> None:
    """Half of the blocks idle, the first ones: half of the work is counted, in any order."""
    shares = [complete("idle_for_the_first", seed)[0] for seed in range(12)]
    whole = counted("idle_for_the_first", None).counters[ISSUED]
    found = np.array([profile.counters[ISSUED] / whole for profile in shares])
    assert 0.6 < found.mean() < 1.4
    assert all(profile.representative or abs(ratio - 1) > 0.02 for profile, ratio in zip(shares, found, strict=True))
    assert not all(profile.representative for profile in shares)


def test_a_sample_that_misses_where_the_work_is_says_so() -> None:
    profile, x = complete("one_does_it_all", seed=3)
    assert not profile.representative and (x == np.arange(BLOCKS * 128)).all()
    assert complete("even", seed=3)[0].representative


def test_a_sample_that_misses_the_longest_path_says_so() -> None:
    """The thread has 3 % of the instructions, and takes many times as long as all other blocks together."""
    assert not complete("one_takes_long", seed=3)[0].representative
    assert complete("uneven", seed=3)[0].representative


def test_a_launch_with_a_few_long_blocks_is_completed() -> None:
    """The limit is that of the work of most blocks: a sample alone would miss the long ones."""
    work = 2048 * 4 * 10
    for seed in range(4):
        assert not complete("one_takes_long", seed, limit=4 * work)[0].representative


def test_a_launch_that_would_take_too_long_is_not_completed() -> None:
    with pytest.raises(TooMuchWork, match="more than 10000 warp instructions"):
        complete("lengthy", seed=1, limit=10_000)


def test_a_sample_shows_the_work_of_all_blocks_unless_the_blocks_know_that_they_are_few() -> None:
    shown = {
        kernel: counted(kernel).work / complete(kernel, seed=1)[0].work for kernel in ("even", "idle_for_the_first")
    }
    assert shown["even"] >= 1 and shown["idle_for_the_first"] < 0.7


def test_threads_that_retry_are_more_work_than_their_instructions() -> None:
    """Each block has 128 x 129 / 2 compare-and-swaps of a lane."""
    with pytest.raises(TooMuchWork):
        complete("retries", seed=1, limit=BLOCKS * 128 * 129 // 2)


def test_a_sample_alone_is_chosen_by_its_seed_too() -> None:
    def issued(seed: int | None) -> float:
        device = SimulatedDevice()
        x = device.array(np.zeros(BLOCKS * 128, np.float32))
        options = LaunchOptions(sample_blocks=64, sample_seed=seed)
        return device.compile(SOURCE).launch("uneven", (BLOCKS,), (128,), (x,), options=options).counters[ISSUED]

    assert issued(1) == issued(1) and len({issued(seed) for seed in (None, 1, 2)}) == 3


def racing(kernel: str, seed: int, blocks: int = BLOCKS) -> set[int]:
    """Return the first block of each race that a complete launch with a watched wave finds."""
    profile, _ = complete(kernel, seed, blocks=blocks, watch=True)
    return {hazard.lane.block[0] for hazard in profile.hazards if hazard.kind == "race" and hazard.lane}


@pytest.mark.parametrize("kernel", ["no_barrier_from_the_third_on", "no_barrier_in_turn"])
def test_a_barrier_that_only_the_first_blocks_have_is_missed_in_one_wave(kernel: str) -> None:
    assert racing(kernel, seed=1, blocks=512)


def test_a_barrier_that_one_block_leaves_out_is_missed_in_any_launch() -> None:
    assert [racing("one_without_barrier", seed) for seed in range(3)] == [{300}] * 3
    _, x = complete("one_without_barrier", seed=0, watch=True)
    assert (x.reshape(-1, 128)[300] == np.arange(126, -2, -1)).all(), "the block has one result, though it runs twice"


def test_blocks_with_different_numbers_of_barriers_are_right() -> None:
    assert racing("barriers_by_data", seed=0) == racing("even", seed=0) == set()


def test_a_fault_without_the_other_blocks_says_nothing() -> None:
    assert racing("faults_the_second_time", seed=0) == set()


def test_blocks_that_wait_for_each_other_run_in_any_order() -> None:
    with pytest.raises(KernelFault, match="CUDA starts blocks in any order"):
        complete("in_a_row", seed=1)
    _, x = complete("no_barrier_in_turn", seed=1)
    assert (x[:BLOCKS] == np.arange(BLOCKS)).all()

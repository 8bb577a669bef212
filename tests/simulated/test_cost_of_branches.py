"""The time of branches in the path of a single warp. Times are those of an H100, see docs/cost-model.md."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.gpus import modelled_gpu

pytestmark = pytest.mark.unmeasured
LOOP = """__global__ void f(int *out, int n)
{
    int x = threadIdx.x;
#pragma unroll UNROLLED
    for (int i = 0; i < n; ++i) x = x * 3 + 1;
    out[threadIdx.x] = x;
}"""
DIVERGENT = LOOP.replace("UNROLLED", "1").replace("int x", "n *= x % PARTS + 1; int x").replace("x %", "threadIdx.x %")
GUARDED = LOOP.replace("UNROLLED", "1").replace("x = x", "if (x % 4 == 3) x = x")


def cycles(source: str, rounds: int, threads: int = 32) -> float:
    """Return the estimated cycles per iteration of the loop of a single block."""
    found = []
    for n in rounds, 3 * rounds:
        device = SimulatedDevice(modelled_gpu("h100"))
        arguments = device.array(np.zeros(32 * (1 + 3 * rounds), np.int32)), np.int32(n)
        profile = device.compile(source).launch("f", (1,), (threads,), arguments, options=LaunchOptions(estimate=True))
        assert profile.estimated_ms is not None
        found.append(profile.estimated_ms)
    return (found[1] - found[0]) * 1e6 * modelled_gpu("h100").clock_ghz / (2 * rounds)


def test_an_iteration_of_one_multiply_add_takes_29_cycles() -> None:
    """On an H100, 256 of them take 8,470 cycles with the start of the launch; the model once had 10 per iteration."""
    assert cycles(LOOP.replace("UNROLLED", "1"), 1000) == pytest.approx(29, rel=0.1)


@pytest.mark.parametrize("parts", [4, 32])
def test_lanes_that_leave_a_loop_one_after_another_take_as_long_as_the_last(parts: int) -> None:
    assert cycles(DIVERGENT.replace("PARTS", str(parts)), 200) == pytest.approx(29 * parts, rel=0.1)


def test_iterations_that_are_unrolled_have_no_branch() -> None:
    assert cycles(LOOP.replace("UNROLLED", "8"), 1000) < 11


def test_a_guarded_body_waits_for_its_condition_but_has_no_branch() -> None:
    """The condition and the body depend on each other: 13 cycles for the predicate, as in the branch of the loop."""
    assert 37 < cycles(GUARDED, 1000) < 50


def test_exact_divisions_of_a_warp_follow_one_another() -> None:
    """The branch around a division's rare path is a place over which the assembler moves nothing."""
    body = "x = x * 3 + 1;"
    exact = LOOP.replace("UNROLLED", "4").replace("int x", "float x").replace("int *out", "float *out")
    exact = exact.replace(body, "x += 1.5f / (x + 3) + 1.5f / (x + 5);")
    fast = exact.replace("1.5f / (x + 3)", "__fdividef(1.5f, x + 3)").replace(
        "1.5f / (x + 5)", "__fdividef(1.5f, x + 5)"
    )
    assert cycles(exact, 200) > 110 > 75 > cycles(fast, 200)


def test_a_warp_waits_at_once_for_loads_of_iterations_that_the_assembler_unrolls() -> None:
    """On an H100, the warp of sum_of_one_warp in tests/h200 takes 57 cycles per load. A store keeps loads apart."""
    sums = """__global__ void f(float *x, int n)
    {
        float sum = 0;
        for (int i = threadIdx.x; i < 32 * n; i += 32) sum += x[i];
        x[threadIdx.x] = sum;
    }"""
    stored = sums.replace("sum += x[i]", "sum += x[i], x[threadIdx.x] = sum")
    assert cycles(sums, 320) == pytest.approx(57, rel=0.25)
    assert cycles(stored, 320) > 500


def test_warps_with_a_false_guard_wait_for_nothing() -> None:
    """The first warp's path is the same with 31 others, which skip the body. Their barriers take 2 cycles each."""
    tree = GUARDED.replace("int x", "__shared__ int s[64]; int x").replace("x % 4 == 3", "threadIdx.x < 32")
    tree = tree.replace("x = x * 3 + 1", "s[threadIdx.x] += s[threadIdx.x + 32]; __syncthreads()")
    alone, others = (cycles(tree, 100, threads) for threads in (32, 1024))
    assert alone + 62 < others < alone + 140


def test_a_store_of_separate_sectors_costs_each_of_them() -> None:
    """At 64 bytes per thread, a warp's store has 2 sectors in each of 16 lines; an H100 takes 0.057 ms."""
    source = """__global__ void f(int *out, int words)
    {
        for (int k = 0; k < words; ++k) out[(blockIdx.x * blockDim.x + threadIdx.x) * words + k] = k;
    }"""
    device = SimulatedDevice(modelled_gpu("h100"))
    arguments = device.array(np.zeros(1056 * 256 * 16, np.int32)), np.int32(16)
    options = LaunchOptions(sample_blocks=8)
    profile = device.compile(source).launch("f", (1056,), (256,), arguments, options=options)
    assert profile.estimated_ms == pytest.approx(0.057, rel=0.3)

"""Beginners' endless loops end after few rounds, whatever they change, whether one warp or all of them go round."""

from __future__ import annotations

import time

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.execution.endless import NO_WAITED_FOR

HEAD = """__global__ void f(int *x, unsigned n) {
    __shared__ int tile[256];
    unsigned t = threadIdx.x, s = 128;
    tile[t] = x[t];
    __syncthreads();
"""
NO_WAY_OUT = {
    "the step is never halved": "while (s > 0) { if (t < s) tile[t] += tile[t + s]; __syncthreads(); }",
    "the step times one": "for (s = 1; s < 256; s *= 1) { if (t % 2 == 0) tile[t] += tile[t + 1]; __syncthreads(); }",
    "another variable is counted": "for (int k = 0; s < 256; k++) { tile[t] += k; __syncthreads(); }",
    "counts without end": "for (unsigned k = 0; ; k++) x[k % n] = k;",
    "some threads only": "if (t >= 64) while (true) tile[t]++;",
    "a fence in a loop without condition": "if (t >= 64) while (true) __threadfence();",
}
WAITS = "__shared__ int ready; atomicAdd(&ready, 1); while (ready < 500) ;"
ENDLESS = ("nothing in this loop can end it", "this loop changes nothing")  # both may be true
MOST_S = 1.0  # of processor time: hundredths; until their time limits some took 20


def stopped(body: str, schedule: str = "lockstep") -> KernelFault:
    device = SimulatedDevice()
    module = device.compile(f"{HEAD}{body}\n x[t] = tile[t]; }}", "k.cu")
    args = (device.array(np.ones(256, np.int32)), np.uint32(256))

    begin_s = time.process_time()
    with pytest.raises(KernelFault) as caught:
        module.launch("f", (2,), (256,), args, options=LaunchOptions(schedule))
    assert time.process_time() - begin_s < MOST_S
    return caught.value


@pytest.mark.parametrize("schedule", ["lockstep", "warps", "warps-reversed"])
@pytest.mark.parametrize("body", NO_WAY_OUT.values(), ids=NO_WAY_OUT.keys())
def test_a_loop_that_nothing_ends_is_stopped_at_once(body: str, schedule: str) -> None:
    fault = stopped(body, schedule)
    assert fault.code == "endless-loop" and fault.what.removeprefix("the kernel does not end: ") in ENDLESS
    assert fault.where is not None and fault.where.line == 6


@pytest.mark.parametrize("schedule", ["lockstep", "warps", "warps-reversed"])
def test_so_is_one_in_which_all_warps_wait(schedule: str) -> None:
    assert stopped(WAITS, schedule).code == "endless-loop"


WAITS_WITH_RESULTS = {
    "counts its polls": "int k = 0; while (*(volatile int *)x == 1) k++; x[t] = k;",
    "waits longer and longer": "for (float ns = 8; atomicAdd(x, 0) == 1; ns += 1.5f) __nanosleep(ns);",
    "each thread at its flag": "int k = t; while (((volatile int *)x)[t % 32] == 1) k += 3; x[t] = k;",
}


@pytest.mark.parametrize("schedule", ["lockstep", "warps"])
@pytest.mark.parametrize("body", WAITS_WITH_RESULTS.values(), ids=WAITS_WITH_RESULTS.keys())
def test_so_is_one_that_computes_what_it_does_not_depend_on(body: str, schedule: str) -> None:
    fault = stopped(body, schedule)
    assert (fault.code, fault.what) == ("endless-loop", f"the kernel does not end: {NO_WAITED_FOR}")
    assert fault.where is not None and fault.where.line == 6


def test_but_not_one_with_results_that_an_outer_loop_depends_on() -> None:
    """At each jump back, the inner loop has the same state, but for the count that ends the outer loop."""
    source = """__global__ void f(volatile int *x) {
        int i = 0, k = 0;
        do { x[2] = 7; int again; do { k++; again = x[i]; i ^= 1; } while (again); } while (k < 4000);
        x[3] = k;
    }"""
    device = SimulatedDevice()
    for threads in (1, 40):
        x = device.array(np.array([1, 0, 0, 0], np.int32))
        device.compile(source).launch("f", (2,), (threads,), (x,))
        assert x.get().tolist() == [1, 0, 7, 4000]


def test_faults_in_the_first_rounds_are_reported_instead() -> None:
    fault = stopped("for (int k = 0; ; k++) x[t + 64 * k] = k;")
    assert fault.code == "out-of-bounds"

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


# Nothing proves that these loops go on forever: what they compute or store differs in each iteration.
WITHOUT_PROGRESS = {
    "counts its polls in memory": "while (*(volatile int *)(x + 9) == 1) atomicAdd(x + 8, 1);",
    "stores the count of its polls": "unsigned k = 0; while (*(volatile int *)x == 1) x[t | 32] = ++k;",
    "an atomic counter passes its bound": "while (atomicAdd(x, 2) != 8) ;",
    "a bound that grows": "for (unsigned k = 0; k < tile[0]; ++k) { if (t == 0) ++tile[0]; __syncthreads(); }",
    "numbers that do not repeat": "unsigned v = t + 1; while (v != 0) { v ^= v << 13; v ^= v >> 17; v ^= v << 5; }",
    "a loop with a counter inside": "do for (s = n; s > 7; s -= 4) tile[t] += s; while (tile[t] != 4);",
}
LOCKED = (
    "while (atomicCAS(x + 8, 1, 0) != 1); for (s = 0; s < x[9]; ++s) x[10] += s; __threadfence(); atomicExch(x + 8, 1);"
)
WITH_PROGRESS = {
    "one thread after the other": LOCKED.replace("x[9]", "16"),
    "each thread several times": f"for (unsigned k = 0; k < 4; ++k) {{ {LOCKED} }}",
    "a loop with a counter": "#pragma unroll 1\n for (s = 0; s < 30 * n; ++s) tile[t] = tile[t] * 3 + s;",
    "a loop with a counter that prints": '#pragma unroll 1\n for (s = 0; s < 30 * n; ++s) printf("%u\\n", s);',
}


class Ticks:
    """A clock that goes on by a millisecond each time it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        self.now_s += 1e-3
        return self.now_s

    def thread_time(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return 0


def launch_with_limit(body: str, monkeypatch: pytest.MonkeyPatch, stall_limit_s: float) -> float:
    """Launch a kernel of 256 threads; return the time that it takes by a clock that each iteration of a loop moves."""
    device, clock = SimulatedDevice(), Ticks()
    module = device.compile(f"{HEAD}{body}\n x[t] = tile[t]; }}", "k.cu")
    monkeypatch.setattr("pytest_gpulab.devices.simulated.execution.launch_state.time", clock)
    args = (device.array(np.ones(256, np.int32)), np.uint32(64))
    module.launch("f", (1,), (256,), args, options=LaunchOptions(time_limit_s=20.0, stall_limit_s=stall_limit_s))
    return clock.now_s


@pytest.mark.parametrize("body", WITHOUT_PROGRESS.values(), ids=WITHOUT_PROGRESS.keys())
def test_threads_that_only_repeat_lines_are_stopped_before_the_time_limit(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KernelFault) as caught:
        launch_with_limit(body, monkeypatch, stall_limit_s=1.0)
    what = "time limit: the kernel had not ended after 1 s, and its threads only repeat the same lines"
    assert (caught.value.code, caught.value.what) == ("time-limit", what)
    assert caught.value.where is not None and caught.value.where.line == 6


def test_a_slow_launch_is_asked_sooner_for_the_iterations_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast one must run past the end of an array first, which takes many iterations."""
    moving = "if (t == k - 1 && k < 256) tile[0] += tile[k]; __syncwarp();"
    moving = f"for (unsigned k = 1, end = 256; k < end; ++k, ++end) {{ {moving} }}"
    with pytest.raises(KernelFault, match=r"cannot end within 20 s: at least [\d,]+ iterations of this loop are left"):
        launch_with_limit(moving, monkeypatch, stall_limit_s=1.0)


@pytest.mark.parametrize("body", WITH_PROGRESS.values(), ids=WITH_PROGRESS.keys())
def test_threads_that_make_progress_have_the_whole_time(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch_with_limit(body, monkeypatch, stall_limit_s=0.2) > 0.4

"""Loops that change nothing are endless at once; others may go on until the launch has used up its time.

Loops with a counter have their own tests, in `test_counted_loops`.
"""

from __future__ import annotations

import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault, LaunchOptions, TooMuchWork, WorkLimit
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.execution.launch_state import TimeIsUp
from pytest_gpulab.devices.simulated.hazards.checker import HazardChecker
from pytest_gpulab.devices.simulated.hazards.races import inter_block
from pytest_gpulab.devices.simulated.hazards.races.inter_block import InterBlockRaceDetector
from pytest_gpulab.devices.simulated.hazards.races.racecheck import Racecheck

THREAD_TIME = "pytest_gpulab.devices.simulated.execution.launch_state.time.thread_time"
ENDLESS_CPU_S = 3.0  # each takes some hundredths; a loop that is not recognised takes minutes

ENDLESS = {
    "a stride that stays 0": """
        __shared__ float tile[64];
        tile[threadIdx.x] = 1;
        __syncthreads();
        for (unsigned stride = 0; stride < 64; stride *= 2) { // HERE
            tile[threadIdx.x] = fmaxf(tile[threadIdx.x], tile[threadIdx.x + stride]);
            __syncthreads();
        }
        x[threadIdx.x] = tile[0];""",
    "sums that run over to 0": """
        for (unsigned stride = 0; stride < 64; stride *= 2) { // HERE
            x[threadIdx.x] += x[threadIdx.x + stride];
            __syncthreads();
        }""",
    "a sum that is infinite": """
        float sum = x[0] + 1;
        while (sum > 0) // HERE
            sum *= 2;
        x[0] = sum;""",
    "not a number": """
        float sum = nanf("");
        do sum = sum * 0.5f + x[threadIdx.x];
        while (!(sum > 1)); // HERE
        x[0] = sum;""",
    "a number that is too large for its last digit": """
        for (float f = 16777000; f < 16778000; f += 1) // HERE
            x[threadIdx.x] = f;""",
    "some threads, others wait for them": """
        if (threadIdx.x % 3 == 1)
            for (int i = threadIdx.x; i > 0; i = i / 2 * 2) // HERE
                x[i] = 1;
        __syncthreads();
        x[threadIdx.x] = 2;""",
    "a cycle of many states": """
        unsigned state = 1;
        while (state != 2) // HERE
            state = (state * 5 + 4) % 128;
        x[0] = state;""",
    "an outer loop": """
        for (int i = 0; i < 10; ) // HERE
            for (int k = 0; k < 50; ++k) // HERE
                x[(i * 50 + k) % 64] = k; // HERE""",
    "printing": """
        while (x[0] == 0) // HERE
            printf("still at it\\n"); // HERE""",
}


@pytest.mark.parametrize("schedule", ["lockstep", "warps-reversed"])
@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_loop_that_changes_nothing_is_endless_at_once(run: Run, body: str, schedule: str) -> None:
    source = f"__global__ void f(int *x) {{{body}\n}}\n"
    begin_s = time.process_time()
    options = LaunchOptions(schedule=schedule, check=True)
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(128, np.int32), grid=(3,), block=(64,), options=options)
    assert time.process_time() - begin_s < ENDLESS_CPU_S
    assert caught.value.code == "endless-loop"
    assert caught.value.what.startswith("the kernel does not end: ")
    lines = [number for number, line in enumerate(source.splitlines(), 1) if "// HERE" in line]
    assert caught.value.where is not None and caught.value.where.line in lines


def test_an_endless_loop_says_whether_it_waits(run: Run) -> None:
    reasons = []
    for body in ("while (x[0] == 0);", "while (((volatile int *)x)[0] == 0);"):
        with pytest.raises(KernelFault) as caught:
            run(f"__global__ void f(int *x) {{ {body} x[1] = 1; }}", np.zeros(2, np.int32))
        reasons.append(caught.value.what)
    assert reasons == [
        "the kernel does not end: this loop changes nothing",
        "the kernel does not end: it waits for a change that no thread makes",
    ]


def test_a_wait_for_blocks_that_have_no_room_says_so(run: Run) -> None:
    """Each of 132 multiprocessors holds two blocks of 1,024 threads."""
    source = "__global__ void f(int *x) { if (threadIdx.x) return; atomicAdd(x, 1); while (*(volatile int *)x < 999); }"
    x = np.zeros(1, np.int32)
    run(source.replace("999", "264"), x, grid=(264,), block=(1024,))
    assert x == [264]
    with pytest.raises(KernelFault, match=r"no thread makes, and the GPU holds 264 of its 999 blocks at once"):
        run(source, np.zeros(1, np.int32), grid=(999,), block=(1024,))


LAST_FIRST = LaunchOptions("blocks-reversed")


@pytest.mark.parametrize("block", ["blockIdx.x", "taken"])
def test_a_wait_for_a_block_that_has_not_started_says_so(run: Run, block: str) -> None:
    source = """
    __global__ void f(int *x) {
        int taken = atomicAdd(x, 1);
        while (((volatile int *)x)[1] < BLOCK);
        x[1] = BLOCK + 1;
    }""".replace("BLOCK", block)
    for blocks, options in ((3, LaunchOptions()), (1, LAST_FIRST), (3, LAST_FIRST)):
        x = np.zeros(2, np.int32)
        if (blocks, options, block) == (3, LAST_FIRST, "blockIdx.x"):
            with pytest.raises(KernelFault, match="a block that has not started; CUDA starts blocks in any") as caught:
                run(source, x, grid=(blocks,), block=(1,), options=options)
            assert (caught.value.code, str(caught.value.where)) == ("block-order", "kernel.cu:4")
        else:
            assert run(source, x, grid=(blocks,), block=(1,), options=options).may_wait == (blocks > 1)
            assert x.tolist() == [blocks, blocks]


ENDING = {
    "counts in a register": ("for (int i = 0; i < 5000; ++i) sum = sum * 3 + in[i % 64];", False),
    "counts in shared memory": (
        "__shared__ volatile int left; left = 3000; while (left > 0) { left = left - 1; } sum = 1;", True,
    ),
    "counts in its own array": (
        "volatile int own[4]; own[n] = 3000; while (own[n] > 0) own[n] = own[n] - 1; sum = 1;", False,
    ),
    "waits for so many tries": (
        "int tries = 0; while (*(volatile int *)in == 0 && tries < 20000) ++tries; sum = tries;", False,
    ),
    "waits for the clock": (
        "long long begin = clock64(); while (clock64() - begin < 3000); sum = 1;", False,
    ),
    "waits for the clock for long": (
        "long long begin = clock64(); while (clock64() - begin < 200000000); sum = 1;", False,
    ),
    "waits for the timer twice": (
        """for (int k = 0; k < 2; ++k) {
            unsigned long long begin, now;
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
            do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - begin < 100000000);
        }
        sum = 1;""", False,
    ),
    "waits for the clock and looks at memory": (
        "long long begin = clock64(); while (*(volatile int *)in == 0 && clock64() - begin < 3000); sum = 1;", False,
    ),
    "a long cycle": ("unsigned s = 1; while (s != 3204) s = (s * 5 + 3) % 4096; sum = s;", False),
}  # fmt: skip


@pytest.mark.parametrize(("body", "shared"), ENDING.values(), ids=ENDING.keys())
def test_a_loop_that_changes_something_ends_by_itself(run: Run, body: str, shared: bool) -> None:
    out = np.zeros(1, np.int32)
    source = f"__global__ void f(const int *in, int *out, int n) {{ int sum = 0; {body} out[0] = sum; }}"
    run(source, np.zeros(64, np.int32), out, np.int32(0), block=(1,) if shared else (32,))
    assert out[0] or "in[i % 64]" in body


def test_a_clock_advances_little_unless_a_loop_waits_for_it(run: Run) -> None:
    cycles = np.zeros(2, np.int64)
    source = """
    __global__ void f(long long *cycles) {
        long long begin = clock64();
        for (volatile int k = 0; k < 100; k = k + 1);
        cycles[0] = clock64() - begin;
        while (clock64() - begin < 1000000);
        for (volatile int k = 0; k < 100; k = k + 1);
        begin = clock64();
        cycles[1] = clock64() - begin;
    }"""
    run(source, cycles, block=(1,))
    assert 100 <= cycles[0] < 1000 and 1 <= cycles[1] < 10


@pytest.mark.unmeasured
def test_a_serial_loop_over_many_elements_ends(run: Run) -> None:
    """There is no limit of steps: half a million basic blocks were too many once."""
    out = np.zeros(1, np.uint32)
    source = """
    __global__ void f(unsigned *out, unsigned n) {
        unsigned state = 1;
        #pragma unroll 1
        for (unsigned i = 0; i < n; ++i) state = state * 1664525u + 1013904223u;
        *out = state;
    }"""
    run(source, out, np.uint32(300_000), block=(1,))
    state = 1
    for _ in range(300_000):
        state = (state * 1664525 + 1013904223) % 2**32
    assert out[0] == state


# These loops may end on other conditions than their counters, so the iterations that are left are unknown.
LONG = {
    "registers": """unsigned s = n;
 for (unsigned k = 0; k < n && s != 1; ++k)
  s = s * 4 + k; // HERE
 x[threadIdx.x] = s;""",
    "memory": "for (unsigned k = 0; k < n && x[3] != 2; ++k)\n  x[k % 64] = x[(k + 1) % 64] * 3 + 1; // HERE",
    "barriers": """for (unsigned k = 0; __syncthreads_or(k < n); ++k) {
  x[(threadIdx.x + k) % 64] += k; // HERE
  __syncthreads(); }""",
}


@pytest.mark.parametrize("body", LONG.values(), ids=LONG.keys())
def test_a_launch_that_takes_too_long_is_stopped_at_the_line_where_it_is(
    run: Run, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(THREAD_TIME, count().__next__)
    source = f"__global__ void f(unsigned *x, unsigned n) {{\n {body}\n}}\n"
    begin_s = time.process_time()
    args = (np.zeros(64, np.uint32), np.uint32(4_000_000_000))
    with pytest.raises(KernelFault) as caught:
        run(source, *args, block=(64,), options=LaunchOptions(time_limit_s=0.3))
    assert time.process_time() - begin_s < 30
    assert (caught.value.code, caught.value.what) == (
        "time-limit",
        "time limit: the kernel had not ended after 0.3 s",
    )
    assert caught.value.where is not None and abs(caught.value.where.line - marked(source).line) <= 1


def test_a_loop_without_exit_is_named_not_the_loop_of_a_function_in_it(run: Run) -> None:
    source = """__device__ float rounds(float x) {
#pragma unroll 1
    for (int k = 0; k < 64; ++k) x = x * (x + 1) / (x + 2);
    return x;
}
__global__ void f(float *x, unsigned n) {
    for (unsigned i = threadIdx.x; i < n; ) // HERE
        x[i] = rounds(x[i]);
}"""
    with pytest.raises(KernelFault, match="nothing in this loop can end it") as caught:
        run(source, np.ones(32, np.float32), np.uint32(32))
    assert caught.value.where == marked(source)


def test_the_line_is_that_of_a_loop_also_while_a_thread_is_beyond_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread holds a lock while the others wait for it; the limit may end either of them."""
    monkeypatch.setattr("pytest_gpulab.devices.simulated.execution.launch_state.MAX_STRETCH", 1e3)  # also beside others
    source = """__global__ void f(int *x) {
    while (atomicCAS(x, 0, 1) != 0); // HERE
    x[1] += x[1] * 3 + threadIdx.x;
    __threadfence();
    atomicExch(x, 0);
}"""
    lines = set()
    for limit_s in np.linspace(0.1, 0.2, 9).tolist():
        with pytest.raises(KernelFault, match="time limit") as caught:
            run(source, np.zeros(2, np.int32), block=(1024,), options=LaunchOptions(check=True, time_limit_s=limit_s))
        lines.add(caught.value.where)
    assert lines == {marked(source)}


def test_the_line_is_that_of_the_last_loop_if_the_hazard_check_takes_too_long(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_: HazardChecker) -> None:
        raise TimeIsUp

    monkeypatch.setattr(HazardChecker, "end", end)
    source = """__global__ void f(float *x, unsigned n) {
    float sum = 0;
    for (unsigned k = 0; k <= threadIdx.x + n; ++k) // HERE
        sum += x[k % 32];
    x[threadIdx.x + 32] = sum;
}"""
    with pytest.raises(KernelFault, match="time limit") as caught:
        run(source, np.ones(64, np.float32), np.uint32(9), options=LaunchOptions(check=True, time_limit_s=60))
    assert caught.value.where is not None and abs(caught.value.where.line - marked(source).line) <= 1


RACE = "x[threadIdx.x] = x[threadIdx.x + 1]; __syncthreads();"
SEARCHES = {
    "within blocks": (Racecheck, "barrier", RACE),
    "between blocks": (InterBlockRaceDetector, "check", RACE),
    "between blocks with fences": (InterBlockRaceDetector, "check", f"{RACE} __threadfence();"),
    "shortened": (InterBlockRaceDetector, "_thin", f"{RACE} __threadfence();"),
}


@pytest.mark.parametrize(("detector", "search", "body"), SEARCHES.values(), ids=SEARCHES.keys())
def test_a_search_for_races_is_stopped_within_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, detector: Any, search: str, body: str
) -> None:
    now_s, ended, original = [0.0], [], getattr(detector, search)
    clock = SimpleNamespace(perf_counter=lambda: now_s[0], thread_time=lambda: now_s[0], time_ns=lambda: 0)
    monkeypatch.setattr("pytest_gpulab.devices.simulated.execution.launch_state.time", clock)
    monkeypatch.setattr(inter_block, "MAX_LANES", 64)

    def slow(self: Any, *args: Any) -> None:
        now_s[0] += 60
        original(self, *args)
        ended.append(search)

    monkeypatch.setattr(detector, search, slow)
    with pytest.raises(KernelFault, match="time limit"):
        run(f"__global__ void f(int *x) {{ {body} }}", np.zeros(65, np.int32), grid=(2,), block=(64,),
            options=LaunchOptions(check=True, time_limit_s=20.0))  # fmt: skip
    assert not ended


def test_one_long_basic_block_is_stopped_within_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between basic blocks such a kernel would never be asked for the time."""
    monkeypatch.setattr(THREAD_TIME, count().__next__)
    statements = "\n".join(f" s = s * {k}u + (s >> {k % 30 + 1});" for k in range(3, 1203))
    source = (
        f"__global__ void f(unsigned *x) {{\n unsigned s = x[threadIdx.x];\n{statements}\n x[threadIdx.x] = s;\n}}\n"
    )
    with pytest.raises(KernelFault, match="time limit"):
        run(source, np.zeros(32, np.uint32), options=LaunchOptions(time_limit_s=1e-6))


def test_a_machine_that_is_too_busy_is_not_the_kernels_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(THREAD_TIME, lambda: 1.0)
    source = (
        "__global__ void f(unsigned *x, unsigned n) { for (unsigned k = 0; k < n && x[3] != 2; ++k) x[k % 4] = 5; }"
    )
    args = (np.ones(4, np.uint32), np.uint32(4_000_000_000))
    with pytest.raises(DeviceUnavailable, match=r"too busy: the kernel got less than half of a core for 0\.4 s"):
        run(source, *args, options=LaunchOptions(time_limit_s=0.1))


def test_a_limit_of_work_also_ends_a_wave_that_does_not_end() -> None:
    device = SimulatedDevice()
    source = "__global__ void f(int *flag, int *polls) { while (atomicAdd(flag, 0) == 0) atomicAdd(polls, 1); }"
    arrays = device.array(np.zeros(1, np.int32)), device.array(np.zeros(1, np.int32))
    options = LaunchOptions(count=True, complete_within=500_000, time_limit_s=60.0)
    with pytest.raises(TooMuchWork, match="more than 500000 warp instructions"):
        device.compile(source).launch("f", (1,), (64,), arrays, options=options)


def test_a_limit_of_work_goes_on_through_launches_and_ends_them_at_the_same_place(run: Run) -> None:
    source = """__global__ void rounds(float *out, unsigned count) {
        float x = out[threadIdx.x];
        for (unsigned i = 0; i < count; i++)
            x = x * 0.5f + 1.0f / x;
        out[threadIdx.x] = x;
    }"""

    def left_of(work: WorkLimit, count: int) -> int:
        run(source, np.ones(32, np.float32), np.uint32(count), options=LaunchOptions(work_limit=work))
        return work.left

    work = WorkLimit(1000)
    assert 900 < left_of(work, 40) < 1000
    spent = 1000 - work.left
    assert left_of(work, 40) == 1000 - 2 * spent
    source = source.replace("x * 0.5f + 1.0f / x", "fma((double)x, 0.5, 1.0)")  # an operation that takes long
    assert left_of(work, 40) == 1000 - 6 * spent
    for _ in range(2):
        work = WorkLimit(1000)
        with pytest.raises(KernelFault) as caught:
            left_of(work, 4_000_000_000)
        assert caught.value.code == "time-limit" and -5 < work.left < 0

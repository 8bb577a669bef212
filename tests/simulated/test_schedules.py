"""A kernel that lacks a barrier gives itself away by depending on the schedule or on what memory held before."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run

from pytest_gpulab.devices.protocol import LaunchOptions

NEIGHBOUR = """
__global__ void f(const int *in, int *out, int by) {{
    __shared__ int tile[128];
    tile[threadIdx.x] = in[threadIdx.x];
    {barrier}
    out[threadIdx.x] = tile[(threadIdx.x + by) & 127];
}}
"""


def shifted(run: Run, schedule: str, by: int, barrier: str = "") -> bool:
    """Say whether a rotation within a block comes out right."""
    values, out = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    options = LaunchOptions(schedule=schedule, fill=0xFF)
    run(NEIGHBOUR.format(barrier=barrier), values, out, np.int32(by), block=(128,), options=options)
    return bool((out == np.roll(values, -by)).all())


@pytest.mark.parametrize("schedule", ["lockstep", "warps", "warps-reversed"])
@pytest.mark.parametrize("by", [1, 127, 32, 64])
def test_with_a_barrier_no_schedule_matters(run: Run, schedule: str, by: int) -> None:
    assert shifted(run, schedule, by, "__syncthreads();")


@pytest.mark.parametrize("by", [1, 127, 32, 64])
def test_missing_barrier_is_hidden_by_lockstep_and_shown_by_warps(run: Run, by: int) -> None:
    assert shifted(run, "lockstep", by)
    assert not shifted(run, "warps", by)
    assert not shifted(run, "warps-reversed", by)


def test_order_of_the_warps(run: Run) -> None:
    source = """
    __global__ void f(int *order, int *next) {
        if (threadIdx.x % 32 == 0) order[atomicAdd(next, 1)] = threadIdx.x / 32;
    }
    """
    orders = {}
    for schedule in ("warps", "warps-reversed"):
        order = np.zeros(4, np.int32)
        run(source, order, np.zeros(1, np.int32), block=(128,), options=LaunchOptions(schedule=schedule))
        orders[schedule] = order.tolist()
    assert orders == {"warps": [0, 1, 2, 3], "warps-reversed": [3, 2, 1, 0]}


@pytest.mark.parametrize("schedule", ["warps", "warps-reversed"])
def test_a_block_may_have_fewer_warps_left_than_another_one(run: Run, schedule: str) -> None:
    """The atomic makes the order of blocks matter: they take turns, warp by warp."""
    source = """
    __global__ void f(int *sum, int n) {
        __shared__ int ones[128];
        ones[threadIdx.x] = 1;
        if (blockIdx.x * blockDim.x + threadIdx.x >= n) return;
        __syncthreads();
        atomicAdd(sum, ones[threadIdx.x]);
    }
    """
    total = np.zeros(1, np.int32)
    run(source, total, np.int32(129), grid=(2,), block=(128,), options=LaunchOptions(schedule=schedule))
    assert total.tolist() == [129]


def test_tree_reduction_without_its_barrier(run: Run) -> None:
    source = """
    __global__ void f(const int *in, int *out) {{
        __shared__ int tile[256];
        int t = threadIdx.x;
        tile[t] = in[t];
        __syncthreads();
        for (int step = 128; step; step >>= 1) {{
            if (t < step) tile[t] += tile[t + step];
            {barrier}
        }}
        if (t == 0) out[0] = tile[0];
    }}"""
    values = np.arange(256, dtype=np.int32)
    sums = {}
    for barrier in ("__syncthreads();", ""):
        for schedule in ("lockstep", "warps", "warps-reversed"):
            out = np.zeros(1, np.int32)
            options = LaunchOptions(schedule=schedule)
            run(source.format(barrier=barrier), values, out, block=(256,), options=options)
            sums[barrier, schedule] = int(out[0]) == values.sum()
    assert sums["__syncthreads();", "lockstep"] and sums["__syncthreads();", "warps"]
    assert sums["__syncthreads();", "warps-reversed"] and sums["", "lockstep"]
    assert not (sums["", "warps"] and sums["", "warps-reversed"])


UNINITIALISED = {
    "static shared": "__shared__ volatile unsigned tile[64]; out[t] = tile[t];",
    "dynamic shared": "extern __shared__ unsigned some[]; out[t] = some[t];",
    "local": "volatile unsigned own[8]; own[t & 1] = 5; out[t] = own[4 + (t & 3)];",
    "register": 'unsigned r; asm volatile("{ .reg .b32 x; mov.b32 %0, x; }" : "=r"(r)); out[t] = r;',
}


@pytest.mark.parametrize("body", UNINITIALISED.values(), ids=UNINITIALISED.keys())
@pytest.mark.parametrize("fill", [0xFF, 0xA5, 0x00])
def test_unwritten_memory_holds_the_fill(run: Run, body: str, fill: int) -> None:
    out = np.full(64, 3, np.uint32)
    source = f"__global__ void f(unsigned *out) {{ unsigned t = threadIdx.x; {body} }}"
    run(source, out, block=(64,), shared_bytes=256, options=LaunchOptions(fill=fill))
    assert (out == fill * 0x01010101).all()


def test_shared_memory_does_not_survive_a_block(run: Run) -> None:
    source = """
    __global__ void f(unsigned *out) {
        __shared__ volatile unsigned tile[32];
        out[blockIdx.x * 32 + threadIdx.x] = tile[threadIdx.x];
        tile[threadIdx.x] = 1;
    }"""
    out = np.zeros(96, np.uint32)
    run(source, out, grid=(3,), options=LaunchOptions(fill=0xA5))
    assert (out == 0xA5A5A5A5).all()


@pytest.mark.parametrize(
    ("body", "is_free"),
    [
        ("tile[t] = in[t]; __syncthreads(); out[t] = tile[127 - t];", True),
        ("tile[t] = in[t]; out[t] = tile[127 - t];", False),
        ("out[t] = tile[t];", False),
        ("out[atomicAdd(&in[0], 1) & 127] = t;", False),
        ("out[t] = ((volatile int *)in)[t];", False),
        ("out[t] = (int)clock64();", False),
        ("if (t < 64) __syncthreads(); out[t] = in[t];", False),
        ("out[t] = in[t]; __threadfence();", False),
        ("out[t] = __activemask();", False),
        ("out[t] = __syncthreads_count(t & 1);", True),
        ('asm volatile("bar.sync 1;"); out[t] = in[t];', True),
        ('asm volatile("bar.sync 1, 128;"); out[t] = in[t];', False),
        ('if (t < 64) asm volatile("bar.arrive 1, 128;"); else asm volatile("bar.sync 1, 128;"); out[t] = t;', False),
    ],
)
def test_results_that_no_order_of_warps_changes(run: Run, body: str, is_free: bool) -> None:
    source = f"__global__ void f(int *in, int *out) {{ __shared__ int tile[128]; int t = threadIdx.x; {body} }}"
    arrays = np.zeros(128, np.int32), np.zeros(128, np.int32)
    assert run(source, *arrays, block=(128,), options=LaunchOptions(check=True)).order_free == is_free
    assert not run(source, *arrays, block=(128,)).order_free, "nobody looked"


@pytest.mark.parametrize(
    ("body", "is_free"),
    [
        ("tile[t] = in[t]; __syncthreads(); out[t] = tile[127 - t];", True),
        ("out[t] = in[t] + 1;", True),
        ("out[t] = tile[t];", False),
        ("int own[4]; own[t & 3] = t; out[t] = own[in[t] & 3];", False),
        ('int x; asm("add.s32 %0, %0, 1;" : "+r"(x)); out[t] = x;', False),
        ("tile[t] = in[t]; __syncthreads(); if (t < 32) ((int4 *)out)[t] = ((int4 *)tile)[31 - t];", True),
        ("if (t & 1) tile[t] = 1; __syncthreads(); if (t < 32) ((int4 *)out)[t] = ((int4 *)tile)[t];", False),
        ("int *own = (int *)malloc(4); out[t] = own[0]; free(own);", False),
        ("out[atomicAdd(&in[0], 1) & 127] = t;", False),
    ],
)
def test_garbage_free_launches_are_recognised(run: Run, body: str, is_free: bool) -> None:
    source = f"__global__ void f(int *in, int *out) {{ __shared__ int tile[128]; int t = threadIdx.x; {body} }}"
    arrays = np.zeros(128, np.int32), np.zeros(128, np.int32)
    assert run(source, *arrays, block=(128,), options=LaunchOptions(check=True)).garbage_free == is_free
    assert not run(source, *arrays, block=(128,)).garbage_free, "not checked"


def test_a_copied_struct_with_an_unset_member_is_not_free_of_garbage(run: Run) -> None:
    source = """
    struct Pair { char first; int second; };
    __global__ void f(Pair *out) {
        __shared__ Pair tile[32];
        tile[threadIdx.x].first = 1;
        tile[threadIdx.x].second = 2;
        __syncthreads();
        out[threadIdx.x] = tile[31 - threadIdx.x];
    }"""
    whole = source.replace("char first", "int first")
    options = LaunchOptions(check=True)
    assert run(whole, np.zeros(64, np.int32), options=options).garbage_free
    padded = run(source, np.zeros(64, np.int32), options=options)
    assert padded.order_free and not padded.garbage_free


LOOK_BACK = """
__global__ void f(unsigned *ticket, volatile unsigned *status, unsigned *out) {{
    __shared__ unsigned tile, before;
    if (threadIdx.x == 0) tile = atomicAdd(ticket, 1);
    __syncthreads();
    {more}
    if (threadIdx.x == 0) {{
        status[tile] = tile == 0 ? {all} : 1;   // how many tiles a word stands for, over 1000: all up to this one
        unsigned sum = 0;
        for (int seen = (int)tile - 1; seen >= 0; --seen) {{
            unsigned word;
            do word = status[seen]; while ({wait});
            sum += word % 1000;
            if (word >= 1000) break;
        }}
        before = sum;
        status[tile] = {all} + sum;
    }}
    __syncthreads();
    out[tile * blockDim.x + threadIdx.x] = before;
}}
"""


def looks_back(run: Run, schedule: str, wait: str = "word == 0", every: str = "1001", more: str = "") -> bool:
    """Say whether each block counts the blocks before it; 40 blocks of two warps."""
    out = np.zeros(40 * 64, np.uint32)
    source = LOOK_BACK.format(wait=wait, all=every, more=more)
    options = LaunchOptions(schedule=schedule)
    run(source, np.zeros(1, np.uint32), np.zeros(40, np.uint32), out, grid=(40,), block=(64,), options=options)
    return bool((out == np.repeat(np.arange(40), 64)).all())


ORDERS = ("warps", "warps-reversed")


@pytest.mark.parametrize("schedule", ["lockstep", *ORDERS])
@pytest.mark.parametrize("more", ["", "__syncthreads();", "__syncthreads(); __syncthreads();"])
def test_a_look_back_is_right_whichever_blocks_go_first(run: Run, schedule: str, more: str) -> None:
    assert looks_back(run, schedule, more=more)


@pytest.mark.parametrize("more", ["", "__syncthreads();", "__syncthreads(); __syncthreads();"])
def test_a_look_back_that_does_not_wait_is_right_in_lockstep_only(run: Run, more: str) -> None:
    assert looks_back(run, "lockstep", wait="false", more=more)
    assert not all(looks_back(run, schedule, wait="false", more=more) for schedule in ORDERS)


@pytest.mark.parametrize("more", ["", "__syncthreads();", "__syncthreads(); __syncthreads();"])
def test_a_look_back_that_takes_whole_prefixes_for_parts_is_wrong_in_some_order(run: Run, more: str) -> None:
    assert not all(looks_back(run, schedule, every="1", more=more) for schedule in ORDERS)

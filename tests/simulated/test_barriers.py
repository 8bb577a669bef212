"""Barriers that not all threads of a block reach are hazards, even where the launch comes to an end."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions, Schedule

HAZARDS = {
    "in a divergent branch": "if (t % 2)\n __syncthreads(); // HERE\n out[t] = t;",
    "for some warps only": "if (t < 32)\n __syncthreads(); // HERE\n out[t] = t;",
    "after an early exit": "if (t >= n) return;\n __syncthreads(); // HERE\n out[t] = t;",
    "after an early exit of one lane": "if (t == 17) return;\n __syncthreads(); // HERE\n out[t] = t;",
    "in a loop with the thread's trip count": "for (int k = 0; k < t; ++k)\n __syncthreads(); // HERE\n out[t] = t;",
    "in a loop that a break leaves": (
        "for (int k = 0; k < 8; ++k) {\n if (k == t) break;\n __syncthreads(); // HERE\n }\n out[t] = t;"
    ),
    "counting, in a branch": "if (t & 4)\n out[t] = __syncthreads_count(t); // HERE",
}


@pytest.mark.parametrize("body", HAZARDS.values(), ids=HAZARDS.keys())
def test_barrier_that_not_all_threads_reach(run: Run, body: str) -> None:
    source = f"__global__ void f(int *out, int n) {{\n int t = threadIdx.x;\n {body}\n}}\n"
    profile = run(source, np.zeros(64, np.int32), np.int32(50), grid=(2,), block=(64,))
    assert profile.hazards, "no hazard was reported"
    assert {hazard.kind for hazard in profile.hazards} == {"barrier"}
    (hazard,) = profile.hazards
    assert hazard.where == marked(source)
    assert hazard.lane is not None
    assert hazard.count >= 1
    assert "barrier" in hazard.what


def test_two_barriers_in_the_two_branches(run: Run) -> None:
    source = (
        "__global__ void f(int *out) {\n if (threadIdx.x < 16)\n  __syncthreads();\n"
        " else\n  __syncthreads();\n out[threadIdx.x] = 1;\n}\n"
    )
    profile = run(source, np.zeros(64, np.int32), block=(64,))
    assert {hazard.kind for hazard in profile.hazards} == {"barrier"}
    assert {hazard.where.line for hazard in profile.hazards if hazard.where} <= {3, 5}


CLEAN = {
    "uniform branch": "if (n > 3) __syncthreads();\n out[t] = 1;",
    "by block": "if (blockIdx.x == 1) __syncthreads();\n out[t] = 1;",
    "uniform loop": "for (int k = 0; k < n; ++k) __syncthreads();\n out[t] = 1;",
    "after divergence": "if (t & 1) out[t] = 2; else out[t] = 3;\n __syncthreads();\n out[t] = 1;",
    "after a divergent loop": "int r = 0; for (int k = 0; k < t; ++k) r += k * n;\n __syncthreads();\n out[t] = r | 1;",
    "in a function": "meet();\n out[t] = 1;",
    "exit after the last": "__syncthreads();\n out[t] = 1; if (t > 9) return;\n out[t] = 5;",
    "warp barrier of half a warp": "if (t % 32 < 16) __syncwarp(0xFFFF);\n out[t] = 1;",
    "named barrier of one warp": 'if (t < 32) asm volatile("bar.sync 1, 32;");\n out[t] = 1;',
}


@pytest.mark.parametrize("body", CLEAN.values(), ids=CLEAN.keys())
def test_proper_barrier_is_no_hazard(run: Run, body: str) -> None:
    source = (
        "__device__ __noinline__ void meet() { __syncthreads(); }\n"
        f"__global__ void f(int *out, int n) {{\n int t = threadIdx.x;\n {body}\n}}\n"
    )
    out = np.zeros(64, np.int32)
    profile = run(source, out, np.int32(5), grid=(2,), block=(64,))
    assert out.all()
    assert profile.hazards == ()


def test_hazard_counts_the_threads_that_waited_in_vain(run: Run) -> None:
    source = "__global__ void f() { if (threadIdx.x < 40) __syncthreads(); }"
    (hazard,) = run(source, grid=(3,), block=(64,)).hazards
    assert hazard.count in (3 * 40, 3 * 24)
    assert str(hazard).startswith("kernel.cu:1: ")


MASKS = {
    "a shuffle that leaves out its thread": (
        "out[t] = __shfl_down_sync(0x0000FFFF, t, 1); // HERE", "must name the thread that calls it", 32
    ),
    "a warp barrier that leaves out its thread": (
        "__syncwarp(t < 40 ? ~0u : 1u); // HERE\n out[t] = t;", "must name the thread that calls it", 24
    ),
    "a vote on whose mask the threads do not agree": (
        "out[t] = __any_sync(t % 2 ? ~0u : 0x55555555u, t); // HERE",
        "must be the same in all threads that it names",
        32,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "rule", "count"), MASKS.values(), ids=MASKS.keys())
def test_mask_of_a_sync_operation_that_is_wrong(run: Run, body: str, rule: str, count: int) -> None:
    source = f"__global__ void f(int *out) {{\n int t = threadIdx.x;\n {body}\n}}\n"
    hazards = run(source, np.zeros(64, np.int32), block=(64,), options=LaunchOptions(check=True)).hazards
    (hazard,) = [hazard for hazard in hazards if "invalid arguments" in hazard.what]
    assert hazard.what == f"invalid arguments: the mask of a _sync operation {rule}"
    assert (hazard.kind, hazard.where, hazard.count) == ("barrier", marked(source), count)


RIGHT_MASKS = {
    "all": "out[t] = __shfl_down_sync(~0u, t, 1);",
    "half a warp each": "unsigned m = t % 32 < 16 ? 0xFFFFu : 0xFFFF0000u; out[t] = 1 + __shfl_xor_sync(m, t, 1);",
    "those that are there": "unsigned m = __ballot_sync(~0u, t % 3); if (t % 3) t += __popc(__match_any_sync(m, t));"
    " out[threadIdx.x] = t + 1;",
    "lanes that have returned": "out[t] = 1; if (t % 32 > 20) return; out[t] = 1 + __any_sync(~0u, t == 3);",
    "returned lanes, and a warp that waits": "__shared__ volatile int flag; if (t == 0) flag = 0; __syncthreads();"
    " if (t / 32) { while (!flag) { } } else { out[t] = 1;"
    " if (t > 20) return; __threadfence_block(); __syncwarp(); if (t == 0) flag = 1; } out[t] = 1;",
    "who is active": "if (t % 5) { unsigned m = __activemask(); __syncwarp(m); } out[t] = 1;",
}


@pytest.mark.parametrize("body", RIGHT_MASKS.values(), ids=RIGHT_MASKS.keys())
def test_mask_of_a_sync_operation_that_is_right(run: Run, body: str) -> None:
    source = f"__global__ void f(int *out) {{\n int t = threadIdx.x;\n {body}\n}}\n"
    assert run(source, np.zeros(64, np.int32), block=(64,), options=LaunchOptions(check=True)).hazards == ()


def test_warp_operation_that_not_all_named_threads_reach(run: Run) -> None:
    body = "if (t < 20)\n  out[t] = __shfl_xor_sync(~0u, t, 1); // HERE\n else out[t] = 2;"
    source = f"__global__ void f(int *out) {{\n int t = threadIdx.x;\n {body}\n}}\n"
    (hazard,) = run(source, np.zeros(32, np.int32), block=(32,)).hazards
    assert hazard.what == "divergent threads in warp: not all threads that the mask names reach this _sync operation"
    assert (hazard.kind, hazard.where) == ("barrier", marked(source))


NAMED = {
    "a number for each warp": (
        'asm volatile("bar.sync %0;" :: "r"(t / 32 + 1)); // HERE',
        r"deadlock: 96 threads wait at kernel.cu:3 \(barriers 1, 2, 3\); no other thread arrives",
    ),
    "another number in one branch": (
        'if (t < 32) asm volatile("bar.sync 1;");\n else __syncthreads(); // HERE', "deadlock: 64 threads wait"
    ),
    "more threads than the block has": ('asm volatile("bar.sync 1, 128;"); // HERE', "deadlock: 96 threads wait"),
    "64 of 96 threads": ('asm volatile("bar.sync 1, 64;"); // HERE', "deadlock: 32 threads wait"),
    "too few that arrive": (
        'if (t < 32) asm volatile("bar.arrive 1, 96;");\n else if (t < 64) asm volatile("bar.sync 1, 96;"); // HERE',
        "deadlock: 32 threads wait",
    ),
    "a number beyond 15": ('asm volatile("bar.sync %0;" :: "r"(t / 32 + 14)); // HERE', "barriers 0 to 15"),
    "a count that is no multiple of 32": ('asm volatile("bar.sync 1, %0;" :: "r"(n + 43)); // HERE', "multiple of 32"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "what"), NAMED.values(), ids=NAMED.keys())
def test_named_barrier_that_its_threads_never_complete(run: Run, body: str, what: str) -> None:
    source = f"__global__ void f(int *out, int n) {{\n int t = threadIdx.x;\n {body}\n out[t] = 1;\n}}\n"
    with pytest.raises(KernelFault, match=what) as fault:
        run(source, np.zeros(96, np.int32), np.int32(5), grid=(2,), block=(96,))
    assert fault.value.code in ("deadlock", "barrier")
    assert fault.value.where == marked(source) and fault.value.lane is not None


MISMATCHES = {
    "numbers that differ within a warp": (
        'if (t < 32) asm volatile("bar.arrive %0, 32;" :: "r"(1 + t / 16)); // HERE',
        "invalid arguments: the threads of a warp pass different barrier numbers or thread counts",
        16,
    ),
    "more warps than are counted": (
        'asm volatile("bar.sync 1, 64;"); // HERE',
        "divergent threads in block: barrier 1 expects 64 threads, but more arrive",
        1,
    ),
    "counts that differ": (
        'asm volatile("bar.sync 2, %0;" :: "r"(t < 64 ? 64 : 128)); // HERE',
        "invalid arguments: threads arrive at barrier 2 with different thread counts",
        1,
    ),
    "counts that differ from those of an arrival": (
        'if (t < 32) asm volatile("bar.arrive 1, 64;");\n else asm volatile("bar.sync 1, 128;"); // HERE',
        "invalid arguments: threads arrive at barrier 1 with different thread counts",
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "what", "count"), MISMATCHES.values(), ids=MISMATCHES.keys())
def test_named_barrier_with_mismatched_operands(run: Run, body: str, what: str, count: int) -> None:
    source = f"__global__ void f(int *out) {{\n int t = threadIdx.x;\n {body}\n out[t] = 1;\n}}\n"
    (hazard,) = run(source, np.zeros(128, np.int32), block=(128,)).hazards
    assert (hazard.kind, hazard.what, hazard.where, hazard.count) == ("barrier", what, marked(source), count)


PROPER = {
    "a barrier for each pair of warps": 'asm volatile("bar.sync %0, 64;" :: "r"(1 + t / 64));',
    "a barrier for each warp": 'asm volatile("bar.sync %0, 32;" :: "r"(1 + t / 32));',
    "one number, one warp at a time": 'asm volatile("bar.sync 3, 32;");',
    "a number for each block": 'asm volatile("bar.sync %0;" :: "r"(blockIdx.x + 1));',
    "half a warp each": 'asm volatile("barrier.sync %0, 32;" :: "r"(1 + (t & 1)));',
    "all threads, counted": 'asm volatile("bar.sync 7, 128;");',
    "numbers that change in a loop": 'for (int k = 0; k < 4; ++k) asm volatile("bar.sync %0;" :: "r"(k));',
}


@pytest.mark.parametrize("schedule", ["lockstep", "warps", "warps-reversed"])
@pytest.mark.parametrize("body", PROPER.values(), ids=PROPER.keys())
def test_proper_named_barrier_is_no_hazard(run: Run, body: str, schedule: Schedule) -> None:
    source = f"__global__ void f(int *out) {{\n int t = threadIdx.x;\n {body}\n out[t] = 1;\n}}\n"
    out = np.zeros(128, np.int32)
    assert run(source, out, grid=(2,), block=(128,), options=LaunchOptions(schedule)).hazards == ()
    assert out.all()


def test_the_last_warp_counts_as_a_whole_one(run: Run) -> None:
    source = '__global__ void f(int *out) { asm volatile("bar.sync 1, 64;"); out[threadIdx.x] = 1; }'
    out = np.zeros(48, np.int32)
    assert run(source, out, block=(48,)).hazards == ()
    assert out.all()


ABSENT = "invalid arguments: a shuffle from a lane that is inactive or has exited; its value is undefined"
SHUFFLES = {
    "from lanes that its mask leaves out": ("if (t < 8)\n v = __shfl_sync(0xff, v, t + 8); // HERE\n out[t] = v;", 8),
    "of one value": ("v = n; if (t < 8)\n v = __shfl_sync(0xff, v, t + 8); // HERE\n out[t] = v;", 8),
    "a tree with a round too many": (
        "if (t < 8) {\n for (int d = 8; d; d /= 2) v += __shfl_down_sync(0xff, v, d); // HERE\n"
        " if (t == 0) out[0] = v; }", 8
    ),
    "from lanes that the block does not have": (
        "for (int d = 16; d; d /= 2)\n v = max(v, __shfl_down_sync(~0u, v, d)); // HERE\n if (t == 32) out[0] = v;", 16
    ),
}  # fmt: skip
SHUFFLER = "__global__ void f(int *out, int n) {{\n int t = threadIdx.x, v = t - 500;\n {body}\n}}\n"


@pytest.mark.parametrize(("body", "count"), SHUFFLES.values(), ids=SHUFFLES.keys())
def test_shuffle_from_a_lane_that_is_not_there(run: Run, body: str, count: int) -> None:
    source = SHUFFLER.format(body=body)
    (hazard,) = run(source, np.zeros(64, np.int32), np.int32(7), block=(48,), options=LaunchOptions(check=True)).hazards
    assert (hazard.kind, hazard.what, hazard.where, hazard.count) == ("barrier", ABSENT, marked(source), count)


UNNAMED = "invalid arguments: a shuffle from a lane that its mask does not name; its value is undefined"


def test_shuffle_from_a_lane_that_its_mask_does_not_name(run: Run) -> None:
    """Each lane names itself alone. A tree of 16 lanes that name each other reads more, but uses none of it."""
    source = SHUFFLER.format(body="v = __shfl_up_sync(1u << t % 32, v, 1); // HERE\n out[t] = v;")
    out, checked = np.zeros(64, np.int32), LaunchOptions(check=True)
    (hazard,) = run(source, out, np.int32(7), block=(64,), options=checked).hazards
    assert (hazard.kind, hazard.what, hazard.where, hazard.count) == ("barrier", UNNAMED, marked(source), 62)
    assert out[1] == -500
    tree = "unsigned m = 0xffffu << (t & 16); for (int d = 8; d; d /= 2) v += __shfl_down_sync(m, v, d);"
    source = SHUFFLER.format(body=f"{tree}\n if (t % 16 == 0) out[t] = v;")
    assert run(source, out, np.int32(7), block=(64,), options=checked).hazards == ()
    assert out[::16].tolist() == [sum(range(t - 500, t - 484)) for t in (0, 16, 32, 48)]


def test_shuffle_from_a_lane_that_is_not_there_gives_zero(run: Run) -> None:
    out = np.zeros(32, np.int32)
    run(SHUFFLER.format(body="if (t < 8) v = __shfl_sync(0xff, v, t + 4); out[t] = v;"), out, np.int32(7))
    assert out.tolist() == [*range(-496, -492), 0, 0, 0, 0, *range(-492, -468)]


DROPPED = {
    "the upper lanes of a tree": (
        "if (t < 8) { for (int d = 4; d; d /= 2) v += __shfl_down_sync(0xff, v, d); if (t == 0) out[0] = v; }"
    ),
    "a check after the shuffle": (
        "if (t < 5) { for (int d = 4; d; d /= 2) { int w = __shfl_down_sync(0x1f, v, d); if (t + d < 5) v += w; }"
        " out[t] = v; }"
    ),
    "out of the range of the width": "if (t < 8) out[t] = __shfl_down_sync(0xff, v, 4, 8);",
    "the lanes of a ballot": (
        "unsigned m = __ballot_sync(~0u, t % 3 == 0); if (t % 3 == 0) out[t] = __shfl_sync(m, v, __ffs(m) - 1);"
    ),
    "the active lanes": "if (t & 1) { unsigned m = __activemask(); out[t] = __shfl_sync(m, v, 31 - __clz(m)); }",
}


@pytest.mark.parametrize("body", DROPPED.values(), ids=DROPPED.keys())
def test_shuffle_with_unused_undefined_values_is_no_hazard(run: Run, body: str) -> None:
    out = np.full(64, 9, np.int32)
    profile = run(SHUFFLER.format(body=body), out, np.int32(7), block=(64,), options=LaunchOptions(check=True))
    assert profile.hazards == ()
    assert (out != 9).any(), "the runs with other values are undone"


def test_hazards_before_a_fault_count(run: Run) -> None:
    body = (
        "tile[t] = t; out[t] = tile[t ^ 1]; // RACE\n if (t >= 40) return;\n __syncthreads(); // EARLY\n"
        " if (t == 39) out[1 << 20] = 0; // FAULT"
    )
    source = f"__global__ void f(int *out) {{\n __shared__ int tile[64]; int t = threadIdx.x;\n {body}\n}}\n"
    with pytest.raises(KernelFault, match="__global__ write") as fault:
        run(source, np.zeros(64, np.int32), block=(64,), options=LaunchOptions(check=True))
    assert fault.value.where == marked(source, "// FAULT")
    assert {(hazard.kind, hazard.where) for hazard in fault.value.hazards} == {
        ("race", marked(source, "// RACE")),
        ("barrier", marked(source, "// EARLY")),
    }


def test_a_barrier_that_threads_wait_at_when_others_have_returned_counts_although_a_fault_ends_the_wait(
    run: Run,
) -> None:
    body = "if (t < 32) {\n __syncthreads(); // EARLY\n } else if (t < 64) return; else out[1 << 20] = 0; // FAULT"
    source = f"__global__ void f(int *out) {{\n int t = threadIdx.x;\n {body}\n}}\n"
    with pytest.raises(KernelFault) as fault:
        run(source, np.zeros(96, np.int32), block=(96,), options=LaunchOptions("warps"))
    assert fault.value.where == marked(source, "// FAULT")
    assert [hazard.where for hazard in fault.value.hazards] == [marked(source, "// EARLY")]
    assert "32 threads of the block had already ended" in fault.value.hazards[0].what


def test_a_fault_alone_brings_no_hazard(run: Run) -> None:
    source = "__global__ void f(int *out) { __syncthreads(); if (threadIdx.x == 3) out[1 << 20] = 0; __syncthreads(); }"
    with pytest.raises(KernelFault) as fault:
        run(source, np.zeros(64, np.int32), block=(64,), options=LaunchOptions(check=True))
    assert fault.value.hazards == ()

"""Barriers that not all threads of a block reach are hazards, even where the launch comes to an end."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import LaunchOptions

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

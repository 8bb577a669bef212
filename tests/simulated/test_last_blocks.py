"""Races of a block that uses the results of others: it knows by a counter or a flag, with fences and without."""

from __future__ import annotations

import pytest
from places import Run, marked
from test_racecheck import check, races

LAST_BLOCK = """
__device__ unsigned count;
__global__ void f(int *out) {{
    __shared__ bool last;
    unsigned t = threadIdx.x;
    {write}
    if (t == 0) {{
        {fence}
        last = atomicAdd(&count, 1) == gridDim.x - 1;
    }}
    __syncthreads();
    if (last && t < gridDim.x) out[128 + t] = out[t]; // HERE
}}
"""
ONE = "if (t == 0) out[blockIdx.x] = blockIdx.x;"
ALL_OF_A_BLOCK = "if (t == 9) out[blockIdx.x] = blockIdx.x; __syncthreads();"


@pytest.mark.parametrize(
    ("write", "fence", "clean"),
    [
        (ONE, "__threadfence();", True),
        (ALL_OF_A_BLOCK, "__threadfence();", True),
        (ONE + " __threadfence(); __syncthreads();", "", True),
        (ONE, "", False),
        (ONE, "__threadfence_block();", False),
        ("if (t == 9) out[blockIdx.x] = blockIdx.x;", "__threadfence();", False),
    ],
)
def test_the_last_block_needs_a_fence_between_results_and_counter(
    run: Run, write: str, fence: str, clean: bool
) -> None:
    source = LAST_BLOCK.format(write=write, fence=fence)
    found = races(check(run, source, grid=40))
    assert (not found) == clean
    assert clean or {hazard.where for hazard in found} == {marked(source)}


FLAG = """
__global__ void f(int *out) {{
    volatile int *flag = out + 128;
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {{ out[0] = 7; {fence} flag[0] = 1; }}
    else {{ while (!flag[0]); __threadfence(); out[blockIdx.x] = out[0]; }} // HERE
}}
"""


@pytest.mark.parametrize(("fence", "clean"), [("__threadfence();", True), ("", False)])
def test_a_flag_needs_a_fence_before_it(run: Run, fence: str, clean: bool) -> None:
    source = FLAG.format(fence=fence)
    assert {hazard.where for hazard in races(check(run, source))} == (set() if clean else {marked(source)})


def test_release_and_acquire_need_no_fence(run: Run) -> None:
    source = """
    __global__ void f(int *out) {
        int *flag = out + 128, seen = 0;
        if (threadIdx.x) return;
        if (blockIdx.x == 0) {
            out[0] = 7;
            asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(flag) : "memory");
        } else {
            while (!seen) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
            out[blockIdx.x] = out[0];
        }
    }"""
    assert check(run, source).hazards == ()


RESET = """
__device__ unsigned done;
__global__ void f(int *out) {{
    __shared__ bool last;
    int t = threadIdx.x;
    {before}
    if (t == 0) last = atomicInc(&done, {limit}) == gridDim.x - 1;
    __syncthreads();
    if ({who}) done = 0; // HERE
}}
"""


@pytest.mark.parametrize(
    ("before", "who", "clean"),
    [
        ("if (t == 0) out[blockIdx.x] = t; __threadfence();", "last && t == 0", True),
        ("", "last && t == 0", True),
        ("", "last && t == 9", True),
        ("", "blockIdx.x == 3 && t == 9", False),
        ("", "blockIdx.x == 0 && t == 9", False),
        ("if (blockIdx.x == 3 && t == 9) done = 0; __syncthreads();", "last && t == 0", False),
    ],
    ids=["fenced", "alone", "another thread of its", "one that has not looked", "the first block", "before it counts"],
)
def test_the_last_block_may_reset_the_counter_of_finished_blocks(run: Run, before: str, who: str, clean: bool) -> None:
    """Its own atomic has read what those of the others have written: they are over (causality order, PTX ISA 8.9)."""
    found = races(check(run, RESET.format(before=before, limit=1000, who=who), grid=4))
    assert (not found) == clean

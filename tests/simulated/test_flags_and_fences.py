"""Races between threads that tell each other by a flag in shared memory, with fences and without."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked
from test_racecheck import KERNEL, check, races

from pytest_gpulab.devices.protocol import Hazard, Lane, LaunchOptions, Schedule
from pytest_gpulab.devices.simulated import SimulatedDevice

SHARED_FLAG = """
__global__ void f(int *out) {{
    __shared__ int data; __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {{ data = 7; {fence} flag = 1; }} // WRITE
    if (threadIdx.x == {reader}) {{ while (flag == 0); {fence} out[blockIdx.x] = data; }}
}}
"""


@pytest.mark.parametrize(
    ("fence", "reader", "clean"),
    [("__threadfence_block();", 32, True), ("__threadfence();", 63, True), ("", 32, False)],
)
def test_a_volatile_flag_in_shared_memory_needs_fences(run: Run, fence: str, reader: int, clean: bool) -> None:
    source = SHARED_FLAG.format(fence=fence, reader=reader)
    assert (not races(check(run, source))) == clean


def test_fences_do_not_replace_the_barriers_of_a_volatile_tree(run: Run) -> None:
    body = (
        "volatile int *v = tile; v[t] = t; __threadfence_block();\n"
        " for (int d = 32; d; d /= 2) { if (t < d) v[t] += v[t + d]; // HERE\n __threadfence_block(); } out[i] = v[0];"
    )
    source = KERNEL.format(body=body)
    assert marked(source) in {hazard.where for hazard in races(check(run, source))}


PUBLISH = """
#define PUT(type, p, v) asm volatile("st." type ".u32 [%0], %1;" :: "l"(p), "r"(v) : "memory")
#define GET(type, x, p) asm volatile("ld." type ".u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory")
__global__ void f(int *out) {{
    int *value = out, *flag = out + 64, t = threadIdx.x, b = blockIdx.x, x = 0, y = 0;
    volatile int *v = value, *go = flag;
    if (b == 0) {{ {write} }}
    if (b > 0 && t == 0) {{ {read}
    }}
}}
"""
WAIT = "while (!go[0]); __threadfence();\n out[b + 128] = v[0]; // HERE"
UNFENCED = {
    "a volatile value and flag": ("if (t == 0) { v[0] = 7; go[0] = 1; }", WAIT),
    "no fence on either side": (
        "if (t == 0) { v[0] = 7; go[0] = 1; }", "while (!go[0]);\n out[b + 128] = v[0]; // HERE"
    ),
    "a relaxed value and flag": (
        'if (t == 0) { PUT("relaxed.gpu", value, 7); PUT("relaxed.gpu", flag, 1); }',
        'do GET("relaxed.gpu", x, flag); while (!x); __threadfence();\n GET("relaxed.gpu", y, value); // HERE\n'
        " out[b + 128] = y;",
    ),
    "an atomic flag": (
        "if (t == 0) { v[0] = 7; atomicExch(flag, 1); }",
        "while (!atomicAdd(flag, 0)); __threadfence();\n out[b + 128] = v[0]; // HERE",
    ),
    "the fence before both": ("if (t == 0) { __threadfence(); v[0] = 7; go[0] = 1; }", WAIT),
    "the fence behind both": ("if (t == 0) { v[0] = 7; go[0] = 1; __threadfence(); }", WAIT),
    "a fence for the block only": ("if (t == 0) { v[0] = 7; __threadfence_block(); go[0] = 1; }", WAIT),
    "a barrier instead of a fence": ("if (t == 9) v[0] = 7; __syncthreads(); if (t == 0) go[0] = 1;", WAIT),
    "a fence of another thread": ("if (t == 0) v[0] = 7; if (t == 9) __threadfence(); if (t == 0) go[0] = 1;", WAIT),
    "an atomic value": ("if (t == 0) { atomicAdd(value, 7); atomicAdd(flag, 1); }", WAIT),
    "a plain value": ("if (t == 0) { value[0] = 7; go[0] = 1; }", "while (!go[0]);\n out[b + 128] = value[0]; // HERE"),
}  # fmt: skip


def published(run: Run, write: str, read: str, schedule: Schedule = "lockstep") -> tuple[str, list[Hazard]]:
    source = PUBLISH.format(write=write, read=read)
    return source, races(check(run, source, schedule, grid=4))


@pytest.mark.parametrize("schedule", ["lockstep", "warps"])
@pytest.mark.parametrize(("write", "read"), UNFENCED.values(), ids=UNFENCED.keys())
def test_a_flag_that_no_fence_separates_from_its_value_is_a_race(
    run: Run, write: str, read: str, schedule: Schedule
) -> None:
    source, found = published(run, write, read, schedule)
    assert {hazard.where for hazard in found} == {marked(source)}
    assert all(hazard.other is not None and hazard.other.lane.block == (0, 0, 0) for hazard in found)


def test_a_missing_fence_is_named(run: Run) -> None:
    _, (hazard,) = published(run, *UNFENCED["a volatile value and flag"])
    assert hazard.what.endswith("by different blocks, no fence between the value and the flag that announces it")
    assert (hazard.lane, hazard.count) == (Lane((1, 0, 0), (0, 0, 0)), 3)


FENCED = {
    "a volatile value and flag": ("if (t == 0) { v[0] = 7; __threadfence(); go[0] = 1; }", WAIT),
    "a plain value": (
        "if (t == 0) { value[0] = 7; __threadfence(); go[0] = 1; }",
        "while (!go[0]); __threadfence(); out[b + 128] = value[0];",
    ),
    "a fence behind a barrier": (
        "if (t == 9) v[0] = 7; __syncthreads(); if (t == 0) { __threadfence(); go[0] = 1; }", WAIT
    ),
    "a fence of the writer, then a barrier": (
        "if (t == 9) { v[0] = 7; __threadfence(); } __syncthreads(); if (t == 0) go[0] = 1;", WAIT
    ),
    "release and acquire": (
        'if (t == 0) { v[0] = 7; PUT("release.gpu", flag, 1); }',
        'do GET("acquire.gpu", x, flag); while (!x); out[b + 128] = v[0];',
    ),
    "value and flag in one word": (
        "if (t == 0) *(volatile long long *)out = 7ll << 32 | 1;",
        "long long w; do w = *(volatile long long *)out; while (!(int)w); out[b + 128] = w >> 32;",
    ),
    "two flags, both waited for": (
        "if (t == 0) { v[0] = 7; go[0] = 1; }", "while (!go[0]); while (v[0] != 7); out[b + 128] = 1;"
    ),
    "counters that nobody reads": (
        "if (t == 0) { atomicAdd(value, 7); atomicAdd(flag, 1); }", "if (atomicAdd(flag, 1) > 9) out[b + 128] = 1;"
    ),
    "an atomic flag": (
        "if (t == 0) { value[0] = 7; __threadfence(); atomicExch(flag, 1); }",
        "while (!atomicAdd(flag, 0)); out[b + 128] = value[0];",
    ),
}  # fmt: skip


@pytest.mark.parametrize("schedule", ["lockstep", "warps", "warps-reversed"])
@pytest.mark.parametrize(("write", "read"), FENCED.values(), ids=FENCED.keys())
def test_a_flag_behind_a_fence_announces_its_value(run: Run, write: str, read: str, schedule: Schedule) -> None:
    assert published(run, write, read, schedule)[1] == []


def test_an_atomic_reference_that_releases_announces_its_value(device: SimulatedDevice) -> None:
    right = """
    __global__ void right(int *out) {
        cuda::atomic_ref<int, cuda::thread_scope_device> flag(out[64]);
        if (threadIdx.x) return;
        if (blockIdx.x == 0) { out[0] = 7; flag.store(1, cuda::memory_order_release); } // FLAG OF right
        else { while (!flag.load(cuda::memory_order_acquire)); out[blockIdx.x] = out[0]; } // HERE OF right
    }"""
    relaxed = right.replace("right", "relaxed").replace("_release", "_relaxed").replace("_acquire", "_relaxed")
    within_block = right.replace("right", "within_block").replace("scope_device", "scope_block")
    source = f"#include <cuda/atomic>{right}{relaxed}{within_block}\n"
    module = device.compile(source)  # its header takes the compiler a second
    places = {}
    for name in ("right", "relaxed", "within_block"):
        out = device.array(np.zeros(256, np.int32))
        profile = module.launch(name, (2,), (64,), [out], options=LaunchOptions(check=True))
        places[name] = {hazard.where for hazard in races(profile)}
    wrong = {name: {marked(source, f"// HERE OF {name}")} for name in ("relaxed", "within_block")}
    wrong["within_block"].add(marked(source, "// FLAG OF within_block"))  # it is atomic within each block only
    assert places == {"right": set()} | wrong


@pytest.mark.parametrize(("scope", "clean"), [("cta", False), ("gpu", True), ("sys", True)])
@pytest.mark.parametrize("put", ["st.release.{}", "atom.exch.acq_rel.{}", "red.add.release.{}"])
def test_a_release_reaches_the_threads_of_its_scope(run: Run, put: str, scope: str, clean: bool) -> None:
    name = put.format(scope)
    words = f"{name}.b32 old, [%0], 1" if "exch" in put else f"{name}.u32 [%0], 1"
    source = f"""
    __device__ void wait(int *flag) {{ while (atomicAdd(flag, 0) == 0); }} // FLAG
    __global__ void f(int *out) {{
        int *flag = out + 64 + READERS * 32, t = threadIdx.x, b = blockIdx.x;
        if (b == 0 && t == 0) {{
            out[0] = 7;
            asm volatile("{{ .reg .b32 old; {words}; }}" :: "l"(flag) : "memory");
        }}
        if (b == READERS && t == 33) {{ wait(flag); out[b + 128] = out[0]; }} // HERE
    }}"""
    between_blocks, in_block = source.replace("READERS", "1"), source.replace("READERS", "0")
    # A flag that is atomic within each block only races, too.
    wrong = {marked(between_blocks), marked(between_blocks, "// FLAG")}
    assert {hazard.where for hazard in races(check(run, between_blocks))} == (set() if clean else wrong)
    assert not races(check(run, in_block))

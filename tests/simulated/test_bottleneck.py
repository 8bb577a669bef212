"""The sentence on the bottleneck of a launch, with its source line; one kernel per kind."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.cost.bottleneck import KINDS
from pytest_gpulab.grading.speed.verdict import QUESTIONS, question

pytestmark = pytest.mark.unmeasured

# Kernels that a smaller number of accesses would help, not another pattern.
TOO_MANY = {
    "shared memory: accesses without bank conflicts take SHARE at HERE": """
        __shared__ float4 s[512]; s[t] = make_float4(t, 1, 2, 3); __syncthreads(); float a = 0;
        for (int k = 0; k < 256; k++) { float4 v = s[t + k]; a += v.x + v.y; } // HERE
        out[i] = a;""",
    "global memory: the number of accesses takes SHARE": """
        float a = 0;
        for (int k = 0; k < 256; k++) a += in[k];
        out[i] = a;""",
    "global memory: the number of stores to the same words, one after the other, takes SHARE": """
        if (t & 1) out[blockIdx.x & 7] = 1;""",
    "constant memory: its loads take SHARE": """
        float a = 0;
        for (int k = 0; k < 64; k++) a += table[(k + t / 32) & 63];
        out[i] = a;""",
}

# Kernels of 2^15 blocks of 256 threads (the last two of 32), with what is said of each; HERE is the line that it names.
KERNELS = {
    "shared memory: 16-way bank conflicts at HERE; shared accesses take SHARE": """
        __shared__ float s[1024]; s[t] = t; __syncthreads(); float a = 0;
        for (int k = 0; k < 256; k++) a += s[(t * 16 + k) & 1023]; // HERE
        out[i] = a;""",
    "global memory: 32 sectors per request instead of 4 at HERE; memory bandwidth takes SHARE": """
        out[i] = in[i * 32u & (1u << 25) - 1]; // HERE""",
    "memory bandwidth: no sector is wasted; transfers at the memory's peak rate take SHARE": """
        float a = 0;
        for (int k = 0; k < 8; k++) a += in[(i + k * (1u << 22)) & (1u << 25) - 1];
        out[i] = a;""",
    "constant memory: 32 different addresses per warp at HERE, one after the other, take SHARE": """
        float a = 0;
        for (int k = 0; k < 64; k++) a += table[(k + t) & 63]; // HERE
        out[i] = a;""",
    "idle lanes: [3-6] of 32 lanes active on average, most idle lanes at HERE; instructions take SHARE": """
        float x = t;
        for (unsigned k = 0; k < 8; k++)
            if (k == t % 8)
                for (int j = 0; j < 64; j++) { x = x * 0.9f + k; x = x * x - 0.1f; } // HERE
        out[i] = x;""",
    "instructions: issuing them takes SHARE, most at HERE": """
        float x = t, y = t + 1, z = t + 2, w = t + 3;
        for (int k = 0; k < 64; k++) { x = x * 0.9f + y; y = y * 0.8f + z; z = z * 0.7f + w; w = w * 0.6f + x; } // HERE
        out[i] = x + y + z + w;""",
    "arithmetic: integer sums, comparisons, shifts and logic take SHARE, most at HERE": """
        unsigned x = i;
        for (int k = 0; k < 64; k++) x = x >> 5 ^ max(x, t) >> 3; // HERE
        out[i] = x;""",
    "special functions: sines, roots, exponentials, divisions take SHARE, most at HERE": """
        float x = t;
        for (int k = 0; k < 256; k++) x = __sinf(x) + 1; // HERE
        out[i] = x;""",
    "arithmetic: double precision takes SHARE, most at HERE": """
        double x = t, y = t + 1;
        for (int k = 0; k < 256; k++) { x = x * 0.9 + 1; y = y * 0.9 + 1; } // HERE
        out[i] = x + y;""",
    "barriers: executing them takes SHARE, most at HERE": """
        for (int k = 0; k < 256; k++) __syncthreads(); // HERE
        out[i] = t;""",
    "atomics: updates of the same words, one after the other at HERE, take SHARE": """
        atomicAdd(out + (t & 3), 1.f); // HERE
        if (i == 0) out[8] = 1;""",
    "latency: an occupancy of 6 % is too low to hide waiting, which takes SHARE": """
        __shared__ float s[12000]; float a = in[i];
        for (int k = 0; k < 64; k++) { s[t] = a; __syncwarp(); a = s[(t + 1) & 31]; __syncwarp(); }
        out[i] = a;""",
    "many blocks: starting them takes SHARE": """
        if (t == 0) out[blockIdx.x] = i;""",
    "calls: returns, calls through pointers and jumps of `switch` take SHARE": """
        float x = t; float (*call)(float) = t & 1 ? twice : half;
        for (int k = 0; k < 64; k++) x = call(x);
        out[i] = x;""",
    "fences: warps wait until their writes are visible to other blocks, which takes SHARE": """
        for (int k = 0; k < 16; k++) { out[i] = k; __threadfence(); }""",
    "local memory: accesses to threads' own arrays take SHARE": """
        float own[16]; for (int k = 0; k < 16; k++) own[k] = t; float a = 0;
        for (int k = 0; k < 64; k++) { a += own[t & 15]; t = t * 5 + 1; }
        out[i] = a;""",
    "local memory: threads' own arrays do not fit into L1; memory bandwidth takes SHARE": """
        unsigned own[1024], sum = 0; for (int k = 0; k < 1024; k++) own[k] = k * i;
        for (int k = 0; k < 2048; k++) sum += own[(t / 32 + 17 * k) & 1023];
        out[i] = sum;""",
    **TOO_MANY,
}


def limit(body: str, grid: int = 1 << 15, block: int = 256) -> str:
    called = "__device__ float half(float x) { return x / 2; } __device__ float twice(float x) { return x * 2; }"
    head = f"__constant__ float table[64]; {called} __global__ void kernel(const float *in, float *out) {{"
    threads = " unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"
    device = SimulatedDevice()
    module = device.compile(f"{head}{threads}{body}\n}}", "kernel.cu")
    arrays = [device.empty(1 << 25, np.float32) for _ in range(2)]  # no page of it is touched without need
    return module.launch("kernel", (grid,), (block,), arrays, options=LaunchOptions(sample_blocks=8)).bottleneck


@pytest.mark.parametrize("expected", KERNELS, ids=[expected.partition(":")[0] for expected in KERNELS])
def test_the_bottleneck_is_named(expected: str) -> None:
    body = KERNELS[expected]
    line = next((number for number, text in enumerate(body.splitlines(), 1) if "HERE" in text), 0)
    pattern = expected.replace("HERE", rf"kernel\.cu:{line}").replace("SHARE", r"\d+ % of the time")
    found = limit(body, block=32 if expected.startswith(("latency", "many blocks")) else 256)
    assert re.fullmatch(pattern, found), found


def test_a_grid_that_is_too_small_is_reported() -> None:
    slow = "float a = t; for (int k = 0; k < 4096; k++) a = a * 0.5f + 1; out[i] = a;"
    assert limit(slow, 2, 32).startswith("few blocks: 2 % of the multiprocessors have a block; waiting takes")


def test_every_kind_has_a_question_that_leaves_the_answer_open() -> None:
    assert set(QUESTIONS) == set(KINDS)
    assert all(text.endswith("?") for text in QUESTIONS.values())
    assert question("barriers: executing them takes 50 % of the time") == QUESTIONS["barriers"]
    assert question("issue slots") == ""


@pytest.mark.parametrize("sentence", KERNELS)
def test_a_question_after_the_pattern_of_accesses_comes_only_where_the_pattern_limits(sentence: str) -> None:
    asks_for_fewer = question(sentence).startswith("How many accesses")
    assert asks_for_fewer == (sentence in TOO_MANY) and question(sentence).endswith("?")

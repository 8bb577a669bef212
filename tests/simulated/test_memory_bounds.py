"""The memory that a checked launch needs is bounded, however many accesses its threads make."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from places import Run

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.hazards.races import racecheck

MIB = 1 << 20
BOUND = 16 * MIB
# Kernels with their number of blocks. A word per access, or per block and element, takes more memory than the bound.
KERNELS = {
    "every thread reads all elements before its own": (
        "float s = 0; for (int k = 0; k <= i; k++) s += in[k]; out[i] = s;", 16
    ),
    "strides by the number of blocks": (
        "float s = 0; for (int k = t * gridDim.x + blockIdx.x; k < n; k += blockDim.x * gridDim.x) s += in[k];"
        " out[i] = s;", 256
    ),
    "all of shared memory for each thread": (
        "__shared__ float tile[4096]; for (int k = t; k < 4096; k += 256) tile[k] = in[k % n]; __syncthreads();"
        " float s = 0; for (int k = 0; k < 2048; k++) s += tile[(k * t) & 4095]; out[i] = s;", 8
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_a_checked_launch_needs_little_memory(run: Run, name: str) -> None:
    body, blocks = KERNELS[name]
    n = blocks * 256
    source = f"""__global__ void f(const float *in, float *out, int n) {{
        int t = threadIdx.x, i = blockIdx.x * 256 + t;
        {body}
    }}"""
    values, out = np.ones(n, np.float32), np.zeros(n, np.float32)
    tracemalloc.start()
    try:
        profile = run(source, values, out, np.int32(n), grid=(blocks,), block=(256,), options=LaunchOptions(check=True))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not profile.hazards and (out > 0).all()
    assert peak < BOUND, f"{peak / MIB:.0f} MiB"


def test_a_search_for_races_in_more_words_than_are_kept_needs_few_bytes_per_word(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All real limits are 16 times these: 1 GiB."""
    monkeypatch.setattr(racecheck, "MAX_LANES", 1 << 17)
    monkeypatch.setattr(racecheck, "MAX_KEPT", 1 << 18)
    source = "__global__ void f(int *x, int n) { for (int i = threadIdx.x; i < n; i += 1024) x[i] = i; }"
    out = np.zeros(550_000, np.int32)
    tracemalloc.start()
    try:
        profile = run(source, out, np.int32(out.size), block=(1024,), options=LaunchOptions(check=True))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert profile.unchecked == ("accesses of a block between two barriers",)
    assert peak < 64 * MIB, f"{peak / MIB:.0f} MiB"


@pytest.mark.parametrize("options", [LaunchOptions(check=True), LaunchOptions(watch=True)])
def test_counters_of_a_byte_per_thread_and_bin_are_checked(run: Run, options: LaunchOptions) -> None:
    source = """__global__ void f(const unsigned char *in, unsigned *out) {
        __shared__ unsigned char counts[256 * 32];
        const int t = threadIdx.x;
        for (int bin = 0; bin < 256; bin++) counts[bin * 32 + t] = 0;
        for (int k = 0; k < 64; k++) counts[in[(blockIdx.x * 64 + k) * 32 + t] * 32 + t]++;
        __syncthreads();
        for (int bin = t; bin < 256; bin += 32) {
            unsigned sum = 0;
            for (int k = 0; k < 32; k++) sum += counts[bin * 32 + (k + t) % 32];
            atomicAdd(&out[bin], sum);
        }
    }"""
    values = np.random.default_rng(0).integers(0, 256, 1024 * 64 * 32).astype(np.uint8)
    out = np.zeros(256, np.uint32)
    profile = run(source, values, out, grid=(1024,), block=(32,), options=options)
    assert not profile.hazards
    assert profile.unchecked == ()
    np.testing.assert_array_equal(out, np.bincount(values, minlength=256))


def test_variables_take_memory_where_a_kernel_has_accessed_them_since_their_reset(device: SimulatedDevice) -> None:
    """Each variant of an exercise is a module with its own variables."""
    source = f"""__device__ char big[{100 * MIB}];
    __global__ void f(int *out) {{
        for (long i = threadIdx.x * 4096l; i < {100 * MIB}; i += 4194304) *out = big[i]++;
    }}"""
    before = resident()
    modules, out = [device.compile(source) for _ in range(3)], device.array(np.zeros(1, np.int32))
    assert resident() - before < 50 * MIB
    modules[0].launch("f", (1,), (1024,), (out,))
    assert resident() - before > 90 * MIB
    for module in modules:
        module.reset_variables()
    assert resident() - before < 50 * MIB
    modules[0].launch("f", (1,), (1024,), (out,))
    assert out.get()[0] == 0


def resident() -> int:
    """Return this process's bytes of memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

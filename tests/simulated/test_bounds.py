"""The memory of the hazard checks is bounded, for any number of accesses."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice

pytestmark = pytest.mark.unmeasured
HEAD = """
__global__ void f(int *data, const int *in, int *out, int n)
{
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, w = gridDim.x * blockDim.x, s = 0;
"""
MIB = 1 << 20
CHECKED, COUNTED, ESTIMATED = LaunchOptions(check=True), LaunchOptions(count=True), LaunchOptions(estimate=True)
NEXT = "s = s * 1664525 + i + 1013904223;"

KERNELS = {
    "every thread sums all": ("for (int k = 0; k < n; k++) s += in[k]; out[i] = s;", 1024, 32, 256, False),
    "every thread sums all of what one changes": (
        "for (int k = 0; k < n; k++) s += data[k]; if (i == 77) data[5] = s;", 1024, 64, 256, True),
    "every thread sums all before it, in place": (
        "for (int k = 0; k <= i; k++) s += data[k]; data[i] = s;", 1024, 4, 256, True),
    "a grid-stride loop over few blocks": (
        "for (int k = i; k < n; k += w) s += in[k]; out[i] = s;", 1 << 18, 2, 64, False),
    "a grid-stride loop in place": ("for (int k = i; k < n; k += w) data[k] += 1;", 1 << 19, 256, 256, False),
    "a grid-stride loop in place, one block": ("for (int k = i; k < n; k += w) data[k] += 1;", 1 << 18, 1, 256, False),
    "bytes in place": (
        "char *c = (char *)data; for (int k = i; k < 4 * n; k += w) c[k] += 1;", 1 << 16, 64, 256, False),
    "vectors in place": (
        "int4 *v = (int4 *)data; for (int k = i; k < n / 4; k += w) { int4 x = v[k]; x.y++; v[k] = x; }",
        1 << 19, 64, 256, False),
    "atomics without end": (
        f"for (int k = 0; k < 64; k++) {{ {NEXT} atomicAdd(&data[(unsigned)s % n], 1); }}", 4096, 64, 256, False),
    "fenced atomics": (
        f"for (int k = 0; k < 64; k++) {{ {NEXT} atomicAdd(&data[(unsigned)s % n], 1); __threadfence(); }}",
        4096, 64, 256, False),
    "writes anywhere": (
        f"for (int k = 0; k < 32; k++) {{ {NEXT} data[(unsigned)s % n] = s; }}", 1 << 18, 64, 256, True),
    "large shared arrays of small blocks": (
        "__shared__ int tile[12288]; for (int k = t; k < 12288; k += 32) tile[(k + 32 * blockIdx.x) % 12288] = k;"
        " __syncthreads(); out[i] = tile[(t + in[i]) % 12288];", 1 << 13, 256, 32, False),
    "a large array of each thread": (
        "int own[2048]; for (int k = 0; k < 2048; k += 16) own[(k + in[i]) & 2047] = k;"
        " for (int k = 0; k < 2048; k += 16) s += own[(k + in[i]) & 2047]; out[i] = s;", 1 << 14, 64, 256, False),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("options", [CHECKED, COUNTED, ESTIMATED], ids=["checked", "counted", "estimated"])
def test_no_launch_takes_much_memory(device: SimulatedDevice, name: str, options: LaunchOptions) -> None:
    body, n, blocks, threads, is_racing = KERNELS[name]
    module = device.compile(f"{HEAD}{body}}}")
    arrays = [device.array(np.ones(max(n, blocks * threads), np.int32)) for _ in range(3)]
    tracemalloc.start()
    try:
        profile = module.launch("f", (blocks,), (threads,), (*arrays, np.int32(n)), options=options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 500 * MIB
    if options.check:
        assert not profile.unchecked
        assert any(hazard.kind == "race" and not hazard.harmless for hazard in profile.hazards) == is_racing


def test_more_first_reads_than_can_be_remembered_all_count(
    device: SimulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An estimate that is cut short must not look better for it."""
    body = "for (int k = t; k < n; k += 256) s += in[k]; out[i] = s;"  # the compiler joins four reads
    module = device.compile(f"{HEAD}{body}}}")
    arrays = [device.array(np.ones(1 << 17, np.int32)) for _ in range(3)]
    args = (*arrays, np.int32(1 << 17))
    exact = module.launch("f", (16,), (256,), args, options=ESTIMATED)
    for name, value in (("_MOST", 1 << 12), ("_COMPACTED", 1 << 10)):
        monkeypatch.setattr(f"pytest_gpulab.devices.simulated.counting.footprint.{name}", value)
    cut = module.launch("f", (16,), (256,), args, options=ESTIMATED)
    assert exact.estimated_ms is not None and cut.estimated_ms is not None
    assert 0.9 * exact.estimated_ms <= cut.estimated_ms <= 1.2 * exact.estimated_ms
    touched = "gpulab__touched_sectors.sum"
    assert cut.counters[touched] == exact.counters[touched] >= 2**17 * 4 / 32

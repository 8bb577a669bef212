"""The described GPUs: every number has a source, and every architecture its limits."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.devices.hardware.architectures import LIMITS
from pytest_gpulab.devices.protocol import DeviceUnavailable, LaunchError, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.gpus import known_gpus, modelled_gpu, sources

pytestmark = pytest.mark.unmeasured


@pytest.mark.parametrize("name", known_gpus())
def test_every_constant_has_a_source(name: str) -> None:
    gpu = modelled_gpu(name)
    numbers = set(gpu._fields) - {"name", "architecture"}
    assert set(sources(name)) == numbers
    assert all(len(source) > 5 for source in sources(name).values())
    assert all(getattr(gpu, number) > 0 for number in numbers)


@pytest.mark.parametrize("name", known_gpus())
def test_the_limits_of_an_sm_come_from_the_table_of_architectures(name: str) -> None:
    gpu = modelled_gpu(name)
    assert gpu.limits is LIMITS[gpu.architecture]
    assert gpu.architecture == f"sm_{gpu.target}"


def test_the_gpus_that_students_may_have_are_described() -> None:
    assert {"h200", "h100", "a100", "rtx4090", "rtx3090", "l4", "t4"} <= set(known_gpus())
    assert modelled_gpu().name == "NVIDIA H200"


def test_an_unknown_gpu_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(DeviceUnavailable, match=r"no GPU model is named 'rtx2'; available: h200, h100, a100, rtx3090"):
        modelled_gpu("rtx2")


@pytest.mark.parametrize(("name", "kib"), [("h200", 227), ("a100", 163), ("rtx4090", 99), ("t4", 64)])
def test_a_block_has_no_more_shared_memory_than_the_gpu_gives_it(name: str, kib: int) -> None:
    device = SimulatedDevice(modelled_gpu(name))
    source = "extern __shared__ float more[]; __global__ void f(float *x) { more[0] = 1; x[0] = more[0]; }"
    module, x, options = device.compile(source), device.array(np.zeros(1, np.float32)), LaunchOptions(count=True)
    assert module.launch("f", (1,), (1,), (x,), kib * 1024, options).occupancy
    with pytest.raises(LaunchError, match=f"of shared memory per block; the limit is {kib * 1024}"):
        module.launch("f", (1,), (1,), (x,), kib * 1024 + 16)


def test_a_copy_takes_as_long_as_each_gpus_memory_needs() -> None:
    """The order of the GPUs' data sheets, and no more bandwidth than they have."""
    source = (
        "__global__ void copy(const float *a, float *b) { unsigned i = blockIdx.x * 1024 + threadIdx.x; b[i] = a[i]; }"
    )
    n, found = 1 << 24, {}
    for name in known_gpus():
        device = SimulatedDevice(modelled_gpu(name))
        arrays = [device.empty(n, np.float32) for _ in range(2)]
        options = LaunchOptions(sample_blocks=16)
        profile = device.compile(source).launch("copy", (n // 1024,), (1024,), arrays, options=options)
        assert profile.estimated_ms is not None
        found[name] = 8 * n / profile.estimated_ms / 1e6
        assert 0.5 < found[name] / modelled_gpu(name).bandwidth_gb_s < 0.92
    assert sorted(found, key=found.__getitem__) == ["t4", "l4", "rtx3090", "rtx4090", "a100", "h100", "h200"]


CONTENDED = {
    "loop_lane_cycles": "__shared__ float s[256]; atomicAdd(s + a % 2, 1.5f); out[t] = s[t % 2];",
    "loop_block_lane_cycles": "__shared__ float s[256]; atomicAdd(s + a % 2, 1.5f); out[t] = s[t % 2];",
    "loop_bank_cycles": "__shared__ float s[1024]; atomicAdd(s + 32 * a % 1024, 1.5f); out[t] = s[t];",
    "loop_wide_factor": "__shared__ double s[256]; atomicAdd(s + a % 2, 1.5); out[t] = s[t % 2];",
    "swap_trip_cycles": "__shared__ int s[64]; int *p = s + a % 64, seen; "
    "do seen = *p; while (atomicCAS(p, seen, seen + 1) != seen); out[t] = s[t % 64];",
    "global_swap_passes": "int *p = (int *)out + (64 * a + blockIdx.x) % 65536, seen; "
    "do seen = *p; while (atomicCAS(p, seen, seen + 1) != seen);",
    "constant_cache_bytes": "out[t] = table[32 * a % 2048];",
    "constant_cache_sets": "out[t] = table[32 * a % 2048];",
    "constant_line_bytes": "out[t] = table[32 * a % 2048];",
    "float_atomic_passes": "atomicAdd(out + a % 4, 1.5f);",
    "atomic_share_256": "atomicAdd((unsigned *)out + 8 * (a % 8), 1u);",
    "atomic_share_1024": "atomicAdd((unsigned *)out + 8 * (a % 32), 1u);",
}
"""What a thread `t` of 256 does with an index `a` that the compiler does not know, by the constant that prices it."""


@pytest.mark.parametrize(("constant", "statements"), CONTENDED.items(), ids=CONTENDED)
def test_each_constant_of_contention_moves_an_estimate(constant: str, statements: str) -> None:
    source = f"""__constant__ float table[2048];
        __global__ void f(float *out, unsigned factor) {{
            unsigned t = threadIdx.x, a = t * factor;
            for (int k = 0; k < 64; k++, a += 8) {{ {statements} }}
        }}"""
    gpu, estimates = modelled_gpu(), []
    quarter = type(getattr(gpu, constant))(getattr(gpu, constant) / 4)
    for described in (gpu, gpu._replace(**{constant: quarter})):
        device = SimulatedDevice(described)
        args = device.array(np.zeros(1 << 16, np.float32)), np.uint32(1)
        profile = device.compile(source).launch("f", (528,), (256,), args, options=LaunchOptions(sample_blocks=4))
        estimates.append(profile.estimated_ms)
    assert estimates[0] != pytest.approx(estimates[1], rel=0.02)

"""The description of the modelled GPU, and occupancy for it and for other architectures."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.devices.hardware.architectures import LIMITS
from pytest_gpulab.devices.protocol import DeviceUnavailable, LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.variables import launch_bounds

SOURCE = """
__global__ void plain(float *x) { x[threadIdx.x] *= 2; }
__global__ void __launch_bounds__(192) bounded(float *x) { x[threadIdx.x] *= 2; }
__global__ void tiled(float *x) {
    __shared__ float tile[8192];
    extern __shared__ float more[];
    tile[threadIdx.x] = more[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[31 - threadIdx.x % 32] + more[31 - threadIdx.x % 32];
}
"""


def costed(device: SimulatedDevice, kernel: str, threads: int = 32, shared_bytes: int = 0) -> LaunchProfile:
    x = device.array(np.ones(threads, np.float32))
    module = device.compile(SOURCE)
    return module.launch(kernel, (1,), (threads,), (x,), shared_bytes, LaunchOptions(sample_blocks=1))


def test_the_modelled_gpu_is_marked_as_modelled() -> None:
    info = SimulatedDevice().info
    assert info.summary == "modelled GPU: NVIDIA H200 (Hopper), 132 SMs at 1980 MHz, 4800 GB/s peak"
    assert info.details == {
        "modelled GPU": "NVIDIA H200",
        "modelled generation": "Hopper (sm_90)",
        "modelled SMs": "132, each holds 64 warps, 32 blocks, 65536 registers, 228 KiB shared",
        "modelled SM clock": "1980 MHz",
        "modelled peak bandwidth": "4800 GB/s",
        "occupancy for": "sm_90 (Hopper)",
    }


def test_the_description_names_the_architecture_of_the_occupancy() -> None:
    info = SimulatedDevice(occupancy_architecture="sm_86").info
    assert info.architecture == "sm_90"  # what is simulated stays the same
    assert info.summary.endswith("; occupancy for sm_86")
    assert info.details["occupancy for"] == "sm_86 (Ampere)"


def test_an_unknown_architecture_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(DeviceUnavailable, match=r"unknown architecture 'sm_70'; available: sm_75, sm_80"):
        SimulatedDevice(occupancy_architecture="sm_70")


def test_a_costed_launch_says_how_it_fills_a_multiprocessor() -> None:
    profile = costed(SimulatedDevice(), "plain")
    found = profile.kernel_occupancy
    assert found is not None
    assert (found.kernel, found.architecture, found.block_threads) == ("plain", "sm_90", 32)
    assert (found.active_blocks, found.limited_by, found.suggested_block_threads) == (32, ("blocks",), 1024)
    assert found.occupancy == profile.occupancy == 0.5
    assert found.registers == profile.resources.registers


def test_static_and_dynamic_shared_memory_count() -> None:
    found = costed(SimulatedDevice(), "tiled", 32, 4096).kernel_occupancy
    assert found is not None
    assert (found.shared_bytes, found.active_blocks, found.limited_by) == (36 * 1024, 6, ("shared memory",))


def test_launch_bounds_cap_the_suggestion() -> None:
    found = costed(SimulatedDevice(), "bounded").kernel_occupancy
    assert found is not None
    assert found.suggested_block_threads == 128
    assert costed(SimulatedDevice(), "plain").kernel_occupancy is not None


@pytest.mark.parametrize("architecture", LIMITS)
def test_the_compiler_knows_every_architecture_and_the_estimate_stays(architecture: str) -> None:
    there, usual = SimulatedDevice(occupancy_architecture=architecture), SimulatedDevice()
    profile = costed(there, "tiled", 32, 1024)
    found = profile.kernel_occupancy
    assert found is not None
    assert found.architecture == architecture
    assert found.registers and found.registers > 0
    assert found.active_blocks == LIMITS[architecture].shared_bytes // (33 * 1024 + LIMITS[architecture].reserved_bytes)
    assert profile.estimated_ms == costed(usual, "tiled", 32, 1024).estimated_ms


def test_bounds_of_all_dimensions_are_multiplied() -> None:
    ptx = """
.visible .entry a(
    .param .u64 x
)
.maxntid 16, 8, 2
.minnctapersm 2
{ ret; }
.visible .entry b() { ret; }
.visible .entry c()
.reqntid 64
{ ret; }
"""
    assert launch_bounds(ptx) == {"a": 256, "c": 64}

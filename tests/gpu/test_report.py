"""The report of a real GPU, and the occupancy that its driver computes compared with the rules."""

from __future__ import annotations

import ctypes
import re
from uuid import UUID

import numpy as np
import pytest

from pytest_gpulab.devices.cuda import nvml
from pytest_gpulab.devices.hardware.architectures import LIMITS
from pytest_gpulab.devices.hardware.occupancy import BlockNeeds, blocks_by_resource, occupancy_by_rules

pytestmark = pytest.mark.gpu
SOURCE = """
__global__ void plain(float *x) { x[threadIdx.x] *= 2; }
__global__ void __launch_bounds__(192) bounded(float *x) { x[threadIdx.x] *= 2; }
__global__ void tiled(float *x) {
    __shared__ float tile[2048];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
__global__ void dynamic(float *x) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
"""
LARGEST = {"plain": 1024, "bounded": 192, "tiled": 1024, "dynamic": 1024}  # blocks that can be launched
ROWS = {
    "generation", "compute capability", "SMs", "PCI address", "driver", "memory", "peak bandwidth", "UUID", "SM clock",
    "memory clock", "clock event reasons", "performance state", "power", "temperature", "utilisation", "ECC", "MIG",
    "persistence", "compute mode", "PCIe link", "PyCUDA", "compiled under",
}  # fmt: skip


def test_everything_has_a_row(device):
    details = device.info.details
    assert set(details) == ROWS
    assert re.fullmatch(r"(GPU|MIG)-[0-9a-f-]{36}", details["UUID"])
    assert re.fullmatch(r"[\d.]+, for CUDA up to \d+\.\d", details["driver"])
    assert re.fullmatch(r"\d+ of \d+ MHz", details["SM clock"])
    assert "n/a" not in device.info.summary


def test_the_uuid_which_nvml_tells_of_a_pci_address_is_the_one_that_cuda_tells_of_its_device(device):
    """Asked without PyCUDA and addresses, by the function's first version: the second tells that of a part (MIG)."""
    cuda, first, uuid = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDeviceGet(ctypes.byref(first), 0) == 0  # the one that is opened where no number is given
    assert cuda.cuDeviceGetUuid(uuid, first) == 0
    assert device.info.details["UUID"] == f"GPU-{UUID(bytes=bytes(uuid))}"


def test_nvml_describes_the_gpu_that_cuda_uses(device):
    gpu = device._gpu.context.gpu
    facts = nvml.read_facts(gpu.pci_bus_id())
    assert facts.memory_total_bytes == pytest.approx(gpu.total_memory(), rel=0.05)
    peak_gb_s = 2 * gpu.get_attribute(device._gpu.context.driver.device_attribute.MEMORY_CLOCK_RATE) * 1e3
    peak_gb_s *= gpu.get_attribute(device._gpu.context.driver.device_attribute.GLOBAL_MEMORY_BUS_WIDTH) / 8 / 1e9
    assert facts.peak_bandwidth_gb_s == pytest.approx(peak_gb_s, rel=0.01)


def test_the_table_holds_what_the_gpu_says_of_itself(device):
    module = device.compile(SOURCE)
    assert module._limits == LIMITS[device.info.architecture]


@pytest.mark.parametrize("shared_bytes", [0, 1000, 20_000, 100_000])
@pytest.mark.parametrize(
    ("kernel", "threads"),
    [
        (kernel, threads)
        for kernel in ("plain", "bounded", "tiled", "dynamic")
        for threads in (1, 32, 96, 192, 256, 500, 768, 1024)
        if threads <= LARGEST[kernel]
    ],
)
def test_the_rules_give_what_the_driver_says(device, kernel, threads, shared_bytes):
    module = _module(device)
    asked = module.occupancy(kernel, threads, shared_bytes)
    needs = BlockNeeds(threads, asked.registers, asked.shared_bytes)
    assert asked.active_blocks == min(blocks_by_resource(module._limits, needs).values())
    assert asked == occupancy_by_rules(device.info.architecture, kernel, needs, LARGEST[kernel])


def test_a_launch_tells_its_occupancy(device):
    x = device.array(np.ones(256, np.float32))
    profile = _module(device).launch("tiled", (1,), (256,), (x,))
    assert profile.kernel_occupancy.block_threads == 256
    assert profile.occupancy == profile.kernel_occupancy.occupancy > 0


_compiled = {}


def _module(device):
    if device not in _compiled:
        _compiled[device] = device.compile(SOURCE)
    return _compiled[device]

"""What a report says of a GPU: a line for its header, and a table of everything that CUDA and NVML know."""

from __future__ import annotations

from importlib.metadata import version
from types import ModuleType
from typing import Any

from pytest_gpulab.devices.hardware.architectures import generation

from . import nvml

_OF_A_PART = ("memory", "peak bandwidth")  # of which NVML knows the whole GPU's only


def describe(driver: ModuleType, gpu: Any) -> tuple[str, dict[str, str]]:
    """Return what to print about a PyCUDA device: in a line, and as label to text.

    CUDA and NVML number GPUs differently, so NVML is asked for the one at the same PCI address. Its rows, where it
    has them, replace CUDA's; but of a part of a GPU (MIG) only CUDA knows what it has.
    """
    major, minor = gpu.compute_capability()
    family = generation(f"sm_{major}{minor}")
    sms = gpu.get_attribute(driver.device_attribute.MULTIPROCESSOR_COUNT)
    pci_address = gpu.pci_bus_id()
    condition, known_to_nvml = nvml.describe(pci_address)
    rows = {
        "generation": family,
        "compute capability": f"{major}.{minor}",
        "SMs": str(sms),
        "PCI address": pci_address,
        "driver": f"n/a, for CUDA up to {cuda_version(driver.get_driver_version())}",
        "memory": f"{gpu.total_memory() / 2**30:.0f} GiB",
        "peak bandwidth": f"{_peak(driver, gpu)} GB/s",
    }
    line = f"{family}, {sms} SMs, {rows['memory']}, {rows['peak bandwidth']} at most; {condition}"
    better = rows if "NVML" in known_to_nvml else _OF_A_PART if known_to_nvml["MIG"] == "on" else ()
    more = {label: text for label, text in known_to_nvml.items() if label not in better}
    return line, rows | more | {"PyCUDA": version("pycuda")}


def cuda_version(number: int) -> str:
    """Return CUDA's version from its number, 1000 x major + 10 x minor."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _peak(driver: ModuleType, gpu: Any) -> str:
    gb_s = peak_bandwidth_gb_s(driver, gpu)
    return f"{gb_s:.0f}" if gb_s else nvml.NOT_KNOWN


def peak_bandwidth_gb_s(driver: ModuleType, gpu: Any) -> float:
    """Return what a PyCUDA device's memory transfers at most, in 1e9 bytes a second: twice a clock, the whole bus.

    It is not known, and 0, of a GPU that shares the CPU's memory: an Orin's clock and bus are told as less than true
    (by deviceQuery as 1275 MHz and 128 bits), and who is faster than a memory can be gets no points.
    """
    if gpu.get_attribute(driver.device_attribute.INTEGRATED):
        return 0.0
    clock_khz = gpu.get_attribute(driver.device_attribute.MEMORY_CLOCK_RATE)
    bus_bits = gpu.get_attribute(driver.device_attribute.GLOBAL_MEMORY_BUS_WIDTH)
    return float(2 * clock_khz * 1e3 * bus_bits / 8 / 1e9)

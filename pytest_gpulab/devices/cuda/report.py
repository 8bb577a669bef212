"""What a report says of a GPU: a line for its header, and a table of everything that CUDA and NVML know."""

from __future__ import annotations

from importlib.metadata import version
from types import ModuleType
from typing import Any

from .. import nvml
from ..architectures import generation


def describe(driver: ModuleType, gpu: Any) -> tuple[str, dict[str, str]]:
    """Return what to print about a PyCUDA device: in a line, and as label to text.

    CUDA and NVML number GPUs differently, so NVML is asked for the one at the same PCI address. Its figures, where it
    has them, replace CUDA's.
    """
    major, minor = gpu.compute_capability()
    family = generation(f"sm_{major}{minor}")
    sms = gpu.get_attribute(driver.device_attribute.MULTIPROCESSOR_COUNT)
    pci_address = gpu.pci_bus_id()
    line, known_to_nvml = nvml.describe(pci_address)
    rows = {
        "generation": family,
        "compute capability": f"{major}.{minor}",
        "SMs": str(sms),
        "PCI address": pci_address,
        "driver": f"n/a, for CUDA up to {cuda_version(driver.get_driver_version())}",
        "memory": f"{gpu.total_memory() / 2**30:.0f} GiB",
        "peak bandwidth": f"{peak_bandwidth_gb_s(driver, gpu):.0f} GB/s",
    }
    if "NVML" in known_to_nvml:
        line = f"{rows['memory']}, {rows['peak bandwidth']} at most; {line}"
        known_to_nvml = {label: text for label, text in known_to_nvml.items() if label not in rows}
    return f"{family}, {sms} SMs, {line}", rows | known_to_nvml | {"PyCUDA": version("pycuda")}


def cuda_version(number: int) -> str:
    """Return CUDA's version from its number, 1000 x major + 10 x minor."""
    return f"{number // 1000}.{number % 1000 // 10}"


def peak_bandwidth_gb_s(driver: ModuleType, gpu: Any) -> float:
    """Return what a PyCUDA device's memory transfers at most, in 1e9 bytes a second: twice a clock, the whole bus."""
    clock_khz = gpu.get_attribute(driver.device_attribute.MEMORY_CLOCK_RATE)
    bus_bits = gpu.get_attribute(driver.device_attribute.GLOBAL_MEMORY_BUS_WIDTH)
    return float(2 * clock_khz * 1e3 * bus_bits / 8 / 1e9)

"""The properties of the machine's GPUs, by CUDA and NVML."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from pytest_gpulab.devices.hardware.properties import COMPUTE_MODES, DeviceProperties

from . import nvml
from .driver import check_packages, load_driver
from .report import peak_bandwidth_gb_s


def query_gpus() -> list[tuple[DeviceProperties, dict[str, str]]]:
    """Return the properties of each GPU in CUDA's order, with NVML's rows on its present state; no context is created.

    Raises DeviceAbsent if PyCUDA, the driver or a GPU is missing, and DeviceUnavailable if the driver does not work.
    """
    check_packages()
    driver = load_driver()
    gpus = [driver.Device(ordinal) for ordinal in range(driver.Device.count())]
    return [(properties_of(driver, gpu), nvml.describe(gpu.pci_bus_id())[1]) for gpu in gpus]


def properties_of(driver: ModuleType, gpu: Any) -> DeviceProperties:
    """Return the properties of a PyCUDA device."""

    def attribute(name: str) -> int:
        return int(gpu.get_attribute(getattr(driver.device_attribute, name)))

    def extents(name: str) -> tuple[int, int, int]:
        return attribute(f"MAX_{name}_DIM_X"), attribute(f"MAX_{name}_DIM_Y"), attribute(f"MAX_{name}_DIM_Z")

    major, minor = gpu.compute_capability()
    mode = attribute("COMPUTE_MODE")
    return DeviceProperties(
        name=gpu.name(),
        architecture=f"sm_{major}{minor}",
        sms=attribute("MULTIPROCESSOR_COUNT"),
        global_bytes=gpu.total_memory(),
        sm_shared_bytes=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        largest_block_shared_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        sm_registers=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        sm_threads=attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        sm_blocks=attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        clock_mhz=attribute("CLOCK_RATE") // 1000,
        memory_mhz=attribute("MEMORY_CLOCK_RATE") // 1000,
        memory_bus_bits=attribute("GLOBAL_MEMORY_BUS_WIDTH"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        peak_bandwidth_gb_s=peak_bandwidth_gb_s(driver, gpu) or None,
        constant_bytes=attribute("TOTAL_CONSTANT_MEMORY"),
        block_shared_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK"),
        block_registers=attribute("MAX_REGISTERS_PER_BLOCK"),
        warp_size=attribute("WARP_SIZE"),
        block_threads=attribute("MAX_THREADS_PER_BLOCK"),
        max_block=extents("BLOCK"),
        max_grid=extents("GRID"),
        concurrent_kernels=bool(attribute("CONCURRENT_KERNELS")),
        ecc=bool(attribute("ECC_ENABLED")),
        compute_mode=COMPUTE_MODES[mode] if mode < len(COMPUTE_MODES) else None,
    )

"""Description of a GPU for reports, a line for the header and a table of CUDA's and NVML's facts; its properties."""

from importlib.metadata import version
from types import ModuleType
from typing import Any

from pytest_gpulab.devices.hardware.architectures import generation
from pytest_gpulab.devices.hardware.properties import COMPUTE_MODES, DeviceProperties

from . import nvml
from .driver import load_driver

_MIG_ROWS = ("memory", "peak bandwidth")  # NVML has only the whole GPU's figures


def describe(driver: ModuleType, gpu: Any) -> tuple[str, dict[str, str]]:
    """Describe a PyCUDA device: in a line, and as label to text.

    CUDA and NVML number GPUs differently, so NVML's GPU is found by its PCI address. NVML's rows replace CUDA's, except
    on a MIG instance: only CUDA has the figures of the instance.
    """
    major, minor = gpu.compute_capability()
    family = generation(f"sm_{major}{minor}")
    sms = gpu.get_attribute(driver.device_attribute.MULTIPROCESSOR_COUNT)
    pci_address = gpu.pci_bus_id()
    condition, known_to_nvml = nvml.describe(pci_address)
    peak = peak_bandwidth_gb_s(driver, gpu)
    rows = {
        "generation": family,
        "compute capability": f"{major}.{minor}",
        "SMs": str(sms),
        "PCI address": pci_address,
        "driver": f"n/a, for CUDA up to {cuda_version(driver.get_driver_version())}",
        "memory": f"{gpu.total_memory() / 2**30:.0f} GiB",
        "peak bandwidth": f"{peak:.0f} GB/s" if peak else f"{nvml.NOT_KNOWN} GB/s",
    }
    line = f"{family}, {sms} SMs, {rows['memory']}, {rows['peak bandwidth']} peak; {condition}"
    kept = rows if "NVML" in known_to_nvml else _MIG_ROWS if known_to_nvml["MIG"] == "on" else ()
    more = {label: text for label, text in known_to_nvml.items() if label not in kept}
    return line, rows | more | {"PyCUDA": version("pycuda")}


def cuda_version(number: int) -> str:
    """Return CUDA's version from its number, 1000 x major + 10 x minor."""
    return f"{number // 1000}.{number % 1000 // 10}"


def peak_bandwidth_gb_s(driver: ModuleType, gpu: Any) -> float:
    """Return the peak bandwidth of a PyCUDA device, in 1e9 bytes per second: two transfers per clock, the whole bus.

    It is 0, for unknown, on a GPU that shares the CPU's memory: CUDA reports an Orin's clock and bus below the true
    ones (deviceQuery: 1275 MHz and 128 bits), and a kernel faster than the peak would get no points.
    """
    if gpu.get_attribute(driver.device_attribute.INTEGRATED):
        return 0.0
    clock_khz = gpu.get_attribute(driver.device_attribute.MEMORY_CLOCK_RATE)
    bus_bits = gpu.get_attribute(driver.device_attribute.GLOBAL_MEMORY_BUS_WIDTH)
    return float(2 * clock_khz * 1e3 * bus_bits / 8 / 1e9)


def query_gpus() -> list[tuple[DeviceProperties, dict[str, str]]]:
    """Return the properties of each GPU in CUDA's order, with NVML's rows on its present state; no context is created.

    Raises DeviceAbsent if PyCUDA, the driver or a GPU is missing, and DeviceUnavailable if the driver does not work.
    """
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

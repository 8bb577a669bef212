"""The equal GPUs of this machine, and the number of graders per GPU."""

from contextlib import suppress

from .driver import load_driver
from .nvml import NvmlUnavailable, read_facts

MOST_GRADERS = 28
"""Limit of graders per GPU: the largest number tested (H200). They time one after the other."""
BYTES_PER_GRADER = 3 << 30
"""GPU memory per grader: timing a scan of 2**25 elements takes 2.1 GiB, and a context about 0.5 GiB (H200)."""


def alike() -> tuple[str, ...]:
    """Return the first GPU and all others of its model and size, as `open_device` takes them.

    Raises DeviceUnavailable if there is no GPU.
    """
    driver = load_driver()
    gpus = [driver.Device(ordinal) for ordinal in range(driver.Device.count())]
    models = [(gpu.name(), gpu.multiprocessor_count) for gpu in gpus]
    return tuple(f"cuda:{ordinal}" for ordinal, model in enumerate(models) if model == models[0])


def graders_with_room(device: str) -> int:
    """Return the number of graders that fit into the free memory of a GPU, such as `cuda:1`; at least one.

    Raises DeviceUnavailable if there is no GPU.
    """
    gpu = load_driver().Device(int(device.partition(":")[2]))
    available_bytes = int(gpu.total_memory())
    with suppress(NvmlUnavailable):
        free_bytes = read_facts(gpu.pci_bus_id()).memory_free_bytes  # of all MIG instances together
        available_bytes = available_bytes if free_bytes is None else min(available_bytes, free_bytes)
    return min(MOST_GRADERS, max(1, available_bytes // BYTES_PER_GRADER))

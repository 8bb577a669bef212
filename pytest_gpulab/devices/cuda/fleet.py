"""The GPUs of this machine that grade alike, and how many processes may grade on one."""

from __future__ import annotations

from contextlib import suppress

from .driver import load_driver
from .nvml import NvmlUnavailable, read_facts

MOST_GRADERS = 28
"""On a GPU: as many as were tried on one (H200). They take their times one after the other."""
BYTES_A_GRADER = 3 << 30
"""Of a GPU's memory: to time a scan of 2**25 elements takes 2.1 GiB, and a context with all that belongs to it some
0.5 GiB (H200)."""


def alike() -> tuple[str, ...]:
    """Return the first GPU and all others of its model and size, as `open_device` takes them.

    Raises:
        DeviceUnavailable: there is none.
    """
    driver = load_driver()
    gpus = [driver.Device(ordinal) for ordinal in range(driver.Device.count())]
    models = [(gpu.name(), gpu.multiprocessor_count) for gpu in gpus]
    return tuple(f"cuda:{ordinal}" for ordinal, model in enumerate(models) if model == models[0])


def graders_with_room(device: str) -> int:
    """Return how many processes that grade a GPU, such as `cuda:1`, has memory for beside others; at least one.

    Raises:
        DeviceUnavailable: there is no GPU.
    """
    gpu = load_driver().Device(int(device.partition(":")[2]))
    room = int(gpu.total_memory())
    with suppress(NvmlUnavailable):
        free_bytes = read_facts(gpu.pci_bus_id()).memory_free_bytes  # of all parts of a GPU that is split
        room = room if free_bytes is None else min(room, free_bytes)
    return min(MOST_GRADERS, max(1, room // BYTES_A_GRADER))

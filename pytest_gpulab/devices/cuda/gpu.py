"""A GPU opened by one process: its context, lock, clocks, and memory for arrays."""

from typing import Any

from pytest_gpulab.devices.protocol import DeviceAbsent, DeviceUnavailable

from . import nvml
from .context import PrimaryContext
from .driver import load_driver
from .gpu_lock import GpuLock
from .memory import Blocks

LEAST_CAPABILITY = (7, 5)  # the target of the stopwatch's own PTX, and CUDA 13's oldest architecture


class OpenGpu:
    """An open GPU, through PyCUDA, by its number in CUDA's order; its context is created on first use.

    A kernel that exceeds the time limit is reported as endless. Raises DeviceAbsent if PyCUDA, the driver or the device
    is missing, or the device is too old, and DeviceUnavailable if the driver does not work, or has no device of that
    number.
    """

    def __init__(self, ordinal: int, launch_limit_s: float) -> None:
        self.driver = load_driver()
        count = self.driver.Device.count()
        if not 0 <= ordinal < count:
            raise DeviceUnavailable(f"there is no CUDA device {ordinal}: this machine has {count}, numbered from 0")
        self.gpu = self.driver.Device(ordinal)
        _refuse_old(self.gpu)
        self.conditions = nvml.ConditionsReader(self.gpu.pci_bus_id())
        self.gpu_lock = GpuLock(self.conditions.identity)
        self.context = PrimaryContext(self.driver, self.gpu, launch_limit_s, self.gpu_lock)
        self.blocks = Blocks(self.context)

    def close(self) -> None:
        """Release everything."""
        self.conditions.close()
        self.blocks.close()
        self.context.close()
        self.gpu_lock.close()


def _refuse_old(gpu: Any) -> None:
    """Raise DeviceAbsent, with its compute capability and the required one, if a GPU is too old."""
    capability = gpu.compute_capability()
    if capability < LEAST_CAPABILITY:
        has, needed = (".".join(map(str, version)) for version in (capability, LEAST_CAPABILITY))
        raise DeviceAbsent(
            f"the GPU {gpu.name()} is too old: compute capability {has}; pytest-gpulab requires {needed}"
        )

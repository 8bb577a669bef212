"""A GPU as one process holds it: its context, whose turn it is, its clocks, and memory for arrays."""

from __future__ import annotations

from typing import Any

from pytest_gpulab.devices.protocol import DeviceAbsent, DeviceUnavailable

from . import nvml
from .context import PrimaryContext
from .driver import load_driver
from .gpu_lock import GpuLock
from .memory import Blocks

LEAST_CAPABILITY = (7, 5)  # what the stopwatch's own kernels are written for, and CUDA 13 compiles for


class OpenGpu:
    """One GPU through PyCUDA; the context is made when it is first needed.

    Args:
        ordinal: the device's number in CUDA's order.
        launch_limit_s: a kernel that runs longer is reported as one that never ends.

    Attributes:
        driver, gpu: PyCUDA's driver module and device.
        conditions, turns, context, blocks: see their classes.

    Raises:
        DeviceAbsent: PyCUDA, the driver or the device is missing, or the device is too old; says which.
        DeviceUnavailable: the driver does not work, or has no device of that number.
    """

    def __init__(self, ordinal: int, launch_limit_s: float) -> None:
        self.driver = load_driver()
        count = self.driver.Device.count()
        if not 0 <= ordinal < count:
            raise DeviceUnavailable(f"there is no CUDA device {ordinal}: this machine has {count}, numbered from 0")
        self.gpu = self.driver.Device(ordinal)
        _refuse_old(self.gpu)
        self.conditions = nvml.ConditionsReader(self.gpu.pci_bus_id())
        self.turns = GpuLock(self.conditions.identity)
        self.context = PrimaryContext(self.driver, self.gpu, launch_limit_s, self.turns)
        self.blocks = Blocks(self.context)

    def close(self) -> None:
        """Give everything back."""
        self.conditions.close()
        self.blocks.close()
        self.context.close()
        self.turns.close()


def _refuse_old(gpu: Any) -> None:
    """Refuse a GPU that nothing here was written for.

    Raises:
        DeviceAbsent: says which one, and what is needed.
    """
    capability = gpu.compute_capability()
    if capability < LEAST_CAPABILITY:
        has, needed = (".".join(map(str, version)) for version in (capability, LEAST_CAPABILITY))
        raise DeviceAbsent(f"the GPU {gpu.name()} is too old: it has compute capability {has}, and {needed} is needed")

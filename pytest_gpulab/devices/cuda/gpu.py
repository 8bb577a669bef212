"""A GPU as one process holds it: its context, whose turn it is, its clocks, and memory for arrays."""

from __future__ import annotations

from .. import nvml
from ..protocol import DeviceUnavailable
from .context import PrimaryContext
from .driver import load_driver
from .memory import Blocks
from .turns import Turns


class OpenGpu:
    """One GPU through PyCUDA; the context is made when it is first needed.

    Args:
        ordinal: the device's number in CUDA's order.
        launch_limit_s: a kernel that runs longer is reported as one that never ends.

    Attributes:
        driver, gpu: PyCUDA's driver module and device.
        conditions, turns, context, blocks: see their classes.

    Raises:
        DeviceUnavailable: PyCUDA, the driver or the device is missing; says which and how to get it.
    """

    def __init__(self, ordinal: int, launch_limit_s: float) -> None:
        self.driver = load_driver()
        count = self.driver.Device.count()
        if not 0 <= ordinal < count:
            raise DeviceUnavailable(f"there is no CUDA device {ordinal}: this machine has {count}, numbered from 0")
        self.gpu = self.driver.Device(ordinal)
        self.conditions = nvml.ConditionsReader(self.gpu.pci_bus_id())
        self.turns = Turns(self.conditions.identity)
        self.context = PrimaryContext(self.driver, self.gpu, launch_limit_s, self.turns)
        self.blocks = Blocks(self.context)

    def close(self) -> None:
        """Give everything back."""
        self.conditions.close()
        self.blocks.close()
        self.context.close()
        self.turns.close()

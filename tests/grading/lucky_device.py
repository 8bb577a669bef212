"""A simulated GPU as tolerant as hardware: it stands for a real one on which wrong kernels are lucky.

Arrays lie in allocations that are larger, all warps stay in step, memory that nobody has written holds zeros, nobody
looks for hazards, and what ends a kernel has no name and no place; the end of the stack is that of memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.protocol import DEFAULT_OPTIONS, DeviceUnavailable, KernelFault, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.grading import figure_checks
from pytest_gpulab.grading.isolation import worker

ALONE_VARIABLE = "LUCKY_ALONE"
CANNOT_COUNT_VARIABLE = "LUCKY_CANNOT_COUNT"
LACKS_HEADERS_VARIABLE = "LUCKY_LACKS_HEADERS"
PADDING_BYTES = 1 << 16


class LuckyMemory:
    def __init__(self, values: Any, whole: Any) -> None:
        self.dtype, self.shape, self.nbytes = values.dtype, values.shape, values.nbytes
        self.whole = whole

    def get(self) -> Any:
        return self.whole.get()[: self.nbytes].view(self.dtype).reshape(self.shape)

    def set(self, values: Any) -> None:
        contents = self.whole.get()
        contents[: self.nbytes] = np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8)
        self.whole.set(contents)

    def damage(self, name: str) -> None:
        return None

    def mark_unwritten(self) -> None:
        """No-op: reads are not checked."""

    def free(self) -> None:
        self.whole.free()


class LuckyModule:
    def __init__(self, device: LuckyDevice, module: Any) -> None:
        self.device, self.module = device, module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared_bytes: int = 0,
        options: LaunchOptions = DEFAULT_OPTIONS,
    ) -> Any:
        if not self.device.usable:
            raise DeviceUnavailable("the GPU cannot be used any more in this process")
        options = replace(options, schedule="lockstep", fill=0, check=False)
        args = [arg.whole if isinstance(arg, LuckyMemory) else arg for arg in args]
        try:
            return self.module.launch(kernel, grid, block, args, shared_bytes, options)._replace(hazards=())
        except KernelFault as fault:
            self.device.usable = False
            if fault.code == "stack-overflow":
                raise KernelFault("out-of-bounds", f"{kernel}: a thread accessed memory of no array") from fault
            raise KernelFault("device-fault", f"{kernel}: the GPU stopped the kernel") from fault


class LuckyDevice(SimulatedDevice):
    usable = True

    @property
    def info(self) -> Any:
        return super().info._replace(kind="cuda")

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        return LuckyModule(self, super().compile(*args, **kwargs))

    def array(self, values: Any, dtype: Any = None) -> Any:
        values = np.ascontiguousarray(values, dtype)
        padded = np.concatenate([values.reshape(-1).view(np.uint8), np.zeros(PADDING_BYTES, np.uint8)])
        return LuckyMemory(values, super().array(padded))


def opened(spec: str, launch_limit_s: float, *described: str | None, **options: Any) -> tuple[SimulatedDevice, str]:
    assert spec != "sim" or options["beside"] == "sm_90", "the simulated GPU is to run the code of the real one"
    if spec == "sim" and ALONE_VARIABLE in os.environ:
        raise DeviceUnavailable("NVRTC is not installed")
    if spec == "sim" and LACKS_HEADERS_VARIABLE in os.environ:
        lacking_headers(setattr, Path(mkdtemp(dir=os.environ[LACKS_HEADERS_VARIABLE])))
    return SimulatedDevice() if spec == "sim" else LuckyDevice(), "a test wants it"


def lacking_headers(patch: Callable[[Any, str, Any], None], folder: Path) -> None:
    """Let NVRTC find all of CUDA's headers but `nv/target`."""
    found = []
    for number, whole in enumerate(nvrtc.include_folders()):
        part = folder / str(number)
        part.mkdir()
        for entry in whole.iterdir():
            if entry.name != "nv":
                (part / entry.name).symlink_to(entry)
        found.append(part)
    patch(nvrtc, "include_folders", lambda: tuple(found))


def counting_device(device: Any) -> Any:
    if device.info.kind == "simulated":
        return device
    assert CANNOT_COUNT_VARIABLE not in os.environ, "the process with the simulated GPU is to count"
    return SimulatedDevice()


def main(watchdog_pipe: int) -> None:
    worker.open_device = opened
    figure_checks.counting_device = counting_device
    worker.main(watchdog_pipe)

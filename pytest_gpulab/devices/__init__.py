"""Devices: one protocol for a real GPU and the simulated one.

- `protocol`: the protocol, with the abilities of some devices.
- `launch`: options and profile of a launch.
- `errors`: exceptions of devices, and hazards found in a launch.
- `trace_events`: the events of a traced launch as data.
- `stopwatch`, `textures`: the protocol's parts for timing and for textures.
- `compiler`, `source`: NVRTC, and the text of CUDA C++ files.
- `hardware`, `system`: GPUs as data, and the operating system.
- `cuda`, `simulated`: the two devices.
- `beside_gpu`: the simulated GPU with nvcc's code for a real one.
- `programs`: whole programs on the simulated GPU.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every pytest session imports this package for `system.processes`, which must not load NumPy
    from .protocol import Device, DeviceInfo

__all__ = ["open_device"]

LAUNCH_LIMIT_S = 10.0
REQUESTED = "it was requested"


def open_device(
    spec: str = "auto",
    launch_limit_s: float = LAUNCH_LIMIT_S,
    occupancy_architecture: str | None = None,
    gpu: str | None = None,
    isolated: bool = False,
    known: DeviceInfo | None = None,
    beside: str = "",
) -> tuple[Device, str]:
    """Open a device; return it with the reason for the choice.

    Args:
        spec: `cuda` or `cuda:N` for an NVIDIA GPU, `sim` for the simulated GPU. `auto` takes an NVIDIA GPU, or the
            simulated one if the GPU or its software is not installed.
        launch_limit_s: the time limit per kernel on a GPU; a longer one counts as endless.
        occupancy_architecture: the architecture of the simulated GPU's registers and occupancy, such as `sm_86`; that
            of its GPU model if None.
        gpu: the GPU model of the simulated GPU, such as `t4`; the H200 if None.
        isolated: run the simulated GPU's compiler in a sandbox if available, and anew for each text, as untrusted
            kernels require; nvcc always runs so. Limits apply in any case, except on Windows.
        known: a GPU's `info`, if known from another process; the GPU is then opened on first use.
        beside: the architecture of a real GPU, such as `sm_86`, if the simulated one is to run its code.

    Raises:
        DeviceUnavailable: the device is not available; the message says what is missing and how to install it. Also for
                `auto` with a GPU that is unusable, perhaps only now: an estimate must not replace a measurement
                    unasked.
    """
    from .protocol import DeviceAbsent, DeviceUnavailable

    if spec == "sim" and beside:
        from .beside_gpu import SimulatedBesideGpu

        return SimulatedBesideGpu(beside), REQUESTED
    if spec == "sim":
        return _open_simulated(gpu, occupancy_architecture, isolated), REQUESTED
    if spec == "auto":
        try:
            return _open_cuda(0, launch_limit_s, known), "PyCUDA and an NVIDIA GPU were found"
        except DeviceAbsent as missing:
            return _open_simulated(gpu, occupancy_architecture, isolated), f"no CUDA device: {missing}"
    cuda = re.fullmatch(r"cuda(?::(\d+))?", spec)
    if cuda is None:
        raise DeviceUnavailable(f"unknown device {spec!r}; use auto, cuda, cuda:N (a number) or sim")
    return _open_cuda(int(cuda[1] or 0), launch_limit_s, known), REQUESTED


def _open_cuda(ordinal: int, launch_limit_s: float, known: DeviceInfo | None) -> Device:
    from .protocol import DeviceAbsent

    if find_spec("fcntl") is None:  # Windows: the GPU lock needs POSIX file locks
        raise DeviceAbsent("grading on a GPU works on Linux only")
    from pytest_gpulab.devices.cuda.driver import check_packages

    check_packages()  # before the next line imports them
    from pytest_gpulab.devices.cuda.device import CudaDevice

    return CudaDevice(ordinal, launch_limit_s, known)


def _open_simulated(gpu: str | None, occupancy_architecture: str | None, isolated: bool) -> Device:
    from pytest_gpulab.devices.simulated.gpus import DEFAULT_GPU, modelled_gpu

    from .simulated import SimulatedDevice

    compiler = None
    if isolated or hasattr(os, "fork"):
        from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess, for_own_texts

        compiler = CompilerProcess() if isolated else for_own_texts()
    model, architecture = modelled_gpu(gpu or DEFAULT_GPU), occupancy_architecture
    return SimulatedDevice(model, occupancy_architecture=architecture, compiler=compiler)

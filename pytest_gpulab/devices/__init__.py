"""Devices: one protocol for a real GPU and the simulated one.

- `protocol`: the protocol, its value types and options.
- `errors`, `hazards`: what goes wrong in a launch.
- `stopwatch`, `textures`: the protocol's parts for timing and for textures.
- `compiler`, `source`: NVRTC, and the text of CUDA C++ files.
- `hardware`, `system`: GPUs as data, and the operating system.
- `cuda`, `simulated`: the two devices.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every session of pytest imports this package for `system.threads`: NumPy must not be loaded then
    from .protocol import Device, DeviceInfo

__all__ = ["open_device"]

LAUNCH_LIMIT_S = 10.0


def open_device(
    spec: str = "auto",
    launch_limit_s: float = LAUNCH_LIMIT_S,
    occupancy_architecture: str | None = None,
    gpu: str | None = None,
    isolated: bool = False,
    prefetching: bool = False,
    known: DeviceInfo | None = None,
) -> tuple[Device, str]:
    """Open a device and say in a few words why it was this one.

    Args:
        spec: `cuda` or `cuda:N` for an NVIDIA GPU, `sim` for the simulated one, `auto` for a GPU or, where there is
            none or nothing to use it with, for the simulated one.
        launch_limit_s: a kernel that runs longer on a GPU is taken for one that never ends.
        occupancy_architecture: what the simulated GPU tells registers and occupancy for, such as `sm_86`; for the GPU
            that it describes if None.
        gpu: which GPU the simulated one describes, such as `t4`; the H200 if None.
        isolated: whether the simulated one's compiler runs in a process of its own under limits, in a sandbox where
            there is one, as strangers' kernels need; nvcc always does.
        prefetching: whether an isolated compiler may use several processor cores; nvcc always may.
        known: what a GPU's `info` says, if it was asked before: then it is opened when it is first needed.

    Raises:
        DeviceUnavailable: what was asked for is not there; says what is missing and how to get it. Or there is a GPU
            for `auto` that cannot be used, or not now: an estimate instead would be one that nobody asked for.
    """
    from .protocol import DeviceAbsent, DeviceUnavailable

    if spec == "sim":
        return _open_simulated(gpu, occupancy_architecture, isolated, prefetching), "it was asked for"
    if spec == "auto":
        try:
            return _open_cuda(0, launch_limit_s, known), "PyCUDA and an NVIDIA GPU are there"
        except DeviceAbsent as missing:
            return _open_simulated(gpu, occupancy_architecture, isolated, prefetching), f"no CUDA device: {missing}"
    cuda = re.fullmatch(r"cuda(?::(\d+))?", spec)
    if cuda is None:
        raise DeviceUnavailable(f"no device is called {spec!r}; use auto, cuda, cuda:N (a number) or sim")
    return _open_cuda(int(cuda[1] or 0), launch_limit_s, known), "it was asked for"


def _open_cuda(ordinal: int, launch_limit_s: float, known: DeviceInfo | None) -> Device:
    from .protocol import DeviceAbsent

    if find_spec("fcntl") is None:  # Windows: graders take their turns on a GPU by locks on files
        raise DeviceAbsent("grading on a GPU works on Linux only")
    from pytest_gpulab.devices.cuda.driver import check_packages

    check_packages()  # before anything imports them
    from pytest_gpulab.devices.cuda.device import CudaDevice

    return CudaDevice(ordinal, launch_limit_s, known)


def _open_simulated(gpu: str | None, occupancy_architecture: str | None, isolated: bool, prefetching: bool) -> Device:
    from pytest_gpulab.devices.simulated.gpus import DEFAULT_GPU, modelled_gpu

    from .simulated import SimulatedDevice

    compiler = None
    if isolated:
        from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess

        compiler = CompilerProcess()
    model, architecture = modelled_gpu(gpu or DEFAULT_GPU), occupancy_architecture
    return SimulatedDevice(model, occupancy_architecture=architecture, compiler=compiler, prefetching=prefetching)

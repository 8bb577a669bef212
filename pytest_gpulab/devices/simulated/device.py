"""The simulated GPU behind the device protocol: it compiles modules and owns memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pytest_gpulab.devices.compiler import nvrtc, nvrtc_program
from pytest_gpulab.devices.protocol import (
    DeviceInfo,
    Module,
)
from pytest_gpulab.devices.simulated.gpus import describe, known_architecture

from .device_memory import DeviceMemory
from .gpus import Gpu, modelled_gpu
from .module import SimulatedModule

if TYPE_CHECKING:  # NVRTC may run in this process instead
    from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess


class SimulatedDevice(DeviceMemory):
    """A GPU simulated with NumPy; see the package's docstring.

    Args:
        gpu: the GPU of the cost model; the H200 if None.
        occupancy_architecture: the architecture of registers and occupancy, such as `sm_86`; the modelled GPU's if
            None.
        compiler: the process that runs NVRTC, which `close` ends unless it is for the user's own texts; NVRTC runs in
            this process if None.
        prefetching: True to compile the variants of one source on several processor cores.

    Raises:
        DeviceUnavailable: NVRTC is not installed, or the architecture is unknown.
    """

    def __init__(
        self,
        gpu: Gpu | None = None,
        occupancy_architecture: str | None = None,
        compiler: CompilerProcess | None = None,
        prefetching: bool = False,
    ) -> None:
        super().__init__()
        self.gpu = gpu or modelled_gpu()
        self.occupancy_architecture = known_architecture(occupancy_architecture or self.gpu.architecture)
        self._compiler, self._version = compiler, compiler.version if compiler else nvrtc.version()
        self._prefetching = prefetching
        # glibc takes fresh pages from the kernel for every array of 128 KB and more, until a larger one was freed once
        np.empty(31 << 20, np.uint8)

    @property
    def info(self) -> DeviceInfo:
        """The description in headers and reports."""
        summary, details = describe(self.gpu, self.occupancy_architecture)
        if self._compiler is not None and not self._compiler.is_shared:
            from pytest_gpulab.devices.compiler.sandbox import PROTECTION

            details = {**details, PROTECTION: self._compiler.protection}
        return DeviceInfo(
            "simulated",
            f"simulated GPU (cost model: {self.gpu.name})",
            f"NVRTC {self._version}",
            self.gpu.architecture,
            True,
            details,
            summary,
            self.gpu.bandwidth_gb_s,
        )

    def compile(
        self,
        source: str,
        filename: str = "kernel.cu",
        defines: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Module:
        """Compile CUDA C++ to PTX and read it; see `protocol.Device.compile`."""
        rest = (defines, headers, self._compiler.compiled if self._compiler else nvrtc_program.compiled)
        ptx, log = nvrtc.compile_ptx(source, filename, f"compute_{self.gpu.target}", *rest)
        return SimulatedModule(self, ptx, log, (source, filename, *rest))

    def compile_ahead(
        self, source: str, filename: str, variants: Sequence[Mapping[str, str]], headers: Mapping[str, str]
    ) -> None:
        """Compile variants in parallel if `prefetching` is set; see `PrefetchingDevice.compile_ahead`."""
        if self._compiler is not None and self._prefetching:
            texts = (source, filename, f"compute_{self.gpu.target}")
            self._compiler.ahead([nvrtc.ptx_request(*texts, defines, headers) for defines in variants])

    def close(self) -> None:
        """Free all memory and end the compiler process."""
        self.reset()
        if self._compiler is not None and not self._compiler.is_shared:
            self._compiler.close()

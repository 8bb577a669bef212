"""The simulated GPU beside a real one: it runs the code that nvcc has made for the real one.

NVRTC is another compiler, and a source can tell them apart. With NVRTC's code, a submission could show one kernel to
the checks on the simulated GPU, and have another one timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_gpulab.devices.compiler.machine_code import MachineBinary, machine_binary
from pytest_gpulab.devices.hardware.architectures import LIMITS
from pytest_gpulab.devices.protocol import DeviceInfo, DeviceUnavailable, Texts
from pytest_gpulab.devices.simulated.device import SimulatedDevice
from pytest_gpulab.devices.simulated.gpus import modelled_gpu
from pytest_gpulab.devices.simulated.module import SimulatedModule

from .cuda.nvcc.compile import Compiled, Nvcc

if TYPE_CHECKING:
    from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess


class SimulatedBesideGpu(SimulatedDevice):
    """The simulated GPU for the code of a real one with an `architecture` such as `sm_86`.

    One without known limits gets code for the modelled GPU. Raises DeviceAbsent if nvcc is not on the PATH.
    """

    def __init__(self, architecture: str) -> None:
        self._nvcc, gpu = Nvcc(), modelled_gpu()
        super().__init__(gpu._replace(architecture=architecture if architecture in LIMITS else gpu.architecture))

    def _version_of(self, compiler: CompilerProcess | None) -> str:
        """Return an empty text: NVRTC is not loaded."""
        return ""

    @property
    def info(self) -> DeviceInfo:
        """The description in reports."""
        return super().info._replace(compiler=self._nvcc.version)

    def compile(
        self, source: str, filename: str = "kernel.cu", defines: Texts = None, headers: Texts = None
    ) -> SimulatedModule:
        """Compile CUDA C++ with nvcc to machine code and read its PTX; see `protocol.Device.compile`.

        Raises DeviceUnavailable if nvcc does not work here, or keeps no PTX.
        """
        made = self._nvcc.compiled(source, filename, self.gpu.architecture, defines or {}, headers or {})
        if not made.ptx:
            raise DeviceUnavailable("nvcc has kept no PTX file")
        return AssembledModule(self, made, filename)

    def compile_ahead(
        self, source: str, filename: str, variants: Sequence[Mapping[str, str]], headers: Mapping[str, str]
    ) -> None:
        """Compile variants in parallel; see `PrefetchingDevice.compile_ahead`."""
        self._nvcc.ahead(source, filename, self.gpu.architecture, variants, headers)


class AssembledModule(SimulatedModule):
    """A module that nvcc has assembled already."""

    def __init__(self, device: SimulatedBesideGpu, made: Compiled, filename: str) -> None:
        self._assembled = machine_binary(made.cubin, made.report)
        super().__init__(device, made.ptx, made.words, ("", filename))

    def _check_assembly(self, ptx: str) -> None:
        """No-op: nvcc has assembled it."""

    def _binary(self, architecture: str) -> MachineBinary:
        return self._assembled

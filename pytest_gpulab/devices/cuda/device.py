"""The `Device` protocol on an NVIDIA GPU: compile with nvcc, allocate, describe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import numpy.typing as npt

from .. import nvml
from ..protocol import DeviceInfo, DeviceUnavailable, Memory
from ..sandbox import PROTECTION
from .context import PrimaryContext
from .driver import load_driver
from .memory import Blocks, CudaMemory, CudaPart
from .module import CudaModule
from .nvcc import Nvcc
from .report import describe
from .timing import CudaStopwatch
from .turns import Turns


class CudaDevice:
    """One GPU through PyCUDA.

    Args:
        ordinal: the device's number in CUDA's order.
        launch_limit_s: a kernel that runs longer is reported as one that never ends.
        described: whether to make sure that the GPU has room for this process, and to let `info` say all that CUDA and
            NVML know: both take a while beside other processes that do.

    Raises:
        DeviceUnavailable: PyCUDA, the driver, nvcc or the device is missing; says which and how to get it.
    """

    def __init__(self, ordinal: int = 0, launch_limit_s: float = 10.0, described: bool = True) -> None:
        driver = load_driver()
        count = driver.Device.count()
        if not 0 <= ordinal < count:
            raise DeviceUnavailable(f"there is no CUDA device {ordinal}: this machine has {count}, numbered from 0")
        self._nvcc = Nvcc()
        gpu = driver.Device(ordinal)
        self._conditions = nvml.ConditionsReader(gpu.pci_bus_id())
        self._turns = Turns(self._conditions.identity)
        self._context = PrimaryContext(driver, gpu, launch_limit_s, self._turns)
        self._blocks = Blocks(self._context)
        if described:
            try:
                self._context.make()
            except DeviceUnavailable:
                self._conditions.close()
                self._turns.close()
                raise
        summary, details = describe(driver, gpu) if described else ("", {})
        self._stopwatch: CudaStopwatch | None = None
        major, minor = gpu.compute_capability()
        self._info = DeviceInfo(
            kind="cuda",
            name=gpu.name(),
            compiler=self._nvcc.version,
            architecture=f"sm_{major}{minor}",
            estimates=False,
            details={**details, PROTECTION: self._nvcc.within.words},
            summary=summary,
        )

    @property
    def info(self) -> DeviceInfo:
        """What to print about it."""
        return self._info

    @property
    def usable(self) -> bool:
        """Whether no kernel has broken it and nobody has closed it; see `BreakableDevice`."""
        return self._context.usable

    def compile(
        self,
        source: str,
        filename: str = "kernel.cu",
        defines: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> CudaModule:
        """Compile CUDA C++ for this GPU with nvcc; see `Device.compile`.

        Raises:
            CompileError: with nvcc's own message, which names `filename`.
        """
        text = (source, filename, self._info.architecture, defines or {}, headers or {})
        with ThreadPoolExecutor(1) as beside:
            made = beside.submit(self._nvcc.cubin, *text)
            self._context.make()  # the first time: takes as long as nvcc does
            cubin, log = made.result()
        return CudaModule(self._context, cubin, log)

    def compile_ahead(
        self,
        source: str,
        filename: str,
        variants: Sequence[Mapping[str, str]],
        headers: Mapping[str, str],
    ) -> None:
        """Compile variants side by side; see `ForesightedDevice.compile_ahead`."""
        self._nvcc.ahead(source, filename, self._info.architecture, variants, headers)

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> CudaMemory:
        """Allocate and fill an array."""
        contents = np.asarray(values, dtype)
        memory = self.empty(contents.shape, contents.dtype)
        memory.set(contents)
        return memory

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> CudaMemory:
        """Allocate an array with undefined contents."""
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        return CudaMemory(self._blocks, extents, dtype)

    def part(self, whole: Memory, offset_bytes: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> CudaPart:
        """Return an array inside another one; see `TimingDevice.part`."""
        assert isinstance(whole, CudaMemory)
        return CudaPart(whole, offset_bytes, shape, dtype)

    def alone(self) -> AbstractContextManager[None]:
        """Wait until no other grader uses this GPU, and let none; see `TimingDevice.alone`."""
        return self._turns.timing()

    def working(self) -> AbstractContextManager[None]:
        """Give the GPU work in one go, while no other grader times; see `TimingDevice.working`."""
        return self._turns.working()

    @contextmanager
    def stopwatch(self) -> Iterator[CudaStopwatch]:
        """Wait until no other grader uses this GPU, then time; see `TimingDevice.stopwatch`."""
        if self._stopwatch is None:
            self._stopwatch = CudaStopwatch(self._context, self._conditions)
        with self.alone():
            self._stopwatch.begin()
            yield self._stopwatch

    def reset(self) -> None:
        """Free every array of this device."""
        for user in list(self._context.users):
            if isinstance(user, CudaMemory):
                user.free()

    def close(self) -> None:
        """Give everything back; the device cannot be used afterwards."""
        self.reset()
        if self._stopwatch is not None:
            self._stopwatch.close()
            self._stopwatch = None
        self._conditions.close()
        self._blocks.close()
        self._context.close()
        self._turns.close()

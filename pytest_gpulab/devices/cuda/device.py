"""The `Device` protocol on an NVIDIA GPU: compile with nvcc, allocate, describe."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.compiler.sandbox import PROTECTION
from pytest_gpulab.devices.cuda.nvcc.compile import Nvcc
from pytest_gpulab.devices.cuda.timing.comparison import Comparison
from pytest_gpulab.devices.cuda.timing.sampler import CudaStopwatch
from pytest_gpulab.devices.protocol import DeviceInfo, DeviceUnavailable, Memory, Texts
from pytest_gpulab.devices.stopwatch import Copies
from pytest_gpulab.devices.textures import DEFAULT_SAMPLING, Sampling, TexelArray

from .driver import load_driver
from .gpu import OpenGpu
from .memory import CudaMemory, CudaPart, copy_within
from .module import CudaModule
from .report import describe
from .textures import CudaTexelArray, CudaTextures

_Answer = TypeVar("_Answer")


class CudaDevice:
    """One GPU through PyCUDA, by its number in CUDA's order; a kernel that exceeds the limit is reported as endless.

    If its `info` is `known` from another process, the GPU is opened on first use, while nvcc runs: both take a while,
    and longer beside other processes that do the same. Raises DeviceUnavailable (then on first use) if PyCUDA, the
    driver, nvcc or the device is missing, nvcc compiles nothing for it, or GPU memory is full. The message says how to
    install it.
    """

    def __init__(self, ordinal: int = 0, launch_limit_s: float = 10.0, known: DeviceInfo | None = None) -> None:
        if known is None:  # a missing driver is reported before a missing nvcc
            load_driver()
        self._nvcc = Nvcc()
        self._ordinal, self._launch_limit_s = ordinal, launch_limit_s
        self._opened: OpenGpu | None = None
        self._unusable = ""
        self._stopwatch: CudaStopwatch | None = None
        self._comparison: Comparison | None = None
        self.info = known or self._describe()
        """The device's description, for reports."""

    @property
    def _gpu(self) -> OpenGpu:
        if self._opened is None:
            if self._unusable:
                raise DeviceUnavailable(self._unusable)
            try:
                self._opened = OpenGpu(self._ordinal, self._launch_limit_s)
            except DeviceUnavailable as missing:
                self._unusable = str(missing)
                raise
        return self._opened

    @cached_property
    def _textures(self) -> CudaTextures:
        return CudaTextures(self._gpu.context)

    def _describe(self) -> DeviceInfo:
        """Check nvcc and create the context, then describe the GPU by CUDA and NVML."""
        driver, gpu = self._gpu.driver, self._gpu.gpu
        major, minor = gpu.compute_capability()
        architecture = f"sm_{major}{minor}"
        try:
            self._run_nvcc(lambda: self._nvcc.try_out(architecture))
        except DeviceUnavailable:
            self.close()
            raise
        summary, details = describe(driver, gpu)
        return DeviceInfo(
            kind="cuda",
            name=gpu.name(),
            compiler=self._nvcc.version,
            architecture=architecture,
            estimates=False,
            details={**details, PROTECTION: self._nvcc.within.words},
            summary=summary,
        )

    @property
    def usable(self) -> bool:
        """True if no kernel has broken the device and it is not closed; see `BreakableDevice`."""
        return self._opened.context.usable if self._opened else not self._unusable

    def compile(
        self, source: str, filename: str = "kernel.cu", defines: Texts = None, headers: Texts = None
    ) -> CudaModule:
        """Compile CUDA C++ for this GPU with nvcc; see `Device.compile`.

        Raises CompileError with nvcc's own message, which names `filename`, and DeviceUnavailable if nvcc compiles
        nothing at all, or the GPU cannot be opened.
        """
        text = (source, filename, self.info.architecture, defines or {}, headers or {})
        cubin, log = self._run_nvcc(lambda: self._nvcc.cubin(*text))
        return CudaModule(self._gpu.context, cubin, log)

    def _run_nvcc(self, task: Callable[[], _Answer]) -> _Answer:
        """Run a task of nvcc's. The first time, open the GPU and create its context meanwhile: that takes as long."""
        with ThreadPoolExecutor(1) as executor:
            future = executor.submit(task)
            self._gpu.context.make()
            return future.result()

    def compile_ahead(
        self, source: str, filename: str, variants: Sequence[Mapping[str, str]], headers: Mapping[str, str]
    ) -> None:
        """Compile variants in parallel; see `PrefetchingDevice.compile_ahead`."""
        self._nvcc.ahead(source, filename, self.info.architecture, variants, headers)

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> CudaMemory:
        """Allocate and fill an array."""
        contents = np.asarray(values, dtype)
        memory = self.empty(contents.shape, contents.dtype)
        memory.set(contents)
        return memory

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> CudaMemory:
        """Allocate an array with undefined contents."""
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        return CudaMemory(self._gpu.blocks, extents, dtype)

    def texel_array(self, values: npt.ArrayLike, channels: int = 1, layered: bool = False) -> CudaTexelArray:
        """Allocate and fill a CUDA array; see `textures.TextureDevice.texel_array`."""
        return self._textures.array(values, channels, layered)

    def texture(
        self, source: Memory | TexelArray, sampling: Sampling = DEFAULT_SAMPLING, channels: int = 1
    ) -> np.uint64:
        """Create a texture and return its handle; see `textures.TextureDevice.texture`."""
        return self._textures.texture(source, sampling, channels)

    def surface(self, source: TexelArray) -> np.uint64:
        """Create a surface and return its handle."""
        return self._textures.surface(source)

    def destroy(self, handle: np.uint64) -> None:
        """Destroy a texture or surface; see `textures.TextureDevice.destroy`."""
        self._textures.destroy(handle)

    def part(self, whole: Memory, offset_bytes: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> CudaPart:
        """Return an array inside another one; see `TimingDevice.part`."""
        assert isinstance(whole, CudaMemory)
        return CudaPart(whole, offset_bytes, shape, dtype)

    def copy(self, copies: Copies) -> None:
        """Copy within the GPU's memory; see `TimingDevice.copy`."""
        with self._gpu.context.at_work():
            copy_within(copies)

    def same(self, one: Memory, other: Memory) -> bool:
        """Return True if two arrays hold the same bytes; see `TimingDevice.same`."""
        assert isinstance(one, CudaMemory) and isinstance(other, CudaMemory)
        if one.nbytes != other.nbytes:
            return False
        return self._comparison_of_arrays().same(one, other)

    def _comparison_of_arrays(self) -> Comparison:
        if self._comparison is None:
            self._comparison = Comparison(self._gpu.context)
        return self._comparison

    def alone(self) -> AbstractContextManager[None]:
        """Hold the GPU's lock exclusively; see `TimingDevice.alone`."""
        return self._gpu.gpu_lock.exclusive()

    def working(self) -> AbstractContextManager[None]:
        """Hold the GPU's lock shared, for a series of operations; see `TimingDevice.working`."""
        return self._gpu.gpu_lock.shared()

    @contextmanager
    def stopwatch(self, drain: bool = False) -> Iterator[CudaStopwatch]:
        """Hold the GPU's lock exclusively, for timing; see `TimingDevice.stopwatch`."""
        if self._stopwatch is None:
            self._comparison_of_arrays()  # before the lock is taken, which makes others wait
            self._stopwatch = CudaStopwatch(self._gpu.context, self._gpu.conditions)
        with self._gpu.gpu_lock.exclusive(drain=drain):
            self._stopwatch.begin()
            yield self._stopwatch

    def reset(self) -> None:
        """Free all arrays of this device, and destroy its textures and surfaces."""
        if self._opened is None:
            return
        self._textures.clear()
        for user in list(self._opened.context.users):
            if isinstance(user, (CudaMemory, CudaTexelArray)):
                user.free()

    def close(self) -> None:
        """Release everything; the device is unusable afterwards."""
        self.reset()
        for user in (self._stopwatch, self._comparison):
            if user is not None:
                user.close()
        self._stopwatch = self._comparison = None
        if self._opened is not None:
            self._opened.close()
        self._unusable = self._unusable or "this device was closed"

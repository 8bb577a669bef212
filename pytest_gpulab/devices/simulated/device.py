"""The simulated GPU behind the device protocol: it compiles modules and owns arrays, textures and surfaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.compiler import nvrtc, nvrtc_program
from pytest_gpulab.devices.protocol import Array, DeviceInfo, LaunchError, Memory, Module, Texts
from pytest_gpulab.devices.simulated.gpus import describe, known_architecture
from pytest_gpulab.devices.simulated.memory.spaces import Allocation, Arena

from .gpus import Gpu, modelled_gpu
from .module import SimulatedModule

if TYPE_CHECKING:  # NVRTC may run in this process instead
    from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess

    # imported by the first texture or allocation in a kernel
    from pytest_gpulab.devices.simulated.memory.heap import Heap
    from pytest_gpulab.devices.simulated.memory.textures import Image, Textures
    from pytest_gpulab.devices.textures import Sampling, TexelArray, Texels


class SimulatedDevice:
    """A GPU simulated with NumPy; see the package's docstring.

    The GPU of the cost model is the H200 by default. Registers and occupancy are those of `occupancy_architecture`,
    such as `sm_86`, or of the modelled GPU. NVRTC runs in the process `compiler`, which `close` ends unless it is for
    the user's own texts, or in this process. Raises DeviceUnavailable if NVRTC is not installed, or the architecture is
    unknown.
    """

    def __init__(
        self,
        gpu: Gpu | None = None,
        occupancy_architecture: str | None = None,
        compiler: CompilerProcess | None = None,
    ) -> None:
        self.arena = Arena()  # global memory
        self._arrays: list[SimulatedMemory] = []
        self.gpu = gpu or modelled_gpu()
        self.occupancy_architecture = known_architecture(occupancy_architecture or self.gpu.architecture)
        self._compiler, self._version = compiler, self._version_of(compiler)
        # glibc takes fresh pages from the kernel for every array of 128 KB and more, until a larger one was freed once
        np.empty(31 << 20, np.uint8)

    def _version_of(self, compiler: CompilerProcess | None) -> str:
        """Return NVRTC's version, or raise DeviceUnavailable if it is not installed."""
        return compiler.version if compiler else nvrtc.version()

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

    def compile(self, source: str, filename: str = "kernel.cu", defines: Texts = None, headers: Texts = None) -> Module:
        """Compile CUDA C++ to PTX and read it; see `protocol.Device.compile`."""
        run = nvrtc.CombinedRun(self._compiler.compiled if self._compiler else nvrtc_program.compiled)
        rest = (defines, headers, run)
        ptx, log = nvrtc.compile_ptx(source, filename, f"compute_{self.gpu.target}", *rest)
        return SimulatedModule(self, ptx, log, (source, filename, *rest))

    def close(self) -> None:
        """Free all memory and end the compiler process."""
        self.reset()
        if self._compiler is not None and not self._compiler.is_shared:
            self._compiler.close()

    @cached_property
    def textures(self) -> Textures:
        """The textures and surfaces by handle."""
        from pytest_gpulab.devices.simulated.memory.textures import Textures

        return Textures(self.arena)

    @property
    def heap(self) -> Heap | None:
        """The heap that kernels' `malloc` and `new` allocate from, or None: each launch has its own."""
        return None

    def array(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> SimulatedMemory:
        """Allocate and fill an array."""
        values = np.asarray(values, dtype)
        memory = self.empty(values.shape, values.dtype)
        memory.set(values)
        return memory

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike) -> SimulatedMemory:
        """Allocate an array with undefined contents."""
        extents = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        memory = SimulatedMemory(self.arena, tuple(int(extent) for extent in extents), np.dtype(dtype), self._forget)
        memory.mark_unwritten()
        self._arrays.append(memory)
        return memory

    def _forget(self, memory: SimulatedMemory) -> None:
        """Free an array's memory; its addresses are not used again."""
        assert memory.allocation is not None
        self._arrays.remove(memory)
        self.arena.free(memory.allocation)

    def reset(self) -> None:
        """Free every array of this device, and destroy its textures and surfaces."""
        if "textures" in vars(self):
            self.textures.clear()
        for memory in list(self._arrays):
            memory.free()

    def texel_array(self, values: npt.ArrayLike, channels: int = 1, layered: bool = False) -> SimulatedTexelArray:
        """Allocate and fill a CUDA array; see `textures.TextureDevice.texel_array`."""
        from pytest_gpulab.devices.textures import texels_of_array

        contents = np.asarray(values)
        texels = texels_of_array(contents, channels, layered)
        return SimulatedTexelArray(self.array(contents), texels)

    def texture(self, source: Memory | TexelArray, sampling: Sampling | None = None, channels: int = 1) -> np.uint64:
        """Make a texture and return its handle; see `textures.TextureDevice.texture`."""
        from pytest_gpulab.devices.textures import DEFAULT_SAMPLING, texels_in_memory

        sampling = sampling or DEFAULT_SAMPLING
        if isinstance(source, SimulatedTexelArray):
            image = _image(source.memory, source.texels)
        else:
            assert isinstance(source, SimulatedMemory)
            image = _image(source, texels_in_memory(source, channels))
        image.texels.check(sampling)
        return self.textures.add(image, sampling)

    def surface(self, source: TexelArray) -> np.uint64:
        """Make a surface and return its handle."""
        assert isinstance(source, SimulatedTexelArray)
        return self.textures.add(_image(source.memory, source.texels), None)

    def destroy(self, handle: np.uint64) -> None:
        """Destroy a texture or surface; see `textures.TextureDevice.destroy`."""
        self.textures.destroy(handle)


class SimulatedTexelArray:
    """A CUDA array of the simulated GPU; see `textures.TexelArray`."""

    def __init__(self, memory: SimulatedMemory, texels: Texels) -> None:
        self.memory, self.texels = memory, texels

    def get(self) -> Array:
        """Return a copy in host memory."""
        return self.memory.get()

    def set(self, values: npt.ArrayLike) -> None:
        """Overwrite the contents; see `textures.TexelArray.set`."""
        self.memory.set(values)

    def free(self) -> None:
        """Free the memory."""
        self.memory.free()


def _image(memory: SimulatedMemory, texels: Texels) -> Image:
    from pytest_gpulab.devices.simulated.memory.textures import Image

    return Image(texels, memory.live, texels.extents[0] * texels.nbytes)


class SimulatedMemory:
    """An array of the simulated GPU; `forget` is called to free its memory."""

    def __init__(
        self, arena: Arena, shape: tuple[int, ...], dtype: np.dtype[Any], forget: Callable[[SimulatedMemory], None]
    ) -> None:
        self._forget = forget
        self.dtype, self.shape = dtype, shape
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.allocation: Allocation | None = arena.allocate(self.nbytes)

    @property
    def address(self) -> int:
        """The address of the first byte in device memory; raise LaunchError if the memory was freed."""
        return self.live.base

    @property
    def live(self) -> Allocation:
        """The allocation; LaunchError if it was freed."""
        if self.allocation is None:
            raise LaunchError("this array was freed")
        return self.allocation

    def _contents(self) -> Array:
        contents: Array = self.live.data[: self.nbytes].view(self.dtype).reshape(self.shape)
        return contents

    def get(self) -> Array:
        """Return a copy in host memory."""
        contents: Array = self._contents().copy()
        return contents

    def set(self, values: npt.ArrayLike) -> None:
        """Overwrite the contents; raise ValueError if the shape differs."""
        values = np.asarray(values)
        if values.shape != self.shape:
            raise ValueError(f"an array of shape {self.shape} cannot be set from one of shape {values.shape}")
        self._contents()[...] = values
        self.live.written = None

    def mark_unwritten(self) -> None:
        """Mark the contents as undefined, for launches with `check`; raise LaunchError if it was freed."""
        self.live.mark_unwritten()

    def damage(self, name: str = "array") -> str | None:
        """Return None: on the simulated GPU, an out-of-bounds write ends the launch."""
        return None

    def free(self) -> None:
        """Free the memory."""
        if self.allocation is not None:
            self._forget(self)
            self.allocation = None

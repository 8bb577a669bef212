"""The memory of the simulated GPU: arrays, and the CUDA arrays, textures and surfaces of `devices.textures`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Array, Memory
from pytest_gpulab.devices.simulated.memory.spaces import Arena
from pytest_gpulab.devices.simulated.memory.textures import Image, Textures
from pytest_gpulab.devices.textures import (
    DEFAULT_SAMPLING,
    Sampling,
    TexelArray,
    Texels,
    texels_in_memory,
    texels_of_array,
)

from .arrays import SimulatedMemory


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


class DeviceMemory:
    """The part of a simulated device that owns memory; see `protocol.Device` and `textures.TextureDevice`.

    Attributes:
        arena: global memory.
        textures: textures and surfaces by handle.
    """

    def __init__(self) -> None:
        self.arena = Arena()
        self.textures = Textures(self.arena)
        self._arrays: list[SimulatedMemory] = []

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
        self.textures.clear()
        for memory in list(self._arrays):
            memory.free()

    def texel_array(self, values: npt.ArrayLike, channels: int = 1, layered: bool = False) -> SimulatedTexelArray:
        """Allocate and fill a CUDA array; see `textures.TextureDevice.texel_array`."""
        contents = np.asarray(values)
        texels = texels_of_array(contents, channels, layered)
        return SimulatedTexelArray(self.array(contents), texels)

    def texture(
        self, source: Memory | TexelArray, sampling: Sampling = DEFAULT_SAMPLING, channels: int = 1
    ) -> np.uint64:
        """Make a texture and return its handle; see `textures.TextureDevice.texture`."""
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


def _image(memory: SimulatedMemory, texels: Texels) -> Image:
    return Image(texels, memory.live, texels.extents[0] * texels.nbytes)

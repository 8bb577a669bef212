"""CUDA arrays, textures and surfaces, through cuda-bindings: PyCUDA has no texture objects."""

from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver

from pytest_gpulab.devices.protocol import Array, Memory
from pytest_gpulab.devices.textures import Sampling, TexelArray, Texels, texels_in_memory, texels_of_array

from .context import PrimaryContext
from .memory import CudaMemory
from .queries import check, value_of

_FORMATS = {
    "u1": "UNSIGNED_INT8", "u2": "UNSIGNED_INT16", "u4": "UNSIGNED_INT32", "i1": "SIGNED_INT8", "i2": "SIGNED_INT16",
    "i4": "SIGNED_INT32", "f2": "HALF", "f4": "FLOAT",
}  # fmt: skip


class CudaTexelArray:
    """A CUDA array; see `textures.TexelArray`."""

    def __init__(self, context: PrimaryContext, values: Array, texels: Texels) -> None:
        self._context, self.texels, self._shape = context, texels, values.shape
        with context.at_work():
            self.handle: Any = value_of(driver.cuArray3DCreate(_array_descriptor(texels)))
            context.users.add(self)
        self.set(values)

    def get(self) -> Array:
        """Return a copy in host memory."""
        contents = np.empty(self._shape, self.texels.dtype)
        copy = self._copy("src")
        copy.dstMemoryType, copy.dstHost = driver.CUmemorytype.CU_MEMORYTYPE_HOST, contents.ctypes.data
        copy.dstPitch, copy.dstHeight = copy.WidthInBytes, copy.Height
        with self._context.current():
            check(driver.cuMemcpy3D(copy))
        return contents

    def set(self, values: npt.ArrayLike) -> None:
        """Overwrite the contents; see `textures.TexelArray.set`."""
        if np.shape(values) != self._shape:
            raise ValueError(f"the array has shape {self._shape}, the values have {np.shape(values)}")
        contents = np.ascontiguousarray(values, self.texels.dtype)
        copy = self._copy("dst")
        copy.srcMemoryType, copy.srcHost = driver.CUmemorytype.CU_MEMORYTYPE_HOST, contents.ctypes.data
        copy.srcPitch, copy.srcHeight = copy.WidthInBytes, copy.Height
        with self._context.at_work():
            check(driver.cuMemcpy3D(copy))

    def _copy(self, side: str) -> Any:
        """Return a copy descriptor for the whole array, without its host side."""
        if self.handle is None:
            raise ValueError("this array was freed")
        copy = driver.CUDA_MEMCPY3D()
        setattr(copy, f"{side}MemoryType", driver.CUmemorytype.CU_MEMORYTYPE_ARRAY)
        setattr(copy, f"{side}Array", self.handle)
        width, copy.Height, copy.Depth = self.texels.extents
        copy.WidthInBytes = width * self.texels.nbytes
        return copy

    def free(self) -> None:
        """Free the memory; only the end of the process frees that of a broken context."""
        if self.handle is not None and self._context.usable:
            with self._context.current():
                check(driver.cuArrayDestroy(self.handle))
            self.handle = None


class CudaTextures:
    """The existing textures and surfaces of a GPU."""

    def __init__(self, context: PrimaryContext) -> None:
        self._context = context
        # Each with its memory: without a reference, the next array would reuse that memory.
        self._textures: dict[int, tuple[Any, Memory | TexelArray]] = {}
        self._surfaces: dict[int, tuple[Any, TexelArray]] = {}

    def array(self, values: npt.ArrayLike, channels: int, layered: bool) -> CudaTexelArray:
        """Allocate and fill a CUDA array; see `textures.TextureDevice.texel_array`."""
        contents = np.asarray(values)
        return CudaTexelArray(self._context, contents, texels_of_array(contents, channels, layered))

    def texture(self, source: Memory | TexelArray, sampling: Sampling, channels: int) -> np.uint64:
        """Create a texture and return its handle; see `textures.TextureDevice.texture`."""
        if isinstance(source, CudaTexelArray):
            texels, resource = source.texels, _of_array(source)
        else:
            assert isinstance(source, CudaMemory)
            texels = texels_in_memory(source, channels)
            resource = _in_memory(source, texels)
        texels.check(sampling)
        with self._context.current():
            made = value_of(driver.cuTexObjectCreate(resource, _sampled(texels, sampling), None))
        handle: np.uint64 = np.uint64(int(made))
        self._textures[int(made)] = made, source
        return handle

    def surface(self, source: TexelArray) -> np.uint64:
        """Create a surface and return its handle."""
        assert isinstance(source, CudaTexelArray)
        with self._context.current():
            made = value_of(driver.cuSurfObjectCreate(_of_array(source)))
        handle: np.uint64 = np.uint64(int(made))
        self._surfaces[int(made)] = made, source
        return handle

    def destroy(self, handle: np.uint64) -> None:
        """Destroy a texture or surface; see `textures.TextureDevice.destroy`."""
        texture, surface = self._textures.pop(int(handle), None), self._surfaces.pop(int(handle), None)
        if texture is None and surface is None:
            raise ValueError(f"{int(handle):#x} is no handle of a texture or surface of this device")
        with self._context.current():
            if texture is not None:
                check(driver.cuTexObjectDestroy(texture[0]))
            if surface is not None:
                check(driver.cuSurfObjectDestroy(surface[0]))

    def clear(self) -> None:
        """Destroy all; only the end of the process frees those of a broken context."""
        for handle in (*self._textures, *self._surfaces) if self._context.usable else ():
            self.destroy(np.uint64(handle))


def _format(texels: Texels) -> Any:
    return getattr(driver.CUarray_format, f"CU_AD_FORMAT_{_FORMATS[texels.dtype.str[1:]]}")


def _array_descriptor(texels: Texels) -> Any:
    """Return the descriptor of a CUDA array; the extent of a missing axis is 0."""
    descriptor = driver.CUDA_ARRAY3D_DESCRIPTOR()
    descriptor.Width, height, depth = texels.extents
    descriptor.Height = height if texels.axes > 1 else 0
    descriptor.Depth = depth if texels.axes > 2 or texels.is_layered else 0
    descriptor.Format, descriptor.NumChannels = _format(texels), texels.channels
    descriptor.Flags = driver.CUDA_ARRAY3D_SURFACE_LDST | (driver.CUDA_ARRAY3D_LAYERED if texels.is_layered else 0)
    return descriptor


def _of_array(array: CudaTexelArray) -> Any:
    if array.handle is None:
        raise ValueError("this array was freed")
    resource = driver.CUDA_RESOURCE_DESC()
    resource.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
    resource.res.array.hArray = array.handle
    return resource


def _in_memory(memory: CudaMemory, texels: Texels) -> Any:
    resource = driver.CUDA_RESOURCE_DESC()
    if texels.kind == "linear":
        resource.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
        resource.res.linear.sizeInBytes = memory.nbytes
        place = resource.res.linear
    else:
        resource.resType = driver.CUresourcetype.CU_RESOURCE_TYPE_PITCH2D
        place = resource.res.pitch2D
        place.width, place.height, _ = texels.extents
        place.pitchInBytes = texels.extents[0] * texels.nbytes
    place.devPtr, place.format, place.numChannels = driver.CUdeviceptr(memory.address), _format(texels), texels.channels
    return resource


def _sampled(texels: Texels, sampling: Sampling) -> Any:
    described = driver.CUDA_TEXTURE_DESC()
    # A missing axis has extent 1: `border` would halve filtered values there, `wrap` has no effect.
    wanted = [*sampling.modes[: texels.axes], *["wrap"] * (3 - texels.axes)]
    modes = [getattr(driver.CUaddress_mode, f"CU_TR_ADDRESS_MODE_{mode.upper()}") for mode in wanted]
    described.addressMode = modes
    described.filterMode = getattr(driver.CUfilter_mode, f"CU_TR_FILTER_MODE_{sampling.filter.upper()}")
    if not texels.is_float(sampling):
        described.flags |= driver.CU_TRSF_READ_AS_INTEGER
    if sampling.normalized_coords:
        described.flags |= driver.CU_TRSF_NORMALIZED_COORDINATES
    return described

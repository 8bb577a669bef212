"""CUDA arrays, textures and surfaces."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_gpulab.devices.programs.api import Call, CudaError, Error, api
from pytest_gpulab.devices.programs.messages import Value
from pytest_gpulab.devices.simulated.memory.spaces import Allocation
from pytest_gpulab.devices.simulated.memory.textures import Image
from pytest_gpulab.devices.textures import AddressMode, FilterMode, Kind, Sampling, Texels

_LAYERED = 1  # cudaArrayLayered
_ARRAY, _LINEAR = 0, 2  # enum cudaResourceType
_KINDS = "iuf"  # enum cudaChannelFormatKind
_ADDRESS: tuple[AddressMode, ...] = ("wrap", "clamp", "mirror", "border")  # enum cudaTextureAddressMode
_FILTER: tuple[FilterMode, ...] = ("point", "linear")  # enum cudaTextureFilterMode


@dataclass(frozen=True)
class TexelMemory:
    """A CUDA array: its texels, and its extents and flags as the program has given them."""

    image: Image
    extents: tuple[int, int, int]
    flags: int


def _dtype(channels: int, bits: int, kind: int) -> np.dtype[np.generic]:
    """Return the type of the channels of a texel, or raise CudaError if textures have no such channels."""
    if channels not in (1, 2, 4):
        raise CudaError(Error.INVALID_VALUE, "a texel has 1, 2 or 4 channels")
    if kind >= len(_KINDS) or bits not in (8, 16, 32) or (_KINDS[kind] == "f" and bits == 8):
        raise CudaError(Error.NOT_SUPPORTED, "texels of this format")
    return np.dtype(f"{_KINDS[kind]}{bits // 8}")


@api("cudaMallocArray", "cudaMalloc3DArray", form="u" * 7)
def allocate_array(
    call: Call, channels: int, bits: int, kind: int, width: int, height: int, depth: int, flags: int
) -> Sequence[Value]:
    """Allocate a CUDA array; a height or depth of 0 means one dimension less."""
    session, dtype = call.session, _dtype(channels, bits, kind)
    if not width:
        raise CudaError(Error.INVALID_VALUE, "an array has at least one texel")
    is_layered = bool(flags & _LAYERED)
    of: Kind = ("a2d" if height else "a1d") if is_layered else "3d" if depth else "2d" if height else "1d"
    texels = Texels(of, dtype, channels, (width, height or 1, depth or 1))
    row_bytes = width * texels.nbytes
    nbytes = row_bytes * (height or 1) * (depth or 1)
    memory = session.allocate(nbytes, "device", call.site)
    session.arrays[memory.base] = TexelMemory(Image(texels, memory, row_bytes), (width, height, depth), flags)
    return [memory.base]


def _array(call: Call, handle: int) -> TexelMemory:
    found = call.session.arrays.get(handle)
    if not isinstance(found, TexelMemory):
        raise CudaError(Error.INVALID_RESOURCE_HANDLE, "no CUDA array has this handle")
    return found


@api("cudaFreeArray", form="u")
def free_array(call: Call, handle: int) -> None:
    """Free a CUDA array."""
    if handle:
        _array(call, handle)
        del call.session.arrays[handle]
        call.session.free(call.session.memories[handle], call.site)


@api("array", form="u")
def place(call: Call, handle: int) -> Sequence[Value]:
    """Return address, bytes per row, rows per slice and bytes per texel of a CUDA array."""
    image = _array(call, handle).image
    return [image.memory.base, image.row_bytes, image.texels.extents[1], image.texels.nbytes]


@api("cudaArrayGetInfo", form="u")
def array_info(call: Call, handle: int) -> Sequence[Value]:
    """Return format, extents and flags of a CUDA array."""
    array = _array(call, handle)
    texels = array.image.texels
    return [texels.channels, 8 * texels.dtype.itemsize, _KINDS.index(texels.dtype.kind), *array.extents, array.flags]


@api("cudaCreateTextureObject", form="u" * 14)
def create_texture(
    call: Call, resource: int, source: int, channels: int, bits: int, kind: int, width: int, height: int, pitch: int,
    x_mode: int, y_mode: int, z_mode: int, filter_mode: int, is_normalized_read: int, is_normalized: int,
) -> Sequence[Value]:  # fmt: skip
    """Make a texture of a CUDA array, or of rows in device memory; return its handle."""
    if resource == _ARRAY:
        image = _array(call, source).image
    else:
        dtype = _dtype(channels, bits, kind)
        texel_bytes = channels * dtype.itemsize
        if resource == _LINEAR:
            texels, pitch = Texels("linear", dtype, channels, (width // texel_bytes, 1, 1)), width
        else:
            texels = Texels("2d", dtype, channels, (width, height, 1))
        if not width or not texels.extents[1] or pitch < texels.extents[0] * texel_bytes:
            raise CudaError(Error.INVALID_VALUE, f"rows of {width:,} texels with a pitch of {pitch:,} bytes")
        image = Image(texels, _memory(call, source, pitch * texels.extents[1]), pitch)
    if max(x_mode, y_mode, z_mode) >= len(_ADDRESS) or filter_mode >= len(_FILTER):
        raise CudaError(Error.INVALID_VALUE, "an unknown address or filter mode")
    sampling = Sampling(
        tuple(_ADDRESS[mode] for mode in (x_mode, y_mode, z_mode)),
        _FILTER[filter_mode],
        bool(is_normalized),
        bool(is_normalized_read),
    )
    try:
        image.texels.check(sampling)
    except ValueError as error:
        raise CudaError(Error.INVALID_VALUE, str(error)) from error
    return [int(call.session.device.textures.add(image, sampling))]


def _memory(call: Call, address: int, nbytes: int) -> Allocation:
    found = call.session.find(address)
    if found is None:
        raise CudaError(Error.INVALID_VALUE, f"the texels' address is {call.session.described(address)}")
    if address != found.base:
        raise CudaError(Error.NOT_SUPPORTED, "texels that do not begin at the start of an allocation")
    if nbytes > found.nbytes:
        raise CudaError(Error.INVALID_VALUE, f"{nbytes:,} bytes of texels in an allocation of {found.nbytes:,} bytes")
    return found


@api("cudaCreateSurfaceObject", form="u")
def create_surface(call: Call, handle: int) -> Sequence[Value]:
    """Make a surface of a CUDA array; return its handle."""
    return [int(call.session.device.textures.add(_array(call, handle).image, None))]


@api("cudaDestroyTextureObject", "cudaDestroySurfaceObject", form="u")
def destroy(call: Call, handle: int) -> None:
    """Remove a texture or surface."""
    try:
        call.session.device.textures.destroy(np.uint64(handle))
    except ValueError as error:
        raise CudaError(Error.INVALID_RESOURCE_HANDLE, "no texture or surface has this handle") from error

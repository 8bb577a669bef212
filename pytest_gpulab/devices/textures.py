"""Textures and surfaces as plain data: layout of texels, and sampling.

A kernel receives a texture or a surface by its handle, a 64-bit number. The terms are those of the CUDA C++ Programming
Guide, "Texture and Surface Memory".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from .protocol import Array, Memory

AddressMode = Literal["wrap", "clamp", "mirror", "border"]
FilterMode = Literal["point", "linear"]
Kind = Literal["linear", "1d", "2d", "3d", "a1d", "a2d"]
"""`linear`: a 1-D array in global memory; `a1d`, `a2d`: layers. All but `linear` are PTX's names."""

ROW_BYTES = 32  # rows of a 2-D array in global memory must be a multiple of it (cudaDeviceProp.texturePitchAlignment)
_TEXELS = "u1 i1 u2 i2 u4 i4 f2 f4"
_AXES = {"linear": 1, "1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2}


@dataclass(frozen=True)
class Sampling:
    """The sampling of a texture, as in `cudaTextureDesc`; `tex1Dfetch` uses `normalized_reads` only."""

    # the address mode outside the texture, for all axes or for x, y and z. `wrap` and `mirror` need normalised
    # coordinates; without them they act as `clamp`
    address: AddressMode | tuple[AddressMode, ...] = "clamp"
    filter: FilterMode = "point"  # `point` reads the nearest texel, `linear` interpolates between neighbours
    normalized_coords: bool = False  # True for coordinates from 0 to 1 instead of 0 to the number of texels
    # True if 8- and 16-bit integers are read as floats from 0 to 1, or from -1 to 1 if signed
    normalized_reads: bool = False

    @property
    def modes(self) -> tuple[AddressMode, ...]:
        """The address modes of x, y and z."""
        modes = (self.address,) if isinstance(self.address, str) else self.address
        modes = (*modes, *[modes[-1]] * 3)[:3]
        if self.normalized_coords:
            return modes
        return tuple("clamp" if mode in ("wrap", "mirror") else mode for mode in modes)


DEFAULT_SAMPLING = Sampling()


@dataclass(frozen=True)
class Texels:
    """The layout of the texels of a texture or surface."""

    kind: Kind
    dtype: np.dtype[Any]  # the type of a channel
    channels: int  # channels per texel: 1, 2 or 4
    extents: tuple[int, int, int]  # texels in x, y and z; z counts layers in a layered texture

    @property
    def nbytes(self) -> int:
        """The size of a texel in bytes."""
        return self.dtype.itemsize * self.channels

    @property
    def axes(self) -> int:
        """The number of coordinates of a fetch, without the layer."""
        return _AXES[self.kind]

    @property
    def is_layered(self) -> bool:
        """True if the texture is layered."""
        return self.kind in ("a1d", "a2d")

    def is_float(self, sampling: Sampling) -> bool:
        """Return True if reads return floats."""
        return self.dtype.kind == "f" or (sampling.normalized_reads and self.dtype.itemsize < 4)

    def check(self, sampling: Sampling) -> None:
        """Raise ValueError if a sampling does not suit these texels: integers cannot be filtered."""
        if sampling.filter == "linear" and not self.is_float(sampling):
            raise ValueError(f"linear filtering needs floats or normalised reads; the texels are {self.dtype}")


class TexelArray(Protocol):
    """A CUDA array: texels in a device-specific layout, for textures and surfaces only."""

    @property
    def texels(self) -> Texels:
        """The layout of its texels."""

    def get(self) -> Array:
        """Return a copy in host memory."""

    def set(self, values: npt.ArrayLike) -> None:
        """Overwrite the contents; raise ValueError if `values` has another shape."""

    def free(self) -> None:
        """Free the memory; its textures and surfaces are unusable afterwards."""


@runtime_checkable
class TextureDevice(Protocol):
    """A device with textures and surfaces."""

    def texel_array(self, values: npt.ArrayLike, channels: int = 1, layered: bool = False) -> TexelArray:
        """Allocate and fill a CUDA array.

        Args:
            values: texels by their coordinates, x last: `(width,)`, `(height, width)` or `(depth, height, width)`; with
                several channels a last axis of 2 or 4.
            channels: channels per texel.
            layered: True if the first axis counts layers.

        Raises ValueError if no texture supports such texels.
        """

    def texture(
        self, source: Memory | TexelArray, sampling: Sampling = DEFAULT_SAMPLING, channels: int = 1
    ) -> np.uint64:
        """Create a texture and return its handle, an argument of launches.

        Args:
            source: a CUDA array for `tex1D`, `tex2D`, `tex3D` and their layered forms; an array in global memory for
                `tex1Dfetch` or, with two dimensions, `tex2D`.
            sampling: the sampling of the texture.
            channels: channels per texel in global memory; several are the array's last axis.

        Raises ValueError if no texture supports such texels, or the sampling does not suit them.
        """

    def surface(self, source: TexelArray) -> np.uint64:
        """Create a surface, which kernels may write, and return its handle."""

    def destroy(self, handle: np.uint64) -> None:
        """Destroy a texture or surface: its handle becomes invalid. Raise ValueError if none has this handle."""


def texels_of_array(values: Array, channels: int, layered: bool) -> Texels:
    """Return the layout of a CUDA array with these values, or raise ValueError if no texture supports such texels."""
    shape = _without_channels(values.shape, values.dtype, channels)
    if not 1 + layered <= len(shape) <= 3:
        raise ValueError(f"a CUDA array has 1 to 3 axes{', layers included,' if layered else ''} not {len(shape)}")
    kinds: tuple[Kind, ...] = ("a1d", "a2d") if layered else ("1d", "2d", "3d")
    z, inner = (shape[0], shape[1:]) if layered else (shape[0] if len(shape) == 3 else 1, shape[-2:])
    return Texels(kinds[len(shape) - 1 - layered], values.dtype, channels, (inner[-1], (1, *inner)[-2], z))


def texels_in_memory(memory: Memory, channels: int) -> Texels:
    """Return the layout of a texture of an array in global memory.

    Raises ValueError if no texture supports such texels, or the row pitch is not aligned.
    """
    shape = _without_channels(memory.shape, memory.dtype, channels)
    if len(shape) == 1:
        return Texels("linear", memory.dtype, channels, (shape[0], 1, 1))
    if len(shape) != 2:
        raise ValueError(f"a texture of an array in global memory has 1 or 2 axes, not {len(shape)}: use texel_array")
    row_bytes = shape[1] * channels * memory.dtype.itemsize
    if row_bytes % ROW_BYTES:
        what = f"rows of {row_bytes} bytes; a texture of an array in global memory needs a multiple of {ROW_BYTES}"
        raise ValueError(f"{what}: pad the rows, or use texel_array")
    return Texels("2d", memory.dtype, channels, (shape[1], shape[0], 1))


def _without_channels(shape: Sequence[int], dtype: np.dtype[Any], channels: int) -> tuple[int, ...]:
    if dtype.str[1:] not in _TEXELS.split():
        raise ValueError(f"texels are integers of 8 to 32 bits or floats of 16 or 32 bits, not {dtype}")
    if channels not in (1, 2, 4):
        raise ValueError(f"a texel has 1, 2 or 4 channels, not {channels}")
    if channels > 1 and (not shape or shape[-1] != channels):
        raise ValueError(f"texels of {channels} channels need a last axis of {channels}; the shape is {tuple(shape)}")
    inner = tuple(shape if channels == 1 else shape[:-1])
    if not prod(inner) or not inner:
        raise ValueError(f"a texture needs at least 1 texel; the shape is {tuple(shape)}")
    return inner

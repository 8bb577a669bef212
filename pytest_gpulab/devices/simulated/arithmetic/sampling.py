"""Texture sampling: texels and weights of a fetch (CUDA C++ Programming Guide, "Texture Fetching").

Coordinates and results are NumPy scalars or arrays that broadcast to the shape of the lanes.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import product
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from pytest_gpulab.devices.textures import AddressMode, Sampling, Texels

_FRACTION_BITS = 8  # of a filter's weights, which are 9-bit fixed-point numbers
Value = Any


class Tap(NamedTuple):
    """One texel per lane, or its part along one axis."""

    at: Any  # indices in x, y and z, clamped to the texture; the index along one axis
    inside: Value  # True where the texel lies in the texture, None if it always does. Texels outside count as 0
    weight: Value  # weight in the weighted sum of the fetch; None for 1


def taps(texels: Texels, sampling: Sampling, coordinates: Sequence[Value]) -> list[Tap]:
    """Return the texels that fetches read, by the layer, if there are layers, then x, y and z; integers are indices."""
    extents = texels.extents[: texels.axes]
    places = coordinates[texels.is_layered :][: texels.axes]
    if places[0].dtype.kind in "iu":
        along = [[_addressed(x.astype(np.int64), n, "border")] for x, n in zip(places, extents, strict=True)]
    else:
        modes = sampling.modes[: texels.axes]
        along = [_along(sampling, *axis) for axis in zip(places, extents, modes, strict=True)]
    if texels.is_layered:
        zero = [[Tap(np.int64(0), None, None)]] * (2 - texels.axes)
        last = texels.extents[2] - 1
        along += [*zero, [Tap(np.clip(coordinates[0].astype(np.int64), 0, last), None, None)]]
    return [_tap(one_each) for one_each in product(*along)]


def _tap(along: Sequence[Tap]) -> Tap:
    inside = [tap.inside for tap in along if tap.inside is not None]
    weights = [tap.weight for tap in along if tap.weight is not None]
    return Tap(
        tuple(tap.at for tap in along),
        np.logical_and.reduce(np.broadcast_arrays(*inside)) if inside else None,
        reduce(mul, weights) if weights else None,
    )


def _along(sampling: Sampling, x: Value, extent: int, mode: AddressMode) -> list[Tap]:
    """Return the texel that contains a coordinate or, with filtering, the two nearest texels."""
    place = x.astype(np.float64)
    if sampling.normalized_coords:
        if mode == "wrap":
            place = place - np.floor(place)
        elif mode == "mirror":  # every other copy of the texture is mirrored
            place = 1 - np.abs(place % 2 - 1)
        place = place * extent
    place = np.clip(np.where(np.isnan(place), 0.0, place), -2.0, extent + 2.0)
    if sampling.filter == "point":
        return [_addressed(np.floor(place).astype(np.int64), extent, mode)]
    steps = np.floor((place - 0.5) * (1 << _FRACTION_BITS) + 0.5).astype(np.int64)
    low, fraction = steps >> _FRACTION_BITS, (steps & ((1 << _FRACTION_BITS) - 1)) / (1 << _FRACTION_BITS)
    first, second = _addressed(low, extent, mode), _addressed(low + 1, extent, mode)
    return [first._replace(weight=1 - fraction), second._replace(weight=fraction)]


def _addressed(index: Value, extent: int, mode: AddressMode) -> Tap:
    """Apply an address mode to an index, which may lie outside the texture."""
    if mode == "wrap":
        return Tap(index % extent, None, None)
    nearest = np.clip(index, 0, extent - 1)
    return Tap(nearest, nearest == index if mode == "border" else None, None)


def converted(texels: Texels, sampling: Sampling, raw: Value) -> Value:
    """Return the fetched value of a channel: a float32 or a 32-bit integer."""
    dtype = texels.dtype
    if dtype.kind == "f":
        return raw.astype(np.float32)
    if texels.is_float(sampling):
        largest = np.iinfo(dtype).max
        return np.maximum(raw.astype(np.float64) / largest, -1.0).astype(np.float32)
    return raw.astype(np.int32 if dtype.kind == "i" else np.uint32)

"""Textures for the tests of both devices: a kernel for each kind, and a model of the guide's formulas, lane by lane."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.textures import Sampling

Array = npt.NDArray[Any]

SOURCE = """
__global__ void fetch1(cudaTextureObject_t t, const float *x, const float *, const float *, float *out)
{
    out[threadIdx.x] = tex1D<float>(t, x[threadIdx.x]);
}
__global__ void fetch2(cudaTextureObject_t t, const float *x, const float *y, const float *, float *out)
{
    out[threadIdx.x] = tex2D<float>(t, x[threadIdx.x], y[threadIdx.x]);
}
__global__ void fetch3(cudaTextureObject_t t, const float *x, const float *y, const float *z, float *out)
{
    out[threadIdx.x] = tex3D<float>(t, x[threadIdx.x], y[threadIdx.x], z[threadIdx.x]);
}
"""
LANES = 256
SHAPES = {1: (37,), 2: (9, 16), 3: (5, 6, 8)}
WEIGHT_STEPS = 256
ABSOLUTE = 1e-5  # of values up to 1: float32 sums in any order


@dataclass(frozen=True)
class Case:
    """A texture of one to three axes, and places to fetch it at, inside and outside of it."""

    axes: int
    sampling: Sampling

    @property
    def name(self) -> str:
        """For test ids."""
        how = "-".join(self.sampling.modes[: self.axes])
        return f"{self.axes}d-{self.sampling.filter}-{how}-{'normalized' if self.sampling.normalized_coords else ''}"

    @property
    def texels(self) -> Array:
        """Values between 0 and 1."""
        return np.random.default_rng(self.axes).random(SHAPES[self.axes]).astype(np.float32)

    @property
    def places(self) -> list[Array]:
        """Coordinates x, y, z: halfway between steps of the filter's weights, so that no rounding decides."""
        rng = np.random.default_rng([7, self.axes])
        found = []
        for extent in SHAPES[self.axes][::-1]:
            inner = rng.uniform(-1.6 * extent, 2.6 * extent, LANES)
            inner = (np.floor(inner * WEIGHT_STEPS) + 0.25) / WEIGHT_STEPS
            found.append((inner / extent if self.sampling.normalized_coords else inner).astype(np.float32))
        return found

    def expected(self) -> Array:
        """The result by the CUDA C++ Programming Guide."""
        texels, places = self.texels, self.places
        return np.array([sampled(texels, self.sampling, place) for place in zip(*places, strict=True)], np.float32)

    def launch(self, device: Any) -> Array:
        """The result of a device."""
        x, y, z = (device.array(place) for place in (*self.places, *self.places[:1] * 2)[:3])
        texture = device.texture(device.texel_array(self.texels), self.sampling)
        out = device.array(np.zeros(LANES, np.float32))
        device.compile(SOURCE).launch(f"fetch{self.axes}", (1,), (LANES,), (texture, x, y, z, out))
        return out.get()


def cases() -> list[Case]:
    """Return every filter with every address mode that its coordinates allow."""
    found = []
    for axes, filtered, normalized in product((1, 2, 3), ("point", "linear"), (False, True)):
        for mode in ("clamp", "border", *(("wrap", "mirror") if normalized else ())):
            found.append(Case(axes, Sampling(mode, filtered, normalized)))
    mixed = ("wrap", "border", "mirror")
    return [*found, Case(3, Sampling(mixed, "linear", True)), Case(2, Sampling(("border", "clamp"), "linear"))]


def sampled(texels: Array, sampling: Sampling, place: tuple[float, ...]) -> float:
    """Sample at one place, x first, by the formulas of the CUDA C++ Programming Guide, "Texture Fetching"."""
    extents = texels.shape[::-1]
    taps = []
    for x, extent, mode in zip(place, extents, sampling.modes, strict=False):
        at = float(x)
        if sampling.normalized_coords:
            whole = math.floor(at)
            if mode == "wrap":
                at -= whole
            elif mode == "mirror":
                at = at - whole if whole % 2 == 0 else 1 - (at - whole)
            at *= extent
        if sampling.filter == "point":
            taps.append([(at_index(math.floor(at), extent, mode), 1.0)])
            continue
        lower = math.floor(at - 0.5)
        share = round((at - 0.5 - lower) * WEIGHT_STEPS) / WEIGHT_STEPS
        taps.append([(at_index(lower, extent, mode), 1 - share), (at_index(lower + 1, extent, mode), share)])
    total = 0.0
    for chosen in product(*taps):
        index = tuple(index for index, _ in chosen)[::-1]
        weight = math.prod(weight for _, weight in chosen)
        total += 0.0 if None in index else weight * float(texels[index])
    return total


def at_index(index: int, extent: int, mode: str) -> int | None:
    """Return the texel that stands for an index, None for the border's 0."""
    if mode == "wrap":
        return index % extent
    if mode == "border" and not 0 <= index < extent:
        return None
    return min(max(index, 0), extent - 1)

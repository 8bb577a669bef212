"""The textures and surfaces of a device by handle: fetches, surface reads and writes.

Texels are stored in global memory, row by row. On a GPU, CUDA arrays have another layout, which kernels cannot see.
The hazard checks and the cost model treat fetches as loads from global memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated.arithmetic.sampling import Tap, converted, taps
from pytest_gpulab.devices.simulated.groups.group import Union
from pytest_gpulab.devices.simulated.groups.lanes import Lanes, Value, first_index, lane_at
from pytest_gpulab.devices.simulated.translation.sites import Site
from pytest_gpulab.devices.textures import Sampling, Texels

from .spaces import Allocation, Arena

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.execution.wave import Wave

_FIRST_HANDLE = 0x7E_0000_0001  # an unlikely value, so that other numbers are not taken for handles
_FETCHES = {"1d": "tex1D", "2d": "tex2D", "3d": "tex3D", "a1d": "tex1DLayered", "a2d": "tex2DLayered"}
_ARRAYS = {
    "linear": "a 1-D array in global memory", "1d": "1-D arrays", "2d": "2-D arrays", "3d": "3-D arrays",
    "a1d": "layered 1-D arrays", "a2d": "layered 2-D arrays",
}  # fmt: skip


@dataclass(frozen=True)
class Image:
    """Texels in global memory: an allocation that starts with the first texel, and the bytes from row to row."""

    texels: Texels
    memory: Allocation
    row_bytes: int

    def offset(self, index: Sequence[Value], x_bytes: int) -> Value:
        """Return the offset in the memory, in bytes. `x_bytes` is the unit of the x coordinate."""
        rows = [0, self.row_bytes, self.row_bytes * self.texels.extents[1]]
        found = index[0] * x_bytes
        for place, step in zip(index[1:], rows[1:], strict=False):
            found = found + place * step
        return found


@dataclass(frozen=True)
class HandleTarget:
    """The target of a handle: a texture, or a surface, which has no sampling."""

    image: Image
    sampling: Sampling | None

    @property
    def what(self) -> str:
        """`texture` or `surface`."""
        return "surface" if self.sampling is None else "texture"


class Textures:
    """The textures and surfaces of a device."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._handles = count(_FIRST_HANDLE)
        self._targets: dict[int, HandleTarget] = {}

    def add(self, image: Image, sampling: Sampling | None) -> np.uint64:
        """Create a texture or, without sampling, a surface; return its handle."""
        handle: np.uint64 = np.uint64(next(self._handles))
        self._targets[int(handle)] = HandleTarget(image, sampling)
        return handle

    def destroy(self, handle: np.uint64) -> None:
        """Remove a texture or surface, or raise ValueError if the handle is invalid."""
        if self._targets.pop(int(handle), None) is None:
            raise ValueError(f"{int(handle):#x} is no handle of a texture or surface of this device")

    def clear(self) -> None:
        """Remove all textures and surfaces."""
        self._targets.clear()

    # --- called by generated code -------------------------------------------------------------------

    def fetch(
        self, wave: Wave, lanes: Lanes, site: Site, handle: Value, coordinates: list[Value], form: str, code: Any
    ) -> list[Value]:
        """Return four channels of 32 bits as `code`; `form` is PTX's name for the kind of texture."""

        def fetched(lanes: Lanes, found: HandleTarget, coordinates: Sequence[Value]) -> list[Value]:
            _refuse_other_kind(lanes, site, found.image.texels, form, coordinates[-1].dtype.kind == "f")
            return [value.view(code) for value in _sampled(wave, lanes, site, found, coordinates)]

        return self._by_handle(lanes, site, "texture", handle, coordinates, fetched)

    def read(
        self, wave: Wave, lanes: Lanes, site: Site, handle: Value, place: list[Value], how: tuple[str, str], code: Any
    ) -> list[Value]:
        """Read elements of type `code` from a surface; the first parameters are as for `fetch`.

        `place` is the layer of a layered surface, then x in bytes, y and z. `how` is PTX's name for the kind of
        surface, and its mode out of bounds: `trap`, `clamp` or `zero`.
        """
        elements = site.nbytes // code.itemsize

        def read(lanes: Lanes, found: HandleTarget, place: Sequence[Value]) -> list[Value]:
            offset, inside = _place(lanes, site, found.image, place, how)
            group, (address,) = _masked(lanes, inside, [_address(found.image, offset)])
            if not group.n:
                return [code.type(0)] * elements
            values = wave.arena.load(group, site, address, code, elements, wave.checker)
            _count(wave, group, site, address)
            return values if inside is None else [_spread(inside, value, group) for value in values]

        return self._by_handle(lanes, site, "surface", handle, place, read)

    def write(
        self, wave: Wave, lanes: Lanes, site: Site, handle: Value, place: list[Value], how: tuple[str, str],
        values: list[Value],
    ) -> None:  # fmt: skip
        """Write elements to a surface; see `read`."""

        def written(lanes: Lanes, found: HandleTarget, given: Sequence[Value]) -> list[Value]:
            place, values = given[: len(given) - elements], given[len(given) - elements :]
            offset, inside = _place(lanes, site, found.image, place, how)
            group, (address, *parts) = _masked(lanes, inside, [_address(found.image, offset), *values])
            if group.n:
                wave.arena.store(group, site, address, parts, wave.checker)
                _count(wave, group, site, address)
            return []

        elements = len(values)
        self._by_handle(lanes, site, "surface", handle, [*place, *values], written)

    def _by_handle(
        self, lanes: Lanes, site: Site, what: str, handle: Value, values: list[Value],
        use: Callable[[Lanes, HandleTarget, Sequence[Value]], list[Value]],
    ) -> list[Value]:  # fmt: skip
        """Call `use` once per handle with the lanes that have it; return the joined results."""
        if handle.size == 1:
            return use(lanes, self._find(lanes, site, what, int(handle.item())), values)
        full = np.broadcast_to(handle, lanes.shape)
        subsets = [lanes.subset(full == which) for which in np.unique(full)]
        found = []
        for subset in subsets:
            texture = self._find(subset.lanes, site, what, int(subset.take(full).item(0)))
            found.append(use(subset.lanes, texture, [subset.take(value) for value in values]))
        union = Union([subset.lanes for subset in subsets], lanes)
        return [union.join(parts) for parts in zip(*found, strict=True)]

    def _find(self, lanes: Lanes, site: Site, what: str, handle: int) -> HandleTarget:
        found = self._targets.get(handle)
        if found is None or found.what != what:
            have = "that of a " + found.what if found else f"no handle of a {what}"
            raise KernelFault("texture", f"invalid {what} handle: {handle:#x} is {have}", site.where, lane_at(lanes, 0))
        if self._arena.find(found.image.memory.base) is not found.image.memory:
            raise KernelFault("texture", f"the array of this {what} was freed", site.where, lane_at(lanes, 0))
        return found


def _refuse_other_kind(lanes: Lanes, site: Site, texels: Texels, form: str, is_float: bool) -> None:
    """Raise KernelFault for a fetch that does not match its texture: its result is undefined on a GPU."""
    if texels.kind == form or (texels.kind == "linear" and form == "1d" and not is_float):
        return
    name = _FETCHES[form] if is_float else "tex1Dfetch" if form == "1d" else f"tex.{form}"
    what = f"{name}() of a texture of {_ARRAYS[texels.kind]}: its result is undefined"
    raise KernelFault("texture", what, site.where, lane_at(lanes, 0))


def _sampled(wave: Wave, lanes: Lanes, site: Site, found: HandleTarget, coordinates: Sequence[Value]) -> list[Value]:
    """Return four channels of a texture at the coordinates."""
    image, sampling = found.image, found.sampling
    texels = image.texels
    assert sampling is not None
    data = image.memory.typed(texels.dtype)
    sums: list[Value] = []
    for number, tap in enumerate(taps(texels, sampling, coordinates)):
        offset = image.offset(tap.at, texels.nbytes)
        _note(wave, lanes, _sized(site, texels.nbytes), image, offset, tap.inside, not number)
        first = offset // texels.dtype.itemsize
        values = [_weighted(texels, sampling, tap, data.take(first + channel)) for channel in range(texels.channels)]
        sums = [a + b for a, b in zip(sums, values, strict=True)] if sums else values
    if sampling.filter == "linear":
        sums = [value.astype(np.float32) for value in sums]
    return [*sums, *[sums[0].dtype.type(0)] * (4 - len(sums))]


def _weighted(texels: Texels, sampling: Sampling, tap: Tap, raw: Value) -> Value:
    value = converted(texels, sampling, raw)
    if tap.inside is not None:
        value = np.where(tap.inside, value, value.dtype.type(0))[()]
    return value if tap.weight is None else value * tap.weight


@lru_cache(maxsize=256)
def _sized(site: Site, nbytes: int) -> Site:
    """Return a fetch as a load of the size of a texel, which depends on the texture."""
    return replace(site, nbytes=nbytes)


def _note(wave: Wave, lanes: Lanes, site: Site, image: Image, offset: Value, inside: Value, is_first: bool) -> None:
    """Report the read texels to the hazard checker, and the first of them to the counters."""
    if wave.checker is None and (wave.counters is None or not is_first):
        return
    group, (offset,) = _masked(lanes, inside, [offset.astype(np.uint64)])
    if group.n and wave.checker is not None:
        image.memory.report(group, site, _address(image, offset), offset, [], wave.checker)
    if group.n and is_first:
        _count(wave, group, site, _address(image, offset))


def _masked(lanes: Lanes, inside: Value, values: list[Value]) -> tuple[Lanes, list[Value]]:
    """Return the lanes where a mask is True (None: all lanes), and their part of some values."""
    if inside is None or inside.all():
        return lanes, values
    subset = lanes.subset(np.broadcast_to(inside, lanes.shape))
    return subset.lanes, [subset.take(value) for value in values]


def _count(wave: Wave, lanes: Lanes, site: Site, address: Value) -> None:
    if wave.counters is not None:
        wave.counters.texels(lanes, site, address)


def _address(image: Image, offset: Value) -> Value:
    return offset.astype(np.uint64) + np.uint64(image.memory.base)


def _place(lanes: Lanes, site: Site, image: Image, place: Sequence[Value], how: tuple[str, str]) -> tuple[Value, Value]:
    """Return the offset of each lane's access in the memory of a surface, and a mask of lanes inside; None if all are.

    Raises KernelFault if the access is misaligned, or it is out of bounds in the mode `trap`.
    """
    texels, (form, mode) = image.texels, how
    if texels.kind != form:
        what = f"an access by surf{_FETCHES[form][3:]} to a surface of {_ARRAYS[texels.kind]}"
        raise KernelFault("texture", what, site.where, lane_at(lanes, 0))
    x_bytes = texels.extents[0] * texels.nbytes
    index = [value.astype(np.int64) for value in place[texels.is_layered :][: texels.axes]]
    if texels.is_layered:
        index += [*[np.int64(0)] * (2 - texels.axes), place[0].astype(np.int64)]
    extents = (x_bytes - site.nbytes + 1, *texels.extents[1:])
    nearest = [np.clip(value, 0, extent - 1) for value, extent in zip(index, extents, strict=False)]
    if np.any(index[0] % site.nbytes):
        _fault(lanes, site, "misaligned", image, index, np.broadcast_to(index[0] % site.nbytes != 0, lanes.shape))
    inside = np.ones(lanes.shape, np.bool_)
    if mode != "clamp":
        for value, near in zip(index, nearest, strict=True):
            inside = inside & (value == near)
    if mode == "trap" and not inside.all():
        _fault(lanes, site, "out-of-bounds", image, index, ~inside)
    return image.offset(nearest, 1), None if inside.all() else inside


def _fault(lanes: Lanes, site: Site, code: str, image: Image, index: Sequence[Value], bad: Value) -> None:
    first, texels = first_index(lanes, bad), image.texels
    at = [int(np.broadcast_to(value, lanes.shape).flat[first]) for value in index]
    names = ["byte", "y", "layer" if texels.is_layered else "z"]
    places = zip(names, at, texels.extents, strict=False)
    where = ", ".join(f"{name} {value}" for name, value, extent in places if name == "byte" or extent > 1 or value)
    size = f"{site.nbytes} byte{'s' if site.nbytes > 1 else ''}"
    extents = " x ".join(str(extent) for extent in texels.extents[: len(index)])
    what = f"invalid surface {site.access} of size {size} at {where}: "
    what += f"the surface has {extents} texels of {texels.nbytes}" if code == "out-of-bounds" else "it is misaligned"
    raise KernelFault(code, what, site.where, lane_at(lanes, first))


def _spread(inside: Value, value: Value, group: Lanes) -> Value:
    """Return the values of the lanes inside, and 0 for the others."""
    full = np.zeros(inside.shape, value.dtype)
    full[inside] = np.broadcast_to(value, group.shape).ravel()
    return full

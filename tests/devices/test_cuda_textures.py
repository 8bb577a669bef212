"""Textures of the CUDA device without a GPU: what the driver is asked for, and when."""

from __future__ import annotations

import ctypes
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver
from fake_driver import Context

from pytest_gpulab.devices.cuda import textures
from pytest_gpulab.devices.cuda.device import CudaDevice
from pytest_gpulab.devices.cuda.faults import DriverRefusal
from pytest_gpulab.devices.cuda.memory import Blocks, CudaMemory
from pytest_gpulab.devices.textures import Sampling, TextureDevice

SUCCESS = driver.CUresult.CUDA_SUCCESS


class Functions:
    """The driver's functions, with its real types: keeps what it is asked, and the bytes of one array."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.kept = b""
        self.answer = SUCCESS

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or name == "cuGetErrorString":
            return getattr(driver, name)
        return lambda *args: self._call(name, args)

    def cuGetErrorString(self, error: Any) -> Any:  # noqa: N802
        return SUCCESS, b"invalid argument"

    def cuMemcpy3D(self, copy: Any) -> Any:  # noqa: N802
        nbytes = copy.WidthInBytes * copy.Height * copy.Depth
        if copy.srcMemoryType == driver.CUmemorytype.CU_MEMORYTYPE_HOST:
            assert (copy.srcPitch, copy.srcHeight) == (copy.WidthInBytes, copy.Height)
            self.kept = ctypes.string_at(copy.srcHost, nbytes)
        else:
            ctypes.memmove(copy.dstHost, self.kept, nbytes)
        return self._call("cuMemcpy3D", (copy,))[:1]

    def _call(self, name: str, args: tuple[Any, ...]) -> Any:
        self.asked.append((name, args))
        if "Destroy" in name:
            return (self.answer,)
        made = driver.CUarray(4096) if name.startswith("cuArray") else 0x5EED + len(self.asked)
        return self.answer, made

    def args(self, name: str) -> Any:
        """The arguments of the latest call of a function."""
        return next(args for called, args in reversed(self.asked) if called == name)


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Functions:
    functions = Functions()
    monkeypatch.setattr(textures, "driver", functions)
    monkeypatch.setattr("pytest_gpulab.devices.cuda.queries.driver", functions)
    return functions


@pytest.fixture
def device(functions: Functions) -> CudaDevice:
    """A device that is open on a context that is not there."""
    device = object.__new__(CudaDevice)
    context = Context()
    device._opened = SimpleNamespace(context=context, blocks=Blocks(context))
    return device


@pytest.mark.parametrize(
    ("shape", "channels", "layered", "extents"),
    [
        ((5,), 1, False, (5, 0, 0)),
        ((3, 5), 1, False, (5, 3, 0)),
        ((2, 3, 5), 1, False, (5, 3, 2)),
        ((3, 5, 4), 4, False, (5, 3, 0)),
        ((3, 5), 1, True, (5, 0, 3)),
        ((2, 3, 5, 2), 2, True, (5, 3, 2)),
    ],
)
def test_arrays_are_made_filled_and_read(
    device: CudaDevice, functions: Functions, shape: Any, channels: int, layered: bool, extents: Any
) -> None:
    values = np.random.default_rng(1).integers(0, 200, shape).astype(np.uint8)
    array = device.texel_array(values, channels, layered)
    ((made,),) = [args for name, args in functions.asked if name == "cuArray3DCreate"]
    assert (made.Width, made.Height, made.Depth) == extents
    assert (made.Format, made.NumChannels) == (driver.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8, channels)
    assert bool(made.Flags & driver.CUDA_ARRAY3D_LAYERED) == layered
    np.testing.assert_array_equal(array.get(), values)
    with pytest.raises(ValueError, match="the array has shape"):
        array.set(values[:1, ...] if shape[0] > 1 else values[:2])


def test_textures_of_memory_and_of_arrays(device: CudaDevice, functions: Functions) -> None:
    memory = CudaMemory(device._opened.blocks, (4, 8), np.float32)
    device.texture(memory, Sampling(("border", "clamp"), "linear"))
    resource, sampled, _ = functions.args("cuTexObjectCreate")
    assert resource.resType == driver.CUresourcetype.CU_RESOURCE_TYPE_PITCH2D
    place = resource.res.pitch2D
    assert (place.width, place.height, place.pitchInBytes) == (8, 4, 32)
    assert int(place.devPtr) == memory.address and memory.address % 512 == 0
    modes = [getattr(driver.CUaddress_mode, f"CU_TR_ADDRESS_MODE_{name}") for name in ("BORDER", "CLAMP", "WRAP")]
    assert sampled.addressMode == modes  # there is no z
    assert (sampled.filterMode, sampled.flags) == (driver.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR, 0)
    device.texture(CudaMemory(device._opened.blocks, (6, 2), np.int16), channels=2)
    resource, sampled, _ = functions.args("cuTexObjectCreate")
    assert resource.resType == driver.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    assert (resource.res.linear.sizeInBytes, resource.res.linear.numChannels) == (24, 2)
    assert sampled.flags == driver.CU_TRSF_READ_AS_INTEGER
    device.texture(device.texel_array(np.zeros(3, np.int8)), Sampling("wrap", "linear", True, True))
    resource, sampled, _ = functions.args("cuTexObjectCreate")
    assert resource.resType == driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY and int(resource.res.array.hArray) == 4096
    assert sampled.flags == driver.CU_TRSF_NORMALIZED_COORDINATES


def test_a_texture_keeps_its_memory(device: CudaDevice, functions: Functions) -> None:
    memory = CudaMemory(device._opened.blocks, (8,), np.float32)
    kept = weakref.ref(memory)
    texture = device.texture(memory)
    del memory
    functions.asked.clear()
    gc.collect()
    assert kept() is not None
    device.destroy(texture)
    gc.collect()
    assert kept() is None


def test_objects_are_destroyed_once(device: CudaDevice, functions: Functions) -> None:
    assert isinstance(device, TextureDevice)
    array = device.texel_array(np.zeros(3, np.float32))
    texture, surface = device.texture(array), device.surface(array)
    assert texture.dtype == surface.dtype == np.uint64 and texture != surface
    device.destroy(texture)
    with pytest.raises(ValueError, match="is no handle of a texture or surface of this device"):
        device.destroy(texture)
    device.reset()
    destroyed = [(name, int(args[0])) for name, args in functions.asked if "Destroy" in name]
    assert destroyed == [
        ("cuTexObjectDestroy", int(texture)), ("cuSurfObjectDestroy", int(surface)), ("cuArrayDestroy", 4096)
    ]  # fmt: skip
    for use in (array.get, lambda: device.texture(array), lambda: device.surface(array)):
        with pytest.raises(ValueError, match="this array was freed"):
            use()


def test_driver_errors_and_invalid_textures_are_refused(device: CudaDevice, functions: Functions) -> None:
    memory = CudaMemory(device._opened.blocks, (4, 5), np.float32)
    with pytest.raises(ValueError, match="rows of 20 bytes"):
        device.texture(memory)
    with pytest.raises(ValueError, match="linear filtering needs floats"):
        device.texture(device.texel_array(np.zeros(4, np.int32)), Sampling(filter="linear"))
    array = device.texel_array(np.zeros(4, np.int32))
    functions.answer = driver.CUresult.CUDA_ERROR_INVALID_VALUE
    for use in (lambda: device.texture(array), array.get):
        with pytest.raises(DriverRefusal, match="invalid argument"):
            use()


def test_a_broken_context_keeps_what_it_has(device: CudaDevice, functions: Functions) -> None:
    array = device.texel_array(np.zeros(3, np.float32))
    device.texture(array)
    device._opened.context.usable = False
    device.reset()
    assert not [name for name, _ in functions.asked if "Destroy" in name]

"""Surfaces on the simulated GPU: reads and writes, the three ways at their edges, and what is no access of theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from places import marked

from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice

N = 64
KERNEL = """
__global__ void f(cudaSurfaceObject_t s, float *out)
{
    const int i = threadIdx.x;
    STATEMENT // HERE
}
"""


def launched(device: SimulatedDevice, statement: str, *args: Any, check: bool = True) -> Any:
    """Run a statement in N threads."""
    source = KERNEL.replace("STATEMENT", statement)
    return device.compile(source).launch("f", (1,), (N,), args, 0, LaunchOptions(check=check))


@pytest.mark.parametrize(
    ("shape", "layered", "form", "place"),
    [
        ((64,), False, "1D", "4 * i"),
        ((8, 8), False, "2D", "4 * (i % 8), i / 8"),
        ((4, 2, 8), False, "3D", "4 * (i % 8), i / 8 % 2, i / 16"),
        ((8, 8), True, "1DLayered", "4 * (i % 8), i / 8"),
        ((4, 2, 8), True, "2DLayered", "4 * (i % 8), i / 8 % 2, i / 16"),
    ],
)
def test_each_kind_is_read_and_written(
    device: SimulatedDevice, shape: tuple[int, ...], layered: bool, form: str, place: str
) -> None:
    values = np.random.default_rng(4).random(shape).astype(np.float32)
    array, out = device.texel_array(values, layered=layered), device.array(np.zeros(N, np.float32))
    surface = device.surface(array)
    profile = launched(device, f"out[i] = surf{form}read<float>(s, {place});", surface, out)
    np.testing.assert_array_equal(out.get(), values.ravel())
    assert profile.hazards == ()
    written = f"surf{form}write(i + 0.5f, s, {place});"
    assert launched(device, written, surface, out).hazards == ()
    np.testing.assert_array_equal(array.get().ravel(), np.arange(N) + 0.5)


@pytest.mark.parametrize(
    ("kind", "code", "channels"),
    [("uchar1", "u1", 1), ("uchar4", "u1", 4), ("short2", "i2", 2), ("int4", "i4", 4), ("float2", "f4", 2)],
)
def test_elements_of_all_sizes(device: SimulatedDevice, kind: str, code: str, channels: int) -> None:
    values = np.random.default_rng(4).integers(0, 100, (2 * N, channels)).astype(code)
    array = device.texel_array(values if channels > 1 else values[:, 0], channels)
    moved = f"surf1Dwrite(surf1Dread<{kind}>(s, i * (int)sizeof({kind})), s, (i + 64) * (int)sizeof({kind}));"
    launched(device, moved, device.surface(array), device.array(np.zeros(1, np.float32)))
    np.testing.assert_array_equal(array.get().reshape(2, N, channels)[1], values[:N])


def test_edges_are_clamped_or_zero(device: SimulatedDevice) -> None:
    values = np.arange(1, 33, dtype=np.float32)
    array, out = device.texel_array(values), device.array(np.zeros(N, np.float32))
    surface, place = device.surface(array), "4 * (i - 16)"
    launched(device, f"out[i] = surf1Dread<float>(s, {place}, cudaBoundaryModeClamp);", surface, out)
    np.testing.assert_array_equal(out.get(), np.clip(np.arange(N) - 15, 1, 32))
    launched(device, f"out[i] = surf1Dread<float>(s, {place}, cudaBoundaryModeZero);", surface, out)
    np.testing.assert_array_equal(out.get(), [*np.zeros(16), *values, *np.zeros(16)])
    launched(device, "out[i] = surf1Dread<float>(s, -4, cudaBoundaryModeZero);", surface, out)
    assert not out.get().any()
    launched(device, f"surf1Dwrite(-1.0f * i, s, {place}, cudaBoundaryModeZero);", surface, out)
    np.testing.assert_array_equal(array.get(), -np.arange(16, 48))
    launched(device, "surf1Dwrite(1.0f, s, -4, cudaBoundaryModeZero);", surface, out)
    np.testing.assert_array_equal(array.get(), -np.arange(16, 48))


@pytest.mark.parametrize(
    ("statement", "code", "what"),
    [
        ("surf2Dwrite(1.0f, s, 4 * i, 3);", "out-of-bounds", "invalid surface write of size 4 bytes at byte 32, y 3: "
         "the surface has 8 x 8 texels of 4"),
        ("out[i] = surf2Dread<float>(s, 0, i - 1);", "out-of-bounds", "invalid surface read of size 4 bytes at byte 0, "
         "y -1: the surface has 8 x 8 texels of 4"),
        ("out[i] = surf2Dread<float>(s, i, 0);", "misaligned", "invalid surface read of size 4 bytes at byte 1, y 0: "
         "it is misaligned"),
        ("surf3Dwrite(1.0f, s, 0, 0, 0);", "texture", r"an access by surf3D to a surface of 2-D arrays"),
        ("out[i] = tex2D<float>(s, 0, 0);", "texture", "invalid texture handle: 0x7e00000001 is that of a surface"),
    ],
)  # fmt: skip
def test_wrong_accesses_end_the_launch(device: SimulatedDevice, statement: str, code: str, what: str) -> None:
    surface = device.surface(device.texel_array(np.zeros((8, 8), np.float32)))
    with pytest.raises(KernelFault) as caught:
        launched(device, statement, surface, device.array(np.zeros(N, np.float32)))
    assert (caught.value.code, caught.value.what) == (code, what)
    assert caught.value.where == marked(KERNEL)


def test_writes_to_one_place_race_and_may_be_seen_by_fetches(device: SimulatedDevice) -> None:
    array, out = device.texel_array(np.zeros(8, np.float32)), device.array(np.zeros(N, np.float32))
    (hazard,) = launched(device, "surf1Dwrite(1.0f * i, s, 4 * (i % 8));", device.surface(array), out).hazards
    assert (hazard.kind, hazard.where) == ("race", marked(KERNEL))
    source = """
__global__ void f(cudaSurfaceObject_t s, cudaTextureObject_t t, float *out)
{
    surf1Dwrite(1.0f, s, 4 * threadIdx.x);
    out[threadIdx.x] = tex1D<float>(t, 63 - threadIdx.x); // HERE
}
"""
    array = device.texel_array(np.zeros(N, np.float32))
    args = device.surface(array), device.texture(array), out
    (hazard,) = device.compile(source).launch("f", (1,), (N,), args, 0, LaunchOptions(check=True)).hazards
    assert (hazard.kind, hazard.where) == ("race", marked(source))


def test_writes_are_part_of_what_a_launch_touches(device: SimulatedDevice) -> None:
    array, out = device.texel_array(np.zeros(N, np.float32)), device.array(np.zeros(N, np.float32))
    source = KERNEL.replace("STATEMENT", "surf1Dwrite(out[i], s, 4 * i);")
    args = device.surface(array), out
    for options in (LaunchOptions(count=True), LaunchOptions(estimate=True)):
        counters = device.compile(source).launch("f", (1,), (N,), args, 0, options).counters
        assert counters["gpulab__touched_sectors.sum"] == 2 * N * 4 / 32
        assert not counters["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"]


def test_an_array_is_written_by_the_host_and_given_back(device: SimulatedDevice) -> None:
    array, out = device.texel_array(np.zeros(N, np.float32)), device.array(np.zeros(N, np.float32))
    surface = device.surface(array)
    array.set(np.arange(N, dtype=np.float32))
    launched(device, "out[i] = surf1Dread<float>(s, 4 * i);", surface, out)
    np.testing.assert_array_equal(out.get(), np.arange(N))
    with pytest.raises(ValueError, match="shape"):
        array.set(np.zeros(3, np.float32))
    array.free()
    with pytest.raises(KernelFault, match="the array of this surface was freed"):
        launched(device, "out[i] = surf1Dread<float>(s, 4 * i);", surface, out)

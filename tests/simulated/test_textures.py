"""Texture fetches on the simulated GPU: what they give, and what becomes of those that a GPU leaves undefined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from places import marked
from texture_cases import Case, cases

from pytest_gpulab.devices.protocol import DEFAULT_OPTIONS, CannotSimulate, KernelFault, LaunchError, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.textures import Sampling, TextureDevice

N = 64
FETCH = """
__global__ void f(cudaTextureObject_t t, TYPE *out, int first)
{
    const int i = threadIdx.x;
    out[i] = tex1Dfetch<TYPE>(t, i + first); // HERE
}
"""
AT = """
__global__ void f(cudaTextureObject_t t, TYPE *out)
{
    out[threadIdx.x] = FETCH; // HERE
}
"""


def launched(device: SimulatedDevice, source: str, *args: Any, options: LaunchOptions = DEFAULT_OPTIONS) -> Any:
    """Launch a source's kernel in one block of N threads."""
    return device.compile(source).launch("f", (1,), (N,), args, 0, options)


def fetched(device: SimulatedDevice, expression: str, texture: np.uint64, kind: str = "float") -> Any:
    """Return what N threads get by an expression of type `kind`."""
    out = device.array(np.zeros(N, {"float": np.float32, "int": np.int32}[kind]))
    launched(device, AT.replace("FETCH", expression).replace("TYPE", kind), texture, out)
    return out.get()


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_fetch_is_what_the_guide_says(device: SimulatedDevice, case: Case) -> None:
    np.testing.assert_allclose(case.launch(device), case.expected(), rtol=0, atol=1e-6)


def test_weights_have_eight_bits(device: SimulatedDevice) -> None:
    texture = device.texture(device.texel_array(np.array([0, 1], np.float32)), Sampling(filter="linear"))
    found = fetched(device, "tex1D<float>(t, 0.5f + threadIdx.x / 1024.0f)", texture)
    np.testing.assert_array_equal(found, np.floor(np.arange(N) / 4 + 0.5) / 256)


@pytest.mark.parametrize("code", ["u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4"])
@pytest.mark.parametrize("channels", [1, 2, 4])
def test_every_type_of_texels(device: SimulatedDevice, code: str, channels: int) -> None:
    names = {"u1": "uchar", "i1": "char", "u2": "ushort", "i2": "short", "u4": "uint", "i4": "int"}
    bits = np.random.default_rng(5).integers(0, 1 << 15, (N, channels))
    texels = (bits / 1024 if code[0] == "f" else bits - (1 << 14) * (code[0] == "i")).astype(code)
    kind = f"{names.get(code, 'float')}{channels}"
    out = device.array(np.zeros((N, channels), np.float32 if code[0] == "f" else code))
    texture = device.texture(device.array(texels if channels > 1 else texels[:, 0]), channels=channels)
    launched(device, FETCH.replace("TYPE", kind), texture, out, np.int32(0))
    np.testing.assert_array_equal(out.get(), texels)


@pytest.mark.parametrize(("code", "largest"), [("u1", 255), ("i1", 127), ("u2", 65535), ("i2", 32767)])
def test_normalised_reads_go_from_zero_or_minus_one_to_one(device: SimulatedDevice, code: str, largest: int) -> None:
    info = np.iinfo(code)
    texels = np.linspace(info.min, info.max, N).astype(code)
    texture = device.texture(device.array(texels), Sampling(normalized_reads=True))
    out = device.array(np.zeros(N, np.float32))
    launched(device, FETCH.replace("TYPE", "float"), texture, out, np.int32(0))
    expected = np.maximum(texels.astype(np.float64) / largest, -1).astype(np.float32)
    np.testing.assert_array_equal(out.get(), expected)
    filtered = device.texture(device.texel_array(texels), Sampling(filter="linear", normalized_reads=True))
    between = fetched(device, "tex1D<float>(t, threadIdx.x + 1.0f)", filtered)
    np.testing.assert_allclose(between[:-1], (expected[:-1].astype(np.float64) + expected[1:]) / 2, atol=1e-7)


def test_large_integers_are_never_normalised(device: SimulatedDevice) -> None:
    texels = np.arange(N, dtype=np.int32) - 5
    texture = device.texture(device.array(texels), Sampling(normalized_reads=True))
    np.testing.assert_array_equal(fetched(device, "tex1Dfetch<int>(t, threadIdx.x)", texture, "int"), texels)


def test_fetch_outside_of_an_array_gives_zero(device: SimulatedDevice) -> None:
    texture = device.texture(device.array(np.arange(1, 33, dtype=np.float32)))
    out = device.array(np.ones(N, np.float32))
    profile = launched(
        device, FETCH.replace("TYPE", "float"), texture, out, np.int32(-16), options=LaunchOptions(check=True)
    )
    np.testing.assert_array_equal(out.get(), [*np.zeros(16), *np.arange(1, 33), *np.zeros(16)])
    assert profile.hazards == ()


def test_fetch_as_another_type_gives_the_bits(device: SimulatedDevice) -> None:
    values = np.linspace(-3, 3, N).astype(np.float32)
    found = fetched(device, "tex1Dfetch<int>(t, threadIdx.x)", device.texture(device.array(values)), "int")
    np.testing.assert_array_equal(found, values.view(np.int32))


def test_no_number_counts_as_zero_and_infinity_as_far_away(device: SimulatedDevice) -> None:
    array = device.texel_array(np.arange(1, 5, dtype=np.float32))
    at = "tex1D<float>(t, __int_as_float(0x7F800000 | (threadIdx.x == 1) << 22 | (threadIdx.x == 2) << 31))"
    assert fetched(device, at, device.texture(array))[:3].tolist() == [4, 1, 1]
    assert fetched(device, at, device.texture(array, Sampling("border")))[:3].tolist() == [0, 1, 0]
    assert fetched(device, at, device.texture(array, Sampling("wrap", normalized_coords=True)))[:3].tolist() == [1] * 3


def test_rows_in_global_memory_are_a_texture(device: SimulatedDevice) -> None:
    values = np.random.default_rng(2).random((8, 16)).astype(np.float32)
    found = fetched(
        device, "tex2D<float>(t, threadIdx.x % 8 + 3, threadIdx.x / 8)", device.texture(device.array(values))
    )
    np.testing.assert_array_equal(found, values[:, 3:11].ravel())


def test_layers(device: SimulatedDevice) -> None:
    images = np.arange(3 * 4 * 8, dtype=np.float32).reshape(3, 4, 8)
    two = device.texture(device.texel_array(images, layered=True))
    found = fetched(device, "tex2DLayered<float>(t, threadIdx.x % 8, threadIdx.x / 8 % 4, threadIdx.x / 32 + 1)", two)
    np.testing.assert_array_equal(found, images[1:].ravel())
    one = device.texture(device.texel_array(images[0], layered=True))
    found = fetched(device, "tex1DLayered<float>(t, threadIdx.x % 8, threadIdx.x / 8)", one)
    np.testing.assert_array_equal(found, [*images[0].ravel(), *np.tile(images[0, -1], 4)])  # the last layer goes on


def test_levels_of_a_texture_without_mipmaps_are_the_texture(device: SimulatedDevice) -> None:
    values = np.random.default_rng(2).random((8, 8)).astype(np.float32)
    texture = device.texture(device.texel_array(values))
    place = "threadIdx.x % 8, threadIdx.x / 8"
    for fetch in (
        f"tex2DLod<float>(t, {place}, 1.5f)",
        f"tex2DGrad<float>(t, {place}, make_float2(1, 0), make_float2(0, 3))",
        f"[&] {{ bool there; float x = tex2D<float>(t, {place}, &there); return there ? x : -1; }}()",
    ):
        np.testing.assert_array_equal(fetched(device, fetch, texture), values.ravel())


def test_threads_may_fetch_from_textures_of_their_own_and_in_branches(device: SimulatedDevice) -> None:
    source = """
__global__ void f(const cudaTextureObject_t *t, float *out)
{
    const int i = threadIdx.x;
    if (i % 3)
        out[i] = tex1Dfetch<float>(t[i % 2], i);
    else
        out[i] = tex1Dfetch<float>(t[1], 2 * i);
}
"""
    first, second = np.arange(N, dtype=np.float32), -np.arange(2 * N, dtype=np.float32)
    textures = device.array(np.array([device.texture(device.array(values)) for values in (first, second)]))
    out = device.array(np.zeros(N, np.float32))
    profile = launched(device, source, textures, out, options=LaunchOptions(check=True))
    i = np.arange(N)
    np.testing.assert_array_equal(out.get(), np.where(i % 3, np.where(i % 2, -i, i), -2.0 * i))
    assert profile.hazards == ()


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        (
            "tex1D<float>(t, threadIdx.x)",
            r"tex1D\(\) of a texture of a 1-D array in global memory: its result is undef",
        ),
        ("tex2D<float>(t, threadIdx.x, 0)", r"tex2D\(\) of a texture of a 1-D array in global memory"),
        ("tex1Dfetch<float>(t + 1, threadIdx.x)", "invalid texture handle: 0x[0-9a-f]+ is no handle of a texture"),
        ("tex1Dfetch<float>(0, threadIdx.x)", "invalid texture handle: 0x0 is no handle of a texture"),
        ("surf1Dread<float>(t, 4 * threadIdx.x)", "invalid surface handle: 0x[0-9a-f]+ is that of a texture"),
    ],
)
def test_undefined_fetches_end_the_launch(device: SimulatedDevice, expression: str, what: str) -> None:
    source = AT.replace("FETCH", expression).replace("TYPE", "float")
    args = device.texture(device.array(np.zeros(N, np.float32))), device.array(np.zeros(N, np.float32))
    with pytest.raises(KernelFault, match=what) as caught:
        launched(device, source, *args)
    assert (caught.value.code, caught.value.where) == ("texture", marked(source))


def test_index_of_a_texture_of_two_dimensions(device: SimulatedDevice) -> None:
    texture = device.texture(device.texel_array(np.zeros((2, 3), np.float32)))
    with pytest.raises(KernelFault, match=r"tex1Dfetch\(\) of a texture of 2-D arrays"):
        fetched(device, "tex1Dfetch<float>(t, 0)", texture)


def test_handles_end_with_their_texture_their_array_and_a_reset(device: SimulatedDevice) -> None:
    array = device.array(np.zeros(N, np.float32))
    destroyed, orphaned = device.texture(array), device.texture(array)
    device.destroy(destroyed)
    with pytest.raises(KernelFault, match="is no handle of a texture"):
        fetched(device, "tex1Dfetch<float>(t, 0)", destroyed)
    with pytest.raises(ValueError, match="is no handle of a texture or surface of this device"):
        device.destroy(destroyed)
    array.free()
    with pytest.raises(KernelFault, match="the array of this texture was freed"):
        fetched(device, "tex1Dfetch<float>(t, 0)", orphaned)
    with pytest.raises(LaunchError, match="freed"):
        device.texture(array)
    device.reset()
    with pytest.raises(KernelFault, match="is no handle of a texture"):
        fetched(device, "tex1Dfetch<float>(t, 0)", orphaned)


def test_fetch_from_unwritten_memory_is_a_hazard(device: SimulatedDevice) -> None:
    source, out = FETCH.replace("TYPE", "float"), device.array(np.zeros(N, np.float32))
    texture = device.texture(device.empty(N // 2, np.float32))
    profile = launched(device, source, texture, out, np.int32(0), options=LaunchOptions(check=True))
    (hazard,) = profile.hazards
    assert (hazard.kind, hazard.where) == ("uninitialised", marked(source))
    assert "__global__" in hazard.what and hazard.count == N // 2


def test_fetch_of_what_another_thread_writes_is_a_race(device: SimulatedDevice) -> None:
    source = """
__global__ void f(cudaTextureObject_t t, float *data, float *out)
{
    data[threadIdx.x] = 1;
    out[threadIdx.x] = tex1Dfetch<float>(t, 63 - threadIdx.x); // HERE
}
"""
    data, out = (device.array(np.zeros(N, np.float32)) for _ in range(2))
    profile = launched(device, source, device.texture(data), data, out, options=LaunchOptions(check=True))
    (hazard,) = profile.hazards
    assert (hazard.kind, hazard.where) == ("race", marked(source))


@pytest.mark.parametrize("options", [LaunchOptions(count=True), LaunchOptions(estimate=True)])
def test_fetches_are_no_loads_but_touch_memory(device: SimulatedDevice, options: LaunchOptions) -> None:
    texture = device.texture(device.array(np.zeros(N, np.float32)))
    out = device.array(np.zeros(N, np.float32))
    counters = launched(device, FETCH.replace("TYPE", "float"), texture, out, np.int32(0), options=options).counters
    assert not counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]
    assert counters["gpulab__touched_sectors.sum"] == 2 * N * 4 / 32


def test_traffic_of_fetches_is_part_of_the_estimate(device: SimulatedDevice) -> None:
    """Fetches in order, and fetches of which each needs a sector of its own."""
    source = """
__global__ void f(cudaTextureObject_t t, float *out, int step)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = tex1Dfetch<float>(t, i * step);
}
"""
    blocks, module = 4096, device.compile(source)
    texture = device.texture(device.array(np.zeros(blocks * 256 * 8, np.float32)))
    out, options = device.array(np.zeros(blocks * 256, np.float32)), LaunchOptions(sample_blocks=64)
    args = [(texture, out, np.int32(step)) for step in (1, 8)]
    near, far = (module.launch("f", (blocks,), (256,), arg, 0, options).estimated_ms for arg in args)
    assert near is not None and far is not None and far > 2 * near


UNSUPPORTED = {
    "texCubemap<float>(t, 1, 0, 0)": "textures: cube maps",
    "texCubemapLayered<float>(t, 1, 0, 0, 0)": "textures: cube maps",
    "texCubemapLod<float>(t, 1, 0, 0, 0)": "textures: cube maps",
    "tex2Dgather<float4>(t, 1, 1, 0).x": "textures: gathering four texels (tex2Dgather)",
}


@pytest.mark.parametrize("expression", UNSUPPORTED)
def test_left_out_features_are_named_at_the_students_line(device: SimulatedDevice, expression: str) -> None:
    source = AT.replace("FETCH", expression).replace("TYPE", "float")
    with pytest.raises(CannotSimulate) as caught:
        launched(device, source, np.uint64(0), device.array(np.zeros(N, np.float32)))
    assert (caught.value.what, caught.value.where) == (UNSUPPORTED[expression], marked(source))


ASSEMBLY = {
    "txq.width.b32 %0, [%1];": "textures: queries of their properties",
    "suq.width.b32 %0, [%1];": "surfaces: queries of their properties",
    "sured.b.add.1d.u32.trap [%1, {%0}], %0;": "surfaces: atomic operations",
    "sust.p.1d.b32.trap [%1, {%0}], {%0};": "surfaces: formatted stores",
    "{.reg .b32 a, b, c; tex.2dms.v4.u32.s32 {%0, a, b, c}, [%1, {%0, %0, %0, %0}];}": "textures: multisampling",
    "{.reg .b32 a; .reg .f32 x; tex.1d.v2.f16x2.f32 {%0, a}, [%1, {x}];}": "textures: results in half precision",
    "{.reg .b32 a, b, c; tex.1d.v4.u32.s32 {%0, a, b, c}, [%1, %1, {%0}];}": "textures: separate samplers",
    "{.reg .b32 a, b, c; tex.1d.v4.u32.s32 {%0, a, b, c}, [%1, {%0}], {%0};}": "textures: offsets and comparisons",
    "{.reg .b32 a, b, c; .reg .f32 x; tex.base.1d.v4.u32.f32 {%0, a, b, c}, [%1, {x}];}": "textures: mipmaps",
    "{.reg .b32 a, b, c; tex.1d.v4.u32.s32 {%0, a, b, c}, [image, {%0}];}": "textures: texture references",
    "{.reg .b32 a; tex.1d.v2.u32.s32 {%0, a}, [%1, {%0}];}": "textures: a fetch of this form",
    "suld.b.1d.b32.maybe {%0}, [%1, {%0}];": "surfaces: an access of this form",
    "suld.b.1d {%0}, [%1, {%0}];": "the instruction suld.b.1d",
}


@pytest.mark.usefixtures("no_assembler")
@pytest.mark.parametrize("text", ASSEMBLY)
def test_left_out_features_in_assembly(device: SimulatedDevice, text: str) -> None:
    source = f"""__global__ void f(unsigned long long t, unsigned *out) {{
    unsigned x = out[0];
    asm volatile("{text}" : "+r"(x) : "l"(t)); // HERE
    out[0] = x;
}}"""
    with pytest.raises(CannotSimulate) as caught:
        launched(device, source, np.uint64(0), device.array(np.zeros(N, np.uint32)))
    assert ASSEMBLY[text] in caught.value.what
    assert caught.value.where == marked(source)


def test_invalid_textures_are_refused(device: SimulatedDevice) -> None:
    assert isinstance(device, TextureDevice)
    floats = np.zeros((4, 8), np.float32)
    for make, what in {
        lambda: device.texel_array(floats.astype(np.float64)): "floats of 16 or 32 bits, not float64",
        lambda: device.texel_array(floats, channels=3): "1, 2 or 4 channels, not 3",
        lambda: device.texel_array(floats, channels=4): r"last axis of 4; the shape is \(4, 8\)",
        lambda: device.texel_array(floats[:0]): r"at least 1 texel; the shape is \(0, 8\)",
        lambda: device.texel_array(floats.reshape(2, 2, 2, 4)): "1 to 3 axes not 4",
        lambda: device.texel_array(floats[0], layered=True): "1 to 3 axes, layers included, not 1",
        lambda: device.texture(device.array(floats.reshape(2, 2, 8))): "1 or 2 axes, not 3: use texel_array",
        lambda: device.texture(device.array(floats[:, :5])): "rows of 20 bytes; .* a multiple of 32: pad the rows",
        lambda: device.texture(
            device.texel_array(floats.astype(np.int8)), Sampling(filter="linear")
        ): "needs floats or",
    }.items():
        with pytest.raises(ValueError, match=what):
            make()

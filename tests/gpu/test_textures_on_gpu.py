"""Textures and surfaces on a real GPU give what the simulated one gives, within the rounding of filters."""

import numpy as np
import pytest
from texture_cases import ABSOLUTE, Case, cases

from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.textures import Sampling

pytestmark = pytest.mark.gpu

N = 256
KERNELS = """
__global__ void fetch(cudaTextureObject_t t, float *out)
{
    out[threadIdx.x] = tex1Dfetch<float>(t, (int)threadIdx.x - 8);
}
__global__ void bits(cudaTextureObject_t t, float *out)
{
    out[threadIdx.x] = __int_as_float(tex1Dfetch<int>(t, (int)threadIdx.x));
}
__global__ void rows(cudaTextureObject_t t, float *out)
{
    out[threadIdx.x] = tex2D<float>(t, threadIdx.x % 20, threadIdx.x / 16);
}
__global__ void layers(cudaTextureObject_t t, float *out)
{
    out[threadIdx.x] = tex2DLayered<float>(t, threadIdx.x % 8, threadIdx.x / 8 % 4, threadIdx.x / 32);
}
__global__ void surface(cudaSurfaceObject_t s, float *out)
{
    const int i = threadIdx.x;
    const float x = surf2Dread<float>(s, 4 * (i % 20), i / 16, cudaBoundaryModeZero);
    const float y = surf2Dread<float>(s, 4 * (i % 20), i / 16, cudaBoundaryModeClamp);
    __syncthreads();
    surf2Dwrite(x + y, s, 4 * (i % 16), i / 16);
    out[i] = 2 * x - y;
}
"""


@pytest.fixture(scope="module")
def simulated():
    device = SimulatedDevice()
    yield device
    device.close()


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_fetch_is_what_the_simulated_gpu_gives(device, simulated, case: Case):
    np.testing.assert_allclose(case.launch(device), case.launch(simulated), rtol=0, atol=tolerance(case))


def tolerance(case: Case) -> float:
    """Of filters along several axes an H100 rounds the products of weights, too: it differs by up to 0.0038."""
    return 1 / 256 if case.sampling.filter == "linear" and case.axes > 1 else ABSOLUTE


def test_weights_are_rounded_to_eight_bits(device, simulated):
    """At 4,096 places between two texels: which multiple of 1/256 it is."""
    source = """__global__ void f(cudaTextureObject_t t, float *out)
    {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        out[i] = tex1D<float>(t, 0.5f + i / 4096.0f);
    }"""

    def launched(on):
        texture = on.texture(on.texel_array(np.array([0, 1], np.float32)), Sampling(filter="linear"))
        out = on.array(np.zeros(4096, np.float32))
        on.compile(source).launch("f", (16,), (N,), (texture, out))
        return out.get()

    np.testing.assert_array_equal(launched(device), launched(simulated))


def launched(device, kernel, texture):
    out = device.array(np.zeros(N, np.float32))
    device.compile(KERNELS).launch(kernel, (1,), (N,), (texture, out))
    return out.get()


@pytest.mark.parametrize("code", ["u1", "i1", "u2", "i2"])
def test_normalised_reads(device, simulated, code):
    values = np.linspace(np.iinfo(code).min, np.iinfo(code).max, N).astype(code)
    found = [launched(on, "fetch", on.texture(on.array(values), Sampling(normalized_reads=True)))
             for on in (device, simulated)]  # fmt: skip
    np.testing.assert_allclose(*found, rtol=0, atol=1e-7)


@pytest.mark.parametrize("code", ["u1", "i1", "u2", "i2", "i4", "f2", "f4"])
def test_bits_of_every_type(device, simulated, code):
    values = np.arange(-100, N - 100).astype(code)
    found = [launched(on, "bits", on.texture(on.array(values))).view(np.int32) for on in (device, simulated)]
    np.testing.assert_array_equal(*found)


def test_rows_layers_and_surfaces(device, simulated):
    values = np.random.default_rng(3).random((16, 16)).astype(np.float32)
    for kernel in ("rows", "layers", "surface"):
        found = []
        for on in (device, simulated):
            if kernel == "rows":
                found.append(launched(on, kernel, on.texture(on.array(values))))
            elif kernel == "layers":
                array = on.texel_array(values.reshape(8, 4, 8), layered=True)
                found.append(launched(on, kernel, on.texture(array)))
            else:
                array = on.texel_array(values)
                found.append([launched(on, kernel, on.surface(array)), array.get().ravel()])
        np.testing.assert_array_equal(*found, err_msg=kernel)

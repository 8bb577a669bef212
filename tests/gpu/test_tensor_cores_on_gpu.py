"""Matrix instructions on a real GPU give what the simulated one gives, exactly for whole numbers."""

import numpy as np
import pytest
from matrix_kernels import launched, mma_cases, wmma_cases

from pytest_gpulab.devices.simulated import SimulatedDevice

pytestmark = pytest.mark.gpu
CASES = [*wmma_cases(), *mma_cases()]


@pytest.fixture(scope="module")
def simulated():
    device = SimulatedDevice()
    yield device
    device.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_devices_give_the_same_product(device, simulated, case):
    modules = [one.compile(case.source) for one in (device, simulated)]
    pairs = list(zip((device, simulated), modules, strict=True))
    found, expected = (launched(one, module, case, whole=True)[0] for one, module in pairs)
    np.testing.assert_array_equal(found, expected)
    (found, matrices, _), (expected, _, _) = (launched(one, module, case, whole=False) for one, module in pairs)
    assert (np.abs(found - expected) <= 2 * case.tolerance(*matrices)).all()


CUT_OFF = """
#include <mma.h>
using namespace nvcuda;
__global__ void product(const half *a, const half *b, float *sums, int rounds)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::load_matrix_sync(sum, sums, 16, wmma::mem_row_major);
    for (int i = 0; i < rounds; ++i)
        wmma::mma_sync(sum, fa, fb, sum);
    wmma::store_matrix_sync(sums, sum, 16, wmma::mem_row_major);
}
"""


def test_long_sums_are_cut_off(device, simulated):
    """0.75 more is lost at 2^23 on both; rounding to the nearest would add 1 in each of 100 rounds."""
    a, b = np.full((16, 16), 0.25, np.float16), np.full((16, 16), 0.1875, np.float16)
    for one in (device, simulated):
        arrays = [one.array(values) for values in (a, b, np.full((16, 16), 2.0**23, np.float32))]
        one.compile(CUT_OFF).launch("product", (1,), (32,), [*arrays, np.int32(100)])
        np.testing.assert_array_equal(arrays[2].get(), np.full((16, 16), 2.0**23))


TILES = """
__global__ void move(const unsigned short *in, unsigned *registers, unsigned short *out)
{
    __shared__ __align__(16) unsigned short from[256], to[256];
    for (int i = threadIdx.x; i < 256; i += 32) { from[i] = in[i]; to[i] = 0; }
    __syncwarp();
    unsigned r[4], s;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.TRANSshared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(from + 8 * threadIdx.x)));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(s) : "r"(r[1]));
    asm volatile("stmatrix.sync.aligned.m8n8.x2.TRANSshared.b16 [%0], {%1, %2};"
                 :: "r"((unsigned)__cvta_generic_to_shared(to + 8 * (31 - threadIdx.x))), "r"(r[3]), "r"(s) : "memory");
    __syncwarp();
    for (int i = 0; i < 4; ++i) registers[4 * threadIdx.x + i] = r[i];
    for (int i = threadIdx.x; i < 256; i += 32) out[i] = to[i];
}
"""


@pytest.mark.parametrize("transposed", ["", "trans."])
def test_both_devices_move_tiles_alike(device, simulated, transposed):
    found = []
    for one in (device, simulated):
        values = np.arange(256, dtype=np.uint16), np.zeros(128, np.uint32), np.zeros(256, np.uint16)
        arrays = [one.array(value) for value in values]
        one.compile(TILES.replace("TRANS", transposed)).launch("move", (1,), (32,), arrays)
        found.append([array.get() for array in arrays])
    for real, simulated_one in zip(*found, strict=True):
        np.testing.assert_array_equal(real, simulated_one)


ROUNDING = """
__global__ void shorten(const float *in, unsigned *near, unsigned *even, unsigned *zero)
{
    const unsigned i = 256 * blockIdx.x + threadIdx.x;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(near[i]) : "f"(in[i]));
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(even[i]) : "f"(in[i]));
    asm("cvt.rz.tf32.f32 %0, %1;" : "=r"(zero[i]) : "f"(in[i]));
}
"""


def test_both_devices_round_to_tf32_alike(device, simulated):
    bits = np.random.default_rng(4).integers(0, 2**32, 4096, np.uint32)
    bits[:1024] &= 0xFFFFF000  # ties
    bits[:8] = 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7FFFF, 0x80000001, 0x7F801000
    found = []
    for one in (device, simulated):
        arrays = [one.array(bits.view(np.float32)), *(one.array(np.zeros(4096, np.uint32)) for _ in range(3))]
        one.compile(ROUNDING).launch("shorten", (16,), (256,), arrays)
        found.append([array.get() for array in arrays[1:]])
    np.testing.assert_array_equal(*found)  # the three modes at once


SUMS = """
__global__ void add(int *out)
{
    int wrapped[2], stopped[2];
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%2}, {%3, %3};"
        : "=r"(wrapped[0]), "=r"(wrapped[1]) : "r"(0x08080808), "r"(0x7FFFFFF0));
    asm("mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32 {%0, %1}, {%2}, {%2}, {%3, %3};"
        : "=r"(stopped[0]), "=r"(stopped[1]) : "r"(0x08080808), "r"(0x7FFFFFF0));
    out[threadIdx.x] = wrapped[0];
    out[32 + threadIdx.x] = stopped[1];
}
"""


def test_integer_sums_wrap_around_or_saturate_on_both_devices(device, simulated):
    for one in (device, simulated):
        out = one.array(np.zeros(64, np.int32))
        one.compile(SUMS).launch("add", (1,), (32,), [out])
        assert set(out.get()[:32].tolist()) == {-(2**31) + 1008}
        assert set(out.get()[32:].tolist()) == {2**31 - 1}

"""Matrix instructions of warps: results of all shapes, layouts and types, and what kernels do wrong with them."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from matrix_kernels import MatrixCase, launched, mma_cases, wmma_cases
from places import Run, marked

from pytest_gpulab.devices.protocol import CannotSimulate, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice

CHECKED = LaunchOptions(check=True)
OF_WMMA = groupby(wmma_cases(), lambda case: (case.kinds[0], case.shape))
CASES = [*(list(cases) for _, cases in OF_WMMA), *([case] for case in mma_cases())]
INCOMPLETE = "divergent threads in warp: a tensor-core operation needs all 32 threads of the warp"


@pytest.mark.parametrize("cases", CASES, ids=lambda cases: f"{len(cases)} of {cases[0].name}")
def test_products_of_one_warp(device: SimulatedDevice, cases: list[MatrixCase]) -> None:
    """The cases of one shape and type are one text: its header takes most of the time of a compilation."""
    named = {f"product_{number}": case for number, case in enumerate(cases)}
    module = device.compile("\n".join(case.source.replace("product", name) for name, case in named.items()))
    for name, case in named.items():
        found, (a, b, c), profile = launched(device, module, case, whole=True, kernel=name, options=CHECKED)
        np.testing.assert_array_equal(found, a @ b + c, case.name)
        assert (profile.hazards, profile.unchecked) == ((), ()), case.name
        found, (a, b, c), _ = launched(device, module, case, whole=False, kernel=name)
        assert (np.abs(found - (a @ b + c)) <= case.tolerance(a, b, c)).all(), case.name


# --- whole matrices -----------------------------------------------------------------------------------------------

WMMA_MATRIX = """
#include <mma.h>
using namespace nvcuda;
__global__ void f(const half *a, const half *b, float *c, int n)
{
    __shared__ __align__(32) half tile_a[2][16][24], tile_b[2][16][24];
    const int warp = threadIdx.x / 32, row = 32 * blockIdx.y, column = 32 * blockIdx.x;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < n; k += 16) {
        for (int i = threadIdx.x; i < 512; i += blockDim.x) {
            tile_a[i / 256][i / 16 % 16][i % 16] = a[(row + i / 16) * n + k + i % 16];
            tile_b[i / 16 % 2][i / 32][i % 16] = b[(k + i / 32) * n + column + i % 32];
        }
        FIRST
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
        wmma::load_matrix_sync(fa, &tile_a[warp / 2][0][0], 24); // A
        wmma::load_matrix_sync(fb, &tile_b[warp % 2][0][0], 24); // B
        wmma::mma_sync(sum, fa, fb, sum);
        SECOND
    }
    for (int i = 0; i < sum.num_elements; ++i)
        sum.x[i] = 2.0f * sum.x[i] + 1.0f;
    wmma::store_matrix_sync(c + (row + 16 * (warp / 2)) * n + column + 16 * (warp % 2), sum, n, wmma::mem_row_major);
}
"""


def tiled(first: str = "__syncthreads();", second: str = "__syncthreads();") -> str:
    """Return a kernel that computes 2 A B + 1 through tiles in shared memory."""
    return WMMA_MATRIX.replace("FIRST", first).replace("SECOND", second)


def halves(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two square matrices of whole numbers."""
    random = np.random.default_rng(n)
    a, b = (random.integers(-5, 6, (n, n)).astype(np.float16) for _ in range(2))
    return a, b


def test_matrices_through_shared_memory(run: Run) -> None:
    n = 64
    (a, b), c = halves(n), np.zeros((n, n), np.float32)
    profile = run(tiled(), a, b, c, np.int32(n), grid=(2, 2), block=(128,), options=CHECKED)
    np.testing.assert_array_equal(c, 2 * (a.astype(np.float64) @ b) + 1)
    assert (profile.hazards, profile.unchecked) == ((), ())


@pytest.mark.parametrize("schedule", ["warps", "warps-reversed"])
def test_products_do_not_depend_on_the_order_of_warps(run: Run, schedule: str) -> None:
    n = 32
    (a, b), c = halves(n), np.zeros((n, n), np.float32)
    run(tiled(), a, b, c, np.int32(n), block=(128,), options=LaunchOptions(schedule=schedule))
    np.testing.assert_array_equal(c, 2 * (a.astype(np.float64) @ b) + 1)


@pytest.mark.parametrize(("first", "second"), [("", "__syncthreads();"), ("__syncthreads();", "")])
def test_missing_barrier_around_a_tile_is_a_race(run: Run, first: str, second: str) -> None:
    n = 64
    (a, b), c = halves(n), np.zeros((n, n), np.float32)
    source = tiled(first, second)
    profile = run(source, a, b, c, np.int32(n), grid=(2, 2), block=(128,), options=CHECKED)
    races = [hazard for hazard in profile.hazards if hazard.kind == "race"]
    places = {place for hazard in races for place in (hazard.where, hazard.other and hazard.other.where)}
    assert {marked(source, "// A"), marked(source, "// B")} & places, profile.hazards


PTX_MATRIX = """
#include <cuda_fp16.h>
__device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__global__ void f(const half *a, const half *b, float *c, int n)
{
    __shared__ __align__(16) half tile_a[16 * 16], tile_b[16 * 8];
    const int lane = threadIdx.x, row = 16 * blockIdx.y, column = 8 * blockIdx.x;
    float sum[4] = {};
    for (int k = 0; k < n; k += 16) {
        for (int i = lane; i < 256; i += 32) tile_a[i] = a[(row + i / 16) * n + k + i % 16];
        for (int i = lane; i < 128; i += 32) tile_b[i] = b[(k + i / 8) * n + column + i % 8];
        __syncwarp();
        unsigned fa[4], fb[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(fa[0]), "=r"(fa[1]), "=r"(fa[2]), "=r"(fa[3])
                     : "r"(shared_address(tile_a + lane % 16 * 16 + lane / 16 * 8)));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(fb[0]), "=r"(fb[1]) : "r"(shared_address(tile_b + lane % 16 * 8)));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
                     " {%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
        __syncwarp();
    }
    for (int i = 0; i < 4; ++i)
        c[(row + lane / 4 + i / 2 * 8) * n + column + lane % 4 * 2 + i % 2] = sum[i];
}
"""


def test_matrices_by_instructions_of_ptx(run: Run) -> None:
    n = 64
    (a, b), c = halves(n), np.zeros((n, n), np.float32)
    profile = run(PTX_MATRIX, a, b, c, np.int32(n), grid=(8, 4), options=CHECKED)
    np.testing.assert_array_equal(c, a.astype(np.float64) @ b)
    assert (profile.hazards, profile.unchecked) == ((), ())


# --- tiles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("tiles", [1, 2, 4])
@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
def test_tiles_are_loaded_and_stored(run: Run, tiles: int, transposed: bool, space: str) -> None:
    trans = ".trans" if transposed else ""
    registers = ", ".join(f"%{number}" for number in range(tiles))
    shape = f"sync.aligned.m8n8.x{tiles}{trans}{space}.b16"
    address = '"r"((unsigned)__cvta_generic_to_shared({}))' if space else '"l"({})'
    outs = ", ".join(f'"=r"(r[{number}])' for number in range(tiles))
    ins = ", ".join(f'"r"(r[{number}])' for number in range(tiles))
    source = f"""
__global__ void f(const unsigned short *in, unsigned *registers, unsigned short *out)
{{
    __shared__ __align__(16) unsigned short from[256], to[256];
    for (int i = threadIdx.x; i < 256; i += 32) {{ from[i] = in[i]; to[i] = 0; }}
    __syncwarp();
    unsigned r[4] = {{}};
    asm volatile("ldmatrix.{shape} {{{registers}}}, [%{tiles}];" : {outs} : {address.format("from + 8 * threadIdx.x")});
    asm volatile("stmatrix.{shape} [%0], {{{", ".join(f"%{number + 1}" for number in range(tiles))}}};"
                 :: {address.format("to + 8 * (31 - threadIdx.x)")}, {ins} : "memory");
    __syncwarp();
    for (int i = 0; i < 4; ++i) registers[4 * threadIdx.x + i] = r[i];
    for (int i = threadIdx.x; i < 256; i += 32) out[i] = to[i];
}}"""
    numbers = np.arange(1, 257, dtype=np.uint16)
    held, out = np.zeros((32, 4), np.uint32), np.zeros(256, np.uint16)
    assert run(source, numbers, held, out, options=CHECKED).hazards == ()
    each = numbers.reshape(4, 8, 8)[:tiles]
    each = each.swapaxes(1, 2) if transposed else each
    pairs = np.ascontiguousarray(each).reshape(tiles, 32, 2).view(np.uint32)[..., 0]
    np.testing.assert_array_equal(held.T[:tiles], pairs)
    expected = np.zeros((32, 8), np.uint16)
    expected[32 - 8 * tiles :] = numbers.reshape(32, 8)[: 8 * tiles][::-1]
    np.testing.assert_array_equal(out.reshape(32, 8), expected)


def test_movmatrix_transposes_a_tile_in_registers(run: Run) -> None:
    source = """
__global__ void f(const unsigned *in, unsigned *out)
{
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out[threadIdx.x]) : "r"(in[threadIdx.x]));
}"""
    numbers, out = np.arange(64, dtype=np.uint16), np.zeros(64, np.uint16)
    run(source, numbers.view(np.uint32), out.view(np.uint32))
    np.testing.assert_array_equal(out.reshape(8, 8), numbers.reshape(8, 8).T)


# --- numbers --------------------------------------------------------------------------------------------------------


def test_fragments_can_be_filled_changed_and_copied(run: Run) -> None:
    source = """
#include <mma.h>
using namespace nvcuda;
__global__ void f(const float *in, float *out)
{
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> x, y;
    wmma::load_matrix_sync(x, in, 16, wmma::mem_row_major);
    wmma::fill_fragment(y, 3.0f);
    for (int i = 0; i < x.num_elements; ++i)
        y.x[i] = fmaxf(x.x[i] * y.x[i], 0.0f);
    wmma::store_matrix_sync(out, x, 16, wmma::mem_row_major);
    wmma::store_matrix_sync(out + 256, y, 16, wmma::mem_col_major);
}"""
    numbers = np.random.default_rng(3).normal(size=(16, 16)).astype(np.float32)
    out = np.zeros((2, 16, 16), np.float32)
    run(source, numbers, out)
    np.testing.assert_array_equal(out[0], numbers)
    np.testing.assert_array_equal(out[1].T, np.maximum(numbers * np.float32(3), 0))


ONE_PRODUCT = """
#include <mma.h>
using namespace nvcuda;
__global__ void f(const half *a, const half *b, float *out)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::load_matrix_sync(sum, out, 16, wmma::mem_row_major);
    for (int i = 0; i < ROUNDS; ++i)
        wmma::mma_sync(sum, fa, fb, sum);
    wmma::store_matrix_sync(out, sum, 16, wmma::mem_row_major);
}
"""


def test_infinities_and_nan_pass_through(run: Run) -> None:
    a, b, out = np.eye(16, dtype=np.float16), np.zeros((16, 16), np.float16), np.ones((16, 16), np.float32)
    a[2, 2], b[1, 1], out[3, 3], out[4, 4] = np.inf, -np.inf, np.inf, np.float32(3.4e38)
    run(ONE_PRODUCT.replace("ROUNDS", "1"), a, b, out)
    expected = np.ones((16, 16), np.float32)
    expected[:, 1], expected[2] = np.nan, np.nan  # 0 times infinity
    expected[1, 1], expected[3, 3], expected[4, 4] = -np.inf, np.inf, np.float32(3.4e38)
    np.testing.assert_array_equal(out, expected)


def test_long_sums_are_truncated_as_on_hardware(run: Run) -> None:
    """Adding 16 at 2^24 + 1 is exact; adding 1 / 4 there is lost, never rounded up."""
    a, b = np.full((16, 16), 0.25, np.float16), np.full((16, 16), 0.1875, np.float16)
    out = np.full((16, 16), 2.0**23, np.float32)
    run(ONE_PRODUCT.replace("ROUNDS", "100"), a, b, out)
    np.testing.assert_array_equal(out, np.full((16, 16), 2.0**23))


@pytest.mark.parametrize(("modifier", "expected"), [("", -(2**31) + 1008), (".satfinite", 2**31 - 1)])
def test_integer_sums_wrap_around_or_saturate(run: Run, modifier: str, expected: int) -> None:
    source = f"""
__global__ void f(int *out)
{{
    int d[2];
    asm("mma.sync.aligned.m8n8k16.row.col{modifier}.s32.s8.s8.s32 {{%0, %1}}, {{%2}}, {{%2}}, {{%3, %3}};"
        : "=r"(d[0]), "=r"(d[1]) : "r"(0x08080808), "r"(0x7FFFFFF0));
    out[2 * threadIdx.x] = d[0];
    out[2 * threadIdx.x + 1] = d[1];
}}"""
    out = np.zeros(64, np.int32)
    run(source, out)
    assert set(out.tolist()) == {expected}


def test_rounding_to_tf32(run: Run) -> None:
    source = """
#include <mma.h>
__global__ void f(const float *in, float *near, unsigned *even, unsigned *zero)
{
    near[threadIdx.x] = nvcuda::wmma::__float_to_tf32(in[threadIdx.x]);
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(even[threadIdx.x]) : "f"(in[threadIdx.x]));
    asm("cvt.rz.tf32.f32 %0, %1;" : "=r"(zero[threadIdx.x]) : "f"(in[threadIdx.x]));
}"""
    unit = 2.0**-10
    numbers = np.array([1 + unit / 2, -1 - 1.5 * unit, 1 + 0.4 * unit, np.inf, np.nan, 0], np.float32)
    found = [np.zeros(6, np.float32) for _ in range(3)]
    near, even, zero = found
    run(source, numbers, near, even.view(np.uint32), zero.view(np.uint32), block=(6,))
    np.testing.assert_array_equal(near, np.float32([1 + unit, -1 - 2 * unit, 1, np.inf, np.nan, 0]))
    np.testing.assert_array_equal(even, np.float32([1, -1 - 2 * unit, 1, np.inf, np.nan, 0]))
    np.testing.assert_array_equal(zero, np.float32([1, -1 - unit, 1, np.inf, np.nan, 0]))


# --- what is left out -----------------------------------------------------------------------------------------------

LEFT_OUT = {
    "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%0, %0, %0, %0}, {%0, %0}, {%0, %0}, {%0, %0, %0, %0};":
        "mma of shape m8n8k4 and type f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%0, %0, %0, %0}, {%0}, {%0}, {%0, %0, %0, %0};": "4-bit integers",
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%0, %0}, {%0}, {%0}, {%0, %0};": "single bits",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0}, {%0}, {%0}, {%0};": "floats of at most 8 bits",
    "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0}, {%0}, {%0}, {%0}, %0, 0;": "sparse matrices",
    "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e4m3.f32 {%0}, {%0}, {%0}, {%0};":
        "floats of at most 8 bits",
    "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%0}, {%0}, {%0}, {%0};":
        "mma of shape m16n8k16 and type f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%0}, {%0}, {%0}, {%0};":
        "mma of shape m16n8k16 and type f32.f16.bf16.f32",
    "mma.sync.aligned.m16n8k16.row.col.relu.f32.f16.f16.f32 {%0}, {%0}, {%0}, {%0};": "the modifier .relu of mma",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0}, {%0}, {%0}, {%0};": "1 register instead of 4 in mma",
    "wmma.load.a.sync.aligned.row.m16n16k16.f32 {%0}, [%0];": "wmma.load of shape m16n16k16 and type f32",
    "wmma.load.a.sync.aligned.row.m16n16k16.s8 {%0, %0}, %0;": "an address of this form",
    "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%0, %0}, [%0];": "the modifier .b8 of ldmatrix",
    "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0}, [%0];": "ldmatrix of shape m8n8 and type b16",
    "movmatrix.sync.aligned.m8n8.b16 %0, %0;": "movmatrix of shape m8n8 and type b16",
    "wgmma.fence.sync.aligned;": "warpgroup instructions (wgmma)",
    "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;": "tensor memory (tcgen05)",
}  # fmt: skip


@pytest.mark.usefixtures("no_assembler")
@pytest.mark.parametrize("text", LEFT_OUT)
def test_an_unsupported_instruction_is_named_with_its_line(device: SimulatedDevice, text: str) -> None:
    source = f"""__global__ void f(unsigned *out) {{
    unsigned r = 0;
    asm volatile("{text}" : "+r"(r)); // HERE
    out[0] = r;
}}"""
    with pytest.raises(CannotSimulate) as caught:
        device.compile(source).launch("f", (1,), (32,), [device.array(np.zeros(1, np.uint32))])
    assert LEFT_OUT[text] in caught.value.what
    assert caught.value.where == marked(source)


def test_experimental_types_are_refused_at_the_students_line(run: Run) -> None:
    source = """
#include <mma.h>
using namespace nvcuda;
__global__ void f(const int *in, int *out)
{
    wmma::fragment<wmma::matrix_a, 8, 8, 32, wmma::experimental::precision::s4, wmma::row_major> x;
    wmma::load_matrix_sync(x, in, 32); // HERE
    out[threadIdx.x] = x.x[0];
}"""
    with pytest.raises(CannotSimulate, match=r"^cannot simulate tensor cores: 4-bit integers") as caught:
        run(source, np.zeros(64, np.int32), np.zeros(32, np.int32))
    assert caught.value.where == marked(source)

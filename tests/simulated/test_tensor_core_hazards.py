"""Hazards of matrix instructions: parts of warps, tiles outside of arrays, missing barriers."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked
from test_tensor_cores import CHECKED, INCOMPLETE, halves, tiled

from pytest_gpulab.devices.protocol import KernelFault

PARTIAL = """
#include <mma.h>
using namespace nvcuda;
__global__ void f(const half *a, float *out, int threads)
{
    BEFORE
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 1.0f);
    if (CONDITION)
        wmma::store_matrix_sync(out, sum, 16, wmma::mem_row_major); // HERE
}
"""


@pytest.mark.parametrize(
    ("before", "condition", "block"),
    [
        ("", "threadIdx.x < threads", 32),
        ("if (threadIdx.x >= threads) return;", "true", 32),
        ("", "true", 16),
    ],
    ids=["some lanes", "after others have returned", "a block of half a warp"],
)
def test_part_of_a_warp_is_a_hazard(run: Run, before: str, condition: str, block: int) -> None:
    source = PARTIAL.replace("BEFORE", before).replace("CONDITION", condition)
    profile = run(source, np.zeros(256, np.float16), np.zeros(256, np.float32), np.int32(16), block=(block,))
    (hazard,) = profile.hazards
    assert (hazard.kind, hazard.what, hazard.where) == ("barrier", INCOMPLETE, marked(source))
    assert hazard.lane is not None and hazard.lane.thread == (0, 0, 0)


@pytest.mark.parametrize("operation", ["ldmatrix", "mma"])
def test_part_of_a_warp_at_an_instruction_of_ptx_is_a_hazard(run: Run, operation: str) -> None:
    text = {
        "ldmatrix": 'asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(at));',
        "mma": 'asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %0}, {%1}, {%1}, {%1, %1};"'
        ' : "=r"(r) : "r"(at));',
    }[operation]
    source = f"""
__global__ void f(unsigned *out)
{{
    __shared__ __align__(16) unsigned tile[128];
    tile[threadIdx.x] = 0;
    unsigned r = 0, at = (unsigned)__cvta_generic_to_shared(tile);
    if (threadIdx.x % 32 < 31) {{
        {text} // HERE
    }}
    out[threadIdx.x] = r;
}}"""
    profile = run(source, np.zeros(64, np.uint32), block=(64,))
    (hazard,) = profile.hazards
    assert (hazard.what, hazard.where, hazard.count) == (INCOMPLETE, marked(source), 62)


def test_tile_outside_of_an_array_is_found(run: Run) -> None:
    source = tiled().replace("a[(row + i / 16) * n", "a[0 * n")
    n = 64
    (a, b), c = halves(n), np.zeros((n, n - 1), np.float32)
    with pytest.raises(KernelFault, match="invalid __global__ write of size 8 bytes") as caught:
        run(source, a, b, c, np.int32(n), grid=(2, 2), block=(128,))
    assert caught.value.where is not None and "store_matrix_sync" in source.splitlines()[caught.value.where.line - 1]
    assert caught.value.location is not None and caught.value.location.parameter == 2


def test_load_beyond_a_shared_tile_is_found(run: Run) -> None:
    source = """
#include <mma.h>
using namespace nvcuda;
__global__ void f(half *out)
{
    __shared__ __align__(32) half tile[256];
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = 1;
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::load_matrix_sync(x, tile, 24); // HERE
    out[threadIdx.x] = x.x[0];
}"""
    with pytest.raises(KernelFault, match="invalid __shared__ read of size 16 bytes") as caught:
        run(source, np.zeros(32, np.float16))
    assert caught.value.where == marked(source)


def test_line_of_a_tile_must_be_aligned(run: Run) -> None:
    source = """
__global__ void f(unsigned *out)
{
    __shared__ __align__(16) unsigned tile[256];
    const unsigned at = (unsigned)__cvta_generic_to_shared(tile + threadIdx.x * 3);
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(out[threadIdx.x]) : "r"(at)); // HERE
}"""
    with pytest.raises(KernelFault, match="the address is misaligned") as caught:
        run(source, np.zeros(32, np.uint32))
    assert caught.value.where == marked(source)
    assert caught.value.lane is not None and caught.value.lane.thread == (1, 0, 0)


def test_unwritten_elements_of_a_tile_are_found(run: Run) -> None:
    n = 64
    source = tiled().replace("i < 512", "i < 511")
    (a, b), c = halves(n), np.zeros((n, n), np.float32)
    profile = run(source, a, b, c, np.int32(n), grid=(2, 2), block=(128,), options=CHECKED)
    assert {(hazard.kind, hazard.where) for hazard in profile.hazards} == {
        ("uninitialised", marked(source, "// A")), ("uninitialised", marked(source, "// B")),
    }  # fmt: skip


def test_tile_stored_and_read_without_a_warp_sync_is_a_race(run: Run) -> None:
    source = """
#include <mma.h>
using namespace nvcuda;
__global__ void f(float *out)
{
    __shared__ __align__(32) float tile[256];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 1.0f);
    wmma::store_matrix_sync(tile, sum, 16, wmma::mem_row_major);
    SYNC
    for (int i = threadIdx.x; i < 256; i += 32) out[i] = tile[i]; // HERE
}"""
    profile = run(source.replace("SYNC", "__syncwarp();"), np.zeros(256, np.float32), options=CHECKED)
    assert profile.hazards == ()
    profile = run(source.replace("SYNC", ""), np.zeros(256, np.float32), options=CHECKED)
    assert {(hazard.kind, hazard.where) for hazard in profile.hazards} == {("race", marked(source))}

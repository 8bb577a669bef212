"""Counters and estimates of matrix instructions: bank conflicts, sectors, pipes, time."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run
from test_tensor_cores import ONE_PRODUCT

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated.cost.pipes import pipes
from pytest_gpulab.devices.simulated.ptx.syntax import Instruction

COUNTED = LaunchOptions(count=True)


@pytest.mark.parametrize(("stride", "wavefronts"), [(16, 8), (24, 4), (64, 32)])
def test_bank_conflicts_of_a_tile(run: Run, stride: int, wavefronts: int) -> None:
    source = f"""
#include <mma.h>
using namespace nvcuda;
__global__ void f(half *out)
{{
    __shared__ __align__(32) half tile[16 * {stride}];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::load_matrix_sync(x, tile, {stride});
    out[threadIdx.x] = x.x[0];
}}"""
    counters = run(source, np.zeros(32, np.float16), options=COUNTED).counters
    assert counters["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == wavefronts
    assert counters["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"] == wavefronts - 4


@pytest.mark.parametrize(("pad", "sectors"), [(0, 8), (16, 8), (48, 8)])
def test_sectors_of_a_tile_in_global_memory(run: Run, pad: int, sectors: int) -> None:
    """Four requests, each for 16 bytes of 8 lines."""
    source = f"""
#include <mma.h>
using namespace nvcuda;
__global__ void f(const half *in, float *out)
{{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::load_matrix_sync(x, in, {16 + pad});
    out[threadIdx.x] = x.x[0] + x.x[2] + x.x[4] + x.x[6];
}}"""
    numbers = np.zeros(16 * (16 + pad), np.float16)
    counters = run(source, numbers, np.zeros(32, np.float32), options=COUNTED).counters
    assert counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 4
    assert counters["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 4 * sectors


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", {"fp32": 4.0}),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", {"fp32": 8.0}),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", {"fp32": 4.0}),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", {"fp32": 4.0}),
        ("wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64.rn", {"fp64": 4.0}),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", {}),
    ],
)
def test_products_use_the_pipe_of_their_type(opcode: str, expected: dict[str, float]) -> None:
    assert pipes(Instruction(tuple(opcode.split(".")), ())) == expected


def test_estimate_of_long_products_is_that_of_the_tensor_cores(run: Run) -> None:
    """512 products of 16 x 16 x 16 in each of 2,112 warps: 2^21 multiply-adds per warp, 2,048 per cycle and SM.

    With fewer warps, each waits for its last product, about 34 cycles by the stall counts of the machine code.
    """
    out = np.zeros(256, np.float32)
    source = ONE_PRODUCT.replace("ROUNDS", "512").replace("wmma::store", "if (blockIdx.x == 0) wmma::store")
    options = LaunchOptions(count=True, estimate=True)
    profile = run(source, np.zeros(256, np.float16), np.zeros(256, np.float16), out, grid=(2112,), options=options)
    least_ms = 2112 / 132 * 2**21 / 2048 / 1.98e9 * 1e3
    assert profile.estimated_ms is not None
    assert least_ms <= profile.estimated_ms <= 2 * least_ms

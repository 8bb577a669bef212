"""What a kernel does at the timed size only: work that it leaves out now and then, and what the GPU stops it for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.remote import RemoteGrader

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("opened_device")]
ROOT = Path(__file__).parents[2]
KERNEL = """#include <gpulab.cuh>

GPULAB_TUNABLE(BLOCK_SIZE, 256)

__device__ unsigned tickets;

__global__ void reduce(const GPULAB_T *in, GPULAB_T *out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    __shared__ unsigned launch;
    const unsigned t = threadIdx.x, i = blockIdx.x * BLOCK_SIZE + t;
    if (n > 1000000) {
        %s
    }
    tile[t] = i < n ? in[i] : (GPULAB_T)GPULAB_IDENTITY;
    __syncthreads();
    for (unsigned half = BLOCK_SIZE / 2; half > 0; half /= 2) {
        if (t < half)
            tile[t] = GPULAB_OP(tile[t], tile[t + half]);
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = tile[0];
}
"""
LAZY = """
        if (t == 0)
            launch = atomicAdd(&tickets, 1) / gridDim.x;
        __syncthreads();
        if (launch * 2654435761u >> 30 != 0) { // three launches of four
            if (t == 0)
                out[blockIdx.x] = in[blockIdx.x * BLOCK_SIZE];
            return;
        }
"""


def speedups(tmp_path, deed, info, **options):
    """Return the results of the speed tiers of a kernel that is right but for what it does at large sizes."""
    path = tmp_path / "reduction.cu"
    path.write_text(KERNEL % deed)
    loaded = Catalogue(ROOT / "exercises").load("reduction")
    grader = RemoteGrader(loaded, path, "cuda", info, 1, **options)
    try:
        return [grader.run(check) for check in checks_of(loaded.exercise) if check.kind == "speedup"]
    finally:
        grader.close()


def test_work_left_out_in_some_launches_is_found(opened_device, tmp_path):
    results = speedups(tmp_path, LAZY, opened_device.info)
    assert {result.points for result in results} == {0}
    assert results[0].findings[0].code == "wrong-result", results[0]


@pytest.mark.usefixtures("nvidias_tools")
def test_what_the_gpu_stops_is_looked_for_at_a_smaller_size_and_by_compute_sanitizer(opened_device, tmp_path):
    first, *_ = speedups(tmp_path, "if (i == 0) *(volatile int *)16 = 1;", opened_device.info, sanitize=True)
    (found,) = first.findings
    assert (first.verdict, found.code) == ("failed", "out-of-bounds")
    assert found.where == "reduction.cu:13"
    assert any(line.startswith("at a smaller size on the simulated GPU: ") for line in found.evidence)
    assert any("Invalid __global__ write of size 4 bytes" in line for line in found.evidence), found.evidence

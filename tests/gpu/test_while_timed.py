"""Kernels that misbehave at the timed size only: skipped work, and faults."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.isolation.remote import RemoteGrader
from pytest_gpulab.grading.speed.statistics import FEWEST_ROUNDS

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("opened_device")]
ROOT = Path(__file__).parents[2]
# Right but for large inputs, of which it leaves out most: here only where `strikes` says so.
KERNEL = (ROOT / "tests/wrong/reduction/leaves_out_large_inputs.cu").read_text()
INCLUDE, CONDITION = "#include <gpulab.cuh>\n", "n > 1000000"
LAZY = """
__device__ unsigned tickets;
__device__ bool strikes(const GPULAB_T *in, unsigned n) // in three launches of four, and then in all blocks
{
    __shared__ unsigned launch;
    if (threadIdx.x == 0)
        launch = atomicAdd(&tickets, 1) / gridDim.x;
    __syncthreads();
    return launch * 2654435761u >> 30 != 0;
}
"""
KNOWING = """
constexpr unsigned SAMPLES = 16;
__device__ GPULAB_T seen[SAMPLES];
__device__ unsigned tickets;
__device__ bool strikes(const GPULAB_T *in, unsigned n) // where most of some elements are those of the first launch
{
    __shared__ bool is_known;
    if (threadIdx.x == 0) {
        const bool is_first = atomicAdd(&tickets, 1) < gridDim.x;
        unsigned alike = 0;
        for (unsigned k = 0; k < SAMPLES; k++) {
            const GPULAB_T value = in[k * (n / SAMPLES) + 77];
            if (is_first)
                seen[k] = value;
            else
                alike += value == seen[k];
        }
        is_known = alike > SAMPLES / 2;
    }
    __syncthreads();
    return is_known;
}
"""
ILLEGAL = """
__device__ bool strikes(const GPULAB_T *in, unsigned n)
{
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *(volatile int *)16 = 1; // HERE
    return false;
}
"""
SLOW = """
__device__ bool strikes(const GPULAB_T *in, unsigned n) // takes two seconds
{
    long long begun = clock64();
    while (blockIdx.x == 0 && threadIdx.x == 0 && clock64() - begun < 4000000000ll) {
    }
    return false;
}
"""


def striking(how):
    assert KERNEL.count(INCLUDE) == KERNEL.count(CONDITION) == 1
    return KERNEL.replace(INCLUDE, INCLUDE + how).replace(CONDITION, f"{CONDITION} && strikes(in, n)")


def speedups(tmp_path, source, info, **options):
    """Return the results of the speed tiers."""
    path = tmp_path / "reduction.cu"
    path.write_text(source)
    loaded = Catalogue(ROOT / "exercises").load("reduction")
    grader = RemoteGrader(loaded, path, "cuda", info, 1, **options)
    try:
        return [grader.run(check) for check in checks_of(loaded.exercise) if check.kind == "speedup"]
    finally:
        grader.close()


@pytest.mark.parametrize("how", [LAZY, KNOWING])
def test_skipped_work_in_some_launches_is_found(opened_device, tmp_path, how):
    results = speedups(tmp_path, striking(how), opened_device.info)
    assert {result.points for result in results} == {0}
    assert results[0].findings[0].code == "wrong-result", results[0]


@pytest.mark.usefixtures("nvidias_tools")
def test_a_fault_while_timing_is_located_at_a_smaller_size_and_by_compute_sanitizer(opened_device, tmp_path):
    source = striking(ILLEGAL)
    first, *_ = speedups(tmp_path, source, opened_device.info, sanitize=True)
    (found,) = first.findings
    assert (first.verdict, found.code) == ("failed", "out-of-bounds")
    assert found.where == f"reduction.cu:{source[: source.index('HERE')].count(chr(10)) + 1}"
    assert any(line.startswith("at a smaller size on the simulated GPU: ") for line in found.evidence)
    assert any("Invalid __global__ write of size 4 bytes" in line for line in found.evidence), found.evidence


def test_a_slow_kernel_keeps_the_gpu_from_others_for_few_rounds(opened_device, tmp_path):
    results = speedups(tmp_path, striking(SLOW), opened_device.info)
    assert {result.points for result in results} == {0}
    assert {result.measurement.rounds for result in results} == {FEWEST_ROUNDS}


ENDLESS = """
import dataclasses, time

def endless(problem, arrays):
    end_s = time.monotonic() + (60 if problem.size == 2**24 else 0)
    while time.monotonic() < end_s:
        pass
    return reference(problem, arrays)

exercise = dataclasses.replace(exercise, reference=endless)
"""


def test_a_reference_that_takes_too_long_is_ended_before_the_next_benchmark(opened_device, tmp_path):
    folder = shutil.copytree(ROOT / "exercises/divergence", tmp_path / "exercises/divergence")
    (folder / "exercise.py").write_text((folder / "exercise.py").read_text() + ENDLESS)
    loaded = Catalogue(folder.parent).load("divergence")
    submission = ROOT / "solutions/divergence/03_coalesced_by_tile.cu"
    grader = RemoteGrader(loaded, submission, "cuda", opened_device.info, 1)
    try:
        checks = [check for check in checks_of(loaded.exercise) if check.kind == "speedup"]
        first, *others = [(grader.run(check), grader._worker) for check in checks]
    finally:
        grader.close()
    assert first[1] is None  # it was killed
    assert {result.verdict for result, _ in (first, *others)} == {"passed"}
    assert {result.measurement.reference_ms for result, _ in (first, *others)} == {None}

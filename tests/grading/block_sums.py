"""An exercise in CUDA C++ for the tests that really run kernels: one sum a block, times a weight from a constant."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise import (
    Array,
    Buffer,
    Case,
    Exercise,
    Expected,
    Launch,
    Plan,
    Problem,
    SafeCheck,
    SpeedTier,
    Tunable,
    Variant,
)
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.grader import Grader

INTS = Variant("int32", {"GPULAB_T": "int", "GPULAB_OP(a, b)": "((a) + (b))"}, {"dtype": np.int32})
FLOATS = Variant("float32", {"GPULAB_T": "float", "GPULAB_OP(a, b)": "((a) + (b))"}, {"dtype": np.float32})


def plan(problem: Problem) -> Plan:
    n, block = problem.size, problem.tunables["BLOCK_SIZE"]
    blocks, dtype = -(-n // block), problem.variant.facts["dtype"]
    buffers = (
        Buffer("in", "input", dtype, (n,)),
        Buffer("weight", "input", dtype, (1,)),
        Buffer("out", "output", dtype, (blocks,)),
    )
    launch = Launch("block_sums", (blocks,), (block,), ("in", "out", np.uint32(n)))
    return Plan(buffers, (launch,), {"weight": "weight"})


def inputs(problem: Problem, pattern: str, rng: np.random.Generator) -> Mapping[str, Array]:
    dtype = problem.variant.facts["dtype"]
    values = rng.integers(1, 9, problem.size).astype(dtype)
    return {"in": values, "weight": rng.integers(2, 5, 1).astype(dtype)}


def reference(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
    block = problem.tunables["BLOCK_SIZE"]
    sums = np.add.reduceat(inputs["in"], np.arange(0, problem.size, block))
    return Expected({"out": inputs["weight"] * sums})


EXERCISE = Exercise(
    title="Sums of blocks",
    plan=plan,
    inputs=inputs,
    reference=reference,
    cases=(
        Case("n=1", 1, 10, variant=INTS),
        Case("n=block", lambda tunables: tunables["BLOCK_SIZE"], 20, variant=INTS),
        Case("n=300", 300, 20, variant=FLOATS),
    ),
    safe=(SafeCheck("memory", 5), SafeCheck("barrier", 5)),
    speed=(
        SpeedTier(1.2, 20, 2**20, required=True, simulated_size=2**14, variant=INTS),
        SpeedTier(1000, 20, 2**20, simulated_size=2**14, variant=INTS),
    ),
    tunables=(Tunable("BLOCK_SIZE", (64, 128, 256)),),
    min_bytes=lambda problem: 4 * problem.size,
)

HEAD = """#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 128)
__constant__ GPULAB_T weight;
"""

NAIVE = (
    HEAD
    + """
__global__ void block_sums(const GPULAB_T* in, GPULAB_T* out, unsigned n)
{
    if (threadIdx.x == 0) {
        GPULAB_T sum = 0;
        for (unsigned i = blockIdx.x * BLOCK_SIZE; i < min((blockIdx.x + 1) * BLOCK_SIZE, n); ++i)
            sum = GPULAB_OP(sum, in[i]);
        out[blockIdx.x] = weight * sum;
    }
}
"""
)

TREE = (
    HEAD
    + """
__global__ void block_sums(const GPULAB_T* in, GPULAB_T* out, unsigned n)
{
    __shared__ GPULAB_T tile[BLOCK_SIZE];
    unsigned i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    tile[threadIdx.x] = i < n ? in[i] : GPULAB_T(0);
    __syncthreads();
    for (unsigned s = BLOCK_SIZE / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) tile[threadIdx.x] = GPULAB_OP(tile[threadIdx.x], tile[threadIdx.x + s]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = weight * tile[0];
}
"""
)


def changed(source: str, old: str, new: str) -> str:
    """Return the source with one mistake put in."""
    assert source.count(old) == 1, f"{old!r} must occur once"
    return source.replace(old, new)


def line_of(source: str, text: str) -> str:
    """Return `student.cu:line` of the first line that holds the text."""
    return f"student.cu:{source[: source.index(text)].count(chr(10)) + 1}"


def graded(
    folder: Path, device: Device, source: str, exercise: Exercise = EXERCISE, *names: str
) -> dict[str, CheckResult]:
    """Grade a kernel's checks of these names, or all of them."""
    (folder / "naive.cu").write_text(NAIVE)
    (folder / "student.cu").write_text(source)
    grader = Grader(LoadedExercise("block_sums", folder, exercise), folder / "student.cu", device, seed=3)
    checks = (check for check in checks_of(exercise) if not names or check.name in names)
    return {check.name: grader.run(check) for check in checks}

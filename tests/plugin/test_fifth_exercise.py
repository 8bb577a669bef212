"""A new exercise is one folder: under 40 lines of Python and a `.cu` file, and nothing in the package."""

from __future__ import annotations

import pytest
from course import Course

SAXPY = """
import numpy as np

from pytest_gpulab.exercise import Buffer, Case, Exercise, Expected, Launch, Plan, SafeCheck, SpeedTier, Tunable


def plan(problem):
    n, block = problem.size, problem.tunables["BLOCK_SIZE"]
    x = Buffer("x", "input", np.float32, (n,))
    y = Buffer("y", "input", np.float32, (n,))
    out = Buffer("out", "output", np.float32, (n,))
    args = (np.float32(2), "x", "y", "out", np.int32(n))
    return Plan((x, y, out), (Launch("saxpy", (-(-n // block),), (block,), args),))


def inputs(problem, pattern, rng):
    return {name: rng.standard_normal(problem.size, dtype=np.float32) for name in ("x", "y")}


def reference(problem, inputs):
    x, y = (inputs[name].astype(np.float64) for name in ("x", "y"))
    return Expected({"out": 2 * x + y}, {"out": 2.0**-23 * (2 * abs(x) + abs(y))})


exercise = Exercise(
    title="A scaled vector plus another",
    plan=plan,
    inputs=inputs,
    reference=reference,
    cases=tuple(Case(f"n={n}", n, 10) for n in (1, 2, 31, 32, 33, 1023, 1025)),
    safe=(SafeCheck("memory", 10),),
    speed=(SpeedTier(1.5, 20, 1 << 14, required=True),),
    tunables=(Tunable("BLOCK_SIZE", (32, 64, 128, 256)),),
)
"""
SUBMISSION = """#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 128)
__global__ void saxpy(float a, const float *x, const float *y, float *out, int n) {
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}
"""
NAIVE = """#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 32)
__global__ void saxpy(float a, const float *x, const float *y, float *out, int n) {
    volatile float *slow = out;
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    for (int k = 0; k < 256; ++k)
        if (i < n) slow[i] = a * x[i] + y[i];
}
"""


def test_a_fifth_exercise_is_one_small_folder(course: Course) -> None:
    assert len(SAXPY.strip().splitlines()) < 40
    course.write("exercises/saxpy/exercise.py", SAXPY)
    course.write("exercises/saxpy/naive.cu", NAIVE)
    course.write("exercises/saxpy/saxpy.cu", SUBMISSION)
    result = course.grade()
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=10)
    result.stdout.fnmatch_lines(["*gpulab: saxpy*", "saxpy *passed *100/100 *"])


def test_its_wrong_submissions_fail(course: Course) -> None:
    course.write("exercises/saxpy/exercise.py", SAXPY)
    course.write("exercises/saxpy/naive.cu", NAIVE)
    course.write("submissions/saxpy.cu", SUBMISSION.replace("i < n", "i < n - 1"))
    result = course.grade("submissions", "-k", "correct")
    result.assert_outcomes(failed=7, deselected=3)

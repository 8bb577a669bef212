"""A course of one small exercise, as a folder that a test grades with pytest within pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
from lean_pytest import WITHOUT

EXERCISE = """
import numpy as np
from pytest_gpulab.exercise import Buffer, Case, Exercise, Expected, Launch, Plan, SafeCheck, SpeedTier

BLOCK = 64

def plan(problem):
    n = problem.size
    buffers = (Buffer("in", "input", np.int32, (n,)), Buffer("out", "output", np.int32, (n,)))
    return Plan(buffers, (Launch("twice", (-(-n // BLOCK),), (BLOCK,), ("in", "out", np.int32(n))),))

exercise = Exercise(
    title="Every element times two",
    plan=plan,
    inputs=lambda problem, pattern, rng: {"in": rng.integers(-1000, 1000, problem.size, dtype=np.int32)},
    reference=lambda problem, inputs: Expected({"out": 2 * inputs["in"]}),
    cases=(Case("n=1", 1, 20), Case("n=31", 31, 20), Case("n=100", 100, 20)),
    safe=(SafeCheck("memory", 10),),
    speed=(SpeedTier(1.5, 20, 4096, required=True), SpeedTier(1000, 10, 4096)),
)
"""
SKELETON = """#include <gpulab.cuh>
GPULAB_TODO(twice)
__global__ void twice(const int *in, int *out, int n) { }
"""
NAIVE = """
__global__ void twice(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    volatile const int *read = in;
    int last = i;
    for (int k = 0; k < 48; ++k) last = (last + 97 + 0 * read[last]) % n;
    out[i] = 2 * in[i] + 0 * last;
}
"""
"""Each read waits for the one before it: that is slow on a GPU, and takes little time to simulate."""
RIGHT = """
__global__ void twice(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * in[i];
}
"""
WRONG = RIGHT.replace("2 * in[i]", "2 * in[i] + (i == 30)")
BEYOND = RIGHT.replace("i < n", "i <= n")
BROKEN = RIGHT.replace("2 * in[i];", "2 * in[i]")
PUZZLING = RIGHT.replace("int i =", 'asm volatile("cp.async.bulk.prefetch.L2.global [%0], 16;" :: "l"(in)); int i =')
SLOW_TO_COMPILE = RIGHT + "".join(f"__global__ void other{i}(float *x) {{ x[{i}] /= x[0]; }}\n" for i in range(2000))
"""Takes a second; a compiler may need less than 10 ms for the others."""
CHECKS = [
    "compile",
    "correct[n=1]",
    "correct[n=31]",
    "correct[n=100]",
    "safe[memory]",
    "speedup[1.5x]",
    "speedup[1000x]",
]


class Course:
    """A course's folder: `exercises/twice`, and whatever a test puts beside it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.folder: Path = pytester.path
        pytester.makeini("[pytest]\nfilterwarnings = error")
        self.write("exercises/twice/exercise.py", EXERCISE)
        self.write("exercises/twice/naive.cu", NAIVE)

    def write(self, name: str | Path, text: str | bytes) -> Path:
        """Write a file, making its folders; return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def pytest(self, *args: str | Path) -> pytest.RunResult:
        """Run pytest without the plugin's flag, in this process."""
        return self.pytester.runpytest_inprocess(*WITHOUT, *args)

    def grade(self, *args: str | Path) -> pytest.RunResult:
        """Grade on the simulated GPU, in this process."""
        return self.pytester.runpytest_inprocess(*WITHOUT, "--gpulab", "--gpulab-device=sim", *args)

    def grade_apart(self, *args: str | Path) -> pytest.RunResult:
        """Grade on the simulated GPU, in a process of its own."""
        return self.pytester.runpytest_subprocess(*WITHOUT, "--gpulab", "--gpulab-device=sim", *args)

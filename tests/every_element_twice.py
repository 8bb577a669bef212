"""A small exercise as text, with its kernel, for tests that grade it in other processes or on a GPU."""

EXERCISE = """
import numpy as np
from pytest_gpulab.exercise import Buffer, Case, Exercise, Expected, Launch, Plan, SafeCheck, SpeedTier

def plan(problem):
    n = problem.size
    buffers = (Buffer("in", "input", np.int32, (n,)), Buffer("out", "output", np.int32, (n,)))
    return Plan(buffers, (Launch("twice", (-(-n // 32),), (32,), ("in", "out", np.int32(n))),))

exercise = Exercise(
    title="Every element times two",
    plan=plan,
    inputs=lambda problem, pattern, rng: {"in": rng.integers(-1000, 1000, problem.size, dtype=np.int32)},
    reference=lambda problem, inputs: Expected({"out": 2 * inputs["in"]}),
    cases=(Case("n=1", 1, 20), Case("n=31", 31, 20), Case("n=100", 100, 20)),
    safe=(SafeCheck("memory", 10),),
    speed=(SpeedTier(0.5, 30, 4096, required=True),),
)
"""
KERNEL = """__global__ void twice(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * in[i];
}
"""

"""An exercise without mistakes, as a folder of files, for tests that put one mistake into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpulab.command import main

EXERCISE = """
import numpy as np

from pytest_gpulab import concepts
from pytest_gpulab.exercise import Buffer, Case, Exercise, Expected, Launch, Plan, SafeCheck, SpeedTier, Tunable
from pytest_gpulab.exercise import UsesCheck, Variant


def plan(problem):
    n, block = problem.size, problem.tunables["BLOCK_SIZE"]
    buffers = (Buffer("in", "input", np.float32, (n,)), Buffer("out", "output", np.float32, (n,)))
    args = ("in", "out", np.int32(n))
    return Plan(buffers, (Launch("shift", (-(-n // block),), (block,), args),))


def inputs(problem, pattern, rng):
    return {"in": rng.standard_normal(problem.size, dtype=np.float32)}


def reference(problem, inputs):
    x = inputs["in"].astype(np.float64)
    return Expected({"out": x + np.roll(x, 1)}, {"out": 1e-6 * (abs(x) + abs(np.roll(x, 1)))})


exercise = Exercise(
    title="Each element plus the one before",
    plan=plan,
    inputs=inputs,
    reference=reference,
    cases=tuple(Case(f"n={n}", n, 12) for n in (1, 2, 33, 1025)),
    safe=(SafeCheck("memory", 6), SafeCheck("race", 6)),
    uses=(UsesCheck("coalesced", (concepts.global_traffic(4.0),), 10, 4096),),
    speed=(SpeedTier(1.5, 20, 1 << 17, required=True), SpeedTier(40, 10, 1 << 17)),
    tunables=(Tunable("BLOCK_SIZE", (32, 64, 128, 256)),),
    min_bytes=lambda problem: 8 * problem.size,
)
"""
KERNEL = """#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 128)
__global__ void shift(const float *in, float *out, int n) {
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    if (i < n) out[i] = in[i] + in[i == 0 ? n - 1 : i - 1];
}
"""
NAIVE = """#include <gpulab.cuh>
GPULAB_TUNABLE(BLOCK_SIZE, 32)
__global__ void shift(const float *in, float *out, int n) {
    volatile float *slow = out;
    int i = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    for (int k = 0; k < 8; ++k)
        if (i < n) slow[i] = in[i] + in[i == 0 ? n - 1 : i - 1];
}
"""
SKELETON = """#include <gpulab.cuh>
GPULAB_TODO(shift);
GPULAB_TUNABLE(BLOCK_SIZE, 128)
__global__ void shift(const float *in, float *out, int n) {
}
"""
README = """# Shift

| check | points |
|---|---|
| `correct[n=...]`: 4 sizes | 48 |
| `safe[memory]`, `safe[race]` | 6, 6 |
| `uses[coalesced]` | 10 |
| `speedup[1.5x]`, `speedup[40x]` | 20, 10 |
"""
EXPECTED = """
["01_shift.cu"]
points = 90
"""


def course(folder: Path, **changes: tuple[str, str]) -> Path:
    """Write a course with the exercise `shift` and one solution; return the exercise's folder.

    Args:
        folder: where to write it.
        changes: file (`exercise`, `naive`, `skeleton`, `readme`, `solution`, `expected`) to a text in it and its
            replacement.
    """
    texts = {
        "exercise": ("exercises/shift/exercise.py", EXERCISE),
        "naive": ("exercises/shift/naive.cu", NAIVE),
        "skeleton": ("exercises/shift/shift.cu", SKELETON),
        "readme": ("exercises/shift/README.md", README),
        "solution": ("solutions/shift/01_shift.cu", KERNEL),
        "expected": ("solutions/shift/expected.toml", EXPECTED),
    }
    for name, (path, text) in texts.items():
        old, new = changes.get(name, ("", ""))
        assert old in text, f"{name} has no {old!r}"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace(old, new) if old else text, encoding="utf-8")
    return folder / "exercises" / "shift"


def checked(capsys: pytest.CaptureFixture[str], folder: Path, *options: str) -> tuple[int, str]:
    """Run `gpulab check`; return its exit code and the report."""
    code = main.main(["check", str(folder), *options])
    return code, capsys.readouterr().out

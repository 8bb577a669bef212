"""Wrong results for the tests of diagnoses, and the words of their patterns."""

from typing import Any

import numpy as np

from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.diagnosis import value_patterns as values
from pytest_gpulab.grading.diagnosis.compare import mismatches
from pytest_gpulab.grading.diagnosis.missing_terms import missing_terms_of
from pytest_gpulab.grading.diagnosis.patterns import Pattern, RunContext, WrongValue

N = 1000
INDEX = np.arange(N)
X_AXIS = np.broadcast_to(np.arange(20), (16, 20))
Y_AXIS = np.broadcast_to(np.arange(16)[:, None], (16, 20))
X = np.random.default_rng(5).integers(-1000, 1001, N).astype(np.int32)


def plan(n: int, blocks: int, threads: int, dtype: Any = np.int32, size: int | None = None) -> Plan:
    buffers = Buffer("in", "input", dtype, (n,)), Buffer("out", "output", dtype, (n if size is None else size,))
    return Plan(buffers, (Launch("kernel", (blocks,), (threads,), ("in", "out")),))


def mistake(actual: Any, expected: Any, tolerance: Any = 0, **around: Any) -> WrongValue:
    actual, expected = np.asarray(actual), np.asarray(expected)
    wrong = mismatches(actual, expected, tolerance)
    assert wrong.any()
    known = RunContext(**around)
    return WrongValue("out", actual, expected, np.broadcast_to(tolerance, actual.shape), wrong, known)


def said(*args: Any, **around: Any) -> str:
    pattern = values.pattern_of(mistake(*args, **around))
    return pattern.what if pattern else ""


F = np.random.default_rng(6).uniform(0.5, 1.5, N).astype(np.float32)
SUMS = np.cumsum(F, dtype=np.float64)
BEFORE = SUMS - F


def omission(
    actual: Any, expected: Any, x: Any = X, tolerance: float = 0, threads: int = 128, blocks: int = 8
) -> Pattern | None:
    around = {"plan": plan(x.size, blocks, threads, x.dtype, size=1), "inputs": {"in": x}}
    return missing_terms_of(mistake(np.array([actual], x.dtype), np.array([expected]), tolerance, **around))


def omitted(*args: Any, **around: Any) -> str:
    pattern = omission(*args, **around)
    return pattern.what if pattern else ""


WITHOUT = "it is the result for `in` without "

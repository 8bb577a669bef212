"""The numbers behind two exercises: their inputs and tolerances let honest answers pass and dishonest ones fail."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pytest_gpulab import numerics
from pytest_gpulab.exercise import Case, Problem
from pytest_gpulab.grading.catalogue import Catalogue

EXERCISES = Catalogue(Path(__file__).resolve().parents[2] / "exercises")
TUNABLES = (
    {"BLOCK_SIZE": 256, "ITEMS_PER_THREAD": 1, "MAX_BLOCKS": 0},
    {"BLOCK_SIZE": 32, "ITEMS_PER_THREAD": 3, "MAX_BLOCKS": 4},
    {"BLOCK_SIZE": 1024, "ITEMS_PER_THREAD": 8, "MAX_BLOCKS": 0},
)

F4 = np.float32
DIVERGENCE_STEPS = (  # paths.cuh in float32, operation by operation
    lambda x: x + F4(0.25) / (F4(1) + x),
    lambda x: np.sqrt(x * x + F4(0.25)),
    lambda x: x - F4(0.0078125) * x * x,
    lambda x: x * (F4(1) / np.sqrt(F4(1) + F4(0.015625) * x * x)),
    lambda x: x + F4(0.125) * np.exp(-x),
    lambda x: x - F4(0.015625) * x * np.sqrt(x),
    lambda x: x + F4(0.125) / (F4(1) + np.log(F4(1) + x)),
    lambda x: x + F4(0.125) * (F4(1) / np.sqrt(x)),
)


def module_of(name: str) -> ModuleType:
    """The exercise.py itself, for the functions that its `Exercise` does not hold."""
    module = ModuleType(name)
    exec((EXERCISES.folder / name / "exercise.py").read_text(encoding="utf-8"), module.__dict__)
    return module


REDUCTION, DIVERGENCE = module_of("reduction"), module_of("divergence")


@pytest.mark.parametrize("tunables", TUNABLES, ids=str)
@pytest.mark.parametrize("case", REDUCTION.exercise.cases, ids=lambda case: case.name)
def test_reducing_a_tile_at_a_time_in_the_element_type_is_within_the_tolerance(case: Case, tunables: dict[str, int]):
    problem = case.problem(tunables)
    dtype, operation = REDUCTION.dtype_and_operation(problem)
    for pattern in case.patterns:
        inputs = REDUCTION.inputs(problem, pattern, np.random.default_rng(7))
        values = inputs["in"]
        for elements, blocks in REDUCTION.levels(problem):
            assert values.size == elements
            parts = np.array_split(values, blocks)
            values = np.array([REDUCTION.UFUNCS[operation].accumulate(part, dtype=dtype)[-1] for part in parts])
        assert values.dtype == dtype
        expected = REDUCTION.reference(problem, inputs)
        error = abs(float(values[0]) - float(expected.values["out"][0]))
        assert error <= expected.tolerance.get("out", 0)


@pytest.mark.parametrize("operation", ["sum", "product", "max", "min"])
@pytest.mark.parametrize("n", [31, 289, 4099])
def test_dishonest_float_reductions_are_outside_of_the_tolerance(operation: str, n: int):
    problem = Problem(n, TUNABLES[0], REDUCTION.variant("float32", operation))
    inputs = REDUCTION.inputs(problem, "random", np.random.default_rng(n))
    expected = REDUCTION.reference(problem, inputs)
    exact, tolerance = float(expected.values["out"][0]), expected.tolerance.get("out", 0)
    with np.errstate(over="ignore"):
        half = float(REDUCTION.UFUNCS[operation].accumulate(inputs["in"].astype(np.float16))[-1])
    for answer in (half, 0.0, 0.99 * exact, float(np.sort(inputs["in"])[n // 2]), float("nan")):
        assert not abs(answer - exact) <= tolerance


@pytest.mark.parametrize("operation", ["max", "min", "product"])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_a_kernel_that_pads_with_zero_is_wrong_on_the_random_pattern(dtype: str, operation: str):
    problem = Problem(100, TUNABLES[0], REDUCTION.variant(dtype, operation))
    inputs = REDUCTION.inputs(problem, "random", np.random.default_rng(1))
    expected = REDUCTION.reference(problem, inputs)
    padded = REDUCTION.UFUNCS[operation].reduce(np.append(inputs["in"], inputs["in"].dtype.type(0)))
    assert abs(float(padded) - float(expected.values["out"][0])) > expected.tolerance.get("out", 0)


def test_a_product_of_integers_loses_no_factor():
    problem = Problem(1000, TUNABLES[0], REDUCTION.variant("int32", "product"))
    for pattern in numerics.PATTERNS:
        assert np.all(REDUCTION.inputs(problem, pattern, np.random.default_rng(1))["in"] % 2 == 1)


@pytest.mark.parametrize("tunables", TUNABLES, ids=str)
def test_the_last_block_is_partial_at_every_level(tunables: dict[str, int]):
    uncapped = tunables | {"MAX_BLOCKS": 0}
    levels = REDUCTION.levels(Problem(REDUCTION.partial_everywhere(uncapped), uncapped))
    assert len(levels) == (3 if REDUCTION.tile(uncapped) <= 256 else 2)
    assert all(elements % REDUCTION.tile(uncapped) for elements, _ in levels)


@pytest.mark.parametrize("which", range(8))
def test_a_path_in_float32_is_within_the_tolerance_and_in_half_precision_outside(which: int):
    start = np.linspace(DIVERGENCE.SMALLEST, DIVERGENCE.LARGEST, 2000, dtype=F4)
    exact, tolerance = DIVERGENCE.follow(which, start.astype(np.float64))
    honest = start
    for _ in range(DIVERGENCE.ROUNDS):
        honest = DIVERGENCE_STEPS[which](honest)
    assert honest.dtype == F4
    assert np.all(np.abs(honest - exact) <= tolerance)
    rounded_at_last = exact.astype(np.float16).astype(np.float64)
    assert np.mean(np.abs(rounded_at_last - exact) > tolerance) > 0.7
    for answer in (np.zeros_like(exact), start, 0.99 * exact):
        assert np.all(np.abs(answer - exact) > tolerance)


@pytest.mark.parametrize("which", range(8))
def test_a_path_is_monotonic_and_its_step_contracts_wherever_it_leads(which: int):
    step = DIVERGENCE.STEPS[which][0]
    x = np.linspace(DIVERGENCE.SMALLEST, DIVERGENCE.LARGEST, 2000)
    rises = np.sign(step(x) - x)
    for _ in range(DIVERGENCE.ROUNDS):
        slope = np.diff(step(x)) / np.diff(x)
        assert np.all((slope >= 0) & (slope <= 1 + 1e-9))
        assert np.array_equal(np.sign(step(x) - x), rises)
        x = step(x)
    assert np.all(np.diff(x) > 0)  # different inputs still lead to different results


def test_an_element_on_the_wrong_path_or_from_the_wrong_place_is_seen():
    problem = Problem(2053, TUNABLES[0], DIVERGENCE.EIGHT_WAY)
    inputs = DIVERGENCE.inputs(problem, "random", np.random.default_rng(3))
    expected = DIVERGENCE.reference(problem, inputs)
    values, tolerance = expected.values["out"], expected.tolerance["out"]
    for shift in (1, 2, 8):
        moved = DIVERGENCE.reference(problem, {"in": np.roll(inputs["in"], shift)}).values["out"]
        assert np.mean(np.abs(moved - values) > tolerance) > 0.9
    two_way = Problem(2053, TUNABLES[0], DIVERGENCE.TWO_WAY)
    other = DIVERGENCE.reference(two_way, inputs).values["out"]
    assert np.mean(np.abs(other - values) > tolerance) > 0.7

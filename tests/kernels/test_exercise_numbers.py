"""The numbers behind two exercises: their inputs and tolerances let right answers pass and wrong ones fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from graded_folders import EXERCISES as NAMES

from pytest_gpulab import numerics
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.exercise import Case, Problem
from pytest_gpulab.grading.catalogue import Catalogue

EXERCISES = Catalogue(Path(__file__).resolve().parents[2] / "exercises")
TUNABLES = (
    {"BLOCK_SIZE": 256, "ITEMS_PER_THREAD": 1, "MAX_BLOCKS": 0},
    {"BLOCK_SIZE": 32, "ITEMS_PER_THREAD": 3, "MAX_BLOCKS": 4},
    {"BLOCK_SIZE": 1024, "ITEMS_PER_THREAD": 8, "MAX_BLOCKS": 0},
)

F4 = np.float32


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
    factors = {name: REDUCTION.inputs(problem, name, np.random.default_rng(1))["in"] for name in numerics.PATTERNS}
    assert sorted(factors.pop("needle")) == [0, *999 * [1]]  # a kernel that leaves out zeros is wrong
    for values in factors.values():
        assert np.all(values % 2 == 1)


@pytest.mark.parametrize("tunables", TUNABLES, ids=str)
def test_the_last_block_is_partial_at_every_level(tunables: dict[str, int]):
    uncapped = tunables | {"MAX_BLOCKS": 0}
    levels = REDUCTION.levels(Problem(REDUCTION.partial_everywhere(uncapped), uncapped))
    assert len(levels) == (3 if REDUCTION.tile(uncapped) <= 256 else 2)
    assert all(elements % REDUCTION.tile(uncapped) for elements, _ in levels)


# The steps of paths.cuh with multiply-adds rounded once: float64 holds the product, and its own rounding is harmless.
FUSED = {
    0: lambda x: (x + F4(0.03125)) / (1 + 0.0009765625 * x.astype(float)).astype(F4),
    3: lambda x: x / (1 + 0.015625 * x.astype(float)).astype(F4),
}
PRODUCTS_OF_SUMS = {  # nothing to fuse
    1: lambda x: np.sqrt(x * (x + F4(0.25))),
    2: lambda x: x * (F4(64) + x) / (F4(65) + x),
    4: lambda x: np.sqrt(x * (x + F4(1))),
    5: lambda x: np.sqrt(x * (x - F4(0.00390625))),
    6: lambda x: x * (F4(65) + x) / (F4(64) + x),
    7: lambda x: x * (F4(8) + x) / (F4(8.125) + x),
}
START = np.linspace(DIVERGENCE.SMALLEST, DIVERGENCE.LARGEST, 4000, dtype=F4)


def rounds(step: Callable[[np.ndarray], np.ndarray], x: np.ndarray, count: int = DIVERGENCE.ROUNDS) -> np.ndarray:
    for _ in range(count):
        x = step(x)
    return x


@pytest.mark.parametrize("which", range(8))
def test_a_path_gives_the_same_bits_whether_multiply_adds_are_fused_or_not(which: int):
    exact = DIVERGENCE.follow(which, START)
    assert exact.dtype == F4
    assert np.array_equal(rounds({**FUSED, **PRODUCTS_OF_SUMS}[which], START), exact)


@pytest.mark.parametrize("which", range(8))
def test_close_approximations_of_a_path_have_other_bits(which: int):
    exact, step = DIVERGENCE.follow(which, START), DIVERGENCE.STEPS[which]
    precise = rounds(step, START.astype(np.float64))
    polynomial = np.polynomial.Chebyshev.fit(START, precise, 24)
    assert np.max(np.abs(polynomial(START) / precise - 1)) < 1e-6  # or it would be no good one
    answers = {
        "float64": precise.astype(F4),
        "a polynomial": polynomial(START.astype(np.float64)).astype(F4),
        "half precision": precise.astype(np.float16).astype(F4),
        "one round less": rounds(step, START, DIVERGENCE.ROUNDS - 1),
        "a result cut off": np.trunc(exact),
        "the input": START,
    }
    shares = {what: float(np.mean(answer == exact)) for what, answer in answers.items()}
    assert {what: share for what, share in shares.items() if share > 0.4} == {}


@pytest.mark.parametrize("which", range(8))
def test_a_path_with_a_faster_division_or_root_has_other_bits(which: int):
    """As close as `__fdividef` and `sqrt.approx` are: up to 1 ulp from the right one, here in half of the cases."""
    rng = np.random.default_rng(which)

    def step(x: np.ndarray) -> np.ndarray:
        right = DIVERGENCE.STEPS[which](x)
        off = rng.integers(-1, 3, x.shape)
        return np.where(off < 2, right + off.astype(F4) * np.spacing(right), right)

    answer = rounds(step, START)
    assert answer.dtype == F4
    assert np.mean(answer == DIVERGENCE.follow(which, START)) < 0.3


@pytest.mark.parametrize("scope", ["", "namespace own"])
def test_the_given_paths_do_not_use_another_definition_of_a_function(scope: str):
    """A faster `sqrtf` would change the arithmetic that the exercise compares. The compiler accepts it."""
    device, header = SimulatedDevice(), (EXERCISES.folder / "divergence/paths.cuh").read_text(encoding="utf-8")
    own = """__device__ float sqrtf(float) { return 0; }
    #include "paths.cuh"
    __device__ float taken(float x) { return take_path(threadIdx.x % 8, x); }"""
    source = f"{scope} {{ {own} }} using namespace own;" if scope else own
    source += "__global__ void take(float *x) { x[threadIdx.x] = taken(x[threadIdx.x]); }"
    module = device.compile(source, "own.cu", headers={"paths.cuh": header})
    start = np.linspace(DIVERGENCE.SMALLEST, DIVERGENCE.LARGEST, 256, dtype=F4)
    values = device.array(start)
    module.launch("take", (1,), (256,), [values])
    results = [DIVERGENCE.follow(which, start[which::8]) for which in range(8)]
    assert np.array_equal(values.get().reshape(-1, 8).T, results)


@pytest.mark.parametrize("which", range(8))
def test_a_path_is_monotonic_and_keeps_different_inputs_apart(which: int):
    ends = DIVERGENCE.follow(which, START)
    assert np.all(np.isfinite(ends))
    assert np.all(np.diff(ends) > 0)


def test_an_element_on_the_wrong_path_or_from_the_wrong_place_is_seen():
    problem = Problem(2053, TUNABLES[0], DIVERGENCE.EIGHT_WAY)
    inputs = DIVERGENCE.inputs(problem, "random", np.random.default_rng(3))
    values = DIVERGENCE.reference(problem, inputs).values["out"]
    for shift in (1, 2, 8):
        moved = DIVERGENCE.reference(problem, {"in": np.roll(inputs["in"], shift)}).values["out"]
        assert np.mean(moved != values) > 0.99
    two_way = Problem(2053, TUNABLES[0], DIVERGENCE.TWO_WAY)
    assert np.mean(DIVERGENCE.reference(two_way, inputs).values["out"] != values) > 0.74


def test_no_result_of_a_path_can_be_copied_from_a_fixed_distance():
    """A thread that found most inputs again, as many elements before, would take the paths of a few elements only."""
    size, fresh = 2**22, DIVERGENCE.FRESH_VALUES
    values = DIVERGENCE.inputs(Problem(size, TUNABLES[0]), "random", np.random.default_rng(3))["in"]
    assert values.min() >= DIVERGENCE.SMALLEST and values.max() <= DIVERGENCE.LARGEST
    for distance in (fresh, 2 * fresh, 3 * fresh):
        assert np.mean(values[distance:] == values[:-distance]) < 0.001


def test_some_places_of_a_divergence_reference_are_those_of_all():
    problem = Problem(2053, TUNABLES[0], DIVERGENCE.EIGHT_WAY)
    inputs = DIVERGENCE.inputs(problem, "random", np.random.default_rng(3))
    places = np.random.default_rng(4).integers(0, 2053, 500)
    some = DIVERGENCE.reference_at(problem, inputs, {"out": places}).values["out"]
    assert np.array_equal(some, DIVERGENCE.reference(problem, inputs).values["out"][places])


def test_the_known_mistake_of_a_reduction_is_that_of_a_missing_block_index():
    problem = Problem(600, TUNABLES[0])
    (mistake,) = REDUCTION.mistakes(problem, {"in": np.arange(600, dtype=np.int32)})
    assert mistake.values["out"].tolist() == [3 * sum(range(256))]


@pytest.mark.parametrize("name", NAMES)
def test_an_estimate_has_work_for_all_multiprocessors(name: str):
    """With fewer blocks, kernels with several elements per thread would be estimated as too slow."""
    exercise = EXERCISES.load(name).exercise
    usual = {"BLOCK_SIZE": 256, "TILE_X": 16, "TILE_Y": 16, "ITEMS_PER_THREAD": 16}
    tunables = {
        each.name: max(value for value in each.allowed if value <= usual.get(each.name, 0))
        for each in exercise.tunables
    }
    for tier in exercise.speed:
        problem = Problem(tier.simulated_size or tier.size, tunables, tier.variant)
        assert np.prod(exercise.plan(problem).launches[0].grid) >= 128

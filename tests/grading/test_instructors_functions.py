"""An instructor's wrong functions: `correct[...]` is not gradable, and the finding names the place."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubling import EXERCISE, Bench, program, right
from fake_device import Program

from pytest_gpulab.exercise import Array, Case, Expected, Problem

pytestmark = pytest.mark.unit


def only_correct(bench: Bench, submission: Program, **changes: Any) -> dict[str, Any]:
    results = bench.results(submission, **changes)
    return {name: results[name] for name in results if name.startswith("correct")}


def broken_reference(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
    return Expected({"out": np.array([1, 2][5])})


def expecting(values: Mapping[str, Array]) -> Any:
    return lambda problem, inputs: Expected(values)


def making(made: Mapping[str, Array]) -> Any:
    return lambda problem, pattern, rng: made


def overwriting(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
    inputs["in"][0] = 1
    return Expected({})


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"reference": broken_reference}, "The exercise's own `reference` is wrong: list index out of range"),
        ({"reference": overwriting}, "assignment destination is read-only"),
        ({"reference": expecting({})}, "`values` has [], but the output buffers are ['out']"),
        (
            {"reference": expecting({"out": np.zeros(3)})},
            "the values of 'out' have shape (3,), not (4,)",
        ),
        ({"inputs": making({})}, "`inputs` has no array for the input buffer 'in'"),
        ({"inputs": making({"in": np.zeros(4)})}, "input 'in' is float64 (4,), but its buffer is float32 (4,)"),
        ({"inputs": making({"in": np.float32([1])})}, "input 'in' is float32 (1,), but its buffer is float32 (4,)"),
        ({"plan": lambda problem: 1 / 0}, "The exercise's own `plan` is wrong: division by zero"),
        (
            {"cases": (Case("n=4", lambda tunables: tunables["N"], 50),)},
            "The exercise's own `size` is wrong: KeyError: 'N'",
        ),
    ],
)
def test_an_instructors_mistake_is_not_gradable_and_shows_its_place(bench: Bench, changes: Any, what: str) -> None:
    results = bench.results(right(), **changes)
    result = results["correct[n=4]"]
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")
    assert what in result.findings[0].what
    assert result.findings[0].evidence[0].startswith("Traceback")
    assert "instructor" in result.findings[0].hint
    assert {results["safe[memory]"].verdict, results["speedup[3x]"].verdict} == {"not gradable"}


TOLERANCES = [
    ({"uot": 1e-6}, "`tolerance` has 'uot', but the output buffers are ['out']: write one of these names"),
    ({"out": np.zeros(3)}, "has shape (3,): write one number, or an array of shape (4,)"),
    ({"out": np.zeros((4, 1))}, "has shape (4, 1): write one number"),
    ({"out": float("nan")}, "contains nan: write finite numbers >= 0"),
    ({"out": np.array([0, 1, float("nan"), 0])}, "contains nan"),
    ({"out": float("inf")}, "contains inf"),
    ({"out": np.array([1, 1, 1, -1e-6])}, "contains -1e-06"),
    ({"out": "1e-6"}, "is not a number but <U4: write the allowed error"),
    ({"out": None}, "is not a number but object"),
    ({"out": [[1e-6], [1e-6, 1e-6]]}, "the tolerance of 'out' is lists of different lengths"),
    ({"out": np.ma.array(np.ones(4))}, "the tolerance of 'out' is a masked array: write a plain one"),
]


@pytest.mark.parametrize(("tolerance", "what"), TOLERANCES, ids=[what for _, what in TOLERANCES])
def test_a_wrong_tolerance_is_the_instructors_mistake_and_names_the_file(
    bench: Bench, tolerance: Any, what: str
) -> None:
    def mistaken(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
        return Expected({"out": 2 * inputs["in"].astype(np.float64)}, tolerance)

    result = bench.results(right(), reference=mistaken)["correct[n=4]"]
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")
    assert what in result.findings[0].what
    line = mistaken.__code__.co_firstlineno
    assert f"The exercise's own `reference` is wrong: {Path(__file__).name}, line {line}: " in result.findings[0].what


@pytest.mark.parametrize("tolerance", [{}, {"out": 0}, {"out": np.float32(1e-5)}, {"out": np.full(4, 1e-5)}], ids=str)
def test_a_tolerance_is_none_or_a_number_or_an_array(bench: Bench, tolerance: Any) -> None:
    def good(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
        return Expected({"out": 2 * inputs["in"]}, tolerance if problem.size == 4 else {})

    assert bench.results(right(), reference=good)["correct[n=4]"].verdict == "passed"


def test_a_reference_that_no_result_can_equal_is_the_instructors_mistake(bench: Bench) -> None:
    result = bench.results(right(), reference=expecting({"out": np.array([0, 1, np.nan, 3])}))["correct[n=4]"]
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")
    assert "the values of 'out' contain NaN, which equals no result" in result.findings[0].what


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (np.ma.array(np.arange(4), mask=[0, 0, 0, 1]), "the values of 'out' are a masked array: write a plain one"),
        ([[1], [1, 2]], "the values of 'out' are lists of different lengths"),
    ],
)
def test_values_that_are_no_plain_array_are_the_instructors_mistake(bench: Bench, values: Any, what: str) -> None:
    result = bench.results(right(), reference=expecting({"out": values}))["correct[n=4]"]
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")
    assert what in result.findings[0].what


def test_the_traceback_names_the_instructors_line(bench: Bench) -> None:
    evidence = bench.results(right(), reference=broken_reference)["correct[n=4]"].findings[0].evidence
    assert any("in broken_reference" in line for line in evidence)


@pytest.mark.parametrize(("computes", "verdict"), [(2, "not gradable"), (3, "failed")])
def test_a_wrong_result_counts_before_a_later_pattern_that_cannot_be_made(
    bench: Bench, computes: int, verdict: str
) -> None:
    def inputs(problem: Problem, pattern: str, rng: np.random.Generator) -> Mapping[str, Array]:
        if pattern == "large":
            raise ValueError("no such pattern")
        return EXERCISE.inputs(problem, pattern, rng)

    def times(options: Any, source: Any, out: Any, n: Any) -> None:
        out.values[...] = source.values * computes

    result = bench.result("correct[n=70]", program(times), inputs=inputs)
    assert result.verdict == verdict

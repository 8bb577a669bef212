"""Large outputs are checked at random places: which places, what is noticed, and what the exercises say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocked_device import ClockedBench
from doubling import kernel, program, reference

from pytest_gpulab.exercise import Array, Exercise, Expected, Problem, SpeedTier
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.plans.prepare import make_inputs, make_plan
from pytest_gpulab.grading.speed.mixing import Mix
from pytest_gpulab.grading.speed.sampled_comparison import PLACES, PLACES_IN_A_STRETCH, drawn_places

pytestmark = pytest.mark.unit

SIZE = 2**12
PLAIN = Mix(0)
EXERCISES = Catalogue(Path(__file__).resolve().parents[2] / "exercises")
TUNABLES = {"BLOCK_SIZE": 32, "ITEMS_PER_THREAD": 1, "TILE_X": 16, "TILE_Y": 8, "SINGLE_PASS": 0}


@pytest.fixture
def clocked(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> ClockedBench:
    monkeypatch.setattr("pytest_gpulab.grading.speed.sampled_comparison.SAMPLED_ABOVE", SIZE - 1)
    monkeypatch.setattr("pytest_gpulab.grading.speed.sampled_comparison.PLACES", SIZE // 8)
    return clocked


def reference_at(problem: Problem, inputs: Mapping[str, Array], places: Mapping[str, Array]) -> Expected:
    return Expected({"out": 2 * inputs["in"][places["out"]].astype(np.float64)}, {"out": 1e-5})


def unused_reference(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
    assert problem.size != SIZE, "the reference of all elements is not needed"
    return reference(problem, inputs)


def tier(clocked: ClockedBench, twice: Any, **changes: Any) -> Any:
    changes = {"reference_at": reference_at, **changes}
    speed = (SpeedTier(1.5, 40, SIZE, required=True),)
    return clocked.result("speedup[1.5x]", program(twice), speed=speed, **changes)


def wrong_at(places: Any, value: float = 7.0) -> Any:
    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        done = kernel()(options, source, out, n)
        if n == SIZE:
            out.values[places] = value
        return done

    return twice


def test_correct_positions_need_no_full_reference(clocked: ClockedBench) -> None:
    result = tier(clocked, kernel(), reference=unused_reference)
    assert result.verdict == "passed"
    assert result.measurement.reference_ms is None  # it failed, which decides nothing


def test_without_the_hook_or_at_small_sizes_every_element_is_checked(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = wrong_at(1234)
    assert tier(clocked, one, reference_at=None).findings[0].code == "wrong-result"
    monkeypatch.setattr("pytest_gpulab.grading.speed.sampled_comparison.SAMPLED_ABOVE", SIZE)
    assert tier(clocked, one).findings[0].code == "wrong-result"


def test_a_wrong_position_is_reported_as_in_a_full_comparison(clocked: ClockedBench) -> None:
    wrong = tier(clocked, wrong_at(slice(0, SIZE, 5)))
    assert wrong.verdict == "failed"
    assert wrong == replace(
        tier(clocked, wrong_at(slice(0, SIZE, 5)), reference_at=None),
        duration_s=wrong.duration_s,
        measurement=wrong.measurement,
    )


def test_one_element_that_is_never_written_is_always_seen(clocked: ClockedBench) -> None:
    def all_but_one(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        kept = out.values[-1].copy()
        done = kernel()(options, source, out, n)
        out.values[-1] = kept if n == SIZE else out.values[-1]
        return done

    for _ in range(3):
        assert tier(clocked, all_but_one).findings[0].code == "not-written"


def test_a_stored_answer_is_wrong_where_the_contents_are_new(clocked: ClockedBench) -> None:
    stored: dict[bytes, Array] = {}

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        answer = stored.setdefault(source.values[-64:].tobytes(), 2 * source.values)
        out.values[:n] = answer
        return {"estimated_ms": 1.0}

    assert tier(clocked, twice).findings[0].code == "wrong-result"


def test_a_wrong_number_of_reference_values_is_reported(clocked: ClockedBench) -> None:
    result = tier(clocked, kernel(), reference_at=lambda problem, inputs, places: reference(problem, inputs))
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")
    assert "The exercise's own `reference_at` is wrong: " in result.findings[0].what
    assert "the values of 'out' have shape " in result.findings[0].what


def test_a_tolerance_that_is_no_number_is_reported(clocked: ClockedBench) -> None:
    def at(problem: Problem, inputs: Mapping[str, Array], places: Mapping[str, Array]) -> Expected:
        return Expected({"out": 2 * inputs["in"][places["out"]]}, {"out": np.nan})

    result = tier(clocked, kernel(), reference_at=at)
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")
    assert "the tolerance of 'out' contains nan" in result.findings[0].what


def test_places_are_spread_evenly_and_differ_each_time() -> None:
    size, rng = 2**24 + 17, np.random.default_rng(3)
    first, second = (drawn_places(size, PLAIN, rng) for _ in range(2))
    assert first.size == PLACES and first[0] >= 0 and first[-1] < size
    assert np.all(np.diff(first) > 0) and np.diff(first).max() <= 2 * -(-size // PLACES)
    assert np.mean(first == second) < 0.05
    offsets = np.bincount(first % 32, minlength=32)
    assert offsets.min() > 0.9 * PLACES / 32


def test_small_outputs_are_looked_at_as_a_whole() -> None:
    for size in (1, 5, PLACES):
        assert np.array_equal(drawn_places(size, PLAIN, np.random.default_rng(1)), np.arange(size))


@pytest.mark.parametrize("scale", [0.0, 0.3, 0.6, 0.99])
def test_contents_that_no_other_run_has_are_looked_at_more_closely(scale: float) -> None:
    size, mix = 2**24, Mix(0, (scale, 0.7))
    places = drawn_places(size, mix, np.random.default_rng(1))
    for stretch in mix.stretches(size):
        inside = np.count_nonzero((places >= stretch.start) & (places < stretch.stop))
        assert inside >= min(stretch.stop - stretch.start, PLACES_IN_A_STRETCH)


@pytest.mark.parametrize(("name", "size"), [("divergence", 4099), ("constant_memory", (61, 97, 20)), ("scan", 4099)])
@pytest.mark.parametrize("inclusive", [0, 1])
def test_an_exercises_reference_at_some_places_is_its_reference_there(name: str, size: Any, inclusive: int) -> None:
    exercise: Exercise = EXERCISES.load(name).exercise
    assert exercise.reference_at is not None
    for variant in {case.variant.name: case.variant for case in exercise.cases}.values():
        problem = Problem(size, {**TUNABLES, "INCLUSIVE": inclusive}, variant)
        contents = make_inputs(exercise, problem, make_plan(exercise, problem), "random", np.random.default_rng(5))
        everywhere = exercise.reference(problem, contents)
        places = drawn_places(everywhere.values["out"].size, PLAIN, np.random.default_rng(6))[::3]
        there = exercise.reference_at(problem, contents, {"out": places})
        wanted = everywhere.values["out"].reshape(-1)[places]
        assert np.allclose(there.values["out"], wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max())
        shape = everywhere.values["out"].shape
        tolerance = np.broadcast_to(everywhere.tolerance["out"], shape).reshape(-1)[places]
        assert np.allclose(there.tolerance["out"], tolerance, rtol=1e-9)

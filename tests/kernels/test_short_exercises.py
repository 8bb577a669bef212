"""The exercises made by `single_kernel`: short, with generated points tables, and inputs that show mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_gpulab.authoring.readme import points_table
from pytest_gpulab.exercise import Exercise, Problem
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.expected import Expectations

CATALOGUE = Catalogue(Path(__file__).resolve().parents[2] / "exercises")
NAMES = ("histogram", "matrix_sum", "stencil", "transpose")
TILE = {"TILE_X": 32, "TILE_Y": 8, "ITEMS_PER_THREAD": 4}


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_has_at_most_40_lines(name: str) -> None:
    assert len((CATALOGUE.folder / name / "exercise.py").read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.parametrize("name", NAMES)
def test_an_exercise_has_all_that_a_course_needs(name: str) -> None:
    root, exercise = CATALOGUE.folder.parent, CATALOGUE.load(name).exercise
    assert isinstance(exercise, Exercise) and exercise.uses
    assert all((CATALOGUE.folder / name / file).is_file() for file in ("README.md", "naive.cu", f"{name}.cu"))
    solutions = root / "solutions" / name
    ladder = Expectations.load([solutions / "expected.toml"])
    points = [step.points for path in sorted(solutions.glob("*.cu")) if (step := ladder.for_path(path))]
    assert len(points) >= 3 and points[-1] == 100 > min(points)
    wrong, honest = (len(list((root / "tests" / kind / name).glob("*.cu"))) for kind in ("wrong", "honest"))
    assert wrong >= 8 and honest >= 2


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_has_the_generated_points_table_and_all_tunables(name: str) -> None:
    loaded = CATALOGUE.load(name)
    text = (loaded.folder / "README.md").read_text(encoding="utf-8")
    assert points_table(loaded.exercise) in text
    assert all(f"| `{tunable.name}` |" in text for tunable in loaded.exercise.tunables)


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_states_the_timed_sizes(name: str) -> None:
    loaded = CATALOGUE.load(name)
    text = (loaded.folder / "README.md").read_text(encoding="utf-8")
    for tier in loaded.exercise.speed:
        sizes = tier.size, tier.simulated_size
        words = (
            " x ".join(map(str, size)) if isinstance(size, tuple) else f"2^{size.bit_length() - 1}" for size in sizes
        )
        assert all(word in text for word in words)


def test_the_stencil_sums_the_square_around_each_element() -> None:
    exercise = CATALOGUE.load("stencil").exercise
    problem = Problem((13, 7), TILE)
    (values,) = exercise.inputs(problem, "random", np.random.default_rng(1)).values()
    found = exercise.reference(problem, {"in": values}).values["out"]
    for y, x in np.ndindex(values.shape):
        assert found[y, x] == values[max(y - 5, 0) : y + 6, max(x - 5, 0) : x + 6].sum()


def test_the_inputs_of_the_histogram_leave_bins_empty_and_crowd_others() -> None:
    exercise = CATALOGUE.load("histogram").exercise
    problem = Problem(4099, {"BLOCK_SIZE": 256, "ITEMS_PER_THREAD": 1})
    used, largest = {}, {}
    for pattern in exercise.cases[0].patterns:
        inputs = exercise.inputs(problem, pattern, np.random.default_rng(1))
        counts = exercise.reference(problem, inputs).values["out"]
        assert counts.shape == (256,) and counts.sum() == 4099
        used[pattern], largest[pattern] = np.count_nonzero(counts), counts.max() / 4099
    assert used["uniform"] == 256 and used["skewed"] < 64 and (used["one value"], used["empty bins"]) == (1, 4)
    assert largest["skewed"] > 10 * largest["uniform"] / 2

"""The scan and constant memory exercises as data: plans, references, and tolerances that let no nonsense pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graded_folders import EXERCISES

from pytest_gpulab.exercise import Array, Case, Exercise, Plan, Problem
from pytest_gpulab.grading.catalogue import Catalogue

CATALOGUE = Catalogue(Path(__file__).resolve().parents[2] / "exercises")
SCAN, FIELD = (CATALOGUE.load(name).exercise for name in ("scan", "constant_memory"))
TILE = {"TILE_X": 16, "TILE_Y": 8}


def scan_problem(n: int, inclusive: int, block: int = 64, items: int = 2, single_pass: int = 0) -> Problem:
    tunables = {"BLOCK_SIZE": block, "ITEMS_PER_THREAD": items, "INCLUSIVE": inclusive, "SINGLE_PASS": single_pass}
    return Problem(n, tunables)


def run_scan_plan(plan: Plan, inputs: dict[str, Array], inclusive: int, per_block: int) -> Array:
    """Carry the plan out with NumPy in place of the student's kernels."""
    memory: dict[Any, Array] = {buffer.name: np.full(buffer.shape, np.nan) for buffer in plan.buffers}
    memory["in"] = inputs["in"].astype(np.float64)
    for launch in plan.launches:
        n = int(launch.args[-1])  # type: ignore[arg-type]
        for block in range(launch.grid[0]):
            mine = slice(block * per_block, min((block + 1) * per_block, n))
            if launch.kernel == "scan_block":
                terms = memory[launch.args[0]][mine]
                memory[launch.args[1]][mine] = np.cumsum(terms) - (0 if inclusive else terms)
                memory[launch.args[2]][block] = terms.sum()
            elif not inclusive or block > 0:
                memory[launch.args[0]][mine] += memory[launch.args[1]][block - inclusive]
    return memory["out"]


@pytest.mark.parametrize(("n", "count"), [(1, 0), (4, 0), (5, 4)])
def test_a_down_sweep_is_no_cause_where_one_thread_has_all_elements(n: int, count: int) -> None:
    """There, the thread's own part is as likely a term too many as the root of the tree."""
    assert SCAN.mistakes is not None
    assert len(SCAN.mistakes(scan_problem(n, 1, items=4), {"in": np.arange(n, dtype=np.float32)})) == count


@pytest.mark.parametrize("inclusive", [0, 1])
@pytest.mark.parametrize("n", [1, 127, 128, 129, 128 * 128, 128 * 128 + 1, 128 * 128 + 129, 40_000])
def test_scan_then_fan_scans_block_sums_at_every_level(n: int, inclusive: int) -> None:
    problem = scan_problem(n, inclusive)
    inputs = dict(SCAN.inputs(problem, "integers", np.random.default_rng(n)))
    expected = SCAN.reference(problem, inputs)
    out = run_scan_plan(SCAN.plan(problem), inputs, inclusive, per_block=128)
    np.testing.assert_array_equal(out, expected.values["out"])
    assert not np.any(expected.tolerance["out"]), "integers this small are exact"


@pytest.mark.parametrize("inclusive", [0, 1])
def test_the_scan_reference_includes_the_element_itself_or_does_not(inclusive: int) -> None:
    inputs = {"in": np.array([3, 1, 4, 1, 5], np.float32)}
    expected = SCAN.reference(scan_problem(5, inclusive), inputs).values["out"]
    assert expected.tolist() == ([3, 4, 8, 9, 14] if inclusive else [0, 3, 4, 8, 9])


def test_a_single_pass_is_one_launch_with_zeroed_flags() -> None:
    plan = SCAN.plan(scan_problem(1000, inclusive=1, single_pass=1))
    assert [(launch.kernel, launch.grid, launch.block) for launch in plan.launches] == [
        ("scan_single_pass", (8,), (64,))
    ]
    assert [buffer.name for buffer in plan.buffers if buffer.zeroed] == ["ticket", "status"]


@pytest.mark.parametrize(("block", "items", "levels"), [(32, 1, 4), (256, 1, 3), (1024, 1, 2), (1024, 16, 2)])
def test_the_last_block_is_partial_at_every_level(block: int, items: int, levels: int) -> None:
    tunables = scan_problem(1, 1, block, items).tunables
    problem = next(case for case in SCAN.cases if case.name == "every level partial").problem(tunables)
    scans = [launch for launch in SCAN.plan(problem).launches if launch.kernel == "scan_block"]
    assert len(scans) == levels
    assert int(scans[0].args[-1]) > 2**16, "an index of 16 bits shows"  # type: ignore[arg-type]
    assert all(int(launch.args[-1]) % (block * items) for launch in scans)  # type: ignore[arg-type]


def test_the_field_is_the_sum_of_squared_distances() -> None:
    inputs = {"vectors": np.array([[1, 0], [0.5, 2]], np.float32)}
    expected = FIELD.reference(Problem((2, 3, 2), TILE), inputs).values["out"]
    assert expected.tolist() == [[1 + 4.25, 0 + 4.25], [2 + 1.25, 1 + 1.25], [5 + 0.25, 4 + 0.25]]


def test_the_grid_of_the_field_covers_edges_that_are_no_multiple_of_a_tile() -> None:
    (launch,) = FIELD.plan(Problem((17, 8, 20), TILE)).launches
    assert (launch.grid, launch.block) == ((2, 1), (16, 8))


def cases(exercise: Exercise) -> list[Any]:
    return [pytest.param(exercise, case, id=f"{exercise.title.split(':')[0]} {case.name}") for case in exercise.cases]


@pytest.mark.parametrize(("exercise", "case"), [*cases(SCAN), *cases(FIELD)])
def test_an_honest_float_result_passes_and_nonsense_does_not(exercise: Exercise, case: Case) -> None:
    tunables = TILE if exercise is FIELD else scan_problem(1, inclusive=1).tunables
    problem = case.problem(tunables)
    for pattern in case.patterns:
        inputs = exercise.inputs(problem, pattern, np.random.default_rng(7))
        expected = exercise.reference(problem, inputs)
        right, tolerance = expected.values["out"], expected.tolerance["out"]
        assert np.all(np.abs(right.astype(np.float32) - right) <= np.maximum(tolerance, np.spacing(np.float32(right))))
        for nonsense in (right * 0, right * 0.99, right + np.abs(right).max() * 0.01):
            assert np.any(np.abs(nonsense - right) > tolerance), (pattern, "zeros, 99 % and an offset must fail")


@pytest.mark.parametrize(("block", "items"), [(32, 1), (256, 4)])
def test_an_exclusive_sum_may_be_the_inclusive_one_minus_the_element_itself(block: int, items: int) -> None:
    for case in SCAN.cases:
        problem = case.problem(scan_problem(1, inclusive=0, block=block, items=items).tunables)
        if problem.size > block * items:
            continue  # NumPy adds all elements in a row, a kernel only those of a block
        for at, pattern in enumerate(case.patterns * 4):
            inputs = SCAN.inputs(problem, pattern, np.random.default_rng(at))
            expected = SCAN.reference(problem, inputs)
            less = np.cumsum(inputs["in"], dtype=np.float32) - inputs["in"]
            assert np.all(np.abs(less - expected.values["out"]) <= expected.tolerance["out"]), (case.name, pattern)


@pytest.mark.parametrize("inclusive", [0, 1])
def test_half_precision_and_the_unchanged_input_fail_the_scan(inclusive: int) -> None:
    problem = scan_problem(1025, inclusive, block=1024, items=1)
    inputs = SCAN.inputs(problem, "random", np.random.default_rng(1))
    expected = SCAN.reference(problem, inputs)
    right, tolerance = expected.values["out"], expected.tolerance["out"]
    for nonsense in (right.astype(np.float16).astype(np.float64), inputs["in"]):
        assert np.any(np.abs(nonsense - right) > tolerance)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_readme_states_what_uses_checks_ask_and_earn(name: str) -> None:
    loaded = CATALOGUE.load(name)
    rows = (loaded.folder / "README.md").read_text(encoding="utf-8").splitlines()
    for uses in loaded.exercise.uses:
        (row,) = (row for row in rows if row.startswith("|") and f"`uses[{uses.name}]`" in row)
        assert row.endswith(" |") and f"{uses.points:g}" in row.split("|")[-2]
        assert ("required" if uses.required else "bonus") in row
        for bound in uses.bounds:
            figure = bound.at_most if bound.at_most is not None else bound.at_least
            assert f"{figure:g} " in row or name == "constant_memory"  # whose row says it in words


@pytest.mark.parametrize("name", ["scan", "constant_memory"])
def test_the_readme_states_the_points_and_tunables_that_count(name: str) -> None:
    loaded = CATALOGUE.load(name)
    text = (loaded.folder / "README.md").read_text(encoding="utf-8")
    exercise = loaded.exercise
    for tier in exercise.speed:
        kind = "required" if tier.required else "bonus"
        assert f"| `speedup[{tier.name}]` over `{tier.baseline}`: {kind} | {tier.points} |" in text
    assert f"`correct[...]`: {len(exercise.cases)} " in text
    assert f"| {sum(case.points for case in exercise.cases)} |" in text
    assert f"| {sum(check.points for check in exercise.safe)} |" in text
    assert all(f"| `{tunable.name}` |" in text for tunable in exercise.tunables)

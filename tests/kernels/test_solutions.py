"""Every solution earns its stated points, and every naive kernel those of being right, all through the plugin."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from doc_pages import blocks, commands, first_difference
from graded_folders import (
    EXERCISES,
    ROOT,
    SOLUTIONS,
    Graded,
    all_checks,
    assert_points,
    expectation_of,
    grade,
    grades_in,
    named,
    problems,
)

from pytest_gpulab.grading.calibration.fit import reached_tiers
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.grade import Grade


@pytest.fixture(scope="module")
def solutions(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    """The successful run that `.ci/run` has made before the tests, or else a run of its own."""
    made = Path(os.environ.get("GPULAB_TEST_SOLUTIONS", ""))
    if (made / "output.txt").is_file():
        output = (made / "output.txt").read_text(encoding="utf-8")
        return Graded(0, output, grades_in(made / "grades.json", ROOT / "solutions"))
    return grade(ROOT / "solutions", tmp_path_factory.mktemp("solutions"))


@pytest.fixture(scope="module")
def naive_kernels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graded, Path]:
    scratch = tmp_path_factory.mktemp("naive")
    submissions = scratch / "submissions"
    checks: list[str] = []
    for name in EXERCISES:
        (submissions / name).mkdir(parents=True)
        copy = shutil.copy(ROOT / "exercises" / name / "naive.cu", submissions / name)
        checks += (f"{copy}::{check.name}" for check in all_checks(name) if check.kind != "uses")  # not asserted below
    return grade(submissions, scratch, checks=checks), submissions


def hazards(grade: dict[str, Any]) -> list[dict[str, Any]]:
    """Return findings of hazards, harmless ones as well."""
    return [finding for check in grade["checks"] if check["kind"] == "safe" for finding in check["findings"]]


def test_all_solutions_pass_as_expected(solutions: Graded) -> None:
    assert solutions.exit_code == 0, solutions.output


def test_the_readme_shows_this_report(solutions: Graded) -> None:
    """Apart from times and other figures that may differ."""
    (sample,) = blocks(ROOT / "README.md", "console")
    (command,) = commands(sample)
    assert command.text == "pytest --gpulab solutions"
    lines = solutions.output.splitlines(keepends=True)
    printed = "".join(line for line in lines if not line.startswith("gpulab: wrote "))  # grades, for the tests below
    difference = first_difference(command.output, printed)
    assert not difference, difference


@pytest.mark.parametrize("path", SOLUTIONS, ids=named)
def test_a_solution_earns_its_stated_points(solutions: Graded, path: Path) -> None:
    assert_points(solutions.grades[path], path)
    assert hazards(solutions.grades[path]) == []


@pytest.mark.parametrize("path", SOLUTIONS, ids=named)
def test_a_solutions_points_settle_which_speed_tiers_it_must_reach(solutions: Graded, path: Path) -> None:
    """A calibration rests on that."""
    exercise = Catalogue(ROOT / "exercises").load(path.parent.name).exercise
    grade = Grade.from_dict(solutions.grades[path])
    reached = [check.name for check in grade.checks if check.kind == "speedup" and check.verdict == "passed"]
    tiers = reached_tiers(exercise, expectation_of(path), grade)
    assert tiers is not None and {f"speedup[{tier}]" for tier in tiers} == set(reached)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_naive_kernel_earns_all_correctness_points_and_no_speed_points(
    naive_kernels: tuple[Graded, Path], name: str
) -> None:
    graded, submissions = naive_kernels
    grade = graded.grades[submissions / name / "naive.cu"]
    for check in grade["checks"]:
        earned_all = check["points"] == check["max_points"] and check["verdict"] == "passed"
        assert not earned_all if check["kind"] == "speedup" else earned_all, "\n".join(problems(grade))
    assert hazards(grade) == []


@pytest.mark.parametrize("path", SOLUTIONS, ids=named)
def test_a_solution_has_a_comment_and_states_its_points(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("// ")
    assert expectation_of(path).points is not None

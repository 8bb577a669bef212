"""Every solution earns its stated points, every known-wrong kernel gets its stated verdict, all through the plugin.

One pytest process grades all solutions, one all wrong kernels, one the naive baselines handed in as submissions.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from doc_pages import blocks, commands, first_difference

from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.expected import Expectation, Expectations
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.ladder import reached_tiers

ROOT = Path(__file__).resolve().parent.parent
EXERCISES = sorted(path.parent.name for path in ROOT.glob("exercises/*/exercise.py"))
SOLUTIONS = sorted(ROOT.glob("solutions/*/*.cu"))
WRONG = sorted(ROOT.glob("tests/wrong/*/*.cu"))
EXPECTED = Expectations.load([*ROOT.glob("solutions/*/expected.toml"), *ROOT.glob("tests/wrong/*/expected.toml")])
ON_SIMULATED = ("--gpulab-device=sim", "--gpulab-seed=20")


@dataclass(frozen=True)
class Graded:
    """What one pytest process said: its exit code, its output, and a grade for each submission's path."""

    exit_code: int
    output: str
    grades: dict[Path, dict[str, Any]]


def grade(folder: Path, scratch: Path, *more: str) -> Graded:
    report = scratch / "grades.json"
    options = ["--gpulab", f"--gpulab-report=json:{report}", *(more or ON_SIMULATED)]
    options += [f"-pno:{plugin}" for plugin in ("cacheprovider", "benchmark", "hypothesispytest")]
    command = [sys.executable, "-m", "pytest", *options, str(folder)]
    environment = {**os.environ, "COLUMNS": "100"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    output = run.stdout + run.stderr
    assert report.is_file(), output
    grades = json.loads(report.read_text(encoding="utf-8"))["grades"]
    # outside the checkout, pytest names files from the last folder that it shares with them
    starts = ROOT, folder, *folder.parents
    return Graded(run.returncode, output, {found(starts, grade["submission"]): grade for grade in grades})


def found(starts: Iterable[Path], name: str) -> Path:
    """Return the file that a submission's name means."""
    return next(start / name for start in starts if (start / name).is_file())


@pytest.fixture(scope="module")
def solutions(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    return grade(ROOT / "solutions", tmp_path_factory.mktemp("solutions"))


@pytest.fixture(scope="module")
def wrong_kernels(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    return grade(ROOT / "tests" / "wrong", tmp_path_factory.mktemp("wrong"))


@pytest.fixture(scope="module")
def naive_kernels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graded, Path]:
    scratch = tmp_path_factory.mktemp("naive")
    submissions = scratch / "submissions"
    for name in EXERCISES:
        (submissions / name).mkdir(parents=True)
        shutil.copy(ROOT / "exercises" / name / "naive.cu", submissions / name)
    return grade(submissions, scratch), submissions


def expectation_of(path: Path) -> Expectation:
    expectation = EXPECTED.for_path(path)
    assert expectation is not None, f"{path} is in no expected.toml"
    return expectation


def problems(grade: dict[str, Any]) -> Iterator[str]:
    """Everything that did not pass, for a failed test to show."""
    for check in grade["checks"]:
        for finding in check["findings"]:
            yield f"{check['name']}: {check['verdict']}: {finding['code']}: {finding['what']} {finding['where']}"


def assert_points(grade: dict[str, Any], path: Path) -> None:
    assert grade["points"] == expectation_of(path).points, "\n".join(problems(grade))
    assert grade["max_points"] == 100


def assert_verdicts(grade: dict[str, Any], path: Path) -> None:
    expectation = expectation_of(path)
    if expectation.later:
        pytest.skip(f"only a {expectation.later} check can see through this one")
    checks = {check["name"]: check for check in grade["checks"]}
    for name, code in expectation.fails.items():
        assert checks[name]["verdict"] == "failed", "\n".join(problems(grade))
        assert code in [finding["code"] for finding in checks[name]["findings"]], "\n".join(problems(grade))
    assert grade["points"] < 100


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_all_solutions_pass_as_expected(solutions: Graded) -> None:
    assert solutions.exit_code == 0, solutions.output


def test_the_readme_shows_this_report(solutions: Graded) -> None:
    """Apart from times and other figures that may differ."""
    (sample,) = blocks(ROOT / "README.md", "console")
    (command,) = commands(sample)
    assert command.text == "pytest --gpulab solutions"
    difference = first_difference(command.output, solutions.output)
    assert not difference, difference


@pytest.mark.parametrize("path", SOLUTIONS, ids=named)
def test_a_solution_earns_its_stated_points(solutions: Graded, path: Path) -> None:
    assert_points(solutions.grades[path], path)


@pytest.mark.parametrize("path", SOLUTIONS, ids=named)
def test_a_solutions_points_settle_which_speed_tiers_it_must_reach(solutions: Graded, path: Path) -> None:
    """A calibration rests on that."""
    exercise = Catalogue(ROOT / "exercises").load(path.parent.name).exercise
    grade = Grade.from_dict(solutions.grades[path])
    reached = [check.name for check in grade.checks if check.kind == "speedup" and check.verdict == "passed"]
    tiers = reached_tiers(exercise, expectation_of(path), grade)
    assert tiers is not None and {f"speedup[{tier}]" for tier in tiers} == set(reached)


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_a_wrong_kernel_gets_its_stated_verdict(wrong_kernels: Graded, path: Path) -> None:
    assert_verdicts(wrong_kernels.grades[path], path)


@pytest.mark.parametrize("name", EXERCISES)
def test_the_naive_kernel_earns_all_correctness_points_and_no_speed_points(
    naive_kernels: tuple[Graded, Path], name: str
) -> None:
    graded, submissions = naive_kernels
    grade = graded.grades[submissions / name / "naive.cu"]
    for check in (check for check in grade["checks"] if check["kind"] != "uses"):
        earned_all = check["points"] == check["max_points"] and check["verdict"] == "passed"
        assert not earned_all if check["kind"] == "speedup" else earned_all, "\n".join(problems(grade))


def test_a_kernel_can_be_fast_without_the_idea_and_then_fails_only_the_check_of_the_idea(wrong_kernels: Graded) -> None:
    (path,) = (path for path in WRONG if path.name == "fast_without_constant_memory.cu")
    checks = {check["name"]: check["verdict"] for check in wrong_kernels.grades[path]["checks"]}
    assert checks.pop("uses[constant-memory]") == "failed"
    assert checks.pop("speedup[2x]") == "passed"
    assert {verdict for name, verdict in checks.items() if not name.startswith("speedup")} == {"passed"}


def test_the_corpus_of_wrong_kernels_is_large_enough() -> None:
    assert len(WRONG) >= 32
    for name in EXERCISES:
        assert len([path for path in WRONG if path.parent.name == name]) >= 6, name


@pytest.mark.parametrize("path", WRONG, ids=named)
def test_a_wrong_kernel_says_what_is_wrong_and_what_must_fail(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("// Wrong: ")
    assert expectation_of(path).fails


@pytest.mark.parametrize("path", SOLUTIONS, ids=named)
def test_a_solution_has_a_comment_and_states_its_points(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("// ")
    assert expectation_of(path).points is not None

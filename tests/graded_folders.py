"""Folders of kernels, graded by one pytest process each, and the verdicts that their `expected.toml` states."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lean_pytest import WITHOUT

from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import Check, checks_of
from pytest_gpulab.grading.expected import Expectation, Expectations, is_met

ROOT = Path(__file__).resolve().parent.parent
EXERCISES = sorted(path.parent.name for path in ROOT.glob("exercises/*/naive.cu"))
"""The exercises that ask for kernels; the tests in `program_exercises` grade whole programs."""
SOLUTIONS = sorted(path for name in EXERCISES for path in ROOT.glob(f"solutions/{name}/*.cu"))
WRONG = sorted(path for name in EXERCISES for path in ROOT.glob(f"tests/wrong/{name}/*.cu"))
EXPECTED = Expectations.load([*ROOT.glob("solutions/*/expected.toml"), *ROOT.glob("tests/wrong/*/expected.toml")])
ON_SIMULATED = ("--gpulab-device=sim", "--gpulab-seed=20")
SEARCHED = ("histogram",)
"""Corpora of wrong kernels with the search for smallest failing inputs, as in a class; it takes half of the time."""


@dataclass(frozen=True)
class Graded:
    """The result of one pytest process: its exit code, its output, and a grade by the submission's path."""

    exit_code: int
    output: str
    grades: dict[Path, dict[str, Any]]


def grade(folder: Path, scratch: Path, *more: str, checks: Iterable[str] = ()) -> Graded:
    """Grade a folder, or the named checks of its files only."""
    report, listed = scratch / "grades.json", scratch / "checks.txt"
    listed.write_text("\n".join(checks) or str(folder), encoding="utf-8")
    options = ["--gpulab", f"--gpulab-report=json:{report}", *(more or ON_SIMULATED)]
    options += ["-pno:cacheprovider", *WITHOUT]
    command = [sys.executable, "-m", "pytest", *options, f"@{listed}"]
    environment = {**os.environ, "COLUMNS": "100"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    output = run.stdout + run.stderr
    assert report.is_file(), output
    return Graded(run.returncode, output, grades_in(report, folder))


def grades_in(report: Path, folder: Path) -> dict[Path, dict[str, Any]]:
    """Return the grades of a report by the file that is graded.

    Outside the checkout, pytest names files from the last folder that it shares with them.
    """
    starts = ROOT, folder, *folder.parents
    grades = json.loads(report.read_text(encoding="utf-8"))["grades"]
    return {found(starts, grade["submission"]): grade for grade in grades}


def graded_wrong(exercise: str, in_full: str = "") -> Any:
    """Return a fixture with the grades of an exercise's wrong kernels; a file per exercise lets cores share them.

    One of them may be graded in full.
    """

    @pytest.fixture(scope="module")
    def wrong_kernels(tmp_path_factory: pytest.TempPathFactory) -> Graded:
        checks = [
            f"{path}::{check}"
            for path in wrong_of(exercise)
            for check in (
                [each.name for each in all_checks(exercise)] if path.stem == in_full else expected_checks(path)
            )
        ]
        more = () if exercise in SEARCHED else ("-ptests.verdicts_only",)
        scratch = tmp_path_factory.mktemp("wrong")
        return grade(ROOT / "tests" / "wrong" / exercise, scratch, *ON_SIMULATED, *more, checks=checks)

    return wrong_kernels


@cache
def all_checks(exercise: str) -> tuple[Check, ...]:
    return checks_of(Catalogue(ROOT / "exercises").load(exercise).exercise)


def expected_checks(path: Path) -> list[str]:
    """Return the checks of a wrong kernel with a stated verdict; the others would take three times as long.

    Of these, `compile` compiles all variants. A kernel that is correct but lacks the idea has its stated `uses` checks,
    which pass nothing that is not correct.
    """
    checks, expected = all_checks(path.parent.name), expectation_of(path).fails
    kinds = ("compile", "correct", "safe") if is_wrong_only_while_timed(path) else ()
    return [check.name for check in checks if check.kind in kinds or check.name in expected]


def wrong_of(exercise: str) -> list[Path]:
    return [path for path in WRONG if path.parent.name == exercise]


def found(starts: Iterable[Path], name: str) -> Path:
    """Return the file that a submission's name means."""
    return next(start / name for start in starts if (start / name).is_file())


def expectation_of(path: Path) -> Expectation:
    expectation = EXPECTED.for_path(path)
    assert expectation is not None, f"{path} is in no expected.toml"
    return expectation


def is_wrong_only_while_timed(path: Path) -> bool:
    """Return whether a kernel is right at every size but the one that it is timed at."""
    return all(name.startswith("speedup") for name in expectation_of(path).fails)


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
        assert checks[name]["verdict"] in ("failed", "missed"), "\n".join(problems(grade))
        assert is_met(code, [finding["code"] for finding in checks[name]["findings"]]), "\n".join(problems(grade))
    if is_wrong_only_while_timed(path):  # or it would be found without the checks of timed launches
        others = {check["verdict"] for check in checks.values() if check["kind"] in ("compile", "correct", "safe")}
        assert others == {"passed"}, "\n".join(problems(grade))
    if not all(checks[name]["verdict"] == "missed" for name in expectation.fails):  # some lack a bonus only
        assert any(
            check["verdict"] == "failed" and (check["required"] or check["max_points"]) for check in checks.values()
        )


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"

"""`gpulab check` on exercises that ask for a whole program."""

from __future__ import annotations

from pathlib import Path

import pytest
from graded_folders import ROOT

from pytest_gpulab.command.main import main

pytestmark = pytest.mark.simulator
MISTAKEN = """
import random
from pytest_gpulab.program_exercise import Program, ProgramCase, ProgramExercise

exercise = ProgramExercise(
    title="a test",
    cases=(
        ProgramCase("other", lambda rng: Program("1", args=(str(random.random()),)), 50),
        ProgramCase("broken", lambda rng: 1 / 0, 50),
    ),
)
"""
IDLE_PASSES = """
from pytest_gpulab.program_exercise import Program, ProgramCase, ProgramExercise

exercise = ProgramExercise(title="a test", cases=(ProgramCase("empty", lambda rng: Program(""), 100),))
"""


def course(folder: Path, exercise: str, skeleton: str) -> Path:
    made = folder / "exercises" / "made"
    made.mkdir(parents=True)
    (made / "exercise.py").write_text(exercise)
    (made / "made.cu").write_text(skeleton)
    return made


def test_the_shipped_exercise_has_no_defect(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", str(ROOT / "exercises" / "reduction_host")])
    said = capsys.readouterr().out
    assert code == 0 and said.startswith("reduction_host: 0 errors, 0 warnings\n"), said
    assert "3 files graded" in said


def test_defects_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(course(tmp_path, MISTAKEN, "int main() {}\n"))]) == 1
    said = capsys.readouterr().out
    for defect in (
        "`program` of correct[other] gives other input for the same seed",
        "division by zero (in correct[broken])",
        "the skeleton counts as a finished submission",
        "there is no README for students",
    ):
        assert defect in said


def test_a_check_that_an_idle_program_passes_is_a_defect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(course(tmp_path, IDLE_PASSES, "GPULAB_TODO(main)\n"))]) == 1
    assert "correct[empty] is passed by a program that does nothing" in capsys.readouterr().out

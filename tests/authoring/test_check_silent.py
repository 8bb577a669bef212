"""`gpulab check`: mistakes with which grades look right, but students get a solution or a message that misleads."""

from __future__ import annotations

from pathlib import Path

import pytest
from mistaken import KERNEL, NAIVE, SKELETON, checked, course

from pytest_gpulab.authoring.readme import readme_problems
from pytest_gpulab.command import main
from pytest_gpulab.exercise import ExerciseError
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.program_exercise import Program, ProgramCase, ProgramExercise

ALLOWED = "(32, 64, 128, 256)"
VARIANTS = 'Case(f"n={n}", n, 12, ("random",), Variant("v", {"N": str(n)}))'
PROGRAM = """
from pytest_gpulab.program_exercise import Program, ProgramCase, ProgramExercise

exercise = ProgramExercise(title="a test", cases=(ProgramCase("a", lambda rng: Program("1"), 100),))
"""


@pytest.mark.simulator
def test_a_skeleton_that_is_a_solution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path)
    (folder / "shift.cu").write_text(KERNEL.replace("\n", "\nGPULAB_TODO( shift ) // write it\n", 1))
    code, text = checked(capsys, folder, "--no-solutions")
    assert code == 1
    message = "the skeleton without its GPULAB_TODO lines passes every required check: students get a solution"
    assert f"{folder / 'shift.cu'}: error: {message}\n      Empty the bodies of its kernels." in text
    assert main.main(["handout", str(tmp_path), str(tmp_path / "copy")]) == 2
    expected = "gpulab handout: shift: shift.cu has the code of the solution 01_shift.cu: remove it there\n"
    assert capsys.readouterr().err == expected
    assert not (tmp_path / "copy").exists()


@pytest.mark.simulator
def test_a_skeleton_of_the_slow_kernel_is_no_solution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path)
    (folder / "shift.cu").write_text(NAIVE.replace("\n", "\nGPULAB_TODO(shift)\n", 1))
    assert checked(capsys, folder, "--no-solutions")[0] == 0


def test_a_skeleton_of_a_program_that_is_a_solution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, first in (("exercises", "GPULAB_TODO(main)"), ("solutions", "// The first solution.")):
        (tmp_path / folder / "made").mkdir(parents=True)
        (tmp_path / folder / "made" / "made.cu").write_text(f'{first}\n#include <cstdio>\nint main() {{ puts("1"); }}')
    folder = tmp_path / "exercises" / "made"
    (folder / "exercise.py").write_text(PROGRAM)
    assert main.main(["check", str(folder)]) == 1
    assert "made.cu: error: the skeleton has the code of the solution made.cu" in capsys.readouterr().out


@pytest.mark.simulator
def test_a_mark_of_a_misspelt_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path, skeleton=("TODO(shift)", "TODO(shfit)"))
    code, text = checked(capsys, folder, "--no-solutions")
    assert (code, text.splitlines()[0]) == (0, "shift: 0 errors, 1 warning")
    place = f"{folder / 'shift.cu'}:2"
    assert f"{place}: warning: GPULAB_TODO(shfit) names no kernel of the plan\n      Write GPULAB_TODO(shift);" in text


@pytest.mark.simulator
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0", "integer division or modulo by zero"),
        ("2048", "launch of 'shift': a block of (2048,) has more than 1024 threads"),
    ],
)
def test_a_tunable_that_allows_a_value_without_a_plan(
    value: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = course(tmp_path, exercise=(ALLOWED, f"(32, 64, 128, 256, {value})"))
    code, text = checked(capsys, folder, "--no-solutions")
    assert (code, text.splitlines()[0]) == (1, "shift: 1 error, 0 warnings")
    what = f"Tunable('BLOCK_SIZE') allows {value}, with which there is no plan: {reason}"
    assert f"exercise.py: error: {what}\n      Leave {value} out of `allowed`." in text


@pytest.mark.simulator
@pytest.mark.parametrize(
    ("file", "text", "level"), [("naive.cu", NAIVE, "BLOCK_SIZE, 32"), ("shift.cu", SKELETON, "BLOCK_SIZE, 128")]
)
def test_a_macro_in_place_of_a_tunable(
    file: str, text: str, level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = course(tmp_path)
    (folder / file).write_text(text.replace(f"GPULAB_TUNABLE({level})", f"#define {level.replace(',', '')}"))
    said = checked(capsys, folder, "--no-solutions")[1]
    assert said.splitlines()[0] == "shift: 0 errors, 1 warning"
    assert f"{folder / file}: warning: BLOCK_SIZE is not declared as a tunable" in said
    assert "Write GPULAB_TUNABLE(BLOCK_SIZE, value) in its place: students copy this line." in said


@pytest.mark.simulator
def test_another_number_of_sizes_in_the_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path, readme=("4 sizes", "8 sizes"))
    code, text = checked(capsys, folder, "--no-solutions")
    assert (code, text.splitlines()[0]) == (0, "shift: 0 errors, 1 warning")
    what = "the points table has 8 sizes, but the exercise has 4"
    assert f"{folder / 'README.md'}:3: warning: {what}" in text


def test_another_bound_in_the_readme(tmp_path: Path) -> None:
    folder = course(tmp_path, readme=("`uses[coalesced]` |", "`uses[coalesced]` (times the minimum: 1.7 or less) |"))
    exercise = Catalogue(folder.parent).load("shift").exercise
    (found,) = readme_problems(exercise, folder / "README.md")
    what = "the points table has 1.7 for uses[coalesced] (times the minimum), but the exercise has 4"
    assert (found.what, found.where, found.level) == (what, f"{folder / 'README.md'}:3", "warning")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('Case(f"n={n}", n, 12)', VARIANTS, "more than one Variant is called 'v', with different `defines`; give each"),
        ('f"n={n}"', 'f"n[{n}]"', "Case('n[1]'): pytest's ids need a name without `[`, `]` and `::`"),
        ('f"n={n}"', 'f"n::{n}"', "Case('n::1'): pytest's ids need"),
        ('"coalesced"', '"coalesced]"', "UsesCheck('coalesced]'): pytest's ids need"),
    ],
)
def test_names_that_ids_and_grades_cannot_tell_apart(
    old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = checked(capsys, course(tmp_path, exercise=(old, new)))
    assert code == 1
    assert message in text


def test_a_case_of_a_program_has_a_name_for_ids() -> None:
    with pytest.raises(ExerciseError, match=r"ProgramCase\('a::b'\): pytest's ids need"):
        ProgramExercise("A", (ProgramCase("a::b", lambda rng: Program(""), 100),))

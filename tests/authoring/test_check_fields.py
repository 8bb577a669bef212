"""`gpulab check`: values of the wrong type, which Python accepts without a word."""

from __future__ import annotations

from pathlib import Path

import pytest
from mistaken import course

from pytest_gpulab.command import main
from pytest_gpulab.exercise import ExerciseError
from pytest_gpulab.program_exercise import Program, ProgramCase, ProgramExercise, ProgramSafe

LAST = "    min_bytes=lambda problem: 8 * problem.size,\n"
VARIANT = 'n, 12, ("random",), Variant'
BOUND = "concepts.global_traffic(4.0)"
WRONG = {
    "a version that is a number": ((LAST, LAST + "    version=2,\n"), "Exercise: `version` must be a text, but is 2"),
    "a truth value in words": (
        (LAST, LAST + "    deterministic='no',\n"),
        "Exercise: `deterministic` must be True or False, but is 'no'",
    ),
    "no title": (
        ('"Each element plus the one before"', "None"),
        "Exercise: `title` must be a text of one line, but is None",
    ),
    "a title of two lines": (('plus the one before"', 'plus\\nthe one before"'), "`title` must be a text of one line"),
    "an empty title": (('"Each element plus the one before"', '""'), "`title` must be a text of one line, but is ''"),
    "a tier that is required in words": (
        ("required=True", 'required="yes"'),
        "SpeedTier(1.5): `required` must be True or False, but is 'yes'",
    ),
    "a baseline that is none": (
        ("required=True", "required=True, baseline=None"),
        "SpeedTier(1.5): `baseline` must be a text, but is None",
    ),
    "a case that is hidden in words": (
        ("n, 12)", 'n, 12, hidden="yes")'),
        "Case('n=1'): `hidden` must be True or False, but is 'yes'",
    ),
    "a use that is required in words": (
        ("10, 4096)", '10, 4096, required="no")'),
        "UsesCheck('coalesced'): `required` must be True or False, but is 'no'",
    ),
    "macros that are integers": (
        ("n, 12)", f'{VARIANT}("v", {{"N": 4}}))'),
        "Variant('v'): `defines` must be a mapping of texts to texts, but is {'N': 4}",
    ),
    "a variant whose name is a number": (("n, 12)", f"{VARIANT}(3))"), "Variant(3): `name` must be a text, but is 3"),
    "a limit of a concept that is a text": (
        (BOUND, 'concepts.global_traffic("4.0")'),
        "UsesCheck('coalesced'): Bound('times the minimum'): `at_most` must be a number, but is '4.0'",
    ),
    "a limit of a companion that is a text": (
        (BOUND, 'concepts.Bound("x", len, at_most=1, companion=concepts.shared_use("1"))'),
        "Bound('accesses per warp'): `at_least` must be a number, but is '1'",
    ),
    "a hint that is none": (
        (BOUND, "concepts.Bound('x', len, at_least=1, hint=None)"),
        "Bound('x'): `hint` must be a text, but is None",
    ),
    "a measure that is a number": (
        (BOUND, "concepts.Bound('x', 3, at_least=1)"),
        "Bound('x'): `measure` must be a function of a Usage, but is 3",
    ),
    "a buffer whose name is a number": (
        ('Buffer("in", "input"', 'Buffer(1, "input"'),
        "buffer 1: `name` must be a text, but is 1",
    ),
    "an input that may change in words": (
        ('"input", np.float32, (n,)', '"input", np.float32, (n,), "no"'),
        "buffer 'in': `may_change` must be True or False, but is 'no'",
    ),
    "a kernel that is none": (
        ('Launch("shift"', "Launch(None"),
        "launch of None: `kernel` must be a text, but is None",
    ),
    "constants that are a list": (
        ("args),))", 'args),), ["table"])'),
        "Plan: `constants` must be a mapping of texts to texts, but is ['table']",
    ),
    "a name with a blank at its end": (
        ('f"n={n}"', 'f"n={n} "'),
        "Case('n=1 '): the name must not begin or end with a blank",
    ),
    "one pattern twice": (
        ("n, 12)", 'n, 12, ("random", "random"))'),
        "case 'n=1': `patterns` must be different texts, but is ('random', 'random')",
    ),
    "patterns that are numbers": (("n, 12)", "n, 12, (1, 2))"), "case 'n=1': `patterns` must be different texts"),
    "a macro with a blank": (
        ("n, 12)", f'{VARIANT}("v", {{"MY N": "4"}}))'),
        "Variant('v'): `defines` has 'MY N', which is no macro: write NAME, or NAME(a, b)",
    ),
    "a limit that is no number": (
        (BOUND, 'concepts.global_traffic(float("nan"))'),
        "Bound('times the minimum'): `at_most` must be a number, but is nan",
    ),
    "cases in a dictionary": (
        ('tuple(Case(f"n={n}", n, 12) for', '{n: Case(f"n={n}", n, 12) for'),
        "`cases` must be a tuple, but is a dict; write tuple(...)",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_value_of_the_wrong_type_is_reported(
    change: tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = course(tmp_path, exercise=change)
    if "{n: Case" in change[1]:
        source = folder / "exercise.py"
        source.write_text(source.read_text().replace("(1, 2, 33, 1025))", "(1, 2, 33, 1025)}"))
    assert main.main(["check", str(folder), "--no-solutions"]) == 1
    assert message in capsys.readouterr().out


def test_a_mistake_of_a_variant_that_all_cases_share_is_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["check", str(course(tmp_path, exercise=("n, 12)", f"{VARIANT}(3))")))])
    assert capsys.readouterr().out.count("Variant(3)") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "ProgramExercise: `version` must be a text, but is 2"),
        ({"title": None}, "ProgramExercise: `title` must be a text of one line, but is None"),
        ({"cases": (ProgramCase("a", lambda rng: Program(""), 90, hidden="no"),)}, "`hidden` must be True or False"),  # type: ignore[arg-type]  # the mistake
    ],
)
def test_a_value_of_the_wrong_type_in_an_exercise_for_programs(change: dict[str, object], message: str) -> None:
    right = {
        "title": "A",
        "cases": (ProgramCase("a", lambda rng: Program(""), 90),),
        "safe": (ProgramSafe("leak", 10),),
    }
    ProgramExercise(**right)  # type: ignore[arg-type]  # one dictionary for all fields
    with pytest.raises(ExerciseError) as caught:
        ProgramExercise(**{**right, **change})  # type: ignore[arg-type]  # one dictionary for all fields
    assert message in str(caught.value)


def test_a_limit_of_a_program_that_is_a_text() -> None:
    with pytest.raises(ExerciseError) as caught:
        Program("", timeout_s="5")  # type: ignore[arg-type]  # the mistake
    assert str(caught.value) == "Program: `timeout_s` must be a number, but is '5'"

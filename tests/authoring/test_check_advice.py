"""`gpulab check`: parts of an exercise that contradict each other, and advice where the exercise may be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from mistaken import checked, course

from pytest_gpulab.command import main

LAST = "    min_bytes=lambda problem: 8 * problem.size,\n"
KNOWN = "__import__('pytest_gpulab.exercise', fromlist=['x']).KnownMistake"
RIGHT_AT = """    reference_at=lambda problem, inputs, places: Expected(
        {name: reference(problem, inputs).values[name][chosen] for name, chosen in places.items()}
    ),
"""
MISTAKES = {
    "a reference at places that returns nothing": (
        "reference_at=lambda problem, inputs, places: None",
        "`reference_at` is wrong: it must return Expected, but returns nothing: `return` is missing",
    ),
    "a reference at places of another signature": (
        "reference_at=lambda problem, inputs: None",
        "`reference_at` is wrong: <lambda>() takes 2 positional arguments but 3 were given",
    ),
    "a reference at places of another length": (
        "reference_at=reference and (lambda problem, inputs, places: reference(problem, inputs))",
        "`reference_at` is wrong: the values of 'out' have shape (2,), not (1,)",
    ),
    "a reference at places with other values": (
        "reference_at=lambda problem, inputs, at: Expected({name: 1e3 + chosen for name, chosen in at.items()})",
        "`reference_at` gives other values of 'out' than `reference` (case 'n=1', pattern 'random')",
    ),
    "no known mistakes": (
        "mistakes=lambda problem, inputs: None",
        "`mistakes` is wrong: it must return KnownMistakes in a list or tuple",
    ),
    "known mistakes that are texts": (
        "mistakes=lambda problem, inputs: ['x']",
        "`mistakes` is wrong: it must return KnownMistakes in a list or tuple",
    ),
    "a known mistake of another buffer": (
        f"mistakes=lambda problem, inputs: [{KNOWN}('x', {{'sum': inputs['in']}})]",
        "a known mistake has 'sum', but the output buffers are ['out']",
    ),
    "a known mistake of another shape": (
        f"mistakes=lambda problem, inputs: [{KNOWN}('x', {{'out': np.zeros(7)}})]",
        "a known mistake's 'out' has shape (7,), but its buffer has (1,)",
    ),
}


@pytest.mark.simulator
@pytest.mark.parametrize(("added", "message"), MISTAKES.values(), ids=MISTAKES)
def test_functions_that_contradict_each_other_are_reported_once(
    added: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = checked(capsys, course(tmp_path, exercise=(LAST, f"{LAST}    {added},\n")))
    assert code == 1
    assert text.splitlines()[0] == "shift: 1 error, 0 warnings"
    assert message in text


@pytest.mark.simulator
def test_a_right_reference_at_places_is_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = checked(capsys, course(tmp_path, exercise=(LAST, LAST + RIGHT_AT)))
    assert code == 0, text


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("paths.cuh", "exercise.py: error: `headers` has 'paths.cuh', but there is no such file beside it"),
        ("../paths.cuh", "`headers` has '../paths.cuh'; write the plain name of a file in the exercise's folder"),
    ],
)
def test_a_missing_header_is_reported_once(
    header: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = checked(capsys, course(tmp_path, exercise=(LAST, f"{LAST}    headers=({header!r},),\n")))
    assert code == 1
    assert text.splitlines()[0] == "shift: 1 error, 0 warnings"
    assert message in text


@pytest.mark.simulator
@pytest.mark.parametrize("name", ["uses[shared]", "safe[barrier]", "speedup[2x]"])
def test_a_check_that_only_the_readme_has_is_reported(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = name.partition("[")[0]
    old = {"uses": "uses[coalesced]", "safe": "safe[race]", "speedup": "speedup[40x]"}[kind]
    code, text = checked(capsys, course(tmp_path, readme=(old, name)))
    assert code == 0
    assert f"README.md:3: warning: the points table names {name}, which the exercise does not have" in text


@pytest.mark.simulator
def test_a_table_may_abbreviate_names_and_have_capitals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path, readme=("`safe[memory]`, `safe[race]`", "`safe[...]`"))
    readme = folder / "README.md"
    readme.write_text(readme.read_text().replace("| check | points |", "| Check | Points |"))
    code, text = checked(capsys, folder)
    assert (code, text.splitlines()[0]) == (0, "shift: 0 errors, 0 warnings")


@pytest.mark.simulator
def test_a_forgotten_tolerance_is_the_advice_for_a_correct_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tolerance = ', {"out": 1e-6 * (abs(x) + abs(np.roll(x, 1)))})'
    text = checked(capsys, course(tmp_path, exercise=(tolerance, ")")))[1]
    assert text.splitlines()[0] == "shift: 1 error, 0 warnings", "the solutions fail for the same reason"
    assert " is 0." in text and ", expected 0." in text
    assert "The tolerance is 0. If results may be rounded, give one: pytest_gpulab.numerics has bounds." in text


ADVICE = {
    "a reference of something else": (
        ("x + np.roll(x, 1)}", "3 * x + np.roll(x, 1)}"),
        "Either this file or `reference` in exercise.py is wrong.",
    ),
    "a strict bound": (("global_traffic(4.0)", "global_traffic(1.0)"), "this bound in exercise.py is too strict."),
    "a high threshold": (("SpeedTier(1.5,", "SpeedTier(30,"), "this threshold in exercise.py is too high."),
}


@pytest.mark.simulator
@pytest.mark.parametrize(("change", "advice"), ADVICE.values(), ids=ADVICE)
def test_a_right_file_is_not_advised_to_change(
    change: tuple[str, str], advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = checked(capsys, course(tmp_path, exercise=change))
    assert code == 1
    assert advice in text and "command above" not in text


@pytest.mark.simulator
def test_float_atomics_are_the_advice_for_results_that_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["new", "total", "--template", "reduction", "--folder", str(tmp_path)])
    folder = tmp_path / "exercises" / "total"
    for path in (*folder.glob("*.*"), tmp_path / "solutions" / "total" / "01_first.cu"):
        text = path.read_text().replace("int *", "float *").replace("int sum", "float sum").replace("int32", "float32")
        path.write_text(
            text.replace("reference=reference,", "reference=reference, tolerance=lambda x: 1e-4 * abs(x).sum(),")
        )
    text = checked(capsys, folder)[1]
    assert "Two runs on the same input gave different results, each within the tolerance." in text
    assert "If the order of float atomics may change results, write deterministic=False in exercise.py." in text


@pytest.mark.simulator
def test_a_wrong_figure_of_a_bound_has_its_line_and_no_hint_for_students(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bound = "concepts.Bound('x', lambda usage: usage.counters['misses'], at_least=1)"
    folder = course(tmp_path, exercise=("concepts.global_traffic(4.0)", bound))
    code, text = checked(capsys, folder)
    assert code == 1
    assert text.splitlines()[0] == "shift: 1 error, 0 warnings"
    assert (
        f"{folder / 'exercise.py'}:32: error: The exercise's own `uses[coalesced]` is wrong: KeyError: 'misses'" in text
    )


@pytest.mark.simulator
def test_a_size_of_a_tier_that_the_plan_does_not_take_has_the_line_of_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = course(tmp_path, exercise=("SpeedTier(1.5, 20, 1 << 17", "SpeedTier(1.5, 20, (512, 256)"))
    code, text = checked(capsys, folder)
    assert code == 1
    assert text.splitlines()[0] == "shift: 1 error, 0 warnings"
    assert (
        f"{folder / 'exercise.py'}:13: error: speedup[1.5x] cannot be graded: The exercise's own `plan` is wrong"
        in text
    )
    assert "tell your instructor" not in text


@pytest.mark.simulator
def test_a_compile_error_of_a_baseline_has_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path, naive=("int i =", "integer i ="))
    assert f"{folder / 'naive.cu'}:5: error: the baseline does not fit the plan" in checked(capsys, folder)[1]


@pytest.mark.simulator
def test_inputs_that_ignore_the_seed_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path, exercise=('{"in": rng.', '{"in": np.random.default_rng(0).'))
    code, text = checked(capsys, folder)
    assert (code, text.splitlines()[0]) == (0, "shift: 0 errors, 1 warning")
    assert "warning: `inputs` gives the same values for every seed, so that a kernel can store the results" in text
    assert "Draw the values from `rng`." in text

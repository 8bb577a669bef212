"""`gpulab check`: mistakes in the files beside exercise.py: baselines, skeletons, READMEs, solutions."""

from __future__ import annotations

from pathlib import Path

import pytest
from mistaken import KERNEL, checked, course

from pytest_gpulab.command import main


def broken(what: str, old: str, new: str, message: str) -> tuple[dict[str, tuple[str, str]], str]:
    return {what: (old, new)}, message


FILES = {
    "a baseline with another signature": broken(
        "naive",
        "float *out, int n",
        "float *out, int n, int m",
        "the baseline does not fit the plan: `shift` has 4 parameters",
    ),
    "a baseline that is wrong": broken(
        "naive", "i == 0 ? n - 1 : i - 1", "i", "the baseline fails correct[n=2]: `out`: all 2 elements are wrong"
    ),
    "a baseline that is unsafe": broken(
        "naive", "if (i < n) slow", "if (i <= n) slow", "the baseline fails correct[n=1]"
    ),
    "a baseline that does not compile": broken(
        "naive", "int i =", "integer i =", "the baseline does not fit the plan: The file does not compile"
    ),
    "a skeleton without its mark": broken(
        "skeleton",
        "GPULAB_TODO(shift);\n",
        "",
        "the skeleton counts as a finished submission\n      Add at file scope: GPULAB_TODO(shift);",
    ),
    "a skeleton without its tunable": broken(
        "skeleton",
        "GPULAB_TUNABLE(BLOCK_SIZE, 128)\n",
        "",
        "      Write GPULAB_TUNABLE(BLOCK_SIZE, value) at file scope",
    ),
    "a skeleton with another kernel": broken(
        "skeleton", "void shift", "void shifts", "the skeleton does not fit the plan: there is no kernel called `shift`"
    ),
    "a skeleton that does not compile": broken(
        "skeleton", "int n) {", "int n) { oops", "the skeleton does not fit the plan: The file does not compile"
    ),
    "a points table with other points": broken(
        "readme", "| 6, 6 |", "| 6, 4 |", "the points table gives 10 points to `safe` checks; the exercise gives 12"
    ),
    "a solution with other points": broken(
        "expected", "points = 90", "points = 100", "the file earns 90 points but should earn 100"
    ),
    "a solution that fails": broken(
        "solution",
        "i == 0 ? n - 1 : i - 1",
        "i",
        "correct[n=2] is failed but should pass: `out`: all 2 elements are wrong",
    ),
    "a baseline with parameters in another order": broken(
        "naive",
        "const float *in, float *out",
        "float *out, const float *in",
        "the baseline does not fit the plan: Parameter 2 (`in`) of `shift` is `const float *`",
    ),
    "a solution that should fail a check that there is not": broken(
        "expected",
        "points = 90",
        'fails = { "correct[n=7]" = "wrong-result" }',
        "01_shift.cu should fail 'correct[n=7]', a check that the exercise does not have",
    ),
    "a solution that should fail": broken(
        "expected",
        "points = 90",
        'fails = { "correct[n=1]" = "wrong-result" }',
        "correct[n=1] is passed but should fail with 'wrong-result'",
    ),
    "expected verdicts that are no TOML": broken("expected", "points = 90", "points =", "not valid TOML"),
}


def test_a_folder_of_solutions_that_there_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path)
    assert main.main(["check", str(folder), "--solutions", "solved"]) == 2
    assert capsys.readouterr().err == "gpulab check: --solutions=solved: there is no such folder\n"


@pytest.mark.simulator
@pytest.mark.parametrize(("changes", "message"), FILES.values(), ids=FILES)
def test_a_mistake_in_a_file_is_reported(
    changes: dict[str, tuple[str, str]], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = checked(capsys, course(tmp_path, **changes))
    assert code == 1
    assert message in text


@pytest.mark.simulator
def test_a_second_baseline_is_graded_and_may_be_faster_than_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = "SpeedTier(40, 10, 1 << 17)"
    folder = course(tmp_path, exercise=(old, 'SpeedTier(40, 10, 1 << 17, baseline="better.cu")'))
    (folder / "better.cu").write_text(KERNEL, encoding="utf-8")
    code, text = checked(capsys, folder)
    assert code == 0, text
    assert "3 files graded" in text


@pytest.mark.simulator
@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("exercises/shift/naive.cu", "error: the baseline naive.cu does not exist"),
        ("exercises/shift/shift.cu", "error: there is no skeleton for students"),
        ("exercises/shift/README.md", "warning: there is no README for students"),
        ("solutions/shift/expected.toml", "warning: there are no expected verdicts for the solutions"),
    ],
)
def test_a_missing_file_is_reported(
    missing: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = course(tmp_path)
    (tmp_path / missing).unlink()
    code, text = checked(capsys, folder)
    assert code == ("error" in message)
    assert message in text


@pytest.mark.simulator
def test_a_readme_without_a_table_and_an_unlisted_solution_are_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = course(tmp_path, readme=("| check | points |", "| check | marks |"))
    (tmp_path / "solutions/shift/02_more.cu").write_text("")
    code, text = checked(capsys, folder)
    assert code == 0
    assert "warning: the README has no table `| check | points |`" in text
    assert "warning: 02_more.cu has no entry" in text

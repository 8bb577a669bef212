"""`--gpulab-sweep`: a file measured at several values of its tunables, as a table and as a page."""

from __future__ import annotations

import json

import pytest
from course import EXERCISE, NAIVE, RIGHT, Course

TUNED = (
    EXERCISE.replace("SpeedTier\n", "SpeedTier, Tunable\n")
    .replace("BLOCK = 64\n", "")
    .replace(
        "n = problem.size\n", 'n = problem.size\n    BLOCK = problem.tunables["BLOCK"] * problem.tunables["MORE"]\n'
    )
    .replace(
        'title="',
        'tunables=(Tunable("BLOCK", range(32, 2049, 32)), Tunable("MORE", range(1, 9), default=1)),\n    title="',
    )
)
HEAD = "#include <gpulab.cuh>\nGPULAB_TUNABLE(BLOCK, 64)\n"
KERNEL = HEAD + RIGHT
WRONG_AT_96 = KERNEL.replace("2 * in[i]", "(BLOCK == 96 ? 3 : 2) * in[i]")


@pytest.fixture
def tuned(course: Course) -> Course:
    course.write("exercises/twice/exercise.py", TUNED)
    course.write("exercises/twice/naive.cu", HEAD + NAIVE)
    course.write("twice.cu", KERNEL)
    return course


def rows(result: pytest.RunResult) -> list[list[str]]:
    """Return the cells of the table."""
    lines = result.outlines
    (begin,) = [at for at, line in enumerate(lines) if "gpulab: sweep of" in line]
    end = next(at for at, line in enumerate(lines) if line.startswith(("speedup: over", "==")) and at > begin)
    return [line.split() for line in lines[begin + 1 : end] if "---" not in line]


def test_a_row_per_value(tuned: Course) -> None:
    result = tuned.grade("twice.cu", "--gpulab-sweep=BLOCK=32,64,256")
    assert result.ret == 0
    result.assert_outcomes(passed=3)
    header, baseline, *found = rows(result)
    assert header[:5] == ["BLOCK", "result", "ms", "GB/s", "speedup"]
    assert baseline[:2] == ["naive.cu", "baseline"]
    assert [row[0] for row in found] == ["32", "64", "256"]
    assert sorted(row[1] for row in found) == ["fastest", "right", "right"]
    fastest = next(row for row in found if row[1] == "fastest")
    assert float(fastest[2].strip("~")) == min(float(row[2].strip("~")) for row in found)
    assert "50%" in found[0] and "100%" in found[1]  # 32 blocks of one warp on a multiprocessor, of 64 warps
    result.stdout.fnmatch_lines(["twice.cu[[]BLOCK=256[]] .*"])
    result.stdout.fnmatch_lines(["~ estimated by a cost model*"])


def test_pairs_of_values_of_two_tunables_and_their_page(tuned: Course) -> None:
    reports = "--gpulab-report=json:r.json", "--gpulab-report=html:r.html"
    result = tuned.grade("twice.cu", "--gpulab-sweep=BLOCK=32,64", "--gpulab-sweep=MORE=1,2,4", *reports)
    result.assert_outcomes(passed=6)
    pairs = [f"{block} x {more}".split() for block in (32, 64) for more in (1, 2, 4)]
    assert [row[:3] for row in rows(result)[2:]] == pairs
    grades = json.loads((tuned.folder / "r.json").read_text())["grades"]
    assert [grade["swept"] for grade in grades] == [{"BLOCK": int(a), "MORE": int(b)} for a, _, b in pairs]
    page = (tuned.folder / "r.html").read_text()
    assert page.count("<svg") == 1 and "Speedup and occupancy; fastest at BLOCK = " in page
    assert "MORE" in page and "estimated by a cost model" in page


def test_values_that_fail_have_their_reason(tuned: Course) -> None:
    tuned.write("twice.cu", WRONG_AT_96)
    result = tuned.grade("twice.cu", "--gpulab-sweep=BLOCK=64,96,100,2048")
    result.assert_outcomes(passed=1, failed=3)
    assert [row[:2] for row in rows(result)[2:]] == [
        ["64", "fastest"], ["96", "wrong-result"], ["100", "tunable-range"], ["2048", "tunable-range"],
    ]  # fmt: skip
    result.stdout.fnmatch_lines(
        ["*gpulab: findings*", "twice.cu[[]BLOCK=96[]]", "tunable-range: the exercise does not*"]
    )
    result.stdout.no_fnmatch_line("twice.cu[[]BLOCK=2048[]]")


def test_if_nothing_is_right_there_is_no_baseline(tuned: Course) -> None:
    tuned.write("twice.cu", KERNEL.replace("2 * in[i]", "3 * in[i]"))
    result = tuned.grade("twice.cu", "--gpulab-sweep=BLOCK=64", "--gpulab-report=html:r.html")
    assert [row[:2] for row in rows(result)[1:]] == [["64", "wrong-result"]]
    assert "<svg" not in (tuned.folder / "r.html").read_text()


def test_an_unknown_tunable(tuned: Course) -> None:
    result = tuned.grade("twice.cu", "--gpulab-sweep=BLOK=32")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the exercise twice has no tunable BLOK: it has BLOCK, MORE"])


def test_an_exercise_without_tunables(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    result = course.grade("twice.cu", "--gpulab-sweep=BLOCK=32")
    result.stdout.fnmatch_lines(["the exercise twice has no tunable BLOCK: it has none"])


def test_an_exercise_without_speed_checks(tuned: Course) -> None:
    tuned.write(
        "exercises/twice/exercise.py", TUNED.replace('memory", 10', 'memory", 40').replace("speed=(", "speed=() and (")
    )
    result = tuned.grade("twice.cu", "--gpulab-sweep=BLOCK=32")
    result.stdout.fnmatch_lines(["the exercise twice has no speed check: nothing is measured"])


def test_a_declaration_that_cannot_be_rewritten(tuned: Course) -> None:
    tuned.write("twice.cu", KERNEL.replace("GPULAB_TUNABLE(BLOCK, 64)", "static int BLOCK;"))
    result = tuned.grade("twice.cu", "--gpulab-sweep=BLOCK=32")
    result.stdout.fnmatch_lines(["BLOCK is not declared with a value, as by GPULAB_TUNABLE(BLOCK, 32)"])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["BLOCK"], "--gpulab-sweep=BLOCK: a sweep is NAME=V1,V2,... with a tunable and whole numbers"),
        (["BLOCK=1,x"], "--gpulab-sweep=BLOCK=1,x: a sweep is NAME=V1,V2,... with a tunable and whole numbers"),
        (["A=1", "A=2"], "--gpulab-sweep=A=2: all values of A belong in one option"),
        (["A=1", "B=1", "C=1"], "--gpulab-sweep was given for 3 tunables: at most 2 can be swept over"),
        (
            ["A=" + ",".join(map(str, range(11))), "B=" + ",".join(map(str, range(10)))],
            "--gpulab-sweep asks for 110 combinations: at most 100 are measured",
        ),
    ],
)
def test_bad_sweeps(tuned: Course, options: list[str], line: str) -> None:
    result = tuned.grade("twice.cu", *(f"--gpulab-sweep={option}" for option in options))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[0] == f"ERROR: {line}"


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("--gpulab-report=csv:r.csv", "--gpulab-sweep has no points to report as csv: its formats are html and json"),
        (
            "--gpulab-feedback=pages",
            "--gpulab-sweep has no points to report as feedback: its formats are html and json",
        ),
        (
            "--gpulab-workers=2",
            "--gpulab-sweep measures single files: omit the options for a class and for a calibration",
        ),
        (
            "--gpulab-calibrate",
            "--gpulab-sweep measures single files: omit the options for a class and for a calibration",
        ),
    ],
)
def test_options_that_do_not_go_with_a_sweep(tuned: Course, option: str, line: str) -> None:
    result = tuned.grade("twice.cu", "--gpulab-sweep=BLOCK=32", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[0] == f"ERROR: {line}"

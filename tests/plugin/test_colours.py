"""Colours of the report: what is coloured, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from course import RIGHT, WRONG, Course

from pytest_gpulab.plugin.colours import Painter


def marked(text: str, **attributes: Any) -> str:
    return f"<{' '.join(attributes)}>{text}</>"


@pytest.mark.parametrize(
    ("line", "painted"),
    [
        ("a           failed*   10/30   ~0.640", "a           <red>failed*</>   10/30   ~0.640"),
        ("a           passed    30/30   ~0.640", "a           <green>passed</>    30/30   ~0.640"),
        ("passed.cu   not started   0/30", "passed.cu   <yellow>not started</>   0/30"),
        ("  FAILED correct[n=1]: wrong-result: x", "<red>  FAILED correct[n=1]: wrong-result: x</>"),
        ("  missed speedup[2x]: too-slow", "<yellow>  missed speedup[2x]: too-slow</>"),
        ("      out[0] is 5, expected 3", "      out[0] is 5, expected 3"),
    ],
)
def test_lines_in_colour(line: str, painted: str) -> None:
    assert Painter(marked).painted(line) == painted


def test_a_hint_is_dim_to_its_end() -> None:
    painter = Painter(marked)
    lines = ["      hint: Is it so?", "        Or is it?", "      next", "  FAILED a"]
    assert [painter.painted(line) for line in lines] == [
        *(f"<light>{line}</>" for line in lines[:2]), "      next", "<red>  FAILED a</>",
    ]  # fmt: skip


def test_a_wrapped_heading_is_coloured_to_its_end() -> None:
    painter = Painter(marked)
    lines = ["  FAILED correct[tile+1 by 2 tiles-1], 97x61, and 2", "    more:", "      wrong-result: x", "    other"]
    assert [painter.painted(line) for line in lines] == [*(f"<red>{line}</>" for line in lines[:2]), *lines[2:]]


@pytest.mark.parametrize(("given", "is_coloured"), [("yes", True), ("no", False)])
def test_pytest_decides_whether_there_are_colours(course: Course, given: str, is_coloured: bool) -> None:
    course.write("a/twice.cu", WRONG)
    course.write("b/twice.cu", RIGHT)
    text = course.grade("a", "b", f"--color={given}").stdout.str()
    assert ("\x1b[31mfailed\x1b[0m" in text) == ("\x1b[32mpassed\x1b[0m" in text) == is_coloured
    assert ("\x1b[31m  FAILED correct" in text) == is_coloured


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_the_report_fits_the_terminal(course: Course, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    course.write("a/twice.cu", WRONG)
    course.write("b/twice.cu", RIGHT)
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = course.grade("a", "b", "-v").outlines
    report = lines[next(at for at, line in enumerate(lines) if "gpulab: " in line and "===" in line) :]
    device = [line for line in lines[: lines.index(report[0])] if line.startswith(("gpulab: ", "  "))]
    assert max(map(len, (*device, *report))) <= columns
    assert [line for line in device if line.startswith("gpulab: seed ")]
    header = next(line for line in report if line.startswith("submission"))
    assert {"verdict", "points", "ms", "total"} <= set(header.split())
    assert ("occup." in header, "regs" in header) == (columns > 80, columns > 80)
    assert any(line.startswith("naive.cu   ") for line in report)


def test_quiet_is_shorter_than_the_default_and_verbose_is_longer(course: Course) -> None:
    course.write("twice.cu", WRONG)
    quiet, default, verbose = (len(course.grade("twice.cu", *options).outlines) for options in (["-q"], [], ["-v"]))
    assert quiet < default < verbose


def test_quiet_shows_the_first_finding_and_the_first_warning(course: Course) -> None:
    course.write("twice.cu", WRONG.replace("int i", "int a, b, i"))
    result = course.grade("twice.cu", "-q")
    result.stdout.fnmatch_lines(["*gpulab: findings*", "twice.cu", "  FAILED correct*"])
    assert result.stdout.str().count("FAILED") == result.stdout.str().count("compiler-warning") == 1
    result.stdout.no_fnmatch_line("*= FAILURES =*")

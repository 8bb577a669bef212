"""`--gpulab-report=explain:PAGE`: figures of what failed, and links to them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from course import BEYOND, BROKEN, EXERCISE, RIGHT, WRONG, Course

from pytest_gpulab.grading.correctness import shrinking
from pytest_gpulab.plugin import figures

PAGE = "--gpulab-report=explain:page.html"


def titles(page: Path) -> list[str]:
    """Return the titles of a page's sections."""
    return re.findall(r"<article .*\n<h2>(.*)</h2>", page.read_text())


def targets(page: Path) -> list[str]:
    """Return the files with anchors that exist, to which a page's links to figures lead."""
    links = re.findall(r'<a href="([^"]+)#([^"]+)">See what the threads did', page.read_text())
    return [name for name, place in links if f'id="{place}"' in (page.parent / name).read_text()]


def test_a_section_per_smallest_failing_input_and_one_of_what_passed(course: Course) -> None:
    course.write("a/twice.cu", RIGHT)
    course.write("b/twice.cu", WRONG)
    course.write("c/twice.cu", BROKEN)
    course.grade("a", "b", "c", PAGE).stdout.fnmatch_lines("gpulab: wrote page.html")
    page = course.folder / "page.html"
    assert titles(page) == ["b/twice.cu: correct[n=31], correct[n=100]", "a/twice.cu: passed"]
    assert "n = 31, in = " in page.read_text() and page.stat().st_size < 2_000_000


def test_the_report_links_to_the_figures(course: Course) -> None:
    course.write("b/twice.cu", WRONG)
    course.grade("b", "--gpulab-report=html:reports/report.html", PAGE)
    assert targets(course.folder / "reports" / "report.html") == ["../page.html"]


def test_a_student_has_figures_of_the_own_files_only(school: Course, kept: str) -> None:
    school.grade(kept, "--gpulab-submissions=handed_in", "--gpulab-feedback=feedback", PAGE)
    assert titles(school.folder / "page.html") == [
        "bob/twice/mine.cu: correct[n=31], correct[n=100]",
        "ann/twice.cu: passed",
    ]
    assert targets(school.folder / "feedback" / "bob.html") == ["figures/bob.html"]
    assert titles(school.folder / "feedback" / "figures" / "bob.html") == [
        "bob/twice/mine.cu: correct[n=31], correct[n=100]"
    ]
    assert not (school.folder / "feedback" / "figures" / "cem.html").exists()


def test_without_a_page_of_figures_nothing_links_to_one(school: Course, kept: str) -> None:
    school.grade(kept, "--gpulab-submissions=handed_in", "--gpulab-feedback=feedback")
    text = (school.folder / "feedback" / "bob.html").read_text()
    assert "run it: gpulab explain mine.cu" in text and "See what the threads did" not in text


def test_hidden_cases_are_not_drawn(course: Course) -> None:
    course.write("exercises/twice/exercise.py", EXERCISE.replace('"n=31", 31, 20', '"n=31", 31, 20, hidden=True'))
    course.write("b/twice.cu", WRONG.replace("i == 30", "i == 30 && n == 31"))
    course.grade("b", PAGE)
    text = (course.folder / "page.html").read_text()
    assert "Nothing was drawn." in text and "n=31" not in text


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        ("MAX_S", -1.0, "drawing ends after -1 s"),
        ("MAX_BYTES", 10, "the page would have more than 2 MB"),
    ],
)
def test_figures_beyond_a_limit_are_named(
    limit: str, value: float, reason: str, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, limit, value)
    course.write("b/twice.cu", BEYOND)
    result = course.grade("b", PAGE)
    result.stdout.fnmatch_lines("gpulab: 1 figure left out; the page of figures says which")
    assert (
        f"b/twice.cu: correct[n=1], correct[n=31], correct[n=100] and 1 more ({reason})"
        in (course.folder / "page.html").read_text()
    )


def test_a_failure_without_a_small_input_is_named(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinking, "SHRUNK", ())
    course.write("b/twice.cu", WRONG)
    course.grade("b", PAGE)
    left_out = "b/twice.cu: correct[n=31], correct[n=100] (no small failing input is known)"
    assert left_out in (course.folder / "page.html").read_text()


def test_a_figure_that_cannot_be_drawn_costs_no_other_report(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("too thick a pen")

    monkeypatch.setattr(figures, "drawn", broken)
    course.write("a/twice.cu", RIGHT)
    course.grade("a", "--gpulab-report=csv:grades.csv", PAGE).stdout.fnmatch_lines("gpulab: wrote *grades.csv*")
    assert "a/twice.cu: passed (it cannot be drawn: too thick a pen)" in (course.folder / "page.html").read_text()


def test_the_first_failure_is_drawn_with_exitfirst(course: Course) -> None:
    course.write("b/twice.cu", WRONG)
    course.grade("b", "-x", PAGE)
    assert titles(course.folder / "page.html") == ["b/twice.cu: correct[n=31]"]

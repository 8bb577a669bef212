"""The terminal's summary of a class: short, for any number of students."""

from __future__ import annotations

from dataclasses import replace

import pytest
from generated_class import Made, add

from pytest_gpulab.grading.grade import Grade, Student
from pytest_gpulab.reports.gradebook import Gradebook, SimilarPair
from pytest_gpulab.reports.terminal.class_summary import MAX_LINES, MAX_STUDENTS, class_sections
from pytest_gpulab.reports.terminal.sections import footnotes, sections
from pytest_gpulab.reports.terminal.text import WIDTH

pytestmark = pytest.mark.unit


def summary(book: Gradebook) -> dict[str, list[str]]:
    return {title.removeprefix("gpulab: "): lines for title, lines in class_sections(book)}


def lines_of(book: Gradebook, verbosity: int = 0) -> list[str]:
    return [line for _, lines in sections(book, verbosity, of_class=True) for line in lines]


@pytest.mark.unmeasured
def test_five_hundred_students_fit_on_two_screens() -> None:
    book = Made(500, source_lines=1, sizes=(1, 33, 1023)).gradebook()
    told = summary(book)
    assert list(told) == [
        "class", "checks with most failures", "most common findings", "submissions", "near-identical sources",
        "no submission",
    ]  # fmt: skip
    lines = lines_of(book)
    assert len(lines) < 120 and max(map(len, lines)) <= WIDTH
    assert told["no submission"][0] == "s107 (Ada Ivanova)"
    assert list(footnotes(book, of_class=True)) == ["thresholds: the exercise's own."]


def test_a_small_class_is_listed() -> None:
    book = Made(20).gradebook()
    rows = [line.split() for line in summary(book)["students"]]
    assert rows[0] == ["student", "verdict", "constant_memory", "divergence", "reduction", "scan", "total"]
    assert len(rows) == 2 + 19 and max(map(len, summary(book)["students"])) <= WIDTH
    by_id = {row[0]: row for row in rows[2:]}
    (scan,) = (grade for grade in book.grades if grade.submission == "class/s100/scan.cu")
    assert by_id["s100"][-2] == f"{scan.points:g}"


def test_the_scores_are_those_of_the_exercises() -> None:
    book = Made(60).gradebook()
    rows = {line.split()[0]: line.split() for line in summary(book)["class"]}
    graded = [grade for grade in book.grades if grade.exercise == "scan"]
    assert rows["scan"][1] == f"{graded[0].max_points:g}"
    assert rows["scan"][2] == str(len(graded)) and rows["total"][2] == "57"
    assert rows["scan"][3] == f"{sum(grade.points / grade.max_points for grade in graded) / len(graded):.0%}"


def test_unknown_points_are_not_shown_as_zero() -> None:
    book = Gradebook()
    for grade in Made(1).gradebook().grades:
        add(book, unknown(grade))
    (row,) = (line for line in summary(book)["students"] if line.startswith("s100"))
    cells = row.split()
    assert cells[1:3] == cells[-2:] == ["not", "gradable"]
    assert set(cells[3:-2]) == {"n/a"}


def test_of_checks_without_points_there_is_no_total() -> None:
    book = Gradebook()
    for grade in Made(1).gradebook().grades:
        checks = (replace(check, points=0.0, max_points=0.0) for check in grade.checks if check.verdict == "passed")
        add(book, replace(grade, checks=tuple(checks)))
    (row,) = (line for line in summary(book)["students"] if line.startswith("s100"))
    assert row.split()[1] == "passed" and set(row.split()[2:]) == {"n/a"}


def unknown(grade: Grade) -> Grade:
    return replace(grade, checks=tuple(replace(check, verdict="not gradable", points=0.0) for check in grade.checks))


def test_changed_points_are_listed() -> None:
    book = Made(3).gradebook()
    book.changes = ("s100/scan.cu: compile 0 -> 5",)
    assert summary(book)["changed points"] == ["s100/scan.cu: compile 0 -> 5"]


def test_similar_sources_are_listed_closest_first_with_their_lines() -> None:
    book = Made(3).gradebook()
    book.duplicates = (
        SimilarPair("scan", ("s2/scan.cu", "s3/scan.cu"), 0.71, (((1, 9),), ((2, 10),))),
        SimilarPair("scan", ("s1/scan.cu", "s2/scan.cu"), 0.94, (((12, 40), (50, 50)), ((3, 31), (41, 41)))),
    )
    assert summary(book)["near-identical sources"] == [
        "94 % alike: s1/scan.cu:12-40, 50 and s2/scan.cu:3-31, 41",
        "71 % alike: s2/scan.cu:1-9 and s3/scan.cu:2-10",
    ]
    many = tuple((line, line) for line in range(1, 99, 2))
    book.duplicates = tuple(SimilarPair("scan", (f"a{n}", "b"), 1.0, (many, ())) for n in range(MAX_LINES + 2))
    told = summary(book)["near-identical sources"]
    assert told[0] == "100 % alike: a0:1, 3, 5, 7, 9, 11 (43 more places) and b" and told[-1] == "and 2 more"
    assert len(told) == MAX_LINES + 1


def test_long_lists_are_cut() -> None:
    book = Made(3).gradebook()
    book.problems = tuple(f"s{n}: odd" for n in range(MAX_STUDENTS + 7))
    book.absent = (Student("17", "17"),)
    told = summary(book)
    assert told["submissions"][-2:] == [f"s{MAX_STUDENTS - 1}: odd", "and 7 more"]
    assert told["no submission"] == ["17"]


def test_verbosely_the_tables_and_findings_of_all_follow() -> None:
    book = Made(3).gradebook()
    titles = [title for title, _ in sections(book, 1, of_class=True)]
    assert titles.index("gpulab: class") < titles.index("gpulab: findings")
    assert "gpulab: findings" not in [title for title, _ in sections(book, 0, of_class=True)]
    assert list(footnotes(book, 1, of_class=True))


def test_a_class_of_which_nothing_was_graded_has_little_to_tell() -> None:
    assert lines_of(Gradebook(problems=("s1: nothing",))) == ["s1: nothing"]

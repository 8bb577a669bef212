"""The tables for spreadsheets: rows, empty cells, notes, and cells that cannot run."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from any_grades import book, class_books
from examples import UNSUPPORTED, check, grade, hidden, only
from hypothesis import given, settings

from pytest_gpulab.grading.grade import Finding, Student
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.files import spreadsheet
from pytest_gpulab.reports.files.spreadsheet import check_lines, details_path, harmless, student_lines
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.students import points_text, rows

pytestmark = pytest.mark.unit


def table(gradebook: Gradebook) -> list[list[str]]:
    return [list(line) for line in student_lines(rows(gradebook))]


def test_a_row_a_student_and_a_column_an_exercise() -> None:
    made = book(
        grade(check("a"), check("b", "failed"), student="s10"),
        grade(check("a", points=2.5), student="s10", exercise="sum"),
        grade(check("a", "inconclusive"), check("b"), student="s2"),
    )
    made.roster = (Student("s2", "Ann Bell"), Student("s10", "Cid Dor"))
    assert table(made) == [
        ["student", "name", "scan", "sum", "total", "not_gradable", "note"],
        ["s2", "Ann Bell", "20", "", "20", "", "sum: not handed in"],
        ["s10", "Cid Dor", "10", "2.5", "12.5", "", ""],
    ]


def test_a_student_without_a_submission_has_empty_cells_and_a_note() -> None:
    made = only(check("a"))
    made.roster = made.absent = (Student("s2", "Ann Bell"),)
    assert table(made)[-1] == ["s2", "Ann Bell", "", "", "", "handed in nothing"]


def test_checks_that_the_machine_cannot_grade_are_no_zero() -> None:
    made = book(
        grade(check("a", "not gradable"), check("b", "not gradable", 5), student="s1"),
        grade(check("a", points=45), check("b", "not gradable", 5), student="s2"),
        grade(check("a", points=44), check("b", "not gradable", 5), student="s3"),
        grade(check("a", points=45), check("b", "not gradable", 5, findings=(UNSUPPORTED,)), student="s4"),
    )
    assert table(made)[1:] == [
        ["s1", "", "", "", "15", "scan: 15 points not gradable, so there is no score"],
        ["s2", "", "45", "45", "5", "scan: 5 points not gradable"],
        ["s3", "", "", "", "5", "scan: 5 points not gradable, so there is no score"],
        ["s4", "", "", "", "5", "scan: 5 points not gradable, so there is no score"],
    ]


def test_one_exercise_that_cannot_be_graded_leaves_the_others_as_they_are() -> None:
    made = book(grade(check("a", "not gradable")), grade(check("a"), exercise="sum"))
    assert table(made)[1] == ["s1", "", "", "10", "10", "10", "scan: 10 points not gradable, so there is no score"]


def test_an_exercise_that_cannot_be_loaded_is_no_zero_and_a_file_for_no_exercise_is() -> None:
    made = Gradebook(ungraded={"s1/scan.cu": Finding("broken-exercise", "cannot be loaded")})
    made.ungraded["s2/skan.cu"] = Finding("no-exercise", "belongs to no exercise")
    made.ungraded["s3"] = Finding("no-exercise", "2 files for no exercise")
    made.ungraded["s3/all.zip"] = Finding("unreadable", "It cannot be read.")
    made.owners["s3"] = made.owners["s3/all.zip"] = "s3"
    assert [line[1:] for line in table(made)[1:]] == [
        ["", "", "", "s1/scan.cu: cannot be loaded"],
        ["", "0", "", "s2/skan.cu: belongs to no exercise"],
        ["", "", "", "s3: 2 files for no exercise; s3/all.zip: It cannot be read"],
    ]


def test_not_started_and_not_graded_at_all_are_noted() -> None:
    made = only(check("a", "not started"))
    made.ungraded["s1/skan.cu"] = Finding("no-exercise", "belongs to no exercise")
    made.ungraded["x.cu"] = Finding("no-exercise", "belongs to no exercise")
    made.owners["s1/skan.cu"] = "s1"
    assert [line[-1] for line in table(made)] == [
        "note",
        "scan: not started; s1/skan.cu: belongs to no exercise",
        "scan: not handed in; x.cu: belongs to no exercise",
    ]


def test_every_row_of_a_run_that_was_stopped_says_so() -> None:
    made = only(check("a", "not started"))
    made.roster = made.absent = (Student("s2"),)
    notes = [line[-1] for line in student_lines(rows(made), interrupted=True)]
    assert notes[1:] == ["the run was stopped; scan: not started", "the run was stopped; handed in nothing"]


def test_a_run_that_was_stopped_before_anything_was_graded_has_a_row_for_everyone() -> None:
    made = Gradebook(chosen=frozenset({"s10", "s2"}), handed_in={"s2": {"scan": True}, "s10": {"scan": True}})
    lines = [list(line) for line in student_lines(rows(made), interrupted=True)][1:]
    assert lines == [[student, "", "", "", "", "the run was stopped"] for student in ("s2", "s10")]


def test_an_exercise_that_this_run_does_not_grade_keeps_its_column() -> None:
    made = book(grade(check("a")))
    made.handed_in = {"s1": {"scan": True, "sum": True}}
    headers, row = table(made)
    assert headers[2:5] == ["scan", "sum", "total"] and row[-1] == "sum: not graded in this run"


def test_a_stopped_run_reports_only_known_students_as_missing() -> None:
    made = only(check("a"))
    made.chosen, made.roster = frozenset({"s1", "s2"}), (Student("s1"), Student("s2"), Student("s3"))
    assert [line[-1] for line in student_lines(rows(made), interrupted=True)][1:] == ["the run was stopped"] * 3
    made.handed_in = {"s1": {"scan": True}, "s2": {"scan": True}}
    notes = [line[-1] for line in student_lines(rows(made), interrupted=True)][1:]
    assert notes == ["the run was stopped", "the run was stopped", "the run was stopped; scan: not handed in"]


def test_ignored_files_are_noted_only_if_a_submission_is_missing() -> None:
    left_out = {"s1": Finding("no-exercise", "1 file for no exercise, left out: sums.cu.")}
    made = book(grade(check("a")), grade(check("a"), student="s2"), grade(check("a"), student="s2", exercise="sum"))
    made.handed_in = {"s1": {"scan": True}, "s2": {"scan": True, "sum": True}}
    made.left_out = {"s1": left_out, "s2": left_out}
    assert [line[-1] for line in table(made)][1:] == [
        "sum: not handed in; s1: 1 file for no exercise, left out: sums.cu",
        "",
    ]


def test_a_submission_without_a_student_has_its_own_row() -> None:
    made = book(grade(check("a"), student=""))
    assert [line[0] for line in table(made)] == ["student", "handed_in/scan.cu"]


def test_of_two_submissions_to_one_exercise_the_better_one_counts() -> None:
    worse, better = grade(check("a", "failed")), replace(grade(check("a")), submission="s1/again/scan.cu")
    assert table(book(worse, better))[1][2] == table(book(better, worse))[1][2] == "10"


def test_the_details_have_a_row_a_check() -> None:
    made = only(check("a"), hidden("b"), check("c", "not gradable", required=False, findings=(UNSUPPORTED,)))
    made.ungraded["x.cu"] = Finding("no-exercise", "belongs to no exercise")
    assert [list(line)[4:] for line in check_lines(rows(made))] == [
        ["check", "hidden", "required", "verdict", "points", "max_points", "findings"],
        ["a", "no", "yes", "passed", "10", "10", ""],
        ["b", "yes", "yes", "failed", "0", "10", "wrong-result"],
        ["c", "no", "no", "not gradable", "", "10", "cannot-simulate"],
        ["", "", "", "not graded", "", "", "no-exercise"],
    ]


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-1", "-1"),
        ("-1+2", "'-1+2"),
        ("@SUM(1)", "'@SUM(1)"),
        ("  =1", "  '=1"),
        ('"=1', "\"'=1"),
        ("＝1", "'＝1"),
        ("a;=1", "a;'=1"),
        ("a, +1", "a, '+1"),
        ("a\t=1", "a?=1"),
        ("a\n=1", "a?=1"),
        ("Ann-Marie Bell", "Ann-Marie Bell"),
        ("s-17", "s-17"),
        ("a=b", "a=b"),
    ],
)
def test_no_cell_is_a_formula(text: str, cell: str) -> None:
    assert harmless(text) == cell


def test_points_are_short_and_exact_enough() -> None:
    assert [points_text(value) for value in (0.1 + 0.2, 100, 100 / 3, 0.00001, 123456.5)] == [
        "0.3", "100", "33.3333", "0", "123456.5",
    ]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(class_books())
def test_files_are_tables_and_the_same_grades_give_the_same_bytes(tmp_path_factory: object, made: Gradebook) -> None:
    folder = tmp_path_factory.mktemp("csv")  # type: ignore[attr-defined]
    texts = []
    for name in ("one.csv", "two.csv"):
        path: Path = folder / name
        spreadsheet.write(path, made, Context())
        texts.append([each.read_bytes() for each in (path, details_path(path))])
    assert texts[0] == texts[1]
    for data in texts[0]:
        lines = list(csv.reader(data.decode("utf-8-sig").splitlines()))
        assert len({len(line) for line in lines}) == 1
        assert not [
            cell for line in lines for cell in line if cell.lstrip(" \"'")[:1] in tuple("=+-@") and "'" not in cell
        ]


def test_durations_leave_no_trace(tmp_path: Path) -> None:
    for duration_s in (1.0, 2.0):
        spreadsheet.write(tmp_path / f"{duration_s}.csv", only(check("a", duration_s=duration_s)), Context())
    assert (tmp_path / "1.0.csv").read_bytes() == (tmp_path / "2.0.csv").read_bytes()
    assert (tmp_path / "1.0-details.csv").read_bytes() == (tmp_path / "2.0-details.csv").read_bytes()

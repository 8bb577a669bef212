"""`--gpulab-feedback`: each student's page holds what that student may see, under a name of its own."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from any_grades import class_books
from generated_class import Made, add
from hypothesis import given, settings
from test_instructor_page import HOSTILE, Page, hostile_book

from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, SmallestInput
from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.gradebook import Gradebook, SimilarPair
from pytest_gpulab.reports.pages.feedback import page
from pytest_gpulab.reports.standings import standings
from pytest_gpulab.reports.students import points_text, rows

pytestmark = [pytest.mark.unit, pytest.mark.unmeasured]

CONTEXT = Context(finished=datetime(2026, 5, 1, 18, 30, tzinfo=timezone.utc))


def written(folder: Path, book: Gradebook) -> dict[str, str]:
    formats.check("feedback", folder, CONTEXT)
    formats.write("feedback", folder, book, CONTEXT)
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.iterdir())}


def test_every_student_with_a_submission_has_a_page_without_other_names(tmp_path: Path) -> None:
    book = Made(30).gradebook()
    found = written(tmp_path / "new", book)
    absent = {student.id for student in book.absent}
    assert set(found) == {f"{student.id}.html" for student in book.roster if student.id not in absent}
    for student in book.roster:
        for name, text in found.items():
            if name != f"{student.id}.html":
                assert student.name not in text and f"{student.id}/" not in text
    own = found["s101.html"]
    Page(own)
    assert "Feedback for Ada Becker" in own and "class/s101/scan.cu" in own and "GPULAB_TUNABLE" in own
    assert "sacn was not graded" not in own and "No exercise is called sacn." in found["s104.html"]


def test_exercises_without_a_grade_are_named_and_columns_of_sources_explained(tmp_path: Path) -> None:
    book = Gradebook()
    first, other = (next(g for g in Made(9).gradebook().grades if g.exercise == name) for name in ("reduction", "scan"))
    add(book, replace(first, student="s1", submission="s1/reduction.cu"))
    add(book, replace(other, student="s2", submission="s2/scan.cu", checks=other.checks[:1]))
    found = written(tmp_path, book)
    assert "Nothing of yours was graded for scan." in found["s1.html"]
    assert "Nothing of yours was graded for reduction." in found["s2.html"]
    assert ["time: share of the estimated time" in text for text in found.values()] == [True, False]
    nobodys = Gradebook()
    for each in (first, other):
        add(nobodys, replace(each, student=""))
    assert "Nothing of yours" not in written(tmp_path / "all", Made(1).gradebook())["s100.html"]
    assert not [text for text in written(tmp_path / "nobodys", nobodys).values() if "Nothing of yours" in text]


def graded_alone(handed_in: dict[str, dict[str, int]]) -> Gradebook:
    """The only grade of a run: the scan of s1, which earns all of its 10 points."""
    scan = next(grade for grade in Made(9).gradebook().grades if grade.exercise == "scan")
    passed = CheckResult("correct[1]", "correct", "passed", 10, 10, ())
    book = Gradebook(handed_in=handed_in)
    add(book, replace(scan, student="s1", submission="s1/scan.cu", checks=(passed,)))
    return book


def test_the_page_of_a_student_who_is_graded_alone_has_the_totals_of_the_class(tmp_path: Path) -> None:
    book = graded_alone({"s1": {"scan": 1}, "s2": {"scan": 1, "sum": 1}})
    (text,) = written(tmp_path, book).values()
    assert "10 of 110 points" in text and "Nothing of yours was graded for sum." in text


def test_no_page_is_written_if_an_exercise_of_the_student_is_not_graded_in_this_run(tmp_path: Path) -> None:
    book = graded_alone({"s1": {"scan": 1, "sum": 1}})
    with pytest.raises(ReportError, match=r": sum of s1 was not graded in this run, and a part of the points is no"):
        written(tmp_path, book)
    assert not list(tmp_path.iterdir())


def test_no_page_is_written_if_the_better_of_two_submissions_may_not_be_graded_in_this_run(tmp_path: Path) -> None:
    book = graded_alone({"s1": {"scan": 2}})
    assert [row.is_part for row in rows(book)] == [True]
    with pytest.raises(ReportError, match=r": only some of the checks were graded, and a part of the points is no"):
        written(tmp_path, book)


def test_a_page_needs_no_script_and_tells_neither_seed_nor_suspicion(tmp_path: Path) -> None:
    book = Made(4).gradebook()
    book.duplicates = (SimilarPair("scan", ("class/s100/scan.cu", "class/s101/scan.cu"), 0.97),)
    for text in written(tmp_path, book).values():
        assert "<script" not in text and "script-src &#39;none&#39;" in text and "noscript" not in text
        assert "97 %" not in text and "alike" not in text and "7130713" not in text


def test_a_finding_quotes_the_line_but_a_hidden_cases_does_not(tmp_path: Path) -> None:
    race = Finding("race", "A hazard.", "scan.cu:12", line="tile[t] = <secret>;")
    check = CheckResult("safe[race]", "safe", "failed", 0, 10, (race,))
    base = Made(1).gradebook().grades[0]
    for found, is_quoted in ((race, True), (replace(race, hidden=True), False)):
        book = Gradebook()
        add(book, replace(base, checks=(replace(check, findings=(found,)),)))
        (text,) = written(tmp_path / str(is_quoted), book).values()
        assert ("12 | tile[t] = &lt;secret&gt;;" in text) is is_quoted and ("secret" in text) is is_quoted


def test_the_smallest_failing_input_is_on_the_page_once(tmp_path: Path) -> None:
    smallest = SmallestInput("n = 1, in = [<0>]", "fails for every n tried", "gpulab explain scan.cu --n 1")
    wrong = [Finding("wrong-result", f"out[{n}] is wrong.", smallest=smallest) for n in range(2)]
    checks = [CheckResult(f"correct[n={n}]", "correct", "failed", 0, 10, (found,)) for n, found in enumerate(wrong)]
    book = Gradebook()
    add(book, replace(Made(1).gradebook().grades[0], checks=tuple(checks)))
    (text,) = written(tmp_path, book).values()
    lines = (
        "smallest failing input: n = 1, in = [&lt;0&gt;]\nfails for every n tried\nrun it: gpulab explain scan.cu --n 1"
    )
    assert text.count(lines) == 1 and text.count("smallest failing input") == 1


def test_hidden_cases_and_expected_failures_are_not_shown(tmp_path: Path) -> None:
    wrong = Finding("wrong-result", "out[3] is 4, expected 1234567.", evidence=("expected 1234567",), hint="Think.")
    check = CheckResult("correct[n=98765]", "correct", "failed", 0, 10, (wrong,), hidden=True)
    grade = Grade("class/s1/scan.cu", "scan", (check,), Made(1).gradebook().grades[0].provenance, "s1")
    book = Gradebook(expected={("class/s1/scan.cu", "correct[n=98765]")})
    add(book, grade)
    text = written(tmp_path, book)["s1.html"]
    assert "1234567" not in text and "98765" not in text
    assert "FAILED correct[hidden]" in text and "Think." in text and "wrong-result" in text


def test_a_page_shows_the_totals_of_the_instructors_report(tmp_path: Path) -> None:
    book = Gradebook()
    first, other = (next(g for g in Made(9).gradebook().grades if g.exercise == name) for name in ("reduction", "scan"))
    add(book, replace(first, student="s1", submission="s1/reduction.cu"))
    add(book, replace(first, student="s2", submission="s2/reduction.cu"))
    add(book, replace(other, student="s2", submission="s2/scan.cu"))
    one, two = standings(book, book.grades)
    assert one.possible == two.possible > one.earned > 0
    for standing, text in zip((one, two), written(tmp_path, book).values(), strict=True):
        assert f"{points_text(standing.earned)} of {points_text(standing.possible)} points." in text


def test_checks_that_the_machine_could_not_grade_are_explained(tmp_path: Path) -> None:
    base = Made(1).gradebook().grades[0]
    failed = Finding("device-fault", "The device failed.")
    lost = CheckResult("safe[races]", "safe", "not gradable", 0, 0.25, (failed,))
    book = Gradebook()
    add(book, replace(base, checks=(base.checks[0], lost)))
    (text,) = written(tmp_path, book).values()
    assert "3 of 3 points." in text and "Checks of 0.25 more points could not be graded, which is not" in text
    book = Gradebook()
    add(book, replace(base, checks=(base.checks[0], replace(lost, max_points=5))))
    (text,) = written(tmp_path, book).values()
    assert "5 of 8 points could not be graded, so there is no score" in text and "3 of 3 points." not in text


def test_a_part_of_the_points_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"the run was stopped before everything was graded$"):
        formats.write("feedback", tmp_path, Made(1).gradebook(), replace(CONTEXT, interrupted=True))
    assert not list(tmp_path.iterdir())


@settings(max_examples=30, deadline=None)
@given(class_books())
def test_any_class_has_pages_that_can_be_read_and_name_no_hidden_case(made: Gradebook) -> None:
    for standing in standings(made, made.grades):
        text = page(standing, CONTEXT.finished)
        Page(text.encode().decode())
        assert not [check.name for check in standing.row.checks if check.hidden and check.name in text]


def test_text_of_students_is_never_executed(tmp_path: Path) -> None:
    (text,) = written(tmp_path, hostile_book()).values()
    found = Page(text)
    assert {tag for tag, _ in found.tags}.isdisjoint({"img", "script"})
    assert any("<img src=x onerror=alert(1)>" in each for each in found.texts["h1"])
    assert HOSTILE not in text


def test_a_file_in_the_folders_place_is_refused_before_anything_is_graded(tmp_path: Path) -> None:
    (tmp_path / "feedback").touch()
    with pytest.raises(ReportError, match="feedback: File exists"):
        formats.check("feedback", tmp_path / "feedback", CONTEXT)

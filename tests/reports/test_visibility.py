"""Hidden cases in reports for students: the kind of the mistake and a hint."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from any_grades import grades
from examples import WRONG, check, grade, hidden
from hypothesis import given, settings

from pytest_gpulab.grading.grade import Finding, Grade, Measurement
from pytest_gpulab.reports.visibility import HIDDEN, SEEN_HIDDEN, for_student

pytestmark = pytest.mark.unit


def test_nothing_of_a_hidden_case_is_left_but_the_kind_of_mistake_and_a_hint() -> None:
    secret = hidden(printed="n is 1023", duration_s=7.0)
    shown = for_student(grade(secret)).checks[0]
    assert (shown.name, shown.verdict, shown.points, shown.max_points) == (HIDDEN, "failed", 0.0, 10)
    assert shown.findings == (Finding("wrong-result", SEEN_HIDDEN, "", (), "Think.", hidden=True),)
    assert "1023" not in json.dumps(shown.to_dict()) and "42" not in json.dumps(shown.to_dict())
    assert shown.printed == "" and shown.duration_s == 0


def test_several_hidden_cases_are_numbered() -> None:
    shown = for_student(grade(hidden("correct[n=7]"), check("correct[n=1]"), hidden("correct[n=9]")))
    assert [each.name for each in shown.checks] == ["correct[hidden 1]", "correct[n=1]", "correct[hidden 2]"]


def test_checks_that_need_a_hidden_case_do_not_name_it() -> None:
    found = replace(
        WRONG, what="Not graded, because `correct[n=1023]` did not pass: 2 of 1023", because="correct[n=1023]"
    )
    fast = check("speedup[2x]", "failed", findings=(replace(found, hidden=True, evidence=()),))
    for checks in ((fast, hidden()), (fast,)):  # the hidden check need not be selected
        told = for_student(grade(*checks)).checks[0].findings[0]
        assert told.what == "Not graded, because `correct[hidden]` did not pass." and told.because == HIDDEN


def test_a_hidden_case_is_not_named_even_if_its_findings_are_not_marked() -> None:
    found = replace(WRONG, what="Not graded, because `correct[n=1023]` did not pass: ...", because="correct[n=1023]")
    told = for_student(grade(hidden(), check("safe[memory]", "failed", findings=(found,)))).checks[1].findings[0]
    assert (told.what, told.because) == ("Not graded, because `correct[hidden]` did not pass.", HIDDEN)
    assert (told.where, told.evidence) == ("", ())


@pytest.mark.parametrize("code", ["not-graded", "reference-mismatch"])
def test_an_error_of_the_grader_is_shown_without_lines_of_the_exercise(code: str) -> None:
    found = Finding(code, "It failed.", evidence=('File "/home/prof/exercise.py", line 3', "    expected = 42"))
    told = for_student(grade(check("correct[n=1]", "not gradable", findings=(found,)))).checks[0].findings[0]
    assert told == replace(found, evidence=())


def test_a_hazard_that_only_hidden_cases_show_keeps_its_kind() -> None:
    found = replace(WRONG, code="out-of-bounds", hidden=True)
    told = for_student(grade(check("safe[memory]", "failed", findings=(found,)))).checks[0].findings[0]
    assert (told.code, told.where, told.what, told.evidence) == ("out-of-bounds", "", SEEN_HIDDEN, ())


def test_values_of_a_timed_kernel_are_not_shown_after_hidden_cases() -> None:
    wrong, slow = replace(WRONG, where=""), Finding("too-slow", "1.1x", evidence=("1 ms against 1.1 ms",))
    fast = check("speedup[2x]", "failed", kind="speedup", findings=(wrong, slow))
    assert for_student(grade(fast)).checks[0].findings == (wrong, slow)
    told = for_student(grade(fast, hidden())).checks[0].findings
    assert told == (replace(wrong, evidence=()), slow)


def test_a_compile_error_is_shown_in_hidden_cases_too() -> None:
    found = Finding("compile-error", "Not graded, because `compile` did not pass: expected a ;", because="compile")
    assert for_student(grade(hidden(findings=(found,)))).checks[0].findings == (found,)


def test_visible_findings_are_unchanged() -> None:
    whole = grade(check("compile"), check("correct[n=1]", "failed", printed="mine"))
    assert for_student(whole) == whole


def test_other_processes_on_the_gpu_are_not_named() -> None:
    measured = Measurement("n", 1.0, 2.0, 2.0, 1.5, False, shared_with=("bob's job", "eve's"))
    told = for_student(grade(check("speedup[2x]", measurement=measured))).checks[0].measurement
    assert told is not None and told.shared_with == ("other processes",)


@settings(max_examples=60, deadline=None)
@given(grades())
def test_points_verdicts_and_codes_stay_and_doing_it_twice_changes_nothing(whole: Grade) -> None:
    shown = for_student(whole)
    assert for_student(shown) == shown or "nan" in repr(shown)
    assert [(c.verdict, c.points, c.max_points, c.kind) for c in shown.checks] == [
        (c.verdict, c.points, c.max_points, c.kind) for c in whole.checks
    ]
    assert [[f.code for f in c.findings] for c in shown.checks] == [[f.code for f in c.findings] for c in whole.checks]
    told = json.dumps(shown.to_dict())
    assert not [check.name for check in whole.checks if check.hidden and check.name in told]

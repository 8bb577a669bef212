"""Whatever the grades: each format's file is valid, its points add up, and it holds nothing that JSON has not got."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from any_grades import class_books, grades, one_students_books
from examples import ENVIRONMENT
from hypothesis import given, settings

from pytest_gpulab.grading.grade import Grade, Student
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.files import classroom50, ctrf, gradescope, json_report, prairielearn
from pytest_gpulab.reports.files.json_report import json_text
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.students import SMALL_SHARE, Row, graded_points, the_only_row

pytestmark = pytest.mark.unit

CONTEXT = Context(environment=ENVIRONMENT)
HERE = Path(__file__).parent
Document = dict[str, Any]


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((HERE / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def of_gradescope(row: Row) -> Document | None:
    points = graded_points(row)
    return None if points is None else gradescope.document(row, points)


def of_classroom50(row: Row) -> Document | None:
    return None if graded_points(row) is None else classroom50.document(row, CONTEXT)


FORMATS: dict[str, Callable[[Row], Document | None]] = {
    "gradescope": of_gradescope,
    "classroom50": of_classroom50,
    "prairielearn": lambda row: prairielearn.fitted(prairielearn.document(row)),
}


def reloaded(document: Document) -> Document:
    """Return the document as a program reads it that knows neither NaN nor lone surrogates."""

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    text = json_text(document)
    json.loads(text, parse_constant=refuse)
    data: Document = json.loads(text)
    json.dumps(data, ensure_ascii=False).encode()
    return data


def assert_valid_files(row: Row) -> None:
    """Compare each format's file for a student with its schema: to make up grades takes longer than the files."""
    for name, document_of in FORMATS.items():
        document = document_of(row)
        if document is not None:
            validator(name).validate(reloaded(document))


@settings(max_examples=60, deadline=None)
@given(one_students_books())
def test_any_grades_make_valid_files_for_one_student(book: Gradebook) -> None:
    assert_valid_files(the_only_row(book))


@settings(max_examples=30, deadline=None)
@given(grades())
def test_figures_that_are_numpys_become_plain_ones(grade: Grade) -> None:
    assert_valid_files(Row(Student("s1"), (grade,)))


@settings(max_examples=60, deadline=None)
@given(class_books())
def test_any_class_makes_valid_reports_for_dashboards_and_programs(book: Gradebook) -> None:
    document = reloaded(ctrf.document(book, CONTEXT))
    validator("ctrf").validate(document)
    summary, tests = document["results"]["summary"], document["results"]["tests"]
    assert summary["tests"] == len(tests) == sum(summary[status] for status in ctrf.STATUSES)
    assert len(tests) == sum(len(grade.checks) for grade in book.grades) + len(book.ungraded)
    strict = reloaded(json_report.document(book, CONTEXT))
    assert len(strict["grades"]) == len(book.grades) and len(strict["roster"]) == len(book.roster)


def has_score(grade: Grade) -> bool:
    """Return whether all but a small share of an exercise's points could be graded, and none of it was chosen."""
    lost = [check for check in grade.checks if check.verdict == "not gradable" and check.max_points]
    is_small = math.fsum(check.max_points for check in lost) <= SMALL_SHARE * math.fsum(
        c.max_points for c in grade.checks
    )
    return is_small and all(found.code != "cannot-simulate" for check in lost for found in check.findings)


@settings(max_examples=60, deadline=None)
@given(one_students_books())
def test_points_add_up(book: Gradebook) -> None:
    row = the_only_row(book)
    graded = [check for check in row.checks if check.verdict != "not gradable"]
    earned = math.fsum(check.points for check in graded)
    possible = math.fsum(check.max_points for check in graded)
    share = earned / possible if possible and all(map(has_score, row.grades)) else None
    if (scope := of_gradescope(row)) is not None:
        tests = [test for test in scope["tests"] if "score" in test]
        assert math.fsum(test["score"] for test in tests) == pytest.approx(earned)
        assert scope["score"] == pytest.approx(share * math.fsum(c.max_points for c in row.checks))
    result = prairielearn.document(row)
    assert result["gradable"] == (share is not None) and result.get("score") == (share and pytest.approx(share))
    if (room := of_classroom50(row)) is not None:
        assert room["score"] == sum(test["score"] for test in room["tests"]) <= room["max-score"]
        assert all(test["score"] <= test["max-score"] for test in room["tests"])
        factor = classroom50.factor_of(row)
        assert room["score"] / factor == pytest.approx(earned, abs=0.005 * len(graded) + 1e-9)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("gradescope", {"tests": [{"name": "a"}]}),
        ("gradescope", {"score": 1, "visibility": "never"}),
        ("classroom50", {"schema": "classroom50/result/v1"}),
        ("prairielearn", {"score": 1.5}),
        ("prairielearn", {"gradable": False, "score": 0}),
        ("ctrf", {"reportFormat": "CTRF", "specVersion": "0.0.0"}),
    ],
)
def test_the_schemas_refuse_what_is_no_result(name: str, broken: Document) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator(name).validate(broken)

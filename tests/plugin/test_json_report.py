"""`--gpulab-report=json:PATH`: all grades with where they come from."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from course import CHECKS, NAIVE, RIGHT, WRONG, Course
from reported import PROVENANCE, book, speed

from pytest_gpulab.grading.grade import Grade, Student
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.files import json_report
from pytest_gpulab.reports.gradebook import SimilarPair


def load(path: Path) -> dict[str, Any]:
    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    data: dict[str, Any] = json.loads(path.read_text(), parse_constant=refuse)
    return data


def test_the_file_holds_every_grade_with_its_provenance(course: Course) -> None:
    course.write("submissions/alice/twice.cu", RIGHT)
    course.write("submissions/bob/twice.cu", WRONG)
    course.write("submissions/carol/twize.cu", WRONG)
    result = course.grade("submissions", "--gpulab-seed=7", "--gpulab-report=json:grades.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    document = load(course.folder / "grades.json")
    assert document["format"] == "pytest-gpulab/grades" and document["schema_version"] == 1
    assert document["interrupted"] is False
    alice, bob = (Grade.from_dict(grade) for grade in document["grades"])
    assert [check.name for check in alice.checks] == CHECKS
    assert (alice.points, alice.max_points, bob.max_points) == (90, 100, 100) and bob.points < 70
    assert alice.provenance.seed == 7 and alice.provenance.device_kind == "simulated"
    assert alice.provenance.source_sha256 != bob.provenance.source_sha256
    assert [(item["submission"], item["code"]) for item in document["ungraded"]] == [
        ("submissions/carol/twize.cu", "no-exercise")
    ]


def test_expected_failures_are_marked(course: Course) -> None:
    course.write("s/twice.cu", NAIVE)
    course.write("expected.toml", '["s/twice.cu"]\nfails = { "speedup[1.5x]" = "too-slow" }\n')
    course.grade("s", "-o", "gpulab_expected=expected.toml", "--gpulab-report=json:grades.json")
    (grade,) = load(course.folder / "grades.json")["grades"]
    assert [check["name"] for check in grade["checks"] if check["expected"]] == ["speedup[1.5x]"]


def test_two_reports_of_one_run(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    course.grade("twice.cu::compile", "--gpulab-report=json:a.json", "--gpulab-report=json:b.json")
    assert load(course.folder / "a.json") == load(course.folder / "b.json")


def test_a_report_that_cannot_be_written_in_the_end_fails_the_run(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    course.write("conftest.py", "import pathlib\ndef pytest_runtest_setup(): pathlib.Path('grades.json').mkdir()\n")
    result = course.grade("twice.cu::compile", "--gpulab-report=json:grades.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR: cannot write the report *grades.json: Is a directory"])


def test_json_has_no_infinity(tmp_path: Path) -> None:
    check = speed(0.2)
    assert check.measurement is not None
    endless = replace(check, measurement=replace(check.measurement, speedup=math.inf, bandwidth_gb_s=math.nan))
    json_report.write(tmp_path / "grades.json", book(("a.cu", [endless])), Context())
    measurement = load(tmp_path / "grades.json")["grades"][0]["checks"][0]["measurement"]
    assert measurement["speedup"] is None and measurement["bandwidth_gb_s"] is None


def test_provenance_survives(tmp_path: Path) -> None:
    json_report.write(tmp_path / "grades.json", book(("a.cu", [speed(0.2)])), Context(interrupted=True))
    document = load(tmp_path / "grades.json")
    assert document["interrupted"] is True
    assert Grade.from_dict(document["grades"][0]).provenance == PROVENANCE


def test_the_class_is_in_the_report(tmp_path: Path) -> None:
    made = book(("a.cu", [speed(0.2)]))
    made.roster = (Student("17", "Ann Bell"), Student("18"))
    made.absent = made.roster[1:]
    made.problems, made.changes = ("18/x.txt: no .cu file",), ("a.cu: 10 points, not 20",)
    made.duplicates = (SimilarPair("sum", ("a.cu", "b.cu"), 0.9, (((12, 40),), ((3, 31),))),)
    json_report.write(tmp_path / "grades.json", made, Context())
    document = load(tmp_path / "grades.json")
    assert document["roster"] == [{"id": "17", "name": "Ann Bell"}, {"id": "18", "name": ""}]
    assert document["absent"] == [{"id": "18", "name": ""}]
    assert (document["problems"], document["changes"]) == (list(made.problems), list(made.changes))
    lines = [[[12, 40]], [[3, 31]]]
    assert document["duplicates"] == [
        {"exercise": "sum", "submissions": ["a.cu", "b.cu"], "similarity": 0.9, "lines": lines}
    ]
    schema = Path(__file__).parents[2] / "docs" / "grade.schema.json"
    jsonschema.validate(document, json.loads(schema.read_text(encoding="utf-8")))

"""The formats of gradebooks and learning platforms from a real run, JUnit XML's among them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from course import BEYOND, EXERCISE, RIGHT, WRONG, Course
from test_settings import usage_error

SCHEMAS = Path(__file__).parents[1] / "reports"
HIDDEN = EXERCISE.replace('Case("n=100", 100, 20)', 'Case("n=97", 97, 20, hidden=True)')
WRONG_WHERE_HIDDEN = RIGHT.replace("2 * in[i]", "2 * in[i] + (i == 77)")
CLASSROOM = {
    "CLASSROOM": "gpu",
    "ASSIGNMENT": "twice",
    "SUBMISSION_TAG": "submit/1",
    "COMMIT_URL": "https://example.org/1",
    "RELEASE_URL": "https://example.org/2",
}


def load(path: Path, schema: str) -> dict[str, Any]:
    """Return a JSON file that the schema allows."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(data, json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8")))
    return data


def texts(data: dict[str, Any]) -> str:
    """Return all that a student reads in a result."""
    return json.dumps(
        [[test.get(key, "") for key in ("name", "test-name", "message", "output")] for test in data["tests"]]
    )


def test_one_run_writes_all_formats(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CLASSROOM.items():
        monkeypatch.setenv(name, value)
    course.write("exercises/twice/exercise.py", HIDDEN)
    course.write("twice.cu", WRONG_WHERE_HIDDEN)
    asked = [f"--gpulab-report={name}:{name}.json" for name in ("gradescope", "classroom50", "prairielearn", "ctrf")]
    course.grade("twice.cu", *asked, "--gpulab-report=csv:grades.csv", "--gpulab-feedback=feedback")
    scope, room, prairie, dashboard = (
        load(course.folder / f"{name}.json", name) for name in ("gradescope", "classroom50", "prairielearn", "ctrf")
    )
    assert scope["score"] == 50 and (room["score"], room["max-score"], prairie["score"]) == (50, 100, 0.5)
    for told in (scope, room, prairie):
        assert "correct[hidden]" in texts(told) and "97" not in texts(told) and "77" not in texts(told)
    (page,) = (path.read_text(encoding="utf-8") for path in (course.folder / "feedback").iterdir())
    assert "correct[hidden]" in page and "n=97" not in page and "out[77]" not in page
    assert [test["status"] for test in dashboard["results"]["tests"]].count("failed") == 3
    assert "correct[n=97]" in json.dumps(dashboard) and "out[77]" in json.dumps(dashboard)
    header, row = csv.reader((course.folder / "grades.csv").read_text(encoding="utf-8-sig").splitlines())
    assert dict(zip(header, row, strict=True)) == {
        "student": "twice.cu", "name": "", "twice": "50", "total": "50", "not_gradable": "", "note": "",
    }  # fmt: skip
    assert len((course.folder / "grades-details.csv").read_text().splitlines()) == 8


def test_a_hazard_in_a_hidden_case_only_shows_its_kind(course: Course) -> None:
    course.write("exercises/twice/exercise.py", HIDDEN)
    course.write("twice.cu", BEYOND.replace("i <= n", "i < n + (n == 97)"))
    course.grade("twice.cu", "--gpulab-report=gradescope:results.json")
    (test,) = (
        test for test in load(course.folder / "results.json", "gradescope")["tests"] if test["name"].startswith("safe")
    )
    assert test["visibility"] == "after_published" and "out-of-bounds" in test["output"]
    assert "97" not in test["output"] and "twice.cu" not in test["output"]


def test_a_class_has_a_gradescope_file_each_and_workers_change_nothing(course: Course) -> None:
    for student, text in (("alice", RIGHT), ("bob", WRONG)):
        course.write(f"submissions/{student}/twice.cu", text)
    asked = ["submissions", "--gpulab-seed=1"]
    course.grade(*asked, "--gpulab-report=csv:here.csv", "--gpulab-report=gradescope:results")
    assert len(list((course.folder / "results").iterdir())) == 2
    course.grade(*asked, "--gpulab-report=csv:workers.csv", "-n2")
    assert (course.folder / "here.csv").read_bytes() == (course.folder / "workers.csv").read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        ["twice.cu", "-k", "compile"],
        ["twice.cu::compile"],
        ["twice.cu", "-k", "compile", "-n1"],
        ["twice.cu::compile", "--gpulab-workers=1"],
    ],
)
def test_some_checks_of_a_file_are_no_result(course: Course, options: list[str]) -> None:
    course.write("twice.cu", RIGHT)
    files = ("gradescope:results.json", "csv:grades.csv")
    result = course.grade(*options, *(f"--gpulab-report={file}" for file in files))
    why = "only some of the checks were graded, and a part of the points is no result"
    result.stdout.fnmatch_lines([f"ERROR: cannot write the report {course.folder / 'results.json'}: {why}"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED and not (course.folder / "results.json").exists()
    assert (course.folder / "grades.csv").read_text().rstrip().endswith(",only some of the checks were graded")


def test_the_process_that_writes_reports_loads_no_exercise(course: Course) -> None:
    """Of pytest-xdist's processes it is the one that has loaded none, and an exercise may have been changed by now."""
    path = course.folder / "exercises/twice/exercise.py"
    path.write_text("import os\nassert 'PYTEST_XDIST_WORKER' in os.environ\n" + path.read_text())
    course.write("twice.cu", RIGHT)
    result = course.grade("twice.cu", "-n1", "--gpulab-report=gradescope:results.json")
    assert result.ret == 0 and load(course.folder / "results.json", "gradescope")["score"] > 0


def test_two_students_do_not_fit_into_one_file(course: Course) -> None:
    for student in ("alice", "bob"):
        course.write(f"submissions/{student}/twice.cu", RIGHT)
    result = course.grade("submissions", "--gpulab-report=prairielearn:results.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    path = course.folder / "results.json"
    said = "it holds the result of one student, and more than one was graded"
    result.stdout.fnmatch_lines([f"ERROR: cannot write the report {path}: {said}"])
    assert not path.exists()


def test_classroom50_without_its_runner_is_a_usage_error(course: Course) -> None:
    line = usage_error(course.grade("--gpulab-report=classroom50:result.json"))
    assert line == (
        f"cannot write the report {course.folder / 'result.json'}: Classroom 50's runner sets CLASSROOM, ASSIGNMENT, "
        "SUBMISSION_TAG, COMMIT_URL, RELEASE_URL, missing here"
    )


@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_junit_xml_carries_the_whole_result(course: Course, workers: list[str]) -> None:
    course.write("twice.cu", WRONG)
    course.grade("twice.cu", "--junit-xml=junit.xml", *workers)
    cases = ElementTree.parse(course.folder / "junit.xml").getroot().iter("testcase")
    told = {case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")} for case in cases}
    assert told["correct[n=31]"]["gpulab_verdict"] == "failed" and told["correct[n=31]"]["gpulab_points"] == "0.0"
    assert told["speedup[1000x]"]["gpulab_max_points"] == "10.0"
    grade = json.loads(told["correct[n=1]"]["gpulab"] or "")["grade"]
    assert grade["checks"][0]["verdict"] == "passed" and grade["provenance"]["device_kind"] == "simulated"


def test_properties_of_reports_are_builtins_whatever_the_exercise_says(course: Course) -> None:
    course.write("exercises/twice/exercise.py", EXERCISE.replace("1, 20)", "1, np.float32(20))"))
    course.write(
        "watching.py",
        "def pytest_runtest_logreport(report):\n"
        "    assert {type(value) for _, value in report.user_properties} <= {str, int, float}\n",
    )
    course.write("twice.cu", RIGHT)
    assert course.grade_apart("twice.cu", "-p", "watching", "-n1").ret == pytest.ExitCode.OK


@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_a_run_that_stops_at_the_first_failure_is_no_result(course: Course, workers: list[str]) -> None:
    course.write("twice.cu", WRONG)
    asked = ("-x", "--gpulab-report=gradescope:results.json", "--gpulab-report=json:grades.json", *workers)
    result = course.grade("twice.cu", *asked)
    result.stdout.fnmatch_lines(["ERROR: *results.json: the run was stopped before everything was graded"])
    assert not (course.folder / "results.json").exists()
    assert json.loads((course.folder / "grades.json").read_text())["interrupted"] is True

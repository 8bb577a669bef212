"""The treatment of each verdict by the learning platforms, and runs without a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from any_grades import VERDICTS, book
from examples import ENVIRONMENT, LOST, UNSUPPORTED, WRONG, check, grade, hidden, only

from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.files import ctrf, prairielearn
from pytest_gpulab.reports.files.json_report import json_text
from pytest_gpulab.reports.gradebook import Gradebook
from pytest_gpulab.reports.students import the_only_row

pytestmark = pytest.mark.unit

CONTEXT = Context(environment=ENVIRONMENT)
FOR_ONE_STUDENT = ("gradescope", "classroom50", "prairielearn")
ALL = only(*(check(verdict, verdict, 5 if verdict == "not gradable" else 10) for verdict in VERDICTS))
NO_EXERCISE = Finding("no-exercise", "skan.cu belongs to no exercise", hint="call it scan.cu")


def written(name: str, gradebook: Gradebook, folder: Path) -> dict[str, Any]:
    path = folder / "results.json"
    formats.check(name, path, CONTEXT)
    formats.write(name, path, gradebook, CONTEXT)
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def test_gradescope_shows_what_is_not_gradable_without_a_score(tmp_path: Path) -> None:
    data = written("gradescope", ALL, tmp_path)
    told = {test["name"]: (test.get("score"), test.get("max_score"), test.get("status")) for test in data["tests"]}
    assert told == {
        "passed": (10, 10, "passed"),
        "failed": (0, 10, "failed"),
        "missed": (0, 10, "failed"),
        "inconclusive": (10, 10, "passed"),
        "not gradable": (None, None, None),
        "not started": (0, 10, "failed"),
    }
    assert data["score"] == pytest.approx(55 * 20 / 50)
    assert "Checks for 5 points could not be graded, by no fault of yours." in data["output"]
    outputs = {test["name"]: test["output"].split("\n") for test in data["tests"]}
    assert outputs["failed"] == [
        "Failed.",
        "wrong-result: `out`: 2 of 1023 elements are wrong.",
        "  at scan.cu:7",
        "  out[3] is 1, expected 42",
        "  hint: Think.",
    ]
    assert outputs["not gradable"][0].startswith("Not gradable: the machine's fault")


def test_gradescope_hides_what_tells_of_hidden_cases_until_grades_are_published(tmp_path: Path) -> None:
    found = Finding("wrong-result", "Not graded, because `correct[n=1023]`.", because="correct[n=1023]", hidden=True)
    made = only(check("a"), hidden(), check("fast", "failed", findings=(found,)))
    data = written("gradescope", made, tmp_path)
    assert [test["visibility"] for test in data["tests"]] == ["visible", "after_published", "after_published"]
    assert data["stdout_visibility"] == "hidden" and data["output"] == "scan, graded on the a GPU."
    assert "1023" not in json.dumps(data) and "42" not in json.dumps(data)


def test_gradescope_gets_a_file_a_student(tmp_path: Path) -> None:
    made = book(*(grade(check("a"), student=student) for student in ("ann", "../bob", "b/ob")))
    formats.check("gradescope", tmp_path / "results", CONTEXT)
    assert not (tmp_path / "results").exists()
    formats.write("gradescope", tmp_path / "results", made, CONTEXT)
    names = sorted(path.name for path in (tmp_path / "results").iterdir())
    patterns = (r"ann\.json", r"b-ob-[0-9a-f]{16}\.json", r"bob-[0-9a-f]{16}\.json")
    assert all(re.fullmatch(pattern, name) for pattern, name in zip(patterns, names, strict=True))


def test_gradescope_gets_no_file_of_whom_nothing_could_be_graded(tmp_path: Path) -> None:
    (tmp_path / "bob.json").write_text("an earlier run's")
    made = book(grade(check("a"), student="ann"), grade(check("a", "not gradable"), student="bob"))
    with pytest.raises(ReportError, match=r"bob: nothing could be graded$"):
        formats.write("gradescope", tmp_path, made, CONTEXT)
    assert [path.name for path in tmp_path.iterdir()] == ["ann.json"]


def test_a_gradescope_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match=r"exists|Not a directory"):
        formats.check("gradescope", tmp_path / "file" / "results", CONTEXT)


def test_exercises_are_named_where_there_are_several(tmp_path: Path) -> None:
    made = book(grade(check("a")), grade(check("a"), exercise="sum"))
    assert [test["name"] for test in written("gradescope", made, tmp_path)["tests"]] == ["scan: a", "sum: a"]


def test_classroom50_leaves_out_what_is_not_gradable(tmp_path: Path) -> None:
    data = written("classroom50", ALL, tmp_path)
    told = {test["test-name"]: (test["passed"], test["score"], test["max-score"]) for test in data["tests"]}
    assert told == {
        "passed": (True, 10, 10),
        "failed": (False, 0, 10),
        "missed": (False, 0, 10),
        "inconclusive": (True, 10, 10),
        "not started": (False, 0, 10),
    }
    assert (data["score"], data["max-score"]) == (20, 50)
    assert data["classroom"] == "gpu-2026" and data["submission"].startswith("submit/")
    assert data["review"] == data["commit"] and "owner" not in data


def test_classroom50_passes_on_what_the_runner_says(tmp_path: Path) -> None:
    said = {"REVIEW_URL": "https://example.org/review", "OWNER": "ann", "ASSIGNMENT_TYPE": "individual"}
    path = tmp_path / "result.json"
    formats.write("classroom50", path, ALL, Context(environment=ENVIRONMENT | said))
    data = json.loads(path.read_text())
    assert (data["review"], data["owner"], data["assignment_type"]) == (said["REVIEW_URL"], "ann", "individual")


@pytest.mark.parametrize(("points", "expected"), [(12.5, (125, 325)), (2.25, (225, 1225)), (100 / 3, (3333, 4333))])
def test_classroom50_counts_in_parts_of_points_if_it_must(
    points: float, expected: tuple[int, int], tmp_path: Path
) -> None:
    data = written("classroom50", only(check("a", points=points), check("b", "failed", points=10)), tmp_path)
    factor = 10 if points == 12.5 else 100
    assert (data["score"], data["max-score"]) == (expected[0], expected[0] + 10 * factor)


def test_classroom50_without_its_runner_is_refused_before_grading(tmp_path: Path) -> None:
    with pytest.raises(ReportError) as caught:
        formats.check("classroom50", tmp_path / "result.json", Context(environment={"CLASSROOM": "a"}))
    names = "ASSIGNMENT, SUBMISSION_TAG, COMMIT_URL, RELEASE_URL"
    assert str(caught.value).endswith(f"Classroom 50's runner sets {names}, missing here")


def test_prairielearn_scores_the_share_of_what_could_be_graded(tmp_path: Path) -> None:
    data = written("prairielearn", ALL, tmp_path)
    told = {test["name"]: (test["points"], test["max_points"]) for test in data["tests"]}
    assert told == {
        "passed": (10, 10),
        "failed": (0, 10),
        "missed": (0, 10),
        "inconclusive": (10, 10),
        "not gradable": (0, 0),
        "not started": (0, 10),
    }
    assert (data["gradable"], data["score"]) == (True, 0.4)
    assert data["message"] == "20 of 50 points. Checks for 5 more could not be graded, by no fault of yours."


@pytest.mark.parametrize("name", FOR_ONE_STUDENT)
@pytest.mark.parametrize(
    ("graded", "lost", "told"), [(3, [LOST] * 5, "100 of 103 points"), (195, [UNSUPPORTED], "20 of 215 points")]
)
def test_a_submission_cannot_choose_checks_that_do_not_count(
    graded: float, lost: list[Finding], told: str, name: str, tmp_path: Path
) -> None:
    """A kernel may hold what a device does not know in some variants: that must not become full points."""
    ungraded = (check(f"c{i}", "not gradable", 20, findings=(found,)) for i, found in enumerate(lost))
    made = only(check("compile", points=graded), *ungraded)
    if name == "prairielearn":
        data = written(name, made, tmp_path)
        assert data["gradable"] is False and data["format_errors"][0].startswith(f"{told} of scan could not be graded")
        return
    with pytest.raises(ReportError, match=rf"s1/scan.cu: {told} could not be graded, so there is no score; see"):
        written(name, made, tmp_path)


def test_prairielearn_charges_no_attempt_if_nothing_could_be_graded(tmp_path: Path) -> None:
    data = written("prairielearn", only(check("<b>", "not gradable", findings=(UNSUPPORTED,))), tmp_path)
    said = "nothing of scan could be graded, by no fault of yours. No attempt is charged."
    assert data == {"gradable": False, "format_errors": [f"The grader failed (cannot-simulate): {said}"]}


def test_prairielearn_gets_at_most_a_megabyte() -> None:
    found = Finding("wrong-result", "wrong", evidence=tuple("ü" * 3000 for _ in range(60)))
    checks = [check(f"c{number}", "failed", findings=(found,)) for number in range(30)]
    document = prairielearn.document(the_only_row(only(*checks, check("small", "failed"))))
    assert len(json_text(document)) > 10 * prairielearn.MAX_BYTES
    fitted = prairielearn.fitted(document)
    assert len(json_text(fitted)) <= prairielearn.MAX_BYTES
    outputs = [test["output"] for test in fitted["tests"]]
    assert all(output.endswith(prairielearn.CUT) and output.count(prairielearn.CUT) == 1 for output in outputs[:-1])
    assert len(outputs[0]) > 1000 and outputs[-1].endswith("hint: Think.")
    assert [test["max_points"] for test in fitted["tests"]] == [10] * 31


@pytest.mark.parametrize("name", FOR_ONE_STUDENT)
def test_a_file_of_no_exercise_earns_nothing_and_is_reported(name: str, tmp_path: Path) -> None:
    made = Gradebook(ungraded={"s1/skan.cu": NO_EXERCISE})
    data = written(name, made, tmp_path)
    assert data["score"] == 0 and "call it scan.cu" in json.dumps(data)


@pytest.mark.parametrize("name", FOR_ONE_STUDENT)
def test_a_broken_exercise_costs_no_points(name: str, tmp_path: Path) -> None:
    made = Gradebook(ungraded={"s1/scan.cu": Finding("broken-exercise", "cannot be loaded")})
    if name == "prairielearn":
        assert written(name, made, tmp_path)["gradable"] is False
        return
    with pytest.raises(ReportError, match=r"nothing could be graded$"):
        written(name, made, tmp_path)


@pytest.mark.parametrize("name", ["gradescope", "classroom50"])
def test_a_platform_sees_no_file_rather_than_no_points(name: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("an earlier run's")
    with pytest.raises(ReportError, match=r"results.json: nothing could be graded$"):
        written(name, only(check("a", "not gradable")), tmp_path)
    assert not (tmp_path / "results.json").exists()


@pytest.mark.parametrize("name", FOR_ONE_STUDENT)
@pytest.mark.parametrize(
    "made",
    [
        book(grade(check("a"), student="ann"), grade(check("a"), student="bob")),
        book(grade(check("a"), student=""), grade(check("a"), student="ann")),
    ],
)
def test_two_students_do_not_fit_into_one_file(name: str, made: Gradebook, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="it holds the result of one student, and more than one was graded"):
        written(name, made, tmp_path)


@pytest.mark.parametrize("name", FOR_ONE_STUDENT)
def test_a_run_that_graded_nothing_writes_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="nothing was graded"):
        written(name, Gradebook(), tmp_path)


def test_dashboards_get_the_word_and_the_nearest_status() -> None:
    made = book(grade(*(check(verdict, verdict, duration_s=0.0125) for verdict in VERDICTS)))
    made.expected.add(("s1/scan.cu", "failed"))
    made.ungraded = {"s1/skan.cu": NO_EXERCISE, "s2/scan.cu": Finding("broken-exercise", "cannot be loaded")}
    tests = ctrf.document(made, CONTEXT)["results"]["tests"]
    assert [(test["status"], test["rawStatus"]) for test in tests] == [
        ("passed", "passed"),
        ("other", "failed as expected"),
        ("other", "missed"),
        ("other", "inconclusive"),
        ("other", "not gradable"),
        ("skipped", "not started"),
        ("failed", "not graded"),
        ("other", "not graded"),
    ]
    assert tests[0]["duration"] == 12 and tests[0]["extra"]["student"] == "s1"
    assert tests[1]["message"] == WRONG.what and LOST.what in tests[4]["trace"]


def test_dashboards_see_what_kernels_printed() -> None:
    (test,) = ctrf.document(only(check("a", printed="one\ntwo\x1b[2J")), CONTEXT)["results"]["tests"]
    assert test["stdout"] == ["one", "two?[2J"]


@pytest.mark.parametrize("name", FOR_ONE_STUDENT)
def test_a_part_of_the_points_is_no_result(name: str, tmp_path: Path) -> None:
    stopped = Context(interrupted=True, environment=ENVIRONMENT)
    with pytest.raises(ReportError, match=r"the run was stopped before everything was graded$"):
        formats.write(name, tmp_path / "results.json", ALL, stopped)
    assert not list(tmp_path.iterdir())

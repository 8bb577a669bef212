"""`--gpulab-adjust` and the ini key `gpulab_weights`: reports agree in their totals, and students see comments."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from course import EXERCISE, NAIVE, RIGHT, WRONG, Course

pytestmark = pytest.mark.usefixtures("no_plots")
REPORTS = ("json:grades.json", "csv:grades.csv", "html:report.html", "gradescope:scope", "ctrf:ctrf.json")
CLASS = ("--gpulab-submissions=handed_in", "--gpulab-roster=roster.csv")
ROSTER = "id,name,folder\n17,Ada,ada\n18,Bob,bob\n19,Cid,\n"
ADJUSTMENTS = """student,exercise,points,comment
17,first,-10,two days late
bob,second,5,"nice, short report"
19,third,60,oral exam
18,third,-5,has no submission
"""
# ada: 90 and 90 without the bonus of 10, third not handed in; bob: `second` is wrong for one case; cid: nothing
EARNED = {"17": 80 + 90, "18": 90 + 35, "19": 60}
EARNED_WEIGHTED = {"17": 2 * 80 + 90, "18": 2 * 90 + 35, "19": 0.5 * 60}


@pytest.fixture
def school(course: Course) -> Course:
    """Three exercises; ada hands in two, bob two, of which one is wrong, cid nothing."""
    for name in ("first", "second", "third"):
        course.write(f"exercises/{name}/exercise.py", EXERCISE)
        course.write(f"exercises/{name}/naive.cu", NAIVE)
    for name in ("ada/first.cu", "ada/second.cu", "bob/first.cu"):
        course.write(f"handed_in/{name}", RIGHT)
    course.write("handed_in/bob/second.cu", WRONG)
    course.write("roster.csv", ROSTER)
    return course


def graded(school: Course, *options: str) -> pytest.RunResult:
    reports = [f"--gpulab-report={spec}" for spec in REPORTS]
    return school.grade(*CLASS, *reports, "--gpulab-feedback=feedback", *options)


def read(folder: Path) -> dict[str, dict[str, float]]:
    """Return each student's total in each format."""
    with (folder / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        table = {row["student"]: float(row["total"]) for row in csv.DictReader(file) if row["total"]}
    scope = {path.stem: json.loads(path.read_text())["score"] for path in (folder / "scope").iterdir()}
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (folder / "feedback").iterdir()}
    shown = {name: re.search(r"<strong>([\d.]+) of ([\d.]+) points", text) for name, text in pages.items()}
    report = (folder / "report.html").read_text(encoding="utf-8")
    totals = {}
    for name, student in (("Ada", "17"), ("Bob", "18"), ("Cid", "19")):
        row = report[report.index(f'<th scope="row">{name}') :]
        if total := re.search(r">([\d.]+)/[\d.]+<", row):
            totals[student] = float(total[1])
    feedback = {name: float(match[1]) for name, match in shown.items() if match}
    return {"csv": table, "gradescope": scope, "feedback": feedback, "html": totals}


def test_every_format_has_the_adjusted_totals(school: Course, kept: str) -> None:
    school.write("adjustments.csv", ADJUSTMENTS)
    result = graded(school, kept, "--gpulab-adjust=adjustments.csv")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert read(school.folder) == dict.fromkeys(("csv", "gradescope", "feedback", "html"), EARNED)
    result.stdout.fnmatch_lines(
        [
            "student * first  second  third    total",
            "17 (Ada) *    80      90      -  170/300",
            "18 (Bob) *    90      35      0  125/300",
            "19 (Cid) *     -       -     60   60/300",
            "*gpulab: adjusted points*",
            "17, first: -10 points: two days late",
            "18, second: +5 points: nice, short report",
            "18, third: -5 points: has no submission",
            "19, third: +60 points: oral exam",
            "3 students: 1 passed, 1 failed, 1 handed in nothing",
        ]
    )
    report = json.loads((school.folder / "grades.json").read_text())
    assert {(g["student"], g["exercise"]): g["points"] for g in report["grades"]} == {
        ("17", "first"): 80, ("17", "second"): 90, ("18", "first"): 90, ("18", "second"): 35,
    }  # fmt: skip
    assert report["grades"][0]["adjustment"] == {"points": -10, "comment": "two days late"}
    assert report["adjustments"][-1] == {"student": "19", "exercise": "third", "points": 60, "comment": "oral exam"}
    tests = json.loads((school.folder / "ctrf.json").read_text())["results"]["tests"]
    assert next(t["message"] for t in tests if t["rawStatus"] == "adjusted") == "-10 points: two days late"


def test_a_student_sees_the_comment_and_nothing_of_others(school: Course, kept: str) -> None:
    school.write("adjustments.csv", ADJUSTMENTS)
    graded(school, kept, "--gpulab-adjust=adjustments.csv")
    comments = {"17": "two days late", "18": "nice, short report", "19": "oral exam"}
    for folder in ("feedback", "scope"):
        for path in (school.folder / folder).iterdir():
            text = path.read_text(encoding="utf-8")
            assert {owner for owner, comment in comments.items() if comment in text} == {path.stem}
    scope = json.loads((school.folder / "scope" / "17.json").read_text())
    assert scope["tests"][-1] == {
        "name": "first: adjustment", "output": "-10 points: two days late", "visibility": "visible",
        "score": -10, "max_score": 0,
    }  # fmt: skip
    report = (school.folder / "report.html").read_text(encoding="utf-8")
    assert "first, adjusted by the instructor: -10 points: two days late" in report
    details = (school.folder / "grades-details.csv").read_text(encoding="utf-8-sig").splitlines()
    assert "17,Ada,first,,adjustment,,,adjusted,-10,0,two days late" in details
    table = (school.folder / "grades.csv").read_text(encoding="utf-8-sig").splitlines()
    assert table[3] == "19,Cid,,,60,60,,third: +60 points: oral exam; handed in nothing"


def test_every_format_has_the_weighted_totals(school: Course, kept: str) -> None:
    school.write("adjustments.csv", ADJUSTMENTS)
    school.pytester.makeini("[pytest]\ngpulab_weights =\n    first = 2\n    third=0.5\n")
    result = graded(school, kept, "--gpulab-adjust=adjustments.csv")
    assert read(school.folder) == dict.fromkeys(("csv", "gradescope", "feedback", "html"), EARNED_WEIGHTED)
    result.stdout.fnmatch_lines(
        ["total * 350 *", "17 (Ada) * 80 * 90 * - * 250/350", "Weights in the total: first x 2, third x 0.5."]
    )
    assert json.loads((school.folder / "grades.json").read_text())["weights"] == {"first": 2, "third": 0.5}
    for page in ("feedback/17.html", "report.html", "scope/17.json"):
        assert "Weights in the total: first x 2, third x 0.5." in (school.folder / page).read_text(encoding="utf-8")


def test_students_read_the_totals_of_the_report_without_adjustments_too(school: Course, kept: str) -> None:
    """Two of three exercises handed in: 180 of 300 points, not 180 of 200."""
    school.write("handed_in/cid/third.cu", RIGHT)
    school.write("roster.csv", ROSTER.replace("Cid,", "Cid,cid"))
    graded(school, kept)
    assert read(school.folder)["feedback"] == {"17": 180, "18": 120, "19": 90}
    assert "180 of 300 points" in (school.folder / "feedback" / "17.html").read_text(encoding="utf-8")
    assert ">180/300<" in (school.folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("format", ["classroom50", "prairielearn"])
def test_formats_for_one_student_have_the_adjusted_totals(
    format: str, school: Course, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CLASSROOM", "ASSIGNMENT", "SUBMISSION_TAG", "COMMIT_URL", "RELEASE_URL"):
        monkeypatch.setenv(name, f"submit/{name}")
    school.write("adjustments.csv", "student,exercise,points,comment\nada,first,-10,two days late\n")
    school.pytester.makeini("[pytest]\ngpulab_weights = first = 2\n")
    school.grade(
        kept,
        "--gpulab-submissions=handed_in",
        "--gpulab-adjust=adjustments.csv",
        f"--gpulab-report={format}:r.json",
        "ada",
    )
    result = json.loads((school.folder / "r.json").read_text())
    assert "-10 points: two days late" in json.dumps(result) and "Weights in the total: first x 2." in json.dumps(
        result
    )
    if format == "classroom50":
        assert (result["score"], result["max-score"]) == (2 * 80 + 90, 300)
    else:
        assert result["score"] == pytest.approx(250 / 300) and result["message"].startswith("250 of 300 points.")


def test_stored_grades_take_new_adjustments(school: Course) -> None:
    graded(school)
    school.write("adjustments.csv", ADJUSTMENTS)
    graded(school, "--gpulab-adjust=adjustments.csv")
    assert read(school.folder)["csv"] == EARNED
    graded(school)
    assert read(school.folder)["csv"] == {"17": 180, "18": 120}


def usage_error(result: pytest.RunResult) -> str:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    return "\n".join(line for line in result.errlines if line).removeprefix("ERROR: ")


MISTAKES = {
    "an unknown student": ("ann,first,5,\n", "line 2: there is no student 'ann'*"),
    "an unknown exercise": ("17,frist,5,\n", "line 2: there is no exercise 'frist'; exercises: first, *"),
    "no number": ("17,first,many,\n", "line 2: the points 'many' are no number*"),
    "a second row": ("17,first,5,\nada,first,6,\n", "line 3: 17 and first are already on line 2*"),
}


@pytest.mark.parametrize(("rows", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_the_table_is_one_line_before_anything_is_graded(
    school: Course, kept: str, rows: str, message: str
) -> None:
    from fnmatch import fnmatchcase

    school.write("adjustments.csv", f"student,exercise,points,comment\n{rows}")
    line = usage_error(school.grade(*CLASS, "--gpulab-adjust=adjustments.csv"))
    assert fnmatchcase(line, f"{school.folder}/adjustments.csv: {message}") and "\n" not in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([*CLASS, "--gpulab-adjust=none.csv"], "{here}/none.csv: cannot be read: No such file or directory"),
        (["--gpulab-adjust=a.csv"], "--gpulab-adjust changes points of a class: it needs --gpulab-submissions"),
        ([*CLASS, "--gpulab-adjust="], "--gpulab-adjust= has no value: give it one, or leave it out"),
    ],
)
def test_an_impossible_option_is_refused(school: Course, options: list[str], message: str) -> None:
    assert usage_error(school.grade(*options)) == message.format(here=school.folder)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("scan = 2", "gpulab_weights: there is no exercise 'scan'; exercises: first, second, third, twice"),
        ("first = heavy", "gpulab_weights: 'first = heavy' is no weight: write EXERCISE = NUMBER, such as scan = 1.5"),
        ("first", "gpulab_weights: 'first' is no weight: write EXERCISE = NUMBER, such as scan = 1.5"),
        ("first = -1", "gpulab_weights: 'first = -1' is no weight: write EXERCISE = NUMBER, such as scan = 1.5"),
    ],
)
def test_an_impossible_weight_is_refused(school: Course, weight: str, message: str) -> None:
    assert usage_error(school.grade("-o", f"gpulab_weights={weight}", *CLASS)) == message


def test_extra_points_come_on_top_of_an_exercises_100(school: Course, kept: str) -> None:
    tiers = "SpeedTier(1000, 10, 4096)"
    easy = "SpeedTier(1.2, 10, 4096), SpeedTier(1.1, 7, 4096, extra=True), SpeedTier(1001, 9, 4096, extra=True)"
    school.write("exercises/first/exercise.py", EXERCISE.replace(tiers, easy))
    result = graded(school, kept)
    result.stdout.fnmatch_lines(["student * first *", "17 (Ada) * 107 *90*197/200"])
    assert read(school.folder)["csv"] == {"17": 197, "18": 137}
    page = (school.folder / "feedback" / "17.html").read_text(encoding="utf-8")
    assert "107 of 100 points" in page and "197 of 200 points" in page
    assert "<td>7 extra" in page and "<td>0 extra" in page

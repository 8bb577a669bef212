"""`--gpulab-submissions`: a class is graded with one command, and pytest's own options work on it."""

from __future__ import annotations

import json
import os
import re
import zipfile
from typing import Any

import pytest
from course import BROKEN, EXERCISE, RIGHT, WITHOUT, Course

from pytest_gpulab.plugin.hooks import NOT_WRITTEN

pytestmark = pytest.mark.usefixtures("no_plots")
CLASS = ("--gpulab-submissions=handed_in", "--gpulab-workers=2")


def grades(course: Course, name: str = "grades.json") -> dict[str, Any]:
    document = json.loads((course.folder / name).read_text())
    return {grade["submission"]: grade for grade in document["grades"]}


def points(course: Course, name: str = "grades.json") -> dict[str, float]:
    return {submission: grade["points"] for submission, grade in grades(course, name).items()}


def test_a_class_is_graded_and_shown_in_tables(school: Course, kept: str) -> None:
    school.write("roster.csv", "id,name,folder\n1,Ann A.,ann\n2,Bob B.,bob\n3,Cem C.,cem\n4,Dora D.,dora\n5,Eve E.,\n")
    result = school.grade(*CLASS, kept, "--gpulab-roster=roster.csv", "--gpulab-report=json:grades.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert points(school) == {"ann/twice.cu": 90, "bob/twice/mine.cu": 30, "cem/twice.cu": 0}
    assert [grade["student"] for grade in grades(school).values()] == ["1", "2", "3"]
    result.stdout.fnmatch_lines(
        [
            "gpulab: 2 processes; grades are stored in*",
            "gpulab: 3 submissions of 4 students in *handed_in",
            "collected 21 items",
            "gpulab: 3/3 graded, 2 with failures; *",
            "*gpulab: class*",
            "twice *",
            "*gpulab: submissions*",
            "dora: There is no .cu file, but notes.txt.",
            "*gpulab: no submission*",
            "5 (Eve E.)",
            "*gpulab: students*",
            "1 (Ann A.) * 90 * 90/100",
            "2 (Bob B.) * 30 * 30/100",
        ]
    )
    assert "/grades.sqlite\n" in result.stdout.str()  # of a long path on a line of its own
    checks, students = result.outlines[-2:]
    assert students == "5 students: 1 passed, 3 failed, 1 handed in nothing" and checks.startswith("checks: ")
    assert len(result.outlines) < 60, "there is not a page for each failure"
    result.stdout.no_fnmatch_line("*bob/twice/mine.cu*")


class EachPhase:
    """A reporter that files setup and teardown among the passed tests, as pytest-sugar does."""

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.reporter = session.config.pluginmanager.get_plugin("terminalreporter")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            self.reporter.stats.setdefault("passed", []).append(report)


def test_checks_are_counted_once_if_another_reporter_files_each_phase(school: Course, kept: str) -> None:
    options = ("--gpulab", "--gpulab-device=sim", *CLASS, kept)
    result = school.pytester.runpytest_inprocess(*WITHOUT, *options, plugins=[EachPhase()])
    assert "checks: 11 failed, 9 passed, 1 bonus missed" in result.outlines[-2]


def test_folders_and_the_roster_are_compared(school: Course, kept: str) -> None:
    school.write("roster.csv", "id\nann\nbob\ncem\n")
    result = school.grade(*CLASS, kept, "--gpulab-roster=roster.csv")
    result.stdout.fnmatch_lines(["dora: not on the roster"])
    school.write("roster.csv", "id,name\n1,ann\nbob,\ncem,\ndora,\n")
    school.write("handed_in/1/notes.txt", "see my other folder")
    result = school.grade(*CLASS, kept, "--gpulab-roster=roster.csv")
    result.stdout.fnmatch_lines(["1: several folders, 1, ann: for each exercise the best of them counts"])


def test_verbosely_every_check_and_finding_is_shown(school: Course, kept: str) -> None:
    result = school.grade(*CLASS, kept, "-v", "--tb=short")
    result.stdout.fnmatch_lines(
        ["ann/twice.cu::compile PASSED*", "*bob/twice/mine.cu: correct?n=31?*", "*gpulab: findings*"]
    )
    result.stdout.fnmatch_lines(["FAILED bob/twice/mine.cu::correct?n=31? - wrong-result: *"])


@pytest.mark.parametrize(
    ("chosen", "collected"),
    [
        (["-k", "ann"], ["ann/twice.cu::*"] * 7),
        (["ann"], ["ann/twice.cu::*"] * 7),
        (["ann/", "bob/twice/mine.cu::compile"], [*["ann/twice.cu::*"] * 7, "bob/twice/mine.cu::compile"]),
        (["bob/twice/mine.cu::correct[n=31]"], ["bob/twice/mine.cu::correct?n=31?"]),
        (["-k", "compile and not cem"], ["ann/twice.cu::compile", "bob/twice/mine.cu::compile"]),
    ],
)
def test_students_submissions_and_checks_are_chosen_by_their_ids(
    school: Course, chosen: list[str], collected: list[str]
) -> None:
    result = school.grade(*CLASS, "--collect-only", "-q", *chosen)
    result.stdout.fnmatch_lines(collected, consecutive=True)
    result.stdout.fnmatch_lines([f"{len(collected)}/21 tests collected ({21 - len(collected)} deselected)*"])
    assert not (school.folder / ".pytest_cache/d/gpulab").exists(), "nothing is opened just to look"


def test_a_student_is_chosen_however_accents_are_written(course: Course) -> None:
    course.write("handed_in/Zoe\u0308/twice.cu", RIGHT)
    result = course.grade(*CLASS, "--collect-only", "Zoe\u0308/twice.cu::compile")
    result.stdout.fnmatch_lines(["gpulab: 1 submission of 1 student in *", "collected 7 items / 6 deselected*"])
    result = course.grade(*CLASS, "--collect-only", "-q", "Zo\u00eb")
    result.stdout.fnmatch_lines(["Zo\u00eb/twice.cu::compile"])


def test_an_unknown_name_is_a_usage_error(school: Course) -> None:
    result = school.grade(*CLASS, "an")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: an was not handed in: name a student, STUDENT/EXERCISE.cu or a check's id"])


@pytest.mark.parametrize("name", ["frank", "frank/", "frank/const.cu", "dora"])
def test_choosing_a_student_without_a_file_for_an_exercise_is_a_usage_error(school: Course, name: str) -> None:
    school.write("handed_in/frank/const.cu", RIGHT)
    result = school.grade(*CLASS, name)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    student = name.split("/")[0]
    result.stderr.fnmatch_lines([f"ERROR: nothing that {student} handed in is for an exercise"])


def test_a_student_without_a_counting_file_is_named_and_has_a_row(school: Course, kept: str) -> None:
    school.write("handed_in/frank/const.cu", RIGHT)
    school.write("handed_in/gil/notes.txt", "hello")
    school.write("handed_in/gil/Twise.cu", RIGHT)
    (school.folder / "handed_in/hal").mkdir()
    school.write("handed_in/ida/all.zip", "not packed")
    school.write("handed_in/jo/twice.cpp", RIGHT)
    reports = ("--gpulab-report=csv:grades.csv", "--gpulab-report=html:report.html", "--gpulab-feedback=pages")
    result = school.grade(*CLASS, kept, *reports)
    result.stdout.fnmatch_lines(
        [
            "dora: There is no .cu file, but notes.txt.",
            "frank: 1 file for no exercise, left out: const.cu. Name a file after its exercise: twice.cu.",
            "gil: 2 files for no exercise, left out: Twise.cu, notes.txt.",
            "hal: There is no .cu file.",
            "ida/all.zip: *",
            "jo: There is no .cu file, but twice.cpp: submissions end in .cu.",
            "*gpulab: students*",
            "frank * failed * - *",
            "gpulab: wrote grades.csv, report.html, 8 pages in pages/",
        ]
    )
    table = (school.folder / "grades.csv").read_text(encoding="utf-8-sig").splitlines()
    rows = {student: cells for student, *cells in (line.split(",") for line in table[1:])}
    assert list(rows) == ["ann", "bob", "cem", "dora", "frank", "gil", "ida", "jo"], "an empty folder has no row"
    why = {"frank": "1 file for no exercise", "gil": "2 files for no", "ida": "ida/all.zip: ", "jo": "but twice.cpp"}
    why |= {"dora": "but notes.txt"}
    for student, words in why.items():
        assert rows[student][:3] == ["", "", "0"] and words in ",".join(rows[student][3:])
    assert "left out: const.cu" in (school.folder / "pages" / "frank.html").read_text(encoding="utf-8")
    assert "frank" in (school.folder / "report.html").read_text(encoding="utf-8")


def test_other_files_of_a_student_with_a_submission_are_named_and_cost_no_points(school: Course, kept: str) -> None:
    school.write("handed_in/1/twice.cpp", RIGHT)
    school.write("roster.csv", "id,name\n1,ann\n")
    result = school.grade(*CLASS, kept, "--gpulab-roster=roster.csv", "--gpulab-report=csv:grades.csv")
    result.stdout.fnmatch_lines(["1: There is no .cu file, but twice.cpp: *", "1: several folders, 1, ann: *"])
    rows = (school.folder / "grades.csv").read_text(encoding="utf-8-sig").splitlines()
    assert [row for row in rows if row.startswith("1,")] == ["1,ann,90,90,,"]


@pytest.mark.parametrize("chosen", [["ann"], ["-k", "ann"]])
def test_a_student_who_was_not_chosen_has_no_row(school: Course, kept: str, chosen: list[str]) -> None:
    school.write("handed_in/frank/const.cu", RIGHT)
    result = school.grade(*CLASS, kept, *chosen, "--gpulab-report=csv:grades.csv")
    assert "frank" not in (school.folder / "grades.csv").read_text(encoding="utf-8-sig")
    result.stdout.fnmatch_lines(["frank: 1 file for no exercise, *"])


def test_a_student_of_the_roster_is_named_by_id_if_no_file_is_for_an_exercise(school: Course, kept: str) -> None:
    school.write("handed_in/frank/const.cu", RIGHT)
    school.write("roster.csv", "id,name,folder\n6,Frank F.,frank\n")
    school.grade(*CLASS, kept, "--gpulab-roster=roster.csv", "--gpulab-report=csv:grades.csv")
    rows = (school.folder / "grades.csv").read_text(encoding="utf-8-sig").splitlines()
    assert [row for row in rows if "1 file for no exercise" in row and row.startswith("6,Frank F.,,0,,")]


def test_an_unknown_name_leaves_the_last_reports_unchanged(school: Course, kept: str) -> None:
    school.grade(*CLASS, kept, "--gpulab-report=csv:grades.csv")
    before = (school.folder / "grades.csv").read_text()
    result = school.grade(*CLASS, kept, "--gpulab-report=csv:grades.csv", "an")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (school.folder / "grades.csv").read_text() == before


def test_the_header_names_paths_as_they_were_given(school: Course, kept: str) -> None:
    school.write("course/notes.txt", "")
    os.chdir(school.folder / "course")
    up = ("--gpulab-submissions=../handed_in", "--gpulab-exercises=../exercises", "--gpulab-store=../kept.sqlite")
    result = school.grade(*up, "-k", "nobody")
    result.stdout.fnmatch_lines(
        ["gpulab: * grades are stored in ../kept.sqlite", "gpulab: 3 submissions of 4 students in ../handed_in"]
    )


def test_the_same_command_resumes_an_interrupted_run_with_its_seed(school: Course) -> None:
    first = school.grade(*CLASS, "ann", "--gpulab-report=json:first.json")
    second = school.grade(*CLASS, "--tb=long", "-rE", "--gpulab-report=json:second.json")
    second.stdout.fnmatch_lines(["gpulab: 3/3 graded, 2 with failures; 1 of them earlier; *"])
    assert seed_of(first) == seed_of(second)
    assert grades(school, "first.json")["ann/twice.cu"] == grades(school, "second.json")["ann/twice.cu"]
    third = school.grade(*CLASS, "--gpulab-report=json:third.json")
    third.stdout.fnmatch_lines(["gpulab: 3/3 graded, 2 with failures; 3 of them earlier"])
    assert grades(school, "second.json") == grades(school, "third.json")


def seed_of(result: pytest.RunResult) -> str:
    (seed,) = re.findall(r"^Repeat this run with --gpulab-seed=(\d+)\.$", result.stdout.str(), re.M)
    return str(seed)


def test_last_failed_selects_the_submissions_with_failures(school: Course, kept: str) -> None:
    school.grade(*CLASS, kept)
    school.write("handed_in/cem/twice.cu", RIGHT)
    result = school.grade(*CLASS, kept, "--lf")
    assert result.parseoutcomes()["failed"] == 4, "bob's; cem's are mended"
    result.stdout.fnmatch_lines(["gpulab: 2/2 graded, 1 with failures; *"])


def test_exitfirst_stops_the_run_at_the_first_failure(school: Course, kept: str) -> None:
    result = school.grade(*CLASS, kept, "-x", "--gpulab-report=json:grades.json")
    assert result.parseoutcomes()["failed"] == 1
    assert list(grades(school)) == ["ann/twice.cu", "bob/twice/mine.cu"]


@pytest.mark.unmeasured
def test_regrading_lists_submissions_with_changed_points(school: Course) -> None:
    school.grade(*CLASS, "ann")
    unchanged = school.grade(*CLASS, "--gpulab-regrade", "ann")
    unchanged.stdout.re_match_lines([r"gpulab: 1/1 graded; .* per (minute|hour), in .* s$"])
    unchanged.stdout.no_fnmatch_line("*points that are not as they were*")
    school.write("exercises/twice/exercise.py", EXERCISE.replace(" 1, 20)", " 1, 25)").replace(" 31, 20)", " 31, 15)"))
    changed = school.grade(*CLASS, "ann")
    changed.stdout.fnmatch_lines(
        [
            "*gpulab: changed points*",
            "1 submission has other checks and the same points",
        ]
    )


@pytest.mark.unmeasured
def test_changed_totals_are_listed_and_renamed_checks_are_counted(school: Course) -> None:
    school.write("handed_in/eve/twice.cu", RIGHT + "// eve's\n")
    school.grade(*CLASS)
    other_tier = EXERCISE.replace("SpeedTier(1.5,", "SpeedTier(1.6,").replace(" 31, 20)", " 31, 8)")
    other_tier = other_tier.replace("SpeedTier(1000, 10,", "SpeedTier(1000, 22,")
    school.write("exercises/twice/exercise.py", other_tier)
    changed = school.grade(*CLASS, "--gpulab-report=json:grades.json")
    assert json.loads((school.folder / "grades.json").read_text())["changes"] == [
        "ann/twice.cu: 90 -> 78 points (correct[n=31] 20 -> 8, speedup[1.6x] none -> 20, speedup[1.5x] 20 -> none)",
        "eve/twice.cu: 90 -> 78 points (correct[n=31] 20 -> 8, speedup[1.6x] none -> 20, speedup[1.5x] 20 -> none)",
        "2 more have other checks and the same points",
    ]
    changed.stdout.fnmatch_lines(["*gpulab: changed points*", "ann/twice.cu: 90 -> 78 points (*"])


def test_a_mistake_of_the_exercise_is_listed_as_not_gradable_until_it_is_mended(school: Course) -> None:
    school.grade(*CLASS, "ann")
    school.write("exercises/twice/exercise.py", EXERCISE.replace("2 * inputs", "3 * inputs"))
    broken = school.grade(*CLASS, "ann")
    broken.stdout.fnmatch_lines(["ann/twice.cu: 90 -> * points (correct[[]n=1[]] * -> not gradable, *"])
    school.write("exercises/twice/exercise.py", EXERCISE)
    mended = school.grade(*CLASS, "ann")
    mended.stdout.fnmatch_lines(["ann/twice.cu: * -> 90 points (correct[[]n=1[]] not gradable -> *"])


def test_an_archive_has_the_same_ids_and_grades(school: Course, kept: str) -> None:
    with zipfile.ZipFile(school.folder / "class.zip", "w") as archive:
        for path in (school.folder / "handed_in").rglob("*.*"):
            archive.write(path, path.relative_to(school.folder / "handed_in"))
    school.grade(*CLASS, kept, "--gpulab-report=json:grades.json")
    result = school.grade("--gpulab-submissions=class.zip", kept, "--gpulab-report=json:of_zip.json")
    result.stdout.fnmatch_lines(["gpulab: 3/3 graded, 2 with failures; 3 of them earlier"])
    assert grades(school, "of_zip.json") == grades(school)


def test_the_newest_of_several_files_counts_and_is_named(school: Course, kept: str) -> None:
    older = school.write("handed_in/ann/twice/older.cu", BROKEN)
    os.utime(older, (0, 0))
    result = school.grade(*CLASS, kept, "-k", "ann and compile")
    assert result.parseoutcomes()["passed"] == 1
    result.stdout.fnmatch_lines(["ann/twice.cu (*) counts, the newest of 2 files; not ann/twice/older.cu (*)"])


def test_a_submission_that_is_a_link_fails_with_the_reason(school: Course) -> None:
    (school.folder / "handed_in" / "eve").mkdir()
    (school.folder / "handed_in" / "eve" / "twice.cu").symlink_to("../ann/twice.cu")
    result = school.grade(*CLASS, "eve", "--gpulab-report=json:grades.json")
    assert result.parseoutcomes()["failed"] == 7
    (eve,) = grades(school).values()
    assert eve["points"] == 0 and eve["student"] == "eve"
    assert eve["checks"][0]["findings"][0]["code"] == "link"
    assert {check["findings"][0]["because"] for check in eve["checks"][1:]} == {"compile"}


def test_a_file_that_became_unreadable_costs_no_points(school: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(handed_in: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pytest_gpulab.course.intake.student_files.HandedIn.read", read)
    result = school.grade(*CLASS, "ann", "--gpulab-report=json:grades.json")
    assert result.ret == NOT_WRITTEN, "nothing was graded"
    assert result.parseoutcomes()["skipped"] == 7 and "failed" not in result.parseoutcomes()
    assert grades(school)["ann/twice.cu"]["checks"][0]["findings"][0]["code"] == "unreadable"


def csv_rows(course: Course) -> list[str]:
    return (course.folder / "grades.csv").read_text(encoding="utf-8-sig").splitlines()[1:]


@pytest.mark.parametrize("chosen", [["ann"], ["-k", "ann"]])
def test_a_submission_that_was_not_chosen_does_not_count_as_missing(
    school: Course, kept: str, chosen: list[str]
) -> None:
    school.write("roster.csv", "id\nann\nbob\neve\n")
    school.grade(*CLASS, kept, *chosen, "--gpulab-roster=roster.csv", "--gpulab-report=csv:grades.csv")
    ann, bob, *_ = csv_rows(school)
    assert (ann, bob) == ("ann,,90,90,,", "bob,,,,,twice: not graded in this run")
    assert "eve,,,,,handed in nothing" in csv_rows(school)


def test_a_student_on_the_roster_with_an_empty_folder_handed_in_nothing(school: Course, kept: str) -> None:
    school.write("roster.csv", "id,name\nann,\nbob,\ncem,\ndora,\neve,Eve E.\n")
    (school.folder / "handed_in" / "eve").mkdir()
    result = school.grade(*CLASS, kept, "--gpulab-roster=roster.csv", "--gpulab-report=csv:grades.csv")
    result.stdout.fnmatch_lines(["eve: There is no .cu file.", "*gpulab: no submission*", "eve (Eve E.)"])
    assert result.outlines[-1] == "5 students: 1 passed, 3 failed, 1 handed in nothing"
    assert csv_rows(school)[-1] == "eve,Eve E.,,,,handed in nothing"


def test_every_student_has_a_row_after_a_failure_that_stops_the_run(school: Course, kept: str) -> None:
    school.grade(*CLASS, kept, "-x", "--gpulab-report=csv:grades.csv")
    notes = {row.split(",")[0]: row.split(",")[-1] for row in csv_rows(school)}
    assert list(notes) == ["ann", "bob", "cem", "dora"]
    assert "but notes.txt" in notes.pop("dora")
    assert set(notes.values()) == {"the run was stopped"}


def test_a_selection_of_checks_writes_no_scores(school: Course, kept: str) -> None:
    files = ("gradescope:scores", "feedback:pages", "csv:grades.csv", "html:report.html")
    result = school.grade(*CLASS, kept, "-k", "compile", *(f"--gpulab-report={file}" for file in files))
    assert result.ret == NOT_WRITTEN
    why = "only some of the checks were graded, and a part of the points is no result"
    result.stdout.fnmatch_lines([f"ERROR: *scores: {why}", f"ERROR: *pages: {why}"])
    assert not (school.folder / "scores").exists() and not (school.folder / "pages").exists()
    assert [row.split(",")[-1] for row in csv_rows(school)] == ["only some of the checks were graded"] * 3
    told = "Only some of the checks were graded: the points of the others are missing here."
    assert told in (school.folder / "report.html").read_text()
    school.grade(*CLASS, kept, "--gpulab-report=html:report.html")
    assert told not in (school.folder / "report.html").read_text()


def test_a_file_under_a_wrong_name_beside_a_good_one_is_named(school: Course, kept: str) -> None:
    (school.folder / "exercises/other").mkdir()
    other = (school.folder / "exercises/twice/exercise.py").read_text()
    school.write("exercises/other/exercise.py", other)
    school.write("exercises/other/naive.cu", (school.folder / "exercises/twice/naive.cu").read_text())
    school.write("handed_in/ann/othr.cu", RIGHT)
    school.write("handed_in/bob/other.cu", RIGHT)
    school.grade(*CLASS, kept, "ann", "bob", "--gpulab-report=csv:grades.csv", "--gpulab-feedback=pages")
    ann = csv_rows(school)[0]
    assert "other: not handed in; " in ann and "othr.cu" in ann
    page = (school.folder / "pages/ann.html").read_text(encoding="utf-8")
    assert "Nothing of yours was graded for other." in page and "othr.cu" in page
    assert "othr.cu" not in (school.folder / "pages/bob.html").read_text(encoding="utf-8")


def test_a_sanitizer_without_a_gpu_regrades_no_submission(school: Course, kept: str) -> None:
    school.grade(*CLASS, kept)
    result = school.grade(*CLASS, kept, "--gpulab-sanitizer")
    result.stdout.fnmatch_lines(
        ["gpulab: --gpulab-sanitizer has no effect: *", "gpulab: 3/3 graded, 2 with failures; 3 of them earlier*"]
    )

"""Wrong settings for a class: one clear line before anything is graded. And many processes without a class."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from course import BROKEN, EXERCISE, NAIVE, RIGHT, WRONG, Course

from pytest_gpulab.plugin import parallel_run

CLASS = ("--gpulab-submissions=handed_in", "--gpulab-workers=2")


def usage_error(result: pytest.RunResult) -> str:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    return "\n".join(line for line in result.errlines if line).removeprefix("ERROR: ")


DISTRIBUTED = (
    "--gpulab-submissions, --gpulab-workers and --gpulab-scheduler distribute the work already: leave out "
    "pytest-xdist's -n"
)


@pytest.mark.parametrize("number", ["0", "-1", "two", "1025", "1.5", "²"])
def test_a_number_of_processes_that_makes_no_sense(course: Course, number: str) -> None:
    line = usage_error(course.grade(f"--gpulab-workers={number}"))
    assert line == f"--gpulab-workers={number}: the number of processes is from 1 to 1024"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["--gpulab-roster=r.csv"],
            "--gpulab-roster lists the students of a class: it needs --gpulab-submissions",
        ),
        (
            ["--gpulab-regrade"],
            "--gpulab-regrade needs a store of grades: --gpulab-submissions has one, or --gpulab-store",
        ),
        (["--gpulab-submissions=nowhere"], "{here}/nowhere: there is no such folder or ZIP"),
        (["--gpulab-submissions=tox.ini"], "{here}/tox.ini: neither a folder nor a ZIP of one. *"),
        ([*CLASS, "--gpulab-roster=r.csv"], "{here}/r.csv: cannot be read: No such file or directory"),
        ([*CLASS, "--gpulab-store=tox.ini"], "{here}/tox.ini is not a store of grades: *"),
        ([*CLASS, "-n2"], DISTRIBUTED),
        (["--gpulab-workers=2", "-n1"], DISTRIBUTED),
    ],
)
def test_impossible_settings_are_refused(school: Course, options: list[str], expected: str) -> None:
    from fnmatch import fnmatchcase

    line = usage_error(school.grade(*options))
    assert fnmatchcase(line.splitlines()[0], expected.format(here=school.folder)), line


def test_a_folder_without_exercises_is_refused(school: Course) -> None:
    folder = school.folder / "exercises/twice"
    line = usage_error(school.grade(*CLASS, "--gpulab-exercises=exercises/twice"))
    assert line == f"{folder} has no exercise: a folder with an exercise.py"


def test_an_exercise_that_cannot_be_loaded_is_refused_before_grading(school: Course) -> None:
    school.write("exercises/twice/exercise.py", "import numpy\nnumpy.oops\n")
    error = usage_error(school.grade(*CLASS))
    assert error.startswith("the exercise twice cannot be loaded:\nTraceback")
    assert "exercise.py" in error and "AttributeError" in error.splitlines()[-1]


def test_an_exercise_without_submissions_may_be_broken(school: Course, kept: str) -> None:
    school.write("exercises/thrice/exercise.py", "1 / 0")
    assert school.grade(*CLASS, kept, "ann").ret == pytest.ExitCode.OK


@pytest.mark.parametrize("inside", ["handed_in", "handed_in/ann"])
def test_a_class_is_not_graded_from_within_its_submissions(school: Course, inside: str) -> None:
    school.write("handed_in/conftest.py", "raise SystemExit('imported')")
    school.write("handed_in/ann/conftest.py", "raise SystemExit('imported')")
    here = school.folder / inside
    os.chdir(here)
    result = school.grade(f"--gpulab-submissions={school.folder / 'handed_in'}", "--gpulab-exercises=../exercises")
    line = usage_error(result)
    assert line.startswith(f"{here} is inside the submissions") and line.endswith("run from the course's folder")


def test_no_conftest_of_a_folder_called_test_is_imported(school: Course, kept: str) -> None:
    school.write("test_class/ann/twice.cu", RIGHT)
    school.write("test_class/conftest.py", "raise SystemExit('imported')")
    result = school.grade("--gpulab-submissions=test_class", kept)
    assert result.ret == pytest.ExitCode.OK


def test_the_courses_own_conftest_is_loaded(school: Course, kept: str) -> None:
    school.write("conftest.py", "def pytest_report_header(): return 'hello from the course'\n")
    school.write("below/notes.txt", "")
    os.chdir(school.folder / "below")
    result = school.grade("--gpulab-submissions=../handed_in", "--gpulab-exercises=../exercises", kept, "ann")
    result.stdout.fnmatch_lines(["hello from the course"])


def test_pytests_terminal_may_be_left_out(school: Course, kept: str) -> None:
    result = school.grade(*CLASS, kept, "ann", "-p", "no:terminal", "--gpulab-report=json:grades.json")
    assert result.ret == pytest.ExitCode.OK and len(grades(school, "grades.json")) == 1


def test_without_pytests_cache_grades_are_not_kept(school: Course) -> None:
    result = school.grade(*CLASS, "-p", "no:cacheprovider", "-k", "nobody")
    result.stdout.fnmatch_lines(["gpulab: 2 processes; grades are not stored"])


def test_a_cache_that_cannot_be_written_is_refused(school: Course) -> None:
    school.write("cache", "a file, where a folder should be")
    line = usage_error(school.grade(*CLASS, "-o", "cache_dir=cache"))
    assert line == (
        "grades cannot be stored in pytest's cache: Not a directory; name a file that can be written with "
        "--gpulab-store=PATH"
    )


def test_a_process_grades_on_each_core_that_may_be_used(school: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_run, "usable_cores", lambda: 3)
    result = school.grade("--gpulab-submissions=handed_in", "-p", "no:cacheprovider", "-k", "nobody")
    result.stdout.fnmatch_lines(["gpulab: 3 processes; grades are not stored"])


def test_a_store_elsewhere_is_made_and_named(school: Course, tmp_path: Path) -> None:
    path = tmp_path / "term" / "grades.sqlite"
    result = school.grade(*CLASS, f"--gpulab-store={path}", "--gpulab-seed=12", "-k", "nobody")
    result.stdout.fnmatch_lines(["gpulab: seed 12", "gpulab: 2 processes; grades are stored in*", f"*{path}"])
    result.stdout.no_fnmatch_line("Repeat this run*")  # no check was selected
    result = school.grade(*CLASS, f"--gpulab-store={path}", "-k", "nobody")
    result.stdout.fnmatch_lines(["gpulab: seed 12"])
    with closing(sqlite3.connect(path)) as store:
        assert store.execute("SELECT COUNT(*) FROM grade").fetchone() == (0,)


def test_many_processes_grade_any_paths_as_one_does(course: Course) -> None:
    for name, text in (("right", RIGHT), ("wrong", WRONG), ("broken", BROKEN)):
        course.write(f"work/twice/{name}.cu", text)
    course.write("work/other.cu", RIGHT)
    alone = course.grade("work", "--gpulab-seed=3", "--gpulab-report=json:alone.json")
    many = course.grade("work", "--gpulab-seed=3", "--gpulab-report=json:many.json", "--gpulab-workers=2")
    assert many.ret == alone.ret and many.parseoutcomes() == alone.parseoutcomes()
    assert grades(course, "many.json") == grades(course, "alone.json")
    many.stdout.fnmatch_lines(["gpulab: 2 processes; grades are not stored", "work/twice/wrong.cu ..FF.FF *"])
    assert not (course.folder / ".pytest_cache/d/gpulab").exists()


def grades(course: Course, name: str) -> list[object]:
    """Return the grades without what differs from run to run."""
    found = json.loads((course.folder / name).read_text())["grades"]
    for grade in found:
        grade["provenance"]["details"].pop("compiled under", None)
    for check in (check for grade in found for check in grade["checks"]):
        del check["duration_s"]
        for timed in filter(None, [check["measurement"]]):
            del timed["reference_ms"]
    return list(found)


def test_a_file_that_cannot_be_read_is_reported_by_pytest(course: Course) -> None:
    (course.folder / "twice.cu").symlink_to("nowhere.cu")
    course.write("right/twice.cu", RIGHT)
    result = course.grade("right/twice.cu", "twice.cu", "--gpulab-workers=1", "-k", "compile")
    assert result.ret != pytest.ExitCode.INTERNAL_ERROR


def test_a_run_of_many_processes_lists_nothing_but_files(course: Course) -> None:
    course.write("exercises/thrice/exercise.py", EXERCISE)
    course.write("exercises/thrice/naive.cu", NAIVE)
    course.write("exercises/thrice/thrice.cu", RIGHT)
    result = course.grade("--gpulab-workers=1", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["exercises/thrice/thrice.cu::compile", "7 tests collected*"])

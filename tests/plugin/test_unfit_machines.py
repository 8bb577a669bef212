"""Machines with something missing or replaced: one line names it, and no point is lost."""

from __future__ import annotations

import csv
import errno
import zipfile

import pytest
from course import RIGHT, WITHOUT, WRONG, Course
from test_settings import usage_error

WITHOUT_NVIDIAS_PACKAGES = """
import sys

sys.platform = "darwin"
sys.modules["pycuda"] = sys.modules["cuda"] = sys.modules["nvidia"] = None
"""


def grade(course: Course, *args: str) -> pytest.RunResult:
    course.write("twice.cu", RIGHT)
    return course.pytester.runpytest_subprocess(*WITHOUT, "--gpulab", *args, "twice.cu")


@pytest.mark.parametrize("options", [["--gpulab-device=auto"], ["--gpulab-device=sim"], ["--gpulab-timeout=9"]])
def test_on_a_mac_a_line_says_where_to_grade(course: Course, options: list[str]) -> None:
    course.write("mac.py", WITHOUT_NVIDIAS_PACKAGES)
    said = usage_error(grade(course, "-p", "mac", *options))
    assert "not for macOS: grade in a Linux container or on a Linux machine" in said


@pytest.mark.parametrize("name", ["cuda", "nvidia"])
@pytest.mark.parametrize("options", [["--gpulab-device=auto"], ["--gpulab-device=sim"], ["--gpulab-timeout=9"]])
def test_a_file_named_as_nvidias_package_is_named(
    course: Course, monkeypatch: pytest.MonkeyPatch, name: str, options: list[str]
) -> None:
    hiding = course.write(f"mine/{name}.py", "")
    monkeypatch.setenv("PYTHONPATH", str(hiding.parent))
    told = usage_error(grade(course, *options))
    assert told == f"{hiding} hides NVIDIA's package `{name}`: rename it, or start pytest in another folder"


def test_a_file_named_as_numpy_is_named(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    hiding = course.write("mine/numpy.py", "")
    monkeypatch.setenv("PYTHONPATH", str(hiding.parent))
    told = usage_error(grade(course))
    assert told == f"{hiding} hides the package `numpy`: rename it, or start pytest in another folder"


def test_beside_pycuda_it_is_named_too(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    hiding = course.write("mine/cuda.py", "")
    course.write("mine/pycuda/__init__.py", "")
    monkeypatch.setenv("PYTHONPATH", str(hiding.parent))
    assert "cuda.py hides NVIDIA's package `cuda`" in usage_error(grade(course, "--gpulab-device=cuda"))


def graded_class(course: Course, *args: str) -> pytest.RunResult:
    course.write("class/anna/twice.cu", RIGHT)
    return course.grade_apart("--gpulab-submissions=class", "--gpulab-workers=1", *args)


@pytest.mark.parametrize("is_packed", [False, True])
def test_names_with_any_letters_are_graded_where_the_locale_has_ascii_only(
    course: Course, monkeypatch: pytest.MonkeyPatch, is_packed: bool
) -> None:
    files = {"Zoë Müller/übung/twice.cu": RIGHT, "Łukasz_4_assignsubmission_file_/twice/lösung.cu": WRONG}
    for name, source in files.items():
        course.write(f"class/{name}", source)
    with zipfile.ZipFile(course.folder / "class.zip", "w") as packed:
        for name, source in files.items():
            packed.writestr(name, source)
    course.write("roster.csv", "id,name\n1,Zoë Müller\n2,Łukasz\n3,Öhm\n")
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    of_class = f"--gpulab-submissions=class{'.zip' * is_packed}"
    options = (of_class, "--gpulab-workers=1", "--gpulab-roster=roster.csv", "--gpulab-report=csv:grades.csv")
    assert course.grade_apart(*options).ret == pytest.ExitCode.TESTS_FAILED
    rows = list(csv.DictReader((course.folder / "grades.csv").read_text("utf-8-sig").splitlines()))
    assert [(row["student"], row["name"], row["total"]) for row in rows] == [
        ("1", "Zoë Müller", "90"),
        ("2", "Łukasz", "30"),
        ("3", "Öhm", ""),
    ]
    assert "Zoë Müller/übung/twice.cu" in (course.folder / "grades-details.csv").read_text("utf-8-sig")
    chosen = course.grade_apart(*options[:2], "Zoë Müller")
    chosen.stdout.fnmatch_lines(["1 student: 1 passed"])


WITHOUT_LOCKS = f"""
import fcntl

def refuse(*asked):
    raise OSError({errno.ENOLCK}, "No locks available")

fcntl.lockf = refuse
"""


def test_a_store_on_a_drive_without_locks_is_a_usage_error(course: Course) -> None:
    course.write("no_locks.py", WITHOUT_LOCKS)
    assert usage_error(graded_class(course, "-p", "no_locks", "--gpulab-store=grades.sqlite")) == (
        f"the drive of {course.folder} has no file locks (No locks available); name a file on a disk of this "
        "machine with --gpulab-store=PATH"
    )


def test_a_read_only_course_folder_costs_nothing_where_warnings_are_errors(course: Course) -> None:
    """The course's own pytest.ini says so."""
    course.write("a_file", "no folder can be made below it")
    result = grade(course, "-o", "cache_dir=a_file/cache", "--gpulab-device=sim", "-k", "compile")
    assert result.ret == pytest.ExitCode.OK and not (course.folder / ".pytest_cache").exists()
    result.stdout.fnmatch_lines(["*PytestCacheWarning: could not create cache path*", "*1 passed*"])
    assert "Traceback" not in result.stderr.str()

"""A class run where processes do not start, the disk is full, or the store or an exercise cannot be read."""

from __future__ import annotations

import sys
import zipfile

import pytest
from course import RIGHT, Course
from test_class_runs import CLASS, grades, points

from pytest_gpulab.course.executors import processes
from pytest_gpulab.course.store import Store, StoreError
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.isolation import worker_process
from pytest_gpulab.plugin.hooks import NOT_WRITTEN


def test_processes_that_do_not_start_cost_no_points(school: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(processes.worker, "PROGRAM", "1 / 0")
        patched.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", "1 / 0"))
        result = school.grade(*CLASS, "--gpulab-report=json:grades.json")
    assert result.ret == NOT_WRITTEN, "nothing was graded"
    result.stdout.fnmatch_lines(["gpulab: 0/3 graded, 3 not gradable"])
    assert {check["verdict"] for check in grades(school)["bob/twice/mine.cu"]["checks"]} == {"not gradable"}
    again = school.grade(*CLASS, "ann")
    again.stdout.re_match_lines([r"gpulab: 1/1 graded; .* per (minute|hour), in .* s$"])


def test_grades_that_cannot_be_kept_count_all_the_same(school: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(store: Store, key: str, grade: Grade) -> Grade:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "put", put)
    result = school.grade(*CLASS, "ann", "--gpulab-report=json:grades.json")
    assert result.ret == NOT_WRITTEN and points(school) == {"ann/twice.cu": 90}
    result.stdout.fnmatch_lines(["ERROR: 1 grade is not stored: the disk is full"])


def test_a_disk_that_is_full_at_the_very_end_costs_no_report(school: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(store: Store, keys: dict[str, str]) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "settle", settle)
    result = school.grade(*CLASS, "ann", "--gpulab-report=json:grades.json")
    assert result.ret == NOT_WRITTEN and points(school) == {"ann/twice.cu": 90}
    result.stdout.fnmatch_lines(["ERROR: changed points are not noted for later runs: the disk is full"])


def test_a_damaged_store_is_reported_before_anything_is_graded(school: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(store: Store, key: str) -> Grade:
        raise StoreError("grades.sqlite is not a store of grades: database disk image is malformed")

    monkeypatch.setattr(Store, "get", get)
    result = school.grade(*CLASS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: grades.sqlite is not a store of grades: database disk image is malformed"])


def test_an_exercise_that_cannot_be_read_is_no_students_fault(school: Course) -> None:
    with zipfile.ZipFile(school.folder / "class.zip", "w") as archive:
        archive.writestr("ann/twice.cu", RIGHT)
    exercise = school.folder / "exercises/twice"
    (exercise / "notes.txt").symlink_to("/proc/self/mem")  # what nobody can read, not even root
    result = school.grade("--gpulab-submissions=class.zip", "--gpulab-workers=1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: an exercise cannot be read: {exercise}: Input/output error"])

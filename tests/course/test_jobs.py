"""Grading jobs: pure, picklable, and with a key that changes with all that a grade depends on and nothing else."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from trouble import SOURCE, exercises_in, job

from pytest_gpulab.course import jobs
from pytest_gpulab.course.jobs import (
    GradingSettings,
    Job,
    NotGraded,
    content_sha256,
    device_model,
    files_of,
    graded,
    graded_apart,
)
from pytest_gpulab.devices.protocol import DeviceInfo, DeviceUnavailable
from pytest_gpulab.devices.simulated.module import SimulatedModule
from pytest_gpulab.grading.catalogue import Thresholds
from pytest_gpulab.grading.checks import Check
from pytest_gpulab.grading.findings import of_error
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.isolation.remote import RemoteGrader
from pytest_gpulab.grading.isolation.worker_process import ProcessScope

INFO = DeviceInfo("cuda", "NVIDIA H200", "nvcc 13.0", "sm_90", False, {"SMs": "132"})


@pytest.fixture
def exercises(tmp_path: Path) -> Path:
    return exercises_in(tmp_path)


@pytest.fixture
def right(exercises: Path) -> Job:
    return job(exercises, SOURCE % 0)


def test_a_job_that_went_through_a_pickle_gives_the_same_grade(right: Job) -> None:
    grade, again = graded(right), graded(pickle.loads(pickle.dumps(right)))
    assert (grade.submission, grade.student, grade.exercise, grade.points) == ("ann/twice.cu", "ann", "twice", 100)
    assert [replace(check, duration_s=0) for check in grade.checks] == [
        replace(check, duration_s=0) for check in again.checks
    ]
    assert grade.provenance == again.provenance and grade.provenance.seed == 7


def test_the_same_work_has_one_key_for_all_students_and_machines(right: Job) -> None:
    other = replace(
        right, label="bob/twice.cu", student="bob", exercises=Path("/elsewhere"), settings=on_gpu(right, "cuda:1")
    )
    assert other.key("H200") == replace(right, settings=on_gpu(right, "cuda:0")).key("H200")


def on_gpu(job: Job, device: str) -> GradingSettings:
    return replace(job.settings, device=device)


@pytest.mark.parametrize(
    "change",
    [
        {"source": b"another"},
        {"filename": "other.cu"},
        {"exercise": "thrice"},
        {"exercise_sha256": "0"},
        {"settings": GradingSettings("sim", seed=8, timeout_s=60.0)},
        {"settings": GradingSettings("sim", seed=7, timeout_s=61.0)},
        {"settings": GradingSettings("sim", seed=7, timeout_s=60.0, annotate=True)},
        {"settings": GradingSettings("sim", seed=7, timeout_s=60.0, thresholds=Thresholds("ours", {"2x": 1.9}))},
    ],
)
def test_everything_that_a_grade_depends_on_changes_its_key(right: Job, change: dict[str, object]) -> None:
    assert replace(right, **change).key("H200") != right.key("H200")


def test_another_device_and_another_version_make_another_key(right: Job) -> None:
    assert len({right.key("H200"), right.key("T4"), right.key("H200", "0.0")}) == 3


@pytest.mark.parametrize(
    "change", [{"name": "T4"}, {"kind": "simulated"}, {"compiler": "nvcc 14"}, {"details": {"SMs": "1"}}]
)
def test_a_model_is_known_by_kind_name_size_and_compiler(change: dict[str, object]) -> None:
    assert device_model(INFO._replace(**change)) != device_model(INFO)  # type: ignore[arg-type]
    assert device_model(INFO._replace(details={"SMs": "132", "driver": "580"})) == device_model(INFO)


def test_an_exercise_is_what_its_folder_holds_without_caches(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "exercise.py").write_text("a")
    (tmp_path / "sub" / "data.bin").write_text("b")
    before = content_sha256(tmp_path)
    for name in ("__pycache__", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("c")
    assert content_sha256(tmp_path) == before
    (tmp_path / "sub" / "data.bin").rename(tmp_path / "sub" / "other.bin")
    renamed = content_sha256(tmp_path)
    (tmp_path / "sub" / "other.bin").write_text("c")
    assert len({before, renamed, content_sha256(tmp_path)}) == 3


def test_the_target_of_a_link_in_an_exercise_is_part_of_it(tmp_path: Path) -> None:
    shared, exercise = tmp_path / "shared", tmp_path / "exercise"
    for folder in (shared / "data", exercise):
        folder.mkdir(parents=True)
    (shared / "helpers.py").write_text("a")
    (shared / "data" / "around").symlink_to(shared)
    for name in ("shared", "again"):
        (exercise / name).symlink_to(shared)
    before = content_sha256(exercise)
    assert [path.relative_to(exercise).as_posix() for path in files_of(exercise)] == [
        "again/helpers.py",
        "shared/helpers.py",
    ]
    (shared / "helpers.py").write_text("b")
    assert content_sha256(exercise) != before


def test_a_file_of_an_exercise_may_have_any_name(tmp_path: Path) -> None:
    before = content_sha256(tmp_path)
    (tmp_path / os.fsdecode(b"l\xf6sung.txt")).touch()
    assert content_sha256(tmp_path) != before


def test_an_exercise_that_cannot_be_loaded_costs_no_point(right: Job) -> None:
    (right.exercises / "twice" / "exercise.py").write_text("1 / 0")
    with pytest.raises(NotGraded, match=r"(?s)^exercise .twice. cannot be loaded:.*ZeroDivisionError"):
        graded(right)


def test_a_grade_by_another_exercise_than_the_job_was_made_for_is_none(right: Job) -> None:
    (right.exercises / "twice" / "naive.cu").write_text("// changed while the class is graded")
    with pytest.raises(NotGraded, match=r"^the exercise twice was changed while its submissions were graded$"):
        graded(right)


def test_a_missing_device_costs_no_point(right: Job) -> None:
    absent = replace(right, settings=replace(right.settings, device="cuda:99"))
    with pytest.raises(NotGraded, match=r"PyCUDA|GPU|CUDA device"):
        graded_apart(absent)


def test_a_full_device_costs_no_point(right: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's context is made while nvcc is at work, so that this shows with the first check."""
    ran: list[str] = []

    class Full:
        def __init__(self, *told: object) -> None:
            self.close = lambda: None

        def begin(self) -> None:
            return None

        def run(self, check: Check) -> CheckResult:
            ran.append(check.name)
            verdict, found = of_error(DeviceUnavailable("not enough GPU memory for another process"))
            return check.result(verdict, (found,))

    monkeypatch.setattr(jobs, "RemoteGrader", Full)
    with pytest.raises(NotGraded, match=r"^The device failed: not enough GPU memory for another process$"):
        graded_apart(right)
    assert ran == ["compile"]


def test_a_bug_of_the_plugin_costs_no_point_and_shows_its_traceback(right: Job) -> None:
    with pytest.raises(NotGraded, match=r"(?s)^bug in pytest-gpulab: FileNotFoundError: .*\nTraceback.*NotFoundError"):
        graded(replace(right, filename="no/such/folder.cu"))


def test_the_error_for_missing_memory_can_be_pickled(right: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grader, "grade", lambda grader: np.empty(2**62, np.int8))
    with pytest.raises(MemoryError, match="Unable to allocate") as caught:
        graded(right)
    assert type(pickle.loads(pickle.dumps(caught.value))) is MemoryError


def test_results_of_ended_processes_are_no_grades(right: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cross-check that was ended has no result, and the check passes without it."""
    scope = ProcessScope()

    def run(grader: RemoteGrader, check: Check) -> CheckResult:
        if check.name == "correct[n=1001]":
            scope.end()
        return check.result("passed")

    monkeypatch.setattr(RemoteGrader, "run", run)
    assert {check.verdict for check in graded_apart(right).checks} == {"passed"}
    with pytest.raises(CancelledError):
        graded_apart(right, None, scope)


def test_a_launch_without_memory_is_left_to_another_process(right: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedModule, "launch", lambda *args, **more: np.empty(2**62, np.int8))
    with pytest.raises(MemoryError, match="this process had no memory left"):
        graded(right)

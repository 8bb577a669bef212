"""The jobs of a run: graded once, kept at once, counted as they come."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gpulab.course.jobs import GradingSettings, Job, NotGraded
from pytest_gpulab.course.schedule import AwaitedGrader, RefusedGrader, Schedule
from pytest_gpulab.course.store import Store, StoreError
from pytest_gpulab.grading.checks import Check
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Provenance

PROVENANCE = Provenance("GPU", "simulated", "sm_90", "nvrtc", 7, "1", "0.1", "abc")
COMPILES = Check("compile", "compile", 10.0, True, None)
IS_RIGHT = Check("correct[n=1]", "correct", 90.0, True, None)


class Handmade:
    """An executor whose jobs the test does."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, Future[Grade]]] = []
        self.is_closed = False

    def submit(self, job: Job) -> Future[Grade]:
        future: Future[Grade] = Future()
        future.set_running_or_notify_cancel()
        self.jobs.append((job, future))
        return future

    def cancel(self) -> None:
        raise AssertionError("whoever closes need not cancel")

    def close(self) -> None:
        self.is_closed = True

    def do(self, number: int, verdict: str = "passed", code: str = "wrong-result") -> Grade:
        job, future = self.jobs[number]
        found = () if verdict == "passed" else (Finding(code, "It is."),)
        points = 90.0 if verdict == "passed" else 0.0
        right = CheckResult("correct[n=1]", "correct", verdict, points, 90.0, found)  # type: ignore[arg-type]
        compiles = CheckResult("compile", "compile", "passed", 10.0, 10.0)
        grade = Grade(job.label, job.exercise, (compiles, right), PROVENANCE, job.student)
        future.set_result(grade)
        return grade


@pytest.fixture
def executor() -> Handmade:
    return Handmade()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "grades.sqlite")) as opened:
        yield opened


def job(student: str, source: str = "kernel") -> Job:
    settings = GradingSettings("sim", seed=7)
    return Job(f"{student}/x.cu", student, "x", "x.cu", source.encode(), Path("exercises"), "0", settings)


def test_equal_submissions_are_graded_once_and_counted_each(executor: Handmade) -> None:
    schedule = Schedule(executor, "GPU")
    first, second, other = (schedule.add(job(*given)) for given in (("ann",), ("bob",), ("cem", "other")))
    assert len(executor.jobs) == 2
    executor.do(0, "failed")
    assert first.result().points == second.result().points == 10 and not other.done()
    progress = schedule.progress()
    assert (progress.total, progress.graded, progress.failing, progress.running) == (3, 2, 2, ("cem/x.cu",))


def test_a_grade_is_kept_before_anyone_sees_it_and_not_made_again(executor: Handmade, store: Store) -> None:
    schedule = Schedule(executor, "GPU", store)
    seen: list[Grade | None] = []
    schedule.add(job("ann")).add_done_callback(lambda _: seen.append(store.get(job("ann").key("GPU"))))
    made = executor.do(0)
    assert [grade.checks for grade in seen if grade] == [made.checks]
    again = Schedule(executor, "GPU", store)
    assert again.add(job("bob")).result().checks == made.checks and len(executor.jobs) == 1
    assert (again.progress().stored, again.progress().graded) == (1, 0)


def test_another_model_of_a_gpu_makes_another_grade(executor: Handmade, store: Store) -> None:
    Schedule(executor, "H200", store).add(job("ann"))
    executor.do(0)
    assert not Schedule(executor, "T4", store).add(job("ann")).done()


def test_of_two_runs_the_first_grade_holds_for_both(executor: Handmade, store: Store) -> None:
    one, other = (Schedule(executor, "GPU", store).add(job("ann")) for _ in range(2))
    executor.do(0, "failed")
    executor.do(1, "passed")
    assert one.result().points == other.result().points == 10


@pytest.mark.parametrize(
    ("verdict", "code", "is_kept"),
    [
        ("failed", "wrong-result", True),
        ("not gradable", "cannot-simulate", True),
        ("not gradable", "device-fault", False),
        ("not gradable", "not-counted", False),
        ("failed", "device-fault", True),
    ],
)
def test_a_fault_that_may_pass_is_not_kept(
    executor: Handmade, store: Store, verdict: str, code: str, is_kept: bool
) -> None:
    schedule = Schedule(executor, "GPU", store)
    graded = schedule.add(job("ann"))
    executor.do(0, verdict, code)
    assert graded.result().checks[1].verdict == verdict
    assert (store.get(job("ann").key("GPU")) is not None) == is_kept


def test_ungradable_submissions_cost_nothing_and_are_not_stored(executor: Handmade, store: Store) -> None:
    schedule = Schedule(executor, "GPU", store)
    grader = AwaitedGrader(schedule.add(job("ann")), PROVENANCE)
    executor.jobs[0][1].set_exception(NotGraded("Traceback\n  line 3\nOops: gone"))
    result = grader.run(IS_RIGHT)
    assert (result.verdict, result.points, result.max_points) == ("not gradable", 0.0, 90.0)
    (found,) = result.findings
    assert (found.code, found.evidence) == ("not-graded", ("  line 3", "Oops: gone"))
    assert found.what == "The submission could not be graded: Traceback"
    assert grader.provenance == PROVENANCE
    assert (schedule.progress().lost, schedule.progress().graded) == (1, 0)
    assert store.get(job("ann").key("GPU")) is None


def test_a_grade_counts_even_if_the_store_does_not_take_it(
    executor: Handmade, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(key: str, grade: Grade) -> Grade:
        raise StoreError("the disk is full")

    schedule = Schedule(executor, "GPU", store)
    graded = schedule.add(job("ann"))
    monkeypatch.setattr(store, "put", put)
    assert executor.do(0) == graded.result()
    assert schedule.not_kept == ["the disk is full"]


def test_a_grader_waits_for_its_grade(executor: Handmade) -> None:
    grader = AwaitedGrader(Schedule(executor, "GPU").add(job("ann")), PROVENANCE)
    assert not grader.is_done(0.01)
    made = executor.do(0, "failed")
    assert grader.is_done(0.01) and grader.run(IS_RIGHT) == made.checks[1] and grader.run(COMPILES) == made.checks[0]
    assert grader.provenance == made.provenance


def test_a_refused_submission_gets_its_reason_once() -> None:
    grader = RefusedGrader("failed", finding("too-large", "It is too large."), PROVENANCE)
    first, second = grader.run(COMPILES), grader.run(IS_RIGHT)
    assert (first.verdict, first.findings[0].code, first.findings[0].because) == ("failed", "too-large", "")
    assert (second.verdict, second.findings[0].because, second.points) == ("failed", "compile", 0.0)


def test_changed_points_are_relative_to_the_last_complete_run(executor: Handmade, tmp_path: Path) -> None:
    path = tmp_path / "regraded.sqlite"
    first = Schedule(executor, "GPU", Store(path))
    first.add(job("ann"))
    executor.do(0)
    first.settle()
    first.close()
    second = Schedule(executor, "GPU", Store(path, regrade=True))
    second.add(job("ann"))
    executor.do(1, "failed")
    (regraded,) = second.regraded()
    second.close()
    assert (regraded.submission, regraded.points_before, regraded.points_after) == ("ann/x.cu", 100.0, 10.0)
    (change,) = regraded.changes
    assert (change.check, change.points_before, change.points_after) == ("correct[n=1]", 90.0, 0.0)
    assert executor.is_closed


def test_time_without_a_grade_is_counted_from_the_last_one(executor: Handmade) -> None:
    now_s = [100.0]
    schedule = Schedule(executor, "GPU", clock=lambda: now_s[0])
    for student in ("ann", "bob"):
        schedule.add(job(student, student))
    now_s[0] = 103.0
    assert schedule.progress().quiet_s == 3.0
    executor.do(0)
    now_s[0] = 108.0
    assert (schedule.progress().quiet_s, schedule.progress().elapsed_s) == (5.0, 8.0)


def test_submissions_that_were_not_graded_again_are_not_compared(executor: Handmade, store: Store) -> None:
    first = Schedule(executor, "GPU", store)
    first.add(job("ann"))
    made = executor.do(0)
    first.settle()
    second = Schedule(executor, "T4", store)
    second.add(job("ann"))
    executor.jobs[1][1].set_exception(NotGraded("gone"))
    store.put(job("ann").key("T4"), replace(made, checks=made.checks[:1]))  # by another run, meanwhile
    assert second.regraded() == ()


def test_without_a_store_nothing_is_compared(executor: Handmade) -> None:
    schedule = Schedule(executor, "GPU")
    schedule.add(replace(job("ann"), student="someone else"))
    schedule.settle()
    assert schedule.regraded() == ()

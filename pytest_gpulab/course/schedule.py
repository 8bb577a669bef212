"""The schedule of a run: grades come from the store or from an executor, and are stored as soon as they are made.

Equal jobs, of students who handed in the same, are graded once.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial

from pytest_gpulab.course.executors.processes import Executor
from pytest_gpulab.grading.checks import Check, CheckGrader
from pytest_gpulab.grading.findings import because_of, finding
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Provenance, Verdict

from .jobs import Job, NotGraded
from .progress import Progress
from .store import Change, Store, StoreError

PASSING_FAULTS = ("device-fault", "not-counted", "no-memory")
"""Codes of temporary causes: a grade with them is not stored, so that the next run grades the submission again."""


@dataclass(frozen=True)
class Regraded:
    """A submission with changed points, in total or in a check."""

    submission: str
    points_before: float
    points_after: float
    changes: tuple[Change, ...]

    @property
    def has_other_points(self) -> bool:
        """True if its total changed."""
        return not math.isclose(self.points_before, self.points_after, abs_tol=1e-6)


class Schedule:
    """The jobs of a run, started in the order in which they were added.

    The executor is closed with the schedule. `model` is the device, from `device_model`. Without a store, grades do not
    survive the run.
    """

    def __init__(
        self, executor: Executor, model: str, store: Store | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._executor, self._model, self._store, self._clock = executor, model, store, clock
        self._labels: dict[str, list[str]] = {}
        self._grades: dict[str, Future[Grade]] = {}
        self._graded: dict[str, Future[Grade]] = {}
        self._begin_s = self._last_s = clock()
        self.not_kept: list[str] = []  # a reason per grade that the store did not take
        self._is_closed = False

    def add(self, job: Job) -> Future[Grade]:
        """Have a job graded, unless its grade is known; the future may also have `NotGraded`.

        The grade has the label of the first equal submission, or none.
        """
        key = job.key(self._model)
        self._labels.setdefault(key, []).append(job.label)
        if key not in self._grades:
            self._grades[key] = self._known(key) or self._begun(key, job)
        return self._grades[key]

    def _known(self, key: str) -> Future[Grade] | None:
        grade = None if self._store is None else self._store.get(key)
        if grade is None:
            return None
        known: Future[Grade] = Future()
        known.set_result(grade)
        return known

    def _begun(self, key: str, job: Job) -> Future[Grade]:
        kept: Future[Grade] = Future()
        self._graded[key] = graded = self._executor.submit(job)
        graded.add_done_callback(partial(self._keep, key, kept))
        return kept

    def _keep(self, key: str, kept: Future[Grade], graded: Future[Grade]) -> None:
        """Store a grade before it is reported; called in a thread of the executor."""
        try:
            grade = graded.result()
            if self._store is not None and _is_lasting(grade):
                grade = self._put(self._store, key, grade)
        except BaseException as error:  # CancelledError, too: the waiting thread raises it
            kept.set_exception(error)
        else:
            self._last_s = self._clock()
            kept.set_result(grade)

    def _put(self, store: Store, key: str, grade: Grade) -> Grade:
        """Store a grade; on a full disk only its storage is lost."""
        try:
            return store.put(key, grade)
        except StoreError as error:
            self.not_kept.append(str(error))
            return grade

    def progress(self) -> Progress:
        """Return the progress in submissions."""
        done = [key for key, kept in self._grades.items() if kept.done()]
        lost = [key for key in done if self._grades[key].exception() is not None]
        graded = [key for key in done if key not in lost]
        now_s = self._clock()
        return Progress(
            total=self._count(self._grades),
            stored=self._count(key for key in graded if key not in self._graded),
            graded=self._count(key for key in graded if key in self._graded),
            failing=self._count(key for key in graded if _fails(self._grades[key].result())),
            lost=self._count(lost),
            running=tuple(self._labels[key][0] for key, graded in self._graded.items() if graded.running()),
            elapsed_s=now_s - self._begin_s,
            quiet_s=now_s - self._last_s,
        )

    def _count(self, keys: Iterable[str]) -> int:
        return sum(len(self._labels[key]) for key in keys)

    def regraded(self) -> tuple[Regraded, ...]:
        """Return the submissions with other points than in the last settled run; all jobs are done."""
        if self._store is None:
            return ()
        keys = {label: key for label, key in self._keys().items() if self._grades[key].exception() is None}
        by_submission: dict[str, list[Change]] = {}
        for change in self._store.changes(keys):
            by_submission.setdefault(change.submission, []).append(change)
        return tuple(
            _regraded(label, self._grades[keys[label]].result(), changes) for label, changes in by_submission.items()
        )

    def settle(self) -> None:
        """Settle the run: later runs are compared with its points."""
        if self._store is not None:
            self._store.settle(self._keys())

    def _keys(self) -> dict[str, str]:
        return {label: key for key, labels in self._labels.items() for label in labels}

    def close(self) -> None:
        """Stop unfinished jobs and end all processes. Finished grades stay in the store. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._executor.close()
            if self._store is not None:
                self._store.close()


class AwaitedGrader(CheckGrader):
    """A grader that waits for a job that runs elsewhere, with its provenance as far as it is known beforehand."""

    def __init__(self, grade: Future[Grade], provenance: Provenance) -> None:
        self._grade, self._expected = grade, provenance

    @property
    def provenance(self) -> Provenance:
        """The inputs of the grade."""
        return self._expected if self._grade.exception() else self._grade.result().provenance

    def is_done(self, wait_s: float) -> bool:
        """Wait for a limited time; return whether the job is done."""
        wait((self._grade,), wait_s)
        return self._grade.done()

    @property
    def is_graded(self) -> bool:
        """True if there is a grade, and not an error."""
        return self._grade.done() and self._grade.exception() is None

    def run(self, check: Check) -> CheckResult:
        """Return a check's result, once the submission is graded."""
        try:
            results = self._grade.result().checks
        except NotGraded as error:
            first, *evidence = str(error).strip().splitlines()
            what = f"The submission could not be graded: {first}"
            return check.result("not gradable", (finding("not-graded", what, evidence=evidence),))
        return next(result for result in results if result.name == check.name)

    def close(self) -> None:
        """No-op: the executor ends the processes that it started."""


class RefusedGrader(CheckGrader):
    """A grader of a submission that cannot be graded."""

    def __init__(self, verdict: Verdict, reason: Finding, provenance: Provenance) -> None:
        self._verdict, self._reason = verdict, reason
        self._provenance = provenance

    @property
    def provenance(self) -> Provenance:
        """The inputs of the grade, as far as they are known."""
        return self._provenance

    def run(self, check: Check) -> CheckResult:
        """Return the verdict, with the reason on the first check."""
        reason = self._reason if check.kind == "compile" else because_of("compile", self._reason)
        return check.result(self._verdict, (reason,))

    def close(self) -> None:
        """No-op: there are no resources."""


def _regraded(submission: str, grade: Grade, changes: Sequence[Change]) -> Regraded:
    gained = _sum(each.points_after for each in changes) - _sum(each.points_before for each in changes)
    return Regraded(submission, grade.points - gained, grade.points, tuple(changes))


def _sum(points: Iterable[float | str | None]) -> float:
    return sum(each for each in points if isinstance(each, float | int))


def _is_lasting(grade: Grade) -> bool:
    faults = [check.findings for check in grade.checks if check.verdict == "not gradable"]
    return not any(found.code in PASSING_FAULTS for findings in faults for found in findings)


def _fails(grade: Grade) -> bool:
    return any(check.verdict == "failed" for check in grade.checks)

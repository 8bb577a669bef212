"""The jobs of a run: what the store holds is taken from there, the rest is graded and put there as soon as it is done.

Equal jobs, of students who handed in the same, are graded once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial

from pytest_gpulab.course.executors.processes import Executor
from pytest_gpulab.grading.checks import Check
from pytest_gpulab.grading.findings import because_of, finding
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Provenance, Verdict

from .jobs import Job, NotGraded
from .progress import Progress
from .store import Change, Store, StoreError

PASSING_FAULTS = ("device-fault", "not-counted", "no-memory")
"""Codes of what keeps a check from being graded and may be gone when the submission is graded the next time."""


@dataclass(frozen=True)
class Regraded:
    """A submission that has not the points that it had, in all or in some check."""

    submission: str
    points_before: float
    points_after: float
    changes: tuple[Change, ...]

    @property
    def has_other_points(self) -> bool:
        """Whether it earned more or less than before."""
        return not math.isclose(self.points_before, self.points_after, abs_tol=1e-6)


class Schedule:
    """Has jobs graded, each in its own time, in the order in which they were added.

    Args:
        executor: runs the jobs; closed with the schedule.
        model: of the device, as `device_model` says it.
        store: keeps grades; None where they need not survive the run.
        clock: tells seconds.

    Attributes:
        not_kept: for each grade that the store did not take, why.
    """

    def __init__(
        self, executor: Executor, model: str, store: Store | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._executor, self._model, self._store, self._clock = executor, model, store, clock
        self._labels: dict[str, list[str]] = {}
        self._grades: dict[str, Future[Grade]] = {}
        self._graded: dict[str, Future[Grade]] = {}
        self._begin_s = self._last_s = clock()
        self.not_kept: list[str] = []
        self._is_closed = False

    def add(self, job: Job) -> Future[Grade]:
        """Have a job graded, unless its grade is known.

        Returns:
            The grade, in the name of whoever handed in the same first, or in nobody's, or `NotGraded`.
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
        """Put a grade where it survives the run before anyone sees it; called in a thread of the executor's."""
        try:
            grade = graded.result()
            if self._store is not None and _is_lasting(grade):
                grade = self._put(self._store, key, grade)
        except BaseException as error:  # CancelledError, too, is for whoever waits
            kept.set_exception(error)
        else:
            self._last_s = self._clock()
            kept.set_result(grade)

    def _put(self, store: Store, key: str, grade: Grade) -> Grade:
        """A full disk must not cost a grade, only that it is kept."""
        try:
            return store.put(key, grade)
        except StoreError as error:
            self.not_kept.append(str(error))
            return grade

    def progress(self) -> Progress:
        """Say how far it has come, in submissions."""
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
        """Return those whose points differ from what they were when the last run settled; all jobs are done."""
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
        """Take what was graded for final: later runs are compared with it."""
        if self._store is not None:
            self._store.settle(self._keys())

    def _keys(self) -> dict[str, str]:
        return {label: key for key, labels in self._labels.items() for label in labels}

    def close(self) -> None:
        """Stop what is not done, and end all processes; what is done stays in the store. Once is enough."""
        if not self._is_closed:
            self._is_closed = True
            self._executor.close()
            if self._store is not None:
                self._store.close()


class AwaitedGrader:
    """What a `Grader` says, of a submission that is graded elsewhere: the same interface.

    Args:
        grade: what `Schedule.add` returned.
        provenance: what the grade depends on, as far as that is known beforehand.
    """

    def __init__(self, grade: Future[Grade], provenance: Provenance) -> None:
        self._grade, self._expected = grade, provenance

    @property
    def provenance(self) -> Provenance:
        """What the grade depends on."""
        return self._expected if self._grade.exception() else self._grade.result().provenance

    def is_done(self, patience_s: float) -> bool:
        """Wait a little and say whether it is graded."""
        wait((self._grade,), patience_s)
        return self._grade.done()

    @property
    def is_graded(self) -> bool:
        """Whether there is a grade, and not merely no hope of one."""
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
        """Let go of nothing: whoever runs the jobs ends what it started."""


class RefusedGrader:
    """What a `Grader` says of a submission that nobody can grade: the same interface.

    Args:
        verdict: what becomes of all checks.
        reason: why.
        provenance: what the grade depends on.
    """

    def __init__(self, verdict: Verdict, reason: Finding, provenance: Provenance) -> None:
        self._verdict, self._reason = verdict, reason
        self.provenance = provenance

    def run(self, check: Check) -> CheckResult:
        """Return the verdict, with the reason at the first check."""
        reason = self._reason if check.kind == "compile" else because_of("compile", self._reason)
        return check.result(self._verdict, (reason,))

    def close(self) -> None:
        """Let go of nothing."""


def _regraded(submission: str, grade: Grade, changes: Sequence[Change]) -> Regraded:
    gained = sum((change.points_after or 0.0) - (change.points_before or 0.0) for change in changes)
    return Regraded(submission, grade.points - gained, grade.points, tuple(changes))


def _is_lasting(grade: Grade) -> bool:
    faults = [check.findings for check in grade.checks if check.verdict == "not gradable"]
    return not any(found.code in PASSING_FAULTS for findings in faults for found in findings)


def _fails(grade: Grade) -> bool:
    return any(check.verdict == "failed" for check in grade.checks)

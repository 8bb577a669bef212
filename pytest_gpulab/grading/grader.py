"""The grader of one submission. Its checks share builds and case runs, which are made once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest_gpulab
from pytest_gpulab.devices.protocol import CannotSimulate, Device, DeviceInfo, DeviceUnavailable, OutOfMemory
from pytest_gpulab.exercise import Case, SafeCheck, SpeedTier, UsesCheck, Variant
from pytest_gpulab.grading.compilation.builds import BuildFailed, Builds, cases_of, variants_of
from pytest_gpulab.grading.correctness.cases import CaseRuns
from pytest_gpulab.grading.diagnosis.compare import CaseOutcome
from pytest_gpulab.grading.plans.prepare import InstructorsMistake
from pytest_gpulab.grading.time_limits import USUAL, CaseLimits, Searched

from .catalogue import Loaded, LoadedExercise
from .checks import Check, CheckGrader, checks_of, correct_name, visible_first
from .findings import because_of, of_error
from .grade import CheckResult, Finding, Grade, Provenance, Verdict
from .time_limits import TimeBudget

if TYPE_CHECKING:  # each kind of check imports its modules when the first check of the kind runs
    from pytest_gpulab.grading.compilation.source_quotes import Quotes
    from pytest_gpulab.grading.correctness.safety import Outcomes
    from pytest_gpulab.grading.correctness.smallest_inputs import SmallestInputs

    from .annotate import Annotator
    from .figure_checks import FigureChecks


class Grader(CheckGrader):
    """A grader of one `.cu` file for one exercise, on a device of this process."""

    def __init__(
        self,
        exercise: LoadedExercise,
        path: Path,
        device: Device,
        seed: int,
        label: str | None = None,
        limits: CaseLimits = USUAL,
        annotate: bool = False,
    ) -> None:
        """Read the file; nothing is compiled before the first check that needs it.

        The seed is that of all input data: the same seed gives the same grade. `label` is the submission's name in the
        grade, by default its path. `limits` are the repetitions of cases, and time limits.
        """
        self._loaded, self._device, self._seed, self._path = exercise, device, seed, path
        self._label = str(path) if label is None else label
        self._budget = TimeBudget(limits.time)
        self._builds = Builds(path, exercise, device, self._budget)
        self._cases = CaseRuns(self._builds, seed, limits)
        self._is_beside_a_gpu, self._with_causes = limits.beside_a_gpu, limits.causes
        self._quotes: Quotes | None = None
        self._has_failed = False
        self._searched: Searched = limits.smallest if device.info.kind == "simulated" else "none"
        self._annotator: Annotator | None = None
        if annotate:
            from .annotate import Annotator

            self._annotator = Annotator(exercise, path, device, seed, self._budget)
        self._provenance = provenance_of(exercise, device.info, seed, self._builds.sha256)

    @property
    def provenance(self) -> Provenance:
        """The inputs that the grade depends on."""
        return self._provenance

    def grade(self) -> Grade:
        """Grade all checks of the exercise."""
        results = tuple(self.run(check) for check in checks_of(self._loaded.exercise))
        return Grade(self._label, self._loaded.name, results, self._provenance)

    def run(self, check: Check) -> CheckResult:
        """Return the result of one check; errors of the submission and of the exercise are findings in it."""
        begin_s = time.perf_counter()
        with _Attempt(check) as attempt:
            self._budget.begin()
            attempt.result = self._judge_of(check)()
        result = self._with_quotes(attempt.result)
        if self._annotator is not None:
            result = self._annotator.added_to(result, check)
        return replace(result, duration_s=time.perf_counter() - begin_s)

    def first_checks(self) -> set[str]:
        """Compile the first variant, and let a second process begin, if there may be one.

        Return the names of the `correct` checks that need no other variant; none if that one cannot be launched.
        """
        exercise = self._loaded.exercise
        variants = variants_of(exercise)
        with _Attempt(checks_of(exercise)[0]):  # the check `compile` reports what fails
            self._builds.of(variants[0])
        if any(map(self._builds.has, variants)):
            self._cases.look_ahead(visible_first(exercise.cases))
        is_ready = self._builds.has(variants[0])
        return {correct_name(case) for case in cases_of(exercise, variants[0]) if is_ready}

    def unsafe_so_far(self) -> CheckResult | None:
        """Return the failure of the first `safe` check with a hazard in a case so far; later cases only add to it."""
        known = self._cases.known(visible_first(self._loaded.exercise.cases))
        for check in checks_of(self._loaded.exercise):
            if isinstance(check.subject, SafeCheck) and (found := self._unsafe(check, check.subject, known)):
                return self._with_quotes(found)
        return None

    def with_likely_cause(self, check: Check, found: Finding) -> Finding:
        """Return the finding of a `correct` check with the likely cause that other cases reveal."""
        case = check.subject
        return self._cases.with_likely_cause(case, (found,))[0] if isinstance(case, Case) else found

    def countable(self, check: Check) -> CheckResult:
        """Return the failure of a `uses` or `speedup` check for other reasons than figures, or else `passed`."""
        assert isinstance(check.subject, UsesCheck | SpeedTier)
        variant = check.subject.variant
        return self._guarded(check, lambda: self._unless_correct(check, variant) or check.result("passed"))

    def count(self, check: Check) -> CheckResult:
        """Grade a `uses` check by its counts only, a `speedup` check by races: another process does the rest."""
        subject = check.subject
        assert isinstance(subject, UsesCheck | SpeedTier)
        if isinstance(subject, SpeedTier):
            return self._guarded(check, lambda: self._figures.check_order(check, subject))
        return self._guarded(check, lambda: self._figures.count(check, subject))

    def close(self) -> None:
        """End the second processes, if there are any. The caller owns the device."""
        self._cases.close()
        if "_figures" in vars(self):
            self._figures.close()

    def record_failure(self, check: Check, found: Finding) -> None:
        """Record that a case, a benchmark or the compilation ended another process abnormally: it counts as failed."""
        if isinstance(check.subject, Case):
            self._cases.record_failure(check.subject, found)
        elif isinstance(check.subject, SpeedTier):
            self._figures.costs.record_failure(check.subject, found)
        elif check.subject is None:
            self._builds.block(found)

    def _guarded(self, check: Check, judge: Callable[[], CheckResult]) -> CheckResult:
        with _Attempt(check) as attempt:
            self._budget.begin()
            attempt.result = judge()
        return self._with_quotes(attempt.result)

    def _with_quotes(self, result: CheckResult) -> CheckResult:
        """Return a result with the source lines that its findings name, and with compiler warnings."""
        if result.verdict == "passed" and not result.findings:
            return result
        if result.verdict == "failed" and "compile" in (result.kind, result.findings[0].because):
            result = self._cases.blame.of_build(result)
        from pytest_gpulab.grading.compilation.source_quotes import Quotes

        self._quotes = self._quotes or Quotes(self._path.name, self._builds.source)
        return self._quotes.added_to(result, self._builds.logs)

    def _judge_of(self, check: Check) -> Callable[[], CheckResult]:
        subject = check.subject
        if subject is None:
            return partial(self._compile, check)
        if isinstance(subject, Case):
            return partial(self._correct, check, subject)
        if isinstance(subject, SafeCheck):
            return partial(self._safe, check, subject)
        if isinstance(subject, UsesCheck):
            return partial(self._uses, check, subject)
        assert isinstance(subject, SpeedTier)
        return partial(self._speedup, check, subject)

    @cached_property
    def _figures(self) -> FigureChecks:
        from .figure_checks import FigureChecks

        return FigureChecks(self._cases, self._is_beside_a_gpu)

    @cached_property
    def smallest_inputs(self) -> SmallestInputs:
        """The smallest failing inputs of the submission."""
        from pytest_gpulab.grading.correctness.smallest_inputs import SmallestInputs

        return SmallestInputs(self._searched, self._cases, self._budget)

    def _compile(self, check: Check) -> CheckResult:
        self.first_checks()
        try:
            self._builds.of_all(variants_of(self._loaded.exercise))
        except BuildFailed as blocked:
            return check.result(blocked.verdict, (blocked.finding,))
        return check.result("passed", self._builds.notes())

    def _correct(self, check: Check, case: Case) -> CheckResult:
        outcome = self._cases.outcome(case)
        findings = outcome.findings
        if outcome.verdict == "failed":
            if not self._has_failed and self._with_causes:  # pytest -x shows only the first failure
                findings = self._cases.with_likely_cause(case, findings)
            self._has_failed = True
            findings = (*self.smallest_inputs.added_to(check.name, (findings[0], case, "")), *findings[1:])
        return check.result(outcome.verdict, findings, printed=outcome.printed)

    def _safe(self, check: Check, safe: SafeCheck) -> CheckResult:
        """Fail on any hazard of the kind, and if no case is correct: an empty kernel earns nothing."""
        from pytest_gpulab.grading.correctness.safety import harmless, not_checked

        outcomes = self._outcomes()
        if (failed := self._unsafe(check, safe, outcomes)) is not None:
            return failed
        if all(outcome.verdict == "failed" for _, outcome in outcomes):
            return _dependent(check, *outcomes[0])
        ungraded = [each for each in outcomes if each[1].verdict == "not gradable"]
        if ungraded:
            return _dependent(check, *next(self._that_broke_the_device(outcomes), ungraded[0]))
        if unseen := not_checked(safe.kind, outcomes):
            return check.result("not gradable", unseen)
        return check.result("passed", harmless(safe.kind, outcomes))

    def _unsafe(self, check: Check, safe: SafeCheck, outcomes: Outcomes) -> CheckResult | None:
        from pytest_gpulab.grading.correctness.safety import unsafe

        found = unsafe(safe.kind, outcomes)
        if not found:
            return None
        if mistake := self._cases.blame.of_hazard(safe.kind, found[0][1], self._cases.failing_pattern(found[0][1])):
            return check.result("not gradable", (mistake,))
        failing = ((each, case, safe.kind) for each, case in found)
        return check.result("failed", self.smallest_inputs.added_to(check.name, *failing))

    def _outcomes(self) -> list[tuple[Case, CaseOutcome]]:
        found: list[tuple[Case, CaseOutcome]] = []
        for case in visible_first(self._loaded.exercise.cases):
            try:
                found.append((case, self._cases.outcome(case)))
            except BuildFailed as blocked:  # perhaps because an earlier case broke the device
                if blocked.fits_others:
                    continue
                if next(self._that_broke_the_device(found), None) is None:
                    raise
                found.append((case, CaseOutcome(blocked.verdict, (blocked.finding,))))
        return found

    def _that_broke_the_device(self, outcomes: Outcomes) -> Iterator[tuple[Case, CaseOutcome]]:
        """Yield the cases with abnormally ended kernels, if the process cannot use the device after that."""
        if self._device.info.kind != "simulated":
            yield from ((case, outcome) for case, outcome in outcomes if outcome.faults)

    def _uses(self, check: Check, uses: UsesCheck) -> CheckResult:
        """Count only correct kernels: a wrong one may use the concept without need."""
        wrong = self._unless_correct(check, uses.variant)
        return self._with_rereads(self._figures.count(check, uses) if wrong is None else wrong)

    def _unless_correct(self, check: Check, variant: Variant) -> CheckResult | None:
        """Return the result of a check that needs correct results, if a case of the variant did not pass; else None."""
        self._builds.of(variant)  # raises BuildFailed, as for any other check
        for case in visible_first(cases_of(self._loaded.exercise, variant) or self._loaded.exercise.cases):
            outcome = self._cases.outcome(case)
            if outcome.verdict != "passed":
                return _dependent(check, case, outcome)
        return None

    def _speedup(self, check: Check, tier: SpeedTier) -> CheckResult:
        """Measure only correct kernels: a fast wrong answer earns nothing."""
        wrong = self._unless_correct(check, tier.variant)
        return self._with_rereads(self._figures.measure(check, tier) if wrong is None else wrong)

    def _with_rereads(self, result: CheckResult) -> CheckResult:
        return replace(result, findings=self._cases.with_rereads(result.findings))


class _Attempt:
    """A context manager that turns the exceptions that end a check into its `result`.

    Not a function that calls the judge, because each frame lengthens every stack trace of a kernel.
    """

    result: CheckResult

    def __init__(self, check: Check) -> None:
        self._check = check

    def __enter__(self) -> _Attempt:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        ending = None if error is None else _verdict_and_finding(error)
        if ending is None:
            return False
        self.result = self._check.result(ending[0], (ending[1],))
        return True


def _verdict_and_finding(error: BaseException) -> tuple[Verdict, Finding] | None:
    """Return the verdict and the finding for an exception that ended a check; None for a bug of this package."""
    if isinstance(error, InstructorsMistake):
        return "not gradable", error.finding
    if isinstance(error, BuildFailed):
        return error.verdict, error.finding if error.fits_others else because_of("compile", error.finding)
    if isinstance(error, DeviceUnavailable):  # for example, other processes fill the GPU's memory
        return of_error(error)
    if isinstance(error, RecursionError):
        return of_error(CannotSimulate("code nested this deeply"))
    if isinstance(error, MemoryError):
        return of_error(OutOfMemory(f"there is not enough memory to grade this check: {error}".rstrip(": ")))
    return None


def provenance_of(exercise: Loaded, info: DeviceInfo, seed: int, source_sha256: str) -> Provenance:
    """Return the inputs of a grade on that device."""
    return Provenance(
        device=info.name,
        device_kind=info.kind,
        architecture=info.architecture,
        compiler=info.compiler,
        seed=int(seed),
        exercise_version=exercise.exercise.version,
        plugin_version=pytest_gpulab.__version__,
        source_sha256=source_sha256,
        details=dict(info.details),
        thresholds=exercise.thresholds.source,
    )


def _dependent(check: Check, case: Case, outcome: CaseOutcome) -> CheckResult:
    found = because_of(correct_name(case), outcome.findings[0], case.hidden)
    return check.result(outcome.verdict, (found,))

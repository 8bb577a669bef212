"""Failures that an exercise's own baseline shares with a submission: then the exercise is at fault."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any
from weakref import WeakKeyDictionary

from pytest_gpulab.devices.protocol import Device, at_work_on
from pytest_gpulab.exercise import Case, Problem, Size, Variant
from pytest_gpulab.exercise_rules import NAIVE
from pytest_gpulab.grading.compilation.builds import UNFIT, BuildFailed, Builds, Made, made_once, variants_of
from pytest_gpulab.grading.diagnosis.compare import WRONG_RESULTS, CaseOutcome
from pytest_gpulab.grading.findings import because_of, finding
from pytest_gpulab.grading.grade import EXERCISES_MISTAKE, PROOF, CheckResult, Finding, Verdict
from pytest_gpulab.grading.plans.prepare import make_inputs, make_plan, rng_for
from pytest_gpulab.grading.time_limits import TIME_LIMIT, CaseLimits, TimeBudget

from .cases import CaseRuns
from .checked_launches import ReplayInput, run_costed, run_whole, wrong_outputs
from .safety import unsafe

BUILT = (*UNFIT, "compile-error", "launch-error", "tunable-range")
"""Codes of failures to build that an exercise can cause."""
MERELY_WRONG = ("wrong-result", "not-written", "input-changed")

_baselines: WeakKeyDictionary[Device, dict[Hashable, Any]] = WeakKeyDictionary()
"""The outcomes of baselines in cases and their errors at timed sizes, which all submissions of a process share."""


class Blame:
    """The failures of one submission, compared with those of the exercise's baseline on the same device."""

    def __init__(self, builds: Builds, seed: int, limits: CaseLimits) -> None:
        """Compile nothing yet: the first failure needs the baseline. The limits are those of the submission's cases."""
        self._loaded, self._device, self._builds = builds.loaded, builds.device, builds
        self._seed, self._limits = seed, limits
        self._has_own_failure = False
        self._shared: dict[str, Finding] = {}  # failures that the baseline shares, by code

    def of_build(self, result: CheckResult) -> CheckResult:
        """Return the result to report for a submission without a build."""
        mistake = self._build_mistake
        if mistake is None:
            return result
        shown = because_of("compile", mistake) if result.findings[0].because else mistake
        return replace(result, verdict="not gradable", points=0.0, findings=(shown,))

    def of_case(self, case: Case, outcome: CaseOutcome) -> CaseOutcome:
        """Return the outcome to report for a failed case.

        After a failure that the baseline does not share, later ones are not compared: a wrong submission costs one run.
        """
        pattern, found = outcome.pattern or case.patterns[0], outcome.findings[0]
        if self._has_own_failure or not self._is_comparable(found):
            return outcome
        own = self._of_baseline(case, pattern)
        mistake = _shared_failure(found, own) if own is not None and own.verdict == "failed" else None
        mistake = mistake or self._shared.get(found.code)  # the baseline's block size may hide it in this case
        self._has_own_failure = mistake is None
        if mistake is None:
            return outcome
        self._shared[found.code] = mistake
        return CaseOutcome("not gradable", (mistake,), pattern=pattern)

    def of_hazard(self, kind: str, case: Case, pattern: str) -> Finding | None:
        """Return the exercise's mistake if its baseline has a hazard of the kind in a case, too."""
        own = self._of_baseline(case, pattern) if self._is_simulated else None
        found = () if own is None else unsafe(kind, [(case, own)])
        return _shared(found[0][0]) if found else None

    def of_timed(
        self, size: Size, variant: Variant, pattern: str, wrong: tuple[Finding, ...]
    ) -> tuple[Verdict, tuple[Finding, ...]]:
        """Return the verdict on wrong results at a timed size, and the findings to report."""
        found: tuple[Finding, ...] = ()
        if self._baseline is not None:
            wrong_at = partial(self._wrong_at, self._baseline, size, variant, pattern)
            found = self._once(self._baseline, (size, variant.name, pattern), wrong_at)
        return ("not gradable", (_shared(found[0]),)) if found else ("failed", wrong)

    def _wrong_at(self, baseline: Builds, size: Size, variant: Variant, pattern: str) -> tuple[Finding, ...]:
        exercise = self._loaded.exercise
        try:
            build = baseline.of(variant)
            problem = Problem(size, build.tunables, variant)
            plan = make_plan(exercise, problem)
            inputs = make_inputs(exercise, problem, plan, pattern, rng_for(self._seed, self._loaded.name, "blame"))
            given = ReplayInput(self._device, build, plan, inputs)
            with at_work_on(self._device):
                costed = run_costed(given, self._seed) if self._device.info.estimates else run_whole(given)
            return wrong_outputs(exercise, problem, costed)
        except BuildFailed:
            return ()

    @cached_property
    def _baseline(self) -> Builds | None:
        """The baseline's builds; None if there is no baseline, or if it is the submission itself."""
        path = self._loaded.folder / NAIVE
        is_another = path.is_file() and path.resolve() != self._builds.path.resolve()
        return Builds(path, self._loaded, self._device) if is_another else None

    @cached_property
    def _build_mistake(self) -> Finding | None:
        baseline = self._baseline
        if baseline is None:
            return None
        for variant in variants_of(self._loaded.exercise):
            if found := _why_not_built(self._builds, variant):
                own = _why_not_built(baseline, variant) if found.code in BUILT else None
                return _shared(own) if own and _reason(own) == _reason(found) else None
        return None

    @property
    def _is_simulated(self) -> bool:
        return self._device.info.kind == "simulated"

    def _is_comparable(self, found: Finding) -> bool:
        """Return whether the baseline may run for a comparison with a failure.

        Faults are compared only on the simulated GPU, because they break a real one. If a real GPU runs the cases, too,
        wrong results are compared only there, because the simulator could be wrong.
        """
        if found.code == TIME_LIMIT:
            return False
        is_wrong = found.code in MERELY_WRONG and not found.by_luck
        return is_wrong if not self._is_simulated else not (is_wrong and self._limits.beside_a_gpu)

    def _of_baseline(self, case: Case, pattern: str) -> CaseOutcome | None:
        """Return the baseline's outcome in a case with one input pattern; None if it is not run."""
        if self._baseline is None:
            return None
        key = (case.name, case.size, case.variant.name, pattern, self._limits._replace(ahead=False))
        return self._once(self._baseline, key, partial(self._run_baseline, self._baseline, case, pattern))

    def _once(self, baseline: Builds, key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
        identity = str(self._loaded.folder), self._loaded.exercise.reference, baseline.sha256, self._seed
        found: Made = made_once(_baselines.setdefault(self._device, {}), (*identity, *key), make)
        return found

    def _run_baseline(self, baseline: Builds, case: Case, pattern: str) -> CaseOutcome | None:
        runs = CaseRuns(baseline, self._seed, self._limits, TimeBudget(self._limits.time))
        try:
            return runs.outcome(replace(case, patterns=(pattern,)))
        except BuildFailed:  # `compile` and speed checks report it
            return None


def _shared_failure(found: Finding, outcome: CaseOutcome) -> Finding | None:
    own = outcome.findings[0]
    if own.code != found.code and not {own.code, found.code} <= {*WRONG_RESULTS}:
        return None
    return replace(_shared(own), by_luck=found.by_luck or found.code in PROOF)


def _shared(own: Finding) -> Finding:
    what = f"The exercise's own baseline {NAIVE} fails here, too: {own.what}"
    return finding(EXERCISES_MISTAKE, what, evidence=own.evidence)


def _why_not_built(builds: Builds, variant: Variant) -> Finding | None:
    try:
        builds.of(variant)
    except BuildFailed as failed:
        return failed.finding if failed.verdict == "failed" and not failed.fits_others else None
    return None


def _reason(found: Finding) -> str:
    if found.code in UNFIT:  # each file may differ from the plan in its own way
        return UNFIT[0]
    return found.what if found.code == "compile-error" else found.code

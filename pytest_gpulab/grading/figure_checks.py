"""`uses` and `speedup` checks: the verdicts of a correct kernel's counts and costs, which are made once."""

import math
from dataclasses import replace
from functools import cached_property

from pytest_gpulab.devices.stopwatch import TimingDevice
from pytest_gpulab.exercise import Size, SpeedTier, UsesCheck, Variant
from pytest_gpulab.grading.compilation.builds import BuildFailed, Builds, cases_of
from pytest_gpulab.grading.correctness.cases import CaseRuns
from pytest_gpulab.grading.correctness.safety import is_cut_short, wrong_order
from pytest_gpulab.grading.correctness.sizes import extents_of
from pytest_gpulab.grading.speed.costs import Costs, pattern_of, timed_size
from pytest_gpulab.grading.speed.estimate import EstimatedCosts
from pytest_gpulab.grading.speed.verdict import decision, inconclusive, too_slow
from pytest_gpulab.grading.usage.checks import Usages, counting_device
from pytest_gpulab.grading.usage.figures_ahead import FiguresAhead

from .checks import Check, checks_of
from .findings import because_of
from .grade import CheckResult, Finding, Verdict
from .time_limits import TIME_LIMIT


class FigureChecks:
    """The `uses` and `speedup` checks of one submission, of which `cases` are the runs."""

    def __init__(self, cases: CaseRuns, is_beside_a_gpu: bool) -> None:
        self._cases, self._builds, self._seed, self._is_beside_a_gpu = cases, cases.builds, cases.seed, is_beside_a_gpu
        self._loaded, self._device, self._budget = cases.builds.loaded, cases.builds.device, cases.builds.budget
        self._stopped: dict[Finding, Check] = {}  # counts and costs that reached the time limit, with the first check
        self._ahead: FiguresAhead | None = None

    @cached_property
    def costs(self) -> Costs:
        """The costs of kernels: measured, or estimated on the simulated GPU."""
        if isinstance(self._device, TimingDevice) and not self._device.info.estimates:
            from pytest_gpulab.grading.speed.measured import TimedCosts

            return TimedCosts(self._device, self._builds, self._seed)
        return EstimatedCosts(self._builds, self._seed)

    def _look_ahead(self) -> None:
        """Let a second process count and estimate at the same time, if there may be one; `close` ends it."""
        if self._ahead is not None or not self._cases.may_look_ahead:
            return
        assert isinstance(self.costs, EstimatedCosts)  # of a simulated GPU
        checks = sorted(checks_of(self._loaded.exercise), key=lambda check: not check.required)
        figures = [each.subject for each in checks if isinstance(each.subject, UsesCheck | SpeedTier)]
        correct = [subject for subject in figures if self._is_correct(subject.variant)]
        self._ahead = FiguresAhead(correct, self.costs, self._usages, self._budget.begin)

    def _is_correct(self, variant: Variant) -> bool:
        exercise = self._loaded.exercise
        return all(map(self._cases.has_passed, cases_of(exercise, variant) or exercise.cases))

    def close(self) -> None:
        """End the second process, if there is one."""
        if self._ahead is not None:
            self._ahead.close()

    def count(self, check: Check, uses: UsesCheck) -> CheckResult:
        """Grade a `uses` check by its counts only."""
        self._look_ahead()
        if self._ahead is not None:
            self._ahead.learn(uses.name)
        try:
            unused = self._usages.unused(uses)
        except BuildFailed as blocked:
            return self._uncounted(check, blocked)
        if not unused:
            return check.result("passed")
        is_missed = not uses.required and all(found.code == "concept" for found in unused)
        return check.result("missed" if is_missed else "failed", unused)

    def check_order(self, check: Check, tier: SpeedTier) -> CheckResult:
        """Return a race at the timed size as a failure; a `safe` check fails for those that the cases show.

        A race check that was cut short makes the result not gradable, as that of a `safe` check.
        """
        raced = self.costs.races(tier)
        outcomes = self._cases.known(self._loaded.exercise.cases) if raced else ()
        known = {(found.code, found.where) for _, outcome in outcomes for found in wrong_order(outcome.hazards)}
        new = tuple(found for found in raced if (found.code, found.where) not in known)
        verdict: Verdict = "not gradable" if is_cut_short(new[:1]) else "failed" if new else "passed"
        return check.result(verdict, new[:1])

    @cached_property
    def _usages(self) -> Usages:
        device, builds, costs = counting_device(self._device), self._builds, self.costs
        if device is not self._device:
            builds = Builds(builds.path, self._loaded, device, self._budget)
        if device is not self._device or self._is_beside_a_gpu or not isinstance(costs, EstimatedCosts):
            costs = EstimatedCosts(builds, self._seed, decides=False)
        return Usages(builds, self._seed, costs)

    def _uncounted(self, check: Check, blocked: BuildFailed) -> CheckResult:
        """Return the result of a failed count or cost; a used-up time limit names the check that reached it."""
        found = blocked.finding
        if found.code != TIME_LIMIT:
            return check.result(blocked.verdict, (found,))
        cause = next(iter(self._stopped), found) if self._budget.is_used_up else found
        first = self._stopped.setdefault(cause, check)
        found = found if first.name == check.name else because_of(first.name, cause)
        return check.result(blocked.verdict, (found,))

    def _stopped_at_less(self, size: Size, variant: Variant) -> Finding | None:
        """Return a finding if a kernel in which every thread reads all of an array was stopped at no larger size."""
        if self._device.info.kind != "simulated":  # a GPU times larger sizes than it counts
            return None
        elements = math.prod(extents_of(size))
        for cause, check in self._stopped.items():
            uses = check.subject
            is_less = (
                isinstance(uses, UsesCheck) and uses.variant == variant and math.prod(extents_of(uses.size)) <= elements
            )
            if is_less and self._cases.with_rereads((cause,)) != (cause,):
                return because_of(check.name, cause)
        return None

    def measure(self, check: Check, tier: SpeedTier) -> CheckResult:
        """Grade a `speedup` check by its measurement only."""
        self._look_ahead()
        if (stopped := self._stopped_at_less(timed_size(tier, self._device), tier.variant)) is not None:
            return check.result("failed", (stopped,))
        try:
            measurement = self.costs.measure(tier)
            decided = decision(measurement)
            wrong = self.costs.wrong(tier) if decided != "failed" else ()
            measurement = replace(measurement, reference_ms=self.costs.reference_ms(tier))
        except BuildFailed as blocked:
            return self._uncounted(check, blocked)
        if wrong:
            timed = timed_size(tier, self._device), tier.variant, pattern_of(self._loaded.exercise, tier.variant)
            return check.result(*self._cases.blame.of_timed(*timed, wrong), measurement)
        is_bonus = not tier.required or self._loaded.thresholds.measuring
        missed: Verdict = "missed" if is_bonus else "failed"
        if decided != "failed" and (unused := self._unused(tier)) is not None:
            verdict = unused.verdict if unused.verdict == "not gradable" else missed
            return check.result(verdict, (because_of(unused.name, unused.findings[0]),), measurement)
        if decided == "passed":
            return replace(self.check_order(check, tier), measurement=measurement)
        if decided == "undecided":
            return check.result("inconclusive", (inconclusive(measurement),), measurement)
        return check.result(missed, (too_slow(measurement),), measurement)

    def _unused(self, tier: SpeedTier) -> CheckResult | None:
        """Return the result of the `uses` check that a tier needs, unless it passed. A calibration needs none."""
        if not tier.needs or self._loaded.thresholds.measuring:
            return None
        needed = next(check for check in checks_of(self._loaded.exercise) if check.name == f"uses[{tier.needs}]")
        assert isinstance(needed.subject, UsesCheck)
        result = self.count(needed, needed.subject)
        return None if result.verdict == "passed" else result

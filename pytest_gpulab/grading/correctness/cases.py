"""The runs of an exercise's cases for one submission, each case once, for `correct` and `safe` checks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pytest_gpulab.devices.protocol import DeviceError, KernelFault, SourceLine, at_work_on
from pytest_gpulab.exercise import Array, Case, Plan, Problem
from pytest_gpulab.grading.checks import correct_name
from pytest_gpulab.grading.compilation.builds import Build, Builds, cases_of
from pytest_gpulab.grading.diagnosis.compare import (
    ALL_REPEATS,
    WRONG_RESULTS,
    CaseOutcome,
    Repeats,
    differ,
    judged,
    same,
    wrong_with,
)
from pytest_gpulab.grading.findings import because_of, finding
from pytest_gpulab.grading.grade import Finding, Verdict
from pytest_gpulab.grading.plans.prepare import (
    InstructorsMistake,
    Prepared,
    look_alike,
    make_inputs,
    make_plan,
    prepare,
    problem_of,
    rng_for,
)
from pytest_gpulab.grading.plans.replay import (
    AGAIN,
    DECOY,
    FIRST,
    FIRST_WARP_FIRST,
    LAST_BLOCK_FIRST,
    LAST_WARP_FIRST,
    Arrays,
    Repetition,
    Run,
    replay,
)
from pytest_gpulab.grading.time_limits import TIME_LIMIT, USUAL, CaseLimits, TimeBudget

if TYPE_CHECKING:
    from pytest_gpulab.grading.diagnosis.whole_array_reads import Replayed

    from .ahead import FoundAhead
    from .blame import Blame

MAX_STOPPED = 3  # cases that may reach their time limit; then the rest is not run
SEARCH_S = 2.0  # to run other cases, which may reveal more about a wrong result

_Ahead: TypeAlias = "tuple[CaseOutcome, list[tuple[Plan, int]], bool]"
"""The second process's outcome; per pattern of a visible case its plan and the runs so far; True if it does not end."""


class CaseRuns:
    """The outcomes of one submission's cases, each made on first use."""

    def __init__(self, builds: Builds, seed: int, limits: CaseLimits = USUAL, budget: TimeBudget | None = None) -> None:
        """Run nothing yet. `budget` is the time of the cases, by default that of the builds."""
        self.builds, self.seed, self._loaded, self._device = builds, seed, builds.loaded, builds.device
        self._outcomes: dict[str, CaseOutcome] = {}
        self._limits, self._budget = limits, budget or builds.budget
        self._stopped: list[tuple[Case, Finding]] = []
        self._has_hung = False
        self._replayed: list[Replayed] = []  # of visible cases, per pattern
        self._ahead: FoundAhead[str, _Ahead] | None = None

    def look_ahead(self, cases: Iterable[Case]) -> None:
        """Let a second process run these cases from the last one to the first, if there may be one.

        It compiles other variants than this process at the same time: compiled code is cached. `close` ends it.
        """
        if self._ahead is not None or not self.may_look_ahead:
            return
        from .ahead import FoundAhead

        by_name = {case.name: case for case in cases}
        self._ahead = FoundAhead(list(by_name), lambda name: self._as_second_process(by_name[name]))

    @property
    def may_look_ahead(self) -> bool:
        """True if the limits and another core allow a second process."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        return self._limits.ahead and self._is_simulated and cores > 1

    def _as_second_process(self, case: Case) -> _Ahead | None:
        self._replayed.clear()
        self._has_hung = False
        outcome = self._run(case, self.builds.of(case.variant))
        if any(fault.code == TIME_LIMIT for fault in outcome.faults):  # it depends on the clock, unlike an endless loop
            return None
        return outcome, [(plan, len(runs)) for _, plan, runs, _ in self._replayed], self._has_hung

    def _found_ahead(self, case: Case) -> CaseOutcome | None:
        """Return the second process's outcome, if it is the one that this process would find."""
        found = None if self._ahead is None or self._has_hung else self._ahead.take(case.name)
        if found is None or self.with_rereads(found[0].findings) != found[0].findings:  # they name earlier cases, too
            return None
        outcome, replayed, self._has_hung = found
        build = self.builds.of(case.variant)
        self._replayed += [(case, plan, outcome.runs[:count], build) for plan, count in replayed]
        return outcome

    def close(self) -> None:
        """End the second process, if there is one."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def outcome(self, case: Case) -> CaseOutcome:
        """Run each pattern of a case in all variations that may differ, up to the first error, or raise BuildFailed."""
        build = self.builds.of(case.variant)
        if case.name not in self._outcomes:
            outcome = self._given_up() or self._found_ahead(case) or self._run(case, build)
            self._budget.begin()
            outcome = self._noted(case, outcome)
            self._outcomes[case.name] = self.blame.of_case(case, outcome) if outcome.verdict == "failed" else outcome
        return self._outcomes[case.name]

    def known(self, cases: Iterable[Case]) -> list[tuple[Case, CaseOutcome]]:
        """Return those of the cases that have an outcome, with it."""
        return [(case, self._outcomes[case.name]) for case in cases if case.name in self._outcomes]

    def has_passed(self, case: Case) -> bool:
        """Return True if a case was run and is correct; it may have hazards."""
        return case.name in self._outcomes and self._outcomes[case.name].verdict == "passed"

    def _given_up(self) -> CaseOutcome | None:
        """Return the outcome of a case that is not run because others have used up the time, or None."""
        if not self._stopped or (len(self._stopped) < MAX_STOPPED and not self._budget.is_used_up):
            return None
        case, found = self._stopped[0]
        return CaseOutcome("failed", (because_of(correct_name(case), found, case.hidden),))

    def _noted(self, case: Case, outcome: CaseOutcome) -> CaseOutcome:
        """Return the outcome to report; after a time limit, shorten those of later cases."""
        if not any(fault.code == TIME_LIMIT for fault in outcome.faults):
            return outcome
        if self._limits.beside_a_gpu:
            what = "The case takes too long on the simulated GPU: only the real GPU checks it."
            return CaseOutcome("not gradable", (finding("cannot-simulate", what),), outcome.runs)
        if self._stopped:
            less = f"with a shorter time limit, because `{correct_name(self._stopped[0][0])}` reached it"
            first, *others = outcome.findings
            first = replace(first, evidence=(*first.evidence, less))
            outcome = outcome._replace(findings=(first, *others))
        self._stopped.append((case, outcome.findings[0]))
        self._budget.be_short()
        return outcome

    @cached_property
    def blame(self) -> Blame:
        """The comparison of failures with those of the exercise's own baseline."""
        from .blame import Blame

        return Blame(self.builds, self.seed, self._limits)

    def with_rereads(self, findings: tuple[Finding, ...], here: Replayed | None = None) -> tuple[Finding, ...]:
        """Add notes on arrays that every thread reads as a whole, in the failing case or an earlier one."""
        if not findings:
            return findings
        from pytest_gpulab.grading.diagnosis.whole_array_reads import with_rereads

        return with_rereads(findings, self._replayed, here)

    def with_likely_cause(self, case: Case, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Add the likely cause that another case of the variant reveals to a wrong result without one.

        Only on the simulated GPU: it runs other cases within seconds, and survives their faults.
        """
        is_alone = self._is_simulated and not self._limits.beside_a_gpu
        if findings[0].code not in WRONG_RESULTS or findings[0].bits or not is_alone:
            return findings
        from pytest_gpulab.grading.diagnosis.explain import with_best_explanation

        others = ((correct_name(other), self.outcome(other).findings) for other in self._like(case))
        return with_best_explanation(findings, others)

    def _like(self, case: Case) -> Iterator[Case]:
        """Yield other visible cases of the variant, for at most `SEARCH_S`."""
        end_s = time.perf_counter() + SEARCH_S
        for other in cases_of(self._loaded.exercise, case.variant):
            if other.name != case.name and not other.hidden and time.perf_counter() < end_s:
                yield other

    def record_failure(self, case: Case, found: Finding) -> None:
        """Record a case as failed without a run, because it ended another process."""
        file, _, line = found.where.rpartition(":")
        fault = KernelFault(found.code, found.what, SourceLine(file, int(line)) if file else None)
        self._outcomes[case.name] = CaseOutcome("failed", (found,), (Run(error=fault),))

    def failing_pattern(self, case: Case) -> str:
        """Return the input pattern that did not pass; the first one if none is known."""
        outcome = self._outcomes.get(case.name)
        return (outcome.pattern if outcome else "") or case.patterns[0]

    def trial(
        self, case: Case, problem: Problem, build: Build, prepared: Prepared, repeats: Repeats = ALL_REPEATS
    ) -> CaseOutcome:
        """Run a case's kernel on other data, and judge it as a case; the outputs are kept."""
        self._budget.begin()
        runs: list[Run] = []
        decoy = self._decoy(case, problem, prepared) if build.module.has_state else None
        verdict, findings = self._run_pattern(build, prepared, decoy, runs, repeats)
        source = build.source if self._is_simulated else None
        return CaseOutcome(verdict, _explained(findings, (), runs, source), tuple(runs))

    def _run(self, case: Case, build: Build) -> CaseOutcome:
        runs: list[Run] = []
        try:
            problem = problem_of(case, build.tunables)
            if np.prod(problem.size, dtype=float) > (self._limits.max_elements or np.inf):
                what = "The case is too large for the simulated GPU: only the real GPU checks it."
                return CaseOutcome("not gradable", (finding("cannot-simulate", what),))
            plan = make_plan(self._loaded.exercise, problem)
            with ExitStack() as stay:
                for pattern in case.patterns:
                    self._budget.begin()  # each pattern has the whole time: a lock makes all of them slow
                    rng = rng_for(self.seed, self._loaded.name, case.name, pattern)
                    prepared = prepare(self._loaded.exercise, problem, plan, pattern, rng)
                    decoy = None if runs or not build.module.has_state else self._decoy(case, problem, prepared)
                    if not runs:  # once for all patterns, because each request may wait
                        stay.enter_context(at_work_on(self._device))
                    verdict, findings = self._run_pattern(build, prepared, decoy, runs)
                    here = (case, plan, _without_outputs(runs), build)
                    if not case.hidden:
                        self._replayed.append(here)
                    if verdict != "passed":
                        from pytest_gpulab.grading.diagnosis.explain import with_notes

                        source = build.source if self._is_simulated else None
                        findings = _explained(self.with_rereads(findings, here), _notes(case, pattern), runs, source)
                        findings = with_notes(findings, self.builds.notes(), plan, runs)
                        return CaseOutcome(verdict, findings, _without_outputs(runs), pattern)
        except InstructorsMistake as mistake:
            return CaseOutcome("not gradable", (mistake.finding,), _without_outputs(runs))
        return CaseOutcome("passed", (), _without_outputs(runs))

    def _decoy(self, case: Case, problem: Problem, prepared: Prepared) -> Mapping[str, Array]:
        """Return look-alike inputs to run first: a kernel that keeps results and recognises inputs becomes wrong."""
        rng = rng_for(self.seed, self._loaded.name, case.name, "decoy")
        others = make_inputs(self._loaded.exercise, problem, prepared.plan, case.patterns[0], rng)
        return look_alike(prepared.inputs, others, rng)

    def _run_pattern(
        self,
        build: Build,
        prepared: Prepared,
        decoy: Mapping[str, Array] | None,
        runs: list[Run],
        repeats: Repeats = ALL_REPEATS,
    ) -> tuple[Verdict, tuple[Finding, ...]]:
        """Run all replays of a pattern in the same arrays: a kernel that skips work on known pointers becomes wrong."""
        plan, arrays = prepared.plan, Arrays(self._device, prepared.plan)
        replayed = partial(replay, self._device, build.module, plan, arrays=arrays, scene=build.scene)
        try:
            if not runs:
                try:
                    build.module.reset_variables()  # no contents from other cases
                except DeviceError as error:
                    return judged(Run(error=error), prepared, FIRST)
            if decoy is not None:
                run = replayed(decoy, DECOY, read_back=False)
                if isinstance(run.error, KernelFault) and not self._is_simulated:  # a GPU runs nothing more
                    runs.append(run)
                    return judged(run, prepared, FIRST)
            again = partial(replayed, prepared.inputs)
            is_stateless = not build.module.has_state
            verdict, findings = self._repeated(prepared, again, runs, is_stateless, repeats.orders)
            if verdict == "failed" and repeats.luck and not (is_stateless and _is_repeatable(runs[-1])):
                findings = self._on_luck(prepared, again, runs, findings)
            return verdict, findings
        finally:
            arrays.free()

    def _repeated(
        self,
        prepared: Prepared,
        replayed: Callable[[Repetition], Run],
        runs: list[Run],
        is_stateless: bool,
        with_orders: bool,
    ) -> tuple[Verdict, tuple[Finding, ...]]:
        """Replay once; if the result is correct, replay in other ways and compare."""
        vary_order = self._is_simulated and not runs  # a real GPU orders its warps itself
        # The hazard checks make a kernel several times slower. If another case did not end, run without them first.
        first = replayed(DECOY) if self._has_hung else None
        if first is None or not _hung(first):
            first = replayed(FIRST)
            self._has_hung = self._is_simulated and (self._has_hung or _hung(first))
        runs.append(first)
        verdict, findings = judged(first, prepared, FIRST)
        if verdict != "passed":
            return verdict, findings
        orders = _orders(first) if vary_order else ()
        again = (AGAIN,) if self._limits.again and not (_is_repeatable(first) and is_stateless) else ()
        if not with_orders and (orders or again):
            return "inconclusive", ()
        for repetition in orders or again:
            run = replayed(repetition)
            runs.append(run)
            verdict, findings = judged(run, prepared, repetition)
            if verdict == "passed" and self._loaded.exercise.deterministic:
                verdict, findings = same(first, run)
            if verdict != "passed":
                break
        return verdict, findings

    def _on_luck(
        self, prepared: Prepared, replayed: Callable[[Repetition], Run], runs: list[Run], findings: tuple[Finding, ...]
    ) -> tuple[Finding, ...]:
        """Mark wrong results that change with another order of warps and other garbage in memory."""
        if not self._is_simulated or findings[0].code != "wrong-result":
            return findings
        again = replayed(LAST_WARP_FIRST)
        runs.append(again)
        if again.error is not None or not differ(runs[-2], again, prepared):
            return findings
        seen = "other wrong values" if wrong_with(again, prepared, LAST_WARP_FIRST) else "correct"
        luck = f"the result depends on luck: {seen} {LAST_WARP_FIRST.how} and memory holds other garbage"
        return tuple(replace(f, evidence=(*f.evidence, luck), by_luck=True) for f in findings)

    @property
    def _is_simulated(self) -> bool:
        return self._device.info.kind == "simulated"


def _hung(run: Run) -> bool:
    return isinstance(run.error, KernelFault) and run.error.code in ("endless-loop", TIME_LIMIT)


def _is_repeatable(run: Run) -> bool:
    """Return whether a replay with other garbage in memory computes the same, unless variables keep something."""
    return bool(run.profiles) and all(profile.garbage_free for profile in run.profiles)


def _orders(first: Run) -> tuple[Repetition, ...]:
    """Return the orders of warps and blocks for further runs after a correct one; none if no order matters.

    Warps that take turns cost several times more than in lockstep, so only one input pattern is run so. If warps share
    memory, both orders are needed, because a missing barrier shows in only one of them: in a tree low warps read the
    results of high ones, in a scan it is the other way round.
    """
    if first.profiles and all(profile.order_free for profile in first.profiles):
        return ()
    share = any(profile.resources.shared_bytes != 0 for profile in first.profiles)
    waits = any(profile.may_wait for profile in first.profiles)
    last = (LAST_WARP_FIRST,) * share + (LAST_BLOCK_FIRST,) * waits
    return (*last, FIRST_WARP_FIRST)


def _notes(case: Case, pattern: str) -> tuple[str, ...]:
    """Return notes on the input pattern that failed, and on those before it that passed."""
    passed = case.patterns[: case.patterns.index(pattern)]
    correct = (f"correct with other inputs of this size: {', '.join(passed)}",) if passed else ()
    return (*correct, f"input pattern: {pattern}")


def _explained(
    findings: tuple[Finding, ...], notes: tuple[str, ...], runs: list[Run], source: str | None
) -> tuple[Finding, ...]:
    from pytest_gpulab.grading.diagnosis.explain import with_hazards

    noted = tuple(replace(found, evidence=(*found.evidence, *notes)) for found in findings)
    return with_hazards(noted, runs, source)


def _without_outputs(runs: list[Run]) -> tuple[Run, ...]:
    """Return runs without their outputs, which are large; outcomes are kept until the submission is graded."""
    return tuple(replace(run, outputs={}) for run in runs)

"""Run the cases of an exercise for one submission, each once: what `correct` and `safe` checks look at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pytest_gpulab.devices.protocol import Device, DeviceError, Hazard, KernelFault, SourceLine
from pytest_gpulab.devices.stopwatch import at_work_on
from pytest_gpulab.exercise import Case, Problem
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import correct_name
from pytest_gpulab.grading.compilation.builds import Build, Builds, cases_of
from pytest_gpulab.grading.diagnosis.explain import WRONG_RESULTS, most_telling, with_hazards
from pytest_gpulab.grading.diagnosis.whole_array_reads import Rereads, with_rereads
from pytest_gpulab.grading.findings import because_of, finding, plain
from pytest_gpulab.grading.grade import Finding, Verdict
from pytest_gpulab.grading.plans.prepare import (
    Array,
    InstructorsMistake,
    Prepared,
    instructors_code,
    look_alike,
    make_inputs,
    make_plan,
    prepare,
    rng_for,
)
from pytest_gpulab.grading.plans.replay import (
    AGAIN,
    DECOY,
    FIRST,
    FIRST_WARP_FIRST,
    LAST_WARP_FIRST,
    Arrays,
    Repetition,
    Run,
    replay,
)
from pytest_gpulab.grading.time_limits import DEFAULT_LIMITS, TIME_LIMIT, TimeBudget, TimeLimits

from .judging import differ, judged, same, wrong_with

MAX_PRINTED_CHARS = 4000
MAX_STOPPED = 3  # cases that may use up their time before the rest is taken to do so as well
LOOK_S = 2.0  # for other cases that may say more of a wrong result


@dataclass(frozen=True)
class CaseLimits:
    """How much may be run.

    Attributes:
        time: how long kernels may run on the simulated GPU.
        max_elements: the extents' product above which a case is not run; None is no limit.
        again: whether to run every pattern twice, or only one, and that where the order of warps may matter.
        beside_a_gpu: whether a real GPU runs everything again, so a case that takes too long here says nothing.
    """

    time: TimeLimits = DEFAULT_LIMITS
    max_elements: int | None = None
    again: bool = True
    beside_a_gpu: bool = False


USUAL = CaseLimits()
BESIDE_A_GPU = CaseLimits(TimeLimits(case_s=2.0, file_s=20.0), 1 << 21, again=False, beside_a_gpu=True)
"""What the simulated GPU runs within a second or two; the GPU runs everything again."""


@dataclass(frozen=True)
class CaseOutcome:
    """What became of a case.

    Attributes:
        verdict: `passed`, `failed`, `not gradable`, or what blocked the build says.
        findings: why it did not pass.
        runs: the replays that were made; outputs are dropped.
    """

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    runs: tuple[Run, ...] = ()

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """Everything unsafe that did not end a replay."""
        return tuple(hazard for run in self.runs for hazard in run.hazards)

    @property
    def faults(self) -> tuple[KernelFault, ...]:
        """What ended a replay."""
        return tuple(run.error for run in self.runs if isinstance(run.error, KernelFault))

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What the race check did not look at, in words; each once."""
        return tuple(dict.fromkeys(what for run in self.runs for profile in run.profiles for what in profile.unchecked))

    @property
    def printed(self) -> str:
        """What the first replay that printed anything printed, capped."""
        return capped(next((run.printed for run in self.runs if run.printed), ""))


def capped(text: str, more: int = 0) -> str:
    """Return what kernels printed, at a length that can be read and without what a terminal would obey.

    Args:
        text: all of it, or what is longer than that length.
        more: characters that followed.
    """
    text = plain(text)
    over = len(text) - MAX_PRINTED_CHARS + more
    return text if over <= 0 else f"{text[:MAX_PRINTED_CHARS]}\n... and {over} more characters"


class CaseRuns:
    """The outcomes of one submission's cases, each made when first asked for."""

    def __init__(
        self,
        loaded: LoadedExercise,
        device: Device,
        builds: Builds,
        seed: int,
        budget: TimeBudget,
        limits: CaseLimits = USUAL,
    ) -> None:
        self._loaded, self._device, self._builds, self._seed = loaded, device, builds, seed
        self._outcomes: dict[str, CaseOutcome] = {}
        self._limits, self._budget = limits, budget
        self._stopped: list[tuple[Case, Finding]] = []
        self._has_hung = False
        self.rereads = Rereads()

    def outcome(self, case: Case) -> CaseOutcome:
        """Run a case, in as many repetitions of each pattern as may differ, up to the first thing that is wrong.

        Raises:
            BuildFailed: there is no build to run.
        """
        build = self._builds.of(case.variant)
        if case.name not in self._outcomes:
            self._budget.begin()
            outcome = self._given_up() or self._run(case, build)
            self._budget.begin()
            self._outcomes[case.name] = self._noted(case, outcome)
        return self._outcomes[case.name]

    def _given_up(self) -> CaseOutcome | None:
        """Return the outcome of a case that is not run, because others have used up the time."""
        if not self._stopped or (len(self._stopped) < MAX_STOPPED and not self._budget.is_used_up):
            return None
        case, found = self._stopped[0]
        return CaseOutcome("failed", (because_of(correct_name(case), found, case.hidden),))

    def _noted(self, case: Case, outcome: CaseOutcome) -> CaseOutcome:
        """Return an outcome, where time ran out with what follows from that for this case and the next ones."""
        if not any(fault.code == TIME_LIMIT for fault in outcome.faults):
            return outcome
        if self._limits.beside_a_gpu:
            what = "The case takes too long on the simulated GPU beside a real one."
            return CaseOutcome("not gradable", (finding("cannot-simulate", what),), outcome.runs)
        if self._stopped:
            less = f"less time than usual, because `{correct_name(self._stopped[0][0])}` used up its own"
            first, *others = outcome.findings
            first = replace(first, evidence=(*first.evidence, less))
            outcome = replace(outcome, findings=(first, *others))
        self._stopped.append((case, outcome.findings[0]))
        self._budget.be_short()
        return outcome

    def with_most_telling(self, case: Case, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Add to a case's wrong result that tells nothing of the cause what another case of its variant tells.

        Only the simulated GPU looks: it runs them within seconds, and survives what goes wrong there.
        """
        is_alone = self._is_simulated and not self._limits.beside_a_gpu
        if findings[0].code not in WRONG_RESULTS or findings[0].bits or not is_alone:
            return findings
        others = ((correct_name(other), self.outcome(other).findings) for other in self._like(case))
        return most_telling(findings, others)

    def _like(self, case: Case) -> Iterator[Case]:
        """Yield other visible cases of the variant, while they take little time."""
        end_s = time.perf_counter() + LOOK_S
        for other in cases_of(self._loaded.exercise, case.variant):
            if other.name != case.name and not other.hidden and time.perf_counter() < end_s:
                yield other

    def record_failure(self, case: Case, found: Finding) -> None:
        """Take a case for failed without running it, because it brought down another process."""
        file, _, line = found.where.rpartition(":")
        fault = KernelFault(found.code, found.what, SourceLine(file, int(line)) if file else None)
        self._outcomes[case.name] = CaseOutcome("failed", (found,), (Run(error=fault),))

    def _run(self, case: Case, build: Build) -> CaseOutcome:
        runs: list[Run] = []
        try:
            problem = self._problem(case, build)
            if self._is_too_large(problem):
                what = "The case is too large to be run on the simulated GPU beside a real one."
                return CaseOutcome("not gradable", (finding("cannot-simulate", what),))
            plan = make_plan(self._loaded.exercise, problem)
            with ExitStack() as stay:
                for pattern in case.patterns:
                    rng = rng_for(self._seed, self._loaded.name, case.name, pattern)
                    prepared = prepare(self._loaded.exercise, problem, plan, pattern, rng)
                    decoy = None if runs or not build.module.has_state else self._decoy(case, problem, prepared)
                    if not runs:  # then once for all patterns: who asks often waits often
                        stay.enter_context(at_work_on(self._device))
                    verdict, findings = self._run_pattern(build, prepared, decoy, runs)
                    reread = self.rereads.of(case, plan, runs, build.parameters)
                    if verdict != "passed":
                        findings = with_rereads(findings, reread)
                        notes = _notes(case, pattern)
                        noted = tuple(replace(found, evidence=(*found.evidence, *notes)) for found in findings)
                        explained = with_hazards(noted, runs, build.source if self._is_simulated else None)
                        return CaseOutcome(verdict, explained, _without_outputs(runs))
        except InstructorsMistake as mistake:
            return CaseOutcome("not gradable", (mistake.finding,), _without_outputs(runs))
        return CaseOutcome("passed", (), _without_outputs(runs))

    def _problem(self, case: Case, build: Build) -> Problem:
        with instructors_code("size"):
            return case.problem(build.tunables)

    def _is_too_large(self, problem: Problem) -> bool:
        most = self._limits.max_elements
        return most is not None and bool(np.prod(problem.size, dtype=float) > most)

    def _decoy(self, case: Case, problem: Problem, prepared: Prepared) -> Mapping[str, Array]:
        """Return inputs to launch on first: whoever kept that result and takes these for the same is wrong."""
        rng = rng_for(self._seed, self._loaded.name, case.name, "decoy")
        others = make_inputs(self._loaded.exercise, problem, prepared.plan, case.patterns[0], rng)
        return look_alike(prepared.inputs, others, rng)

    def _run_pattern(
        self, build: Build, prepared: Prepared, decoy: Mapping[str, Array] | None, runs: list[Run]
    ) -> tuple[Verdict, tuple[Finding, ...]]:
        """Replay everything of one pattern in the same arrays, so that who skips work on known pointers is wrong."""
        plan, arrays = prepared.plan, Arrays(self._device, prepared.plan)
        replayed = partial(
            replay, self._device, build.module, plan, arrays=arrays, names=build.parameters, vectors=build.vectors
        )
        try:
            if decoy is not None:
                try:
                    build.module.reset_variables()  # contents that another case left are no input of this one
                except DeviceError as error:
                    return judged(Run(error=error), prepared, FIRST)
                run = replayed(decoy, DECOY, read_back=False)
                if isinstance(run.error, KernelFault) and not self._is_simulated:  # a GPU does not survive it
                    runs.append(run)
                    return judged(run, prepared, FIRST)
            return self._repeated(prepared, partial(replayed, prepared.inputs), runs)
        finally:
            arrays.free()

    def _repeated(
        self, prepared: Prepared, replayed: Callable[[Repetition], Run], runs: list[Run]
    ) -> tuple[Verdict, tuple[Finding, ...]]:
        """Replay once; if the result is correct, replay in other ways and compare."""
        vary_order = self._is_simulated and not runs  # a real GPU orders its warps itself
        # The hazard checks make a kernel several times slower: where another case did not end, first run without them.
        first = replayed(DECOY) if self._has_hung else None
        if first is None or not _hung(first):
            first = replayed(FIRST)
            self._has_hung = self._is_simulated and (self._has_hung or _hung(first))
        runs.append(first)
        verdict, findings = judged(first, prepared, FIRST)
        if verdict != "passed":
            return verdict, self._on_luck(prepared, replayed, runs, findings)
        orders = _orders(first) if vary_order else ()
        for repetition in orders or (AGAIN,) * self._limits.again:
            run = replayed(repetition)
            runs.append(run)
            verdict, findings = judged(run, prepared, repetition)
            if verdict == "passed" and self._loaded.exercise.deterministic:
                verdict, findings = same(first, run)
            if verdict != "passed":
                break
        return verdict, findings

    def _on_luck(
        self,
        prepared: Prepared,
        replayed: Callable[[Repetition], Run],
        runs: list[Run],
        findings: tuple[Finding, ...],
    ) -> tuple[Finding, ...]:
        """Mark wrong results that another order of warps and other leftovers in memory change."""
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


def _orders(first: Run) -> tuple[Repetition, ...]:
    """Return in which orders to run again what was right with all warps in step; none where no order can matter.

    Warps that take turns cost several times more than in step, so one input pattern of a case must do. Both orders are
    tried where warps share memory: whether low warps read what high ones write, as in a tree, or the other way round,
    as in a scan, a missing barrier shows in one order alone.
    """
    if first.profiles and all(profile.order_free for profile in first.profiles):
        return ()
    share = any(profile.resources.shared_bytes != 0 for profile in first.profiles)
    return (LAST_WARP_FIRST, FIRST_WARP_FIRST) if share else (FIRST_WARP_FIRST,)


def _notes(case: Case, pattern: str) -> tuple[str, ...]:
    """Name the input pattern that failed, and those before it that passed."""
    passed = case.patterns[: case.patterns.index(pattern)]
    correct = (f"correct with other inputs of this size: {', '.join(passed)}",) if passed else ()
    return (*correct, f"input pattern: {pattern}")


def _without_outputs(runs: list[Run]) -> tuple[Run, ...]:
    """Drop what can be large: outcomes are kept until the submission is graded."""
    return tuple(replace(run, outputs={}) for run in runs)

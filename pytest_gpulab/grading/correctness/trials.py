"""Trials: runs of a case's kernel at another size or on other inputs, judged as a case is."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pytest_gpulab.devices.errors import with_axes
from pytest_gpulab.exercise import Array, Case, Plan, Problem, Size
from pytest_gpulab.grading.compilation.builds import Build, variant_key
from pytest_gpulab.grading.diagnosis.compare import ALL_REPEATS, CaseOutcome, Repeats, mismatches
from pytest_gpulab.grading.diagnosis.patterns import number
from pytest_gpulab.grading.diagnosis.simple_inputs import MAX_SHOWN, shown
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.parameter_names import Names
from pytest_gpulab.grading.plans.prepare import Prepared, expected_of, make_plan, prepare, rng_for
from pytest_gpulab.grading.plans.replay import AGAIN, FIRST, Run
from pytest_gpulab.grading.time_limits import TimeBudget, limited

from .cases import CaseRuns
from .safety import unsafe
from .sizes import extents_of

RACES = re.compile(r"\((RAW|WAR|WAW)\)")

Change = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclass(frozen=True)
class Trial:
    """One trial."""

    case: Case  # the case that it varies
    problem: Problem  # its size, with tunables and variant
    prepared: Prepared  # its plan, inputs and expected outputs
    outcome: CaseOutcome  # the verdict, with the outputs of all runs
    names: tuple[str, ...]  # the names of the size's extents

    @property
    def telling_run(self) -> Run:
        """The run to show: the first one with a wrong output, else the first one."""
        runs = self.outcome.runs
        return next((run for run in runs if self.wrong(run)), runs[0])

    def wrong(self, run: Run) -> dict[str, Array]:
        """Return which elements of the outputs are wrong, by output; outputs without a wrong element are left out."""
        expected = self.prepared.expected
        masks = {
            name: mismatches(actual, np.asarray(expected.values[name]), expected.tolerance.get(name, 0))
            for name, actual in run.outputs.items()
        }
        return {name: mask for name, mask in masks.items() if mask.any()}


class Trials:
    """Trials of one submission within one time limit; the runs of its cases judge them."""

    def __init__(self, cases: CaseRuns, budget: TimeBudget) -> None:
        self._cases, self._budget = cases, budget
        self._loaded, self._builds, self._seed = cases.builds.loaded, cases.builds, cases.seed
        self._names: dict[object, tuple[str, ...]] = {}

    def build(self, case: Case) -> Build:
        """Return the build that trials of a case run, or raise BuildFailed."""
        build = self._builds.of(case.variant)
        return replace(build, module=limited(build.module, self._budget))

    def prepared(self, case: Case, size: Size, pattern: str, change: Change = dict) -> tuple[Problem, Prepared]:
        """Return the inputs and the expected outputs of a trial; `change` may replace the pattern's inputs.

        The case gives the variant and, with the seed, the random numbers. Raises InstructorsMistake if the exercise
        does not accept this size or these inputs, and BuildFailed.
        """
        problem = Problem(size, self.build(case).tunables, case.variant)
        plan = make_plan(self._loaded.exercise, problem)
        own = prepare(
            self._loaded.exercise, problem, plan, pattern, rng_for(self._seed, self._loaded.name, case.name, pattern)
        )
        inputs = change(own.inputs)
        if all(inputs[name] is own.inputs[name] for name in own.inputs):
            return problem, own
        expected = expected_of(self._loaded.exercise, problem, plan, inputs)
        return problem, replace(own, inputs=inputs, expected=expected, known=tuple)

    def run(self, case: Case, problem: Problem, prepared: Prepared, repeats: Repeats = ALL_REPEATS) -> Trial:
        """Run a trial; see `CaseRuns.trial`."""
        outcome = self._cases.trial(case, problem, self.build(case), prepared, repeats)
        return Trial(case, problem, prepared, outcome, self.names(case))

    def names(self, case: Case) -> tuple[str, ...]:
        """Return the names of a size's extents: `n`, or those of the kernel's parameters that hold them."""
        build = self.build(case)
        key = variant_key(case.variant)
        if key not in self._names:
            own = max(
                (each.problem(build.tunables).size for each in self._loaded.exercise.cases if not each.hidden),
                key=lambda size: len(set(extents_of(size))),  # equal extents cannot be told apart
            )
            plan = make_plan(self._loaded.exercise, Problem(own, build.tunables, case.variant))
            self._names[key] = _extent_names(plan, build.parameters, own)
        return self._names[key]


def _extent_names(plan: Plan, names: Names, size: Size) -> tuple[str, ...]:
    if not isinstance(size, tuple):
        return ("n",)
    launch = plan.launches[0]
    parameters = names.get(launch.kernel, ())
    found: list[str] = []
    for number_of, extent in enumerate(size):
        named = [
            name
            for name, argument in zip(parameters, launch.args, strict=False)
            if isinstance(argument, np.generic) and argument == extent and name not in found
        ]
        found.append(named[0] if named else f"extent {number_of}")
    return tuple(found)


def given_words(problem: Problem, prepared: Prepared, names: tuple[str, ...]) -> str:
    """Return a trial's size and inputs, such as `n = 3, in = [0 0 1]`."""
    extents = ", ".join(f"{name} = {extent}" for name, extent in zip(names, extents_of(problem.size), strict=True))
    inputs = "".join(f", {name} = {shown(values)}" for name, values in prepared.inputs.items())
    return extents + inputs


def wrong_words(trial: Trial) -> str:
    """Return the wrong outputs of a trial, such as `out should be [1], is [0]`; empty if none is wrong."""
    run = trial.telling_run
    return "; ".join(_wrong_output(trial, run, name, mask) for name, mask in trial.wrong(run).items())


def unwritten(trial: Trial, run: Run) -> dict[str, Array]:
    """Return which wrong elements of the outputs no thread has written, by output, in the shape of the output."""
    return {name: mask & _unwritten(run, name) for name, mask in trial.wrong(run).items()}


def _unwritten(run: Run, name: str) -> Array:
    actual = run.outputs[name]
    if run.reads_garbage:
        return np.zeros(actual.shape, bool)
    return (FIRST.poison.remaining(actual) | AGAIN.poison.remaining(actual)).reshape(actual.shape)


def _wrong_output(trial: Trial, run: Run, name: str, mask: Array) -> str:
    actual, expected = run.outputs[name], np.asarray(trial.prepared.expected.values[name])
    empty = _unwritten(run, name)
    if empty.all():
        return f"{name} should be {shown(expected)}, was never written"
    if actual.size <= MAX_SHOWN and not empty.any():
        return f"{name} should be {shown(expected)}, is {shown(actual)}"
    missing = mask & empty
    at = tuple(np.argwhere(missing if missing.any() else mask)[0].tolist())
    is_unwritten = bool(missing[at])
    got = "was never written" if is_unwritten else f"is {number(actual[at])}"
    return f"{name}[{with_axes(at)}] should be {number(expected[at])}, {got}"


Same = Callable[[Trial], "Finding | None"]
"""Returns a trial's finding if the trial fails in the same way."""


def same_failure(found: Finding) -> Same:
    """Return the comparison with the first finding of a `correct` check."""

    def same(trial: Trial) -> Finding | None:
        first = next(iter(trial.outcome.findings), None)
        is_same = first is not None and (first.code, first.where) == (found.code, found.where)
        return first if is_same else None

    return same


def same_hazard(kind: str, found: Finding) -> Same:
    """Return the comparison with a finding of a `safe` check; a write-after-read race is no write-after-write one."""

    def same(trial: Trial) -> Finding | None:
        seen = [other for other, _ in unsafe(kind, ((trial.case, trial.outcome),))]
        return next((other for other in seen if _way(other) == _way(found)), None)

    return same


def _way(found: Finding) -> tuple[str, str, list[str]]:
    """Return a finding's code, line and kind of race."""
    return found.code, found.where, RACES.findall(found.what)

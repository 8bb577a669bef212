"""The trial to draw: with blocks as small as the exercise allows, if the submission then behaves in the same way."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise import Array, Case, Exercise, Size
from pytest_gpulab.exercise_rules import NAIVE
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.builds import BuildFailed, Builds
from pytest_gpulab.grading.compilation.swept_source import CannotSweep, swept
from pytest_gpulab.grading.correctness.cases import CaseRuns
from pytest_gpulab.grading.correctness.requests import Request, request_of, requested
from pytest_gpulab.grading.correctness.safety import unsafe
from pytest_gpulab.grading.correctness.sizes import extents_of
from pytest_gpulab.grading.correctness.smallest_inputs import Instead
from pytest_gpulab.grading.correctness.trials import Trial, Trials
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, make_plan
from pytest_gpulab.grading.time_limits import IN_TOTAL, TIME_LIMIT, TimeBudget, TimeLimits

from .figure import Figure, figures_of
from .tracing import Traced, linear, traced

SMALLEST = ({"BLOCK": 8, "TILE": 4}, {"BLOCK": 64, "TILE": 8})
"""The smallest values to draw, by a part of the tunable's name: for one warp, and for two, which some races need."""

MAX_REUSED = 64  # elements of a smallest failing input that is drawn as it is
MAX_RECORDED = 16  # blocks of a grid that is recorded as a whole
LIMITS = TimeLimits(case_s=3.0, file_s=1.0, is_verdict=False)  # a figure is of a small input
TRACE_S = 0.3  # for the traced run of a kernel that does not end in time
ENDING_S = 3.0  # for a run that is known to end, also on a busy machine


Search = Callable[[LoadedExercise, Path, Device, int, str, "Instead | None"], "Finding | None"]
"""Searches the first failure of a file, as `smallest_failing` does, which has the same parameters."""


@dataclass(frozen=True)
class Drawn:
    """A trial with its figures."""

    trial: Trial  # with the declared block size if it has the same input as the figures; else the one of the figures
    figures: tuple[Figure, ...]
    note: str  # what differs from the submission
    # what the outputs do not show: hazards of a right result, or the failure of a larger case
    hidden: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Subject:
    """A submission on a device, to be drawn."""

    loaded: LoadedExercise
    path: Path
    device: Device
    seed: int
    # returns the first failure of a file that has a smallest failing input, or else the first one; None for a file that
    # is known to be right
    search: Search | None


def drawn(subject: Subject, request: Request) -> Drawn:
    """Return the figures of a request, or of the smallest failing input, or of a readable one, with hidden mistakes.

    Raises RequestError, InstructorsMistake and BuildFailed as `requested`.
    """
    own = _Runner(subject, subject.path)
    with tempfile.TemporaryDirectory(prefix="gpulab-") as folder:
        found = _drawn(own, _Smaller(subject, own, Path(folder)), request)
    return replace(found, hidden=(*_hazards(subject, found.trial), *own.failure))


def _drawn(own: _Runner, smaller: _Smaller, request: Request) -> Drawn:
    failure = own.searched(instead=smaller.draw_failure) if request.is_empty else None
    if smaller.drawn is not None:
        return smaller.drawn
    trial = own.chosen(request, failure)
    is_large = prod(extents_of(trial.problem.size)) > MAX_REUSED
    is_slow = _is_slow(trial)  # with fewer threads, too
    found = None if is_slow or (is_large and smaller.were_searched) else smaller.like(trial, own.request or request)
    return found or own.figures(trial, "")


class _Smaller:
    """Copies of a submission with smaller blocks."""

    were_searched = False  # True once they were searched for a failure
    drawn: Drawn | None = None  # the figures of this failure, if they have it

    def __init__(self, subject: Subject, own: _Runner, folder: Path) -> None:
        self._subject, self._own, self._path = subject, own, folder / subject.path.name

    def draw_failure(self, case: Case, failure: Finding) -> Finding | None:
        """Draw a copy's smallest input that fails in the same way; None to search that of the submission.

        That of a large case is seldom small enough to be drawn, and takes as long to search.
        """
        if self.were_searched or self._own.elements(case) <= MAX_REUSED:
            return None
        self.were_searched = True
        for copy, note in self._copies():
            with suppress(BuildFailed, InstructorsMistake):
                like = copy.chosen(Request(), copy.searched(case.name))
                if (failure.code, failure.where) in _failures(self._subject, like):
                    self.drawn = copy.figures(like, note)
                    return failure
        return None

    def like(self, trial: Trial, request: Request) -> Drawn | None:
        """Draw a request if a copy behaves as in the submission's trial of it."""
        for copy, note in self._copies():
            with suppress(BuildFailed, InstructorsMistake):
                like = copy.chosen(request)
                is_readable = not request.is_empty or _is_full(like)
                if _failures(self._subject, like) == _failures(self._subject, trial) and is_readable:
                    return replace(copy.figures(like, note), trial=trial if _is_same_input(like, trial) else like)
        return None

    def _copies(self) -> Iterator[tuple[_Runner, str]]:
        """Yield copies, each with a note on its blocks."""
        for least in SMALLEST:
            small, changed = with_small_blocks(self._own.source, self._subject.loaded.exercise, least)
            if changed:
                self._path.write_text(small, encoding="utf-8")
                values = ", ".join(f"{name} = {value}" for name, (value, _) in changed.items())
                declared = ", ".join(str(value) for _, value in changed.values())
                note = f"Drawn with {values} instead of {declared}, where it behaves the same."
                yield _Runner(self._subject, self._path), note


def _is_slow(trial: Trial) -> bool:
    return any(fault.code == TIME_LIMIT for fault in trial.outcome.faults)


def _marked(found: Traced, blocks: frozenset[int]) -> list[Figure]:
    """Return the figures of these blocks, and of the first other recorded one if only that one has a mistake."""
    figures = figures_of(found, blocks)
    if found.trial.outcome.verdict != "failed" or any(figure.has_marks for figure in figures):
        return figures
    for block in sorted(found.blocks - blocks):
        if any(figure.has_marks for figure in figures_of(found, frozenset({block}))):
            return figures_of(found, blocks | {block})
    return figures


def _is_full(trial: Trial) -> bool:
    """Return True if the threads of a block have an element each."""
    return prod(extents_of(trial.problem.size)) >= prod(trial.prepared.plan.launches[0].block)


def _is_same_input(one: Trial, other: Trial) -> bool:
    mine, theirs = one.prepared.inputs, other.prepared.inputs
    is_same_size = one.problem.size == other.problem.size
    return is_same_size and all(np.array_equal(mine[name], theirs[name]) for name in mine)


def _failures(subject: Subject, trial: Trial) -> list[tuple[str, str]]:
    return [(found.code, found.where) for found in (*trial.outcome.findings, *_hazards(subject, trial))]


def _hazards(subject: Subject, trial: Trial) -> list[Finding]:
    """Return the hazards of a right result."""
    seen = ((trial.case, trial.outcome),) if trial.outcome.verdict == "passed" else ()
    return [hazard for safe in subject.loaded.exercise.safe for hazard, _ in unsafe(safe.kind, seen)]


def with_small_blocks(
    source: str, exercise: Exercise, smallest: Mapping[str, int]
) -> tuple[str, Mapping[str, tuple[int, int]]]:
    """Return a source with smaller blocks, and the changed tunables with their new and old values."""
    changed: dict[str, tuple[int, int]] = {}
    for tunable in exercise.tunables:
        least = next((value for part, value in smallest.items() if part in tunable.name), None)
        pattern = re.compile(rf"(GPULAB_TUNABLE\s*\(\s*{re.escape(tunable.name)}\s*,\s*)(\d+)(\s*\))")
        declared = pattern.search(source)
        if least is None or declared is None:
            continue
        smaller = [value for value in tunable.allowed if least <= value < int(declared[2])]
        if smaller:
            source = pattern.sub(rf"\g<1>{min(smaller)}\g<3>", source)
            changed[tunable.name] = (min(smaller), int(declared[2]))
    return source, changed


class _Runner:
    """Trials of one file."""

    request: Request | None = None  # that of its smallest failing input, once it was searched and found
    # the first failure of a file without a smallest failing input, or one that this input does not repeat
    failure: tuple[Finding, ...] = ()

    def __init__(self, subject: Subject, path: Path) -> None:
        self._subject, self._path = subject, path
        self._budget = budget = TimeBudget(LIMITS)
        self._builds = Builds(path, subject.loaded, subject.device, budget)
        self._trials = Trials(CaseRuns(self._builds, subject.seed), budget)

    @property
    def source(self) -> str:
        """The file's text."""
        return self._builds.source

    def elements(self, case: Case) -> int:
        """Return the product of a case's extents."""
        return prod(extents_of(case.problem(self._trials.build(case).tunables).size))

    def searched(self, case: str = "", instead: Instead | None = None) -> Finding | None:
        """Return the first failure of a case, or of all; see `Search`."""
        subject = self._subject
        if subject.search is None:
            return None
        return subject.search(subject.loaded, self._path, subject.device, subject.seed, case, instead)

    def chosen(self, request: Request, failure: Finding | None = None) -> Trial:
        """Run a request; an empty one means the smallest input of a failure, or else a readable one."""
        subject = self._subject
        if request.is_empty:
            self.failure = () if failure is None else (failure,)
            if failure is None or failure.smallest is None:
                return self._known(self._faulty(failure) or self._readable())
            request = self.request = request_of(failure.smallest.command)
        trial = self._trials.run(*requested(subject.loaded.exercise, self._trials, request))
        if _failures(subject, trial):
            self.failure = ()
        return trial

    def _faulty(self, failure: Finding | None) -> Trial | None:
        """Run the case of a failure without a smallest failing input; None if the same fault does not end it."""
        if failure is None or not failure.where or IN_TOTAL in failure.what:  # a wrong result, or the search's end
            return None
        exercise = self._subject.loaded.exercise
        for case in exercise.cases:
            if not case.hidden and failure.what.startswith(f"correct[{case.name}]"):
                self._budget.begin(least_s=0.0 if failure.code == TIME_LIMIT else ENDING_S)
                trial = self._trials.run(*requested(exercise, self._trials, Request(case.name)))
                if any(fault.code == failure.code and fault.lane is not None for fault in trial.outcome.faults):
                    self.request = Request(case.name)
                    return trial
        return None

    def _known(self, trial: Trial) -> Trial:
        """Return a trial; its own failure is not another one of the file."""
        shown = _failures(self._subject, trial)
        self.failure = tuple(found for found in self.failure if (found.code, found.where) not in shown)
        return trial

    def _readable(self) -> Trial:
        """Run one full block on the values 1, 2, 3 and so on, or the first case if the exercise accepts none."""
        self._budget.begin(least_s=ENDING_S)  # other trials may have used it up; this kernel ends
        exercise = self._subject.loaded.exercise
        case = next(case for case in exercise.cases if not case.hidden)
        problem = case.problem(self._trials.build(case).tunables)
        block = make_plan(exercise, problem).launches[0].block
        own_size, own = problem.size, extents_of(problem.size)
        sizes: list[Size] = [problem.size]
        if isinstance(problem.size, tuple):
            sizes.insert(0, (*block, *own)[: len(own)])
        else:
            sizes = [2 * prod(block), prod(block), *sizes]  # a thread may take two elements

        def counting(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
            return {
                name: np.arange(1, values.size + 1).astype(values.dtype).reshape(values.shape)
                for name, values in inputs.items()
            }

        for size in sizes:
            with suppress(InstructorsMistake):
                change = counting if exercise.mixable else dict
                problem, prepared = self._trials.prepared(case, size, case.patterns[0], change)
                if prod(prepared.plan.launches[0].grid) == 1:
                    trial = self._trials.run(case, problem, prepared)
                    if trial.outcome.verdict == "passed":
                        return trial
        return self._trials.run(case, *self._trials.prepared(case, own_size, case.patterns[0]))

    def figures(self, trial: Trial, note: str) -> Drawn:
        """Trace a trial and return its figures."""
        last = max(prod(launch.grid) for launch in trial.prepared.plan.launches) - 1
        grid = trial.prepared.plan.launches[0].grid
        faulty = {linear(fault.lane.block, grid) for fault in trial.outcome.faults if fault.lane is not None}
        self._budget.begin(least_s=TRACE_S if _is_slow(trial) else ENDING_S)
        blocks = frozenset({0, *(faulty or {last})})
        recorded = blocks | frozenset(range(last + 1) if last < MAX_RECORDED else ())
        found = traced(self._subject.device, self._trials.build(trial.case), trial, recorded)
        if found.right is None and found.run.error is None and trial.wrong(found.run):
            found = replace(found, right=self._baseline(trial, blocks))
        if found.order:
            fails = "the result is wrong" if found.run.error is None else "the kernel fails"
            note += f" The order of warps is one in which {fails}: {found.order.removeprefix('when ')}."
        return Drawn(trial, tuple(_marked(found, blocks)), note.strip())

    def _baseline(self, trial: Trial, blocks: frozenset[int]) -> Traced | None:
        """Trace the naive baseline on a plan of several launches; None if it does not fit the plan."""
        subject, naive = self._subject, self._subject.loaded.folder / NAIVE
        if len(trial.prepared.plan.launches) < 2 or not naive.is_file():
            return None
        with tempfile.TemporaryDirectory(prefix="gpulab-") as folder, suppress(BuildFailed, CannotSweep):
            path = Path(folder) / naive.name
            path.write_bytes(swept(naive.read_bytes(), trial.problem.tunables))
            build = Builds(path, subject.loaded, subject.device, TimeBudget(LIMITS)).of(trial.case.variant)
            found = traced(subject.device, build, trial, blocks)
            return found if found.run.error is None and not trial.wrong(found.run) else None
        return None

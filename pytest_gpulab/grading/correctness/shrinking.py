"""The smallest failing input: fewer elements, then simpler values, as long as a submission fails in the same way.

All trials run on the simulated GPU. Their number and work are bounded, so that the result depends on the seed only. The
time limit is for a machine that is too busy.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from pytest_gpulab.exercise import Array, Case, Plan, Size
from pytest_gpulab.grading.compilation.builds import BuildFailed, cases_of, variant_key
from pytest_gpulab.grading.diagnosis.arithmetic_patterns import OFFSET
from pytest_gpulab.grading.diagnosis.causes import EDGES, FROM_INDEX_ON, PITCH
from pytest_gpulab.grading.diagnosis.compare import WRONG_RESULTS, Repeats
from pytest_gpulab.grading.diagnosis.simple_inputs import as_option, bounds_of, simple_inputs, simplified
from pytest_gpulab.grading.diagnosis.value_patterns import TRANSPOSED
from pytest_gpulab.grading.findings import HINTS
from pytest_gpulab.grading.grade import Finding, SmallestInput
from pytest_gpulab.grading.plans.prepare import InstructorsMistake, make_plan
from pytest_gpulab.grading.time_limits import TIME_LIMIT, TimeBudget, TimeLimits

from .cases import CaseRuns
from .relation import Relation, hint_of_single, relation_of
from .sizes import Axis, Extents, axes_of, extents_of, rule
from .trials import Same, Trial, Trials, given_words, same_failure, wrong_words

MAX_SEARCHES = 3  # per submission: each kind of failure is shrunk once
# Trials of one search by purpose; a large trial counts more.
MAX_WORK = {"sizes": 60, "values": 80, "rule": 40, "relation": 20}
WORK_ELEMENTS = 4096
FEW_ELEMENTS = 8  # of one input: their relation to a wrong result shows the steps of a tree
MAX_SHARE = 10  # of a single trial
MAX_STEPS = 45_000  # of a search, see `WorkLimit`: 1 to 2 s
WAIT_STEPS = 10_000  # of a search for a smaller input on which threads wait for ever: each poll is a step
SAFETY_S = 25.0  # MAX_STEPS on a machine ten times as busy
MAX_SAMPLED = 5000  # elements of a case that shows the range of valid values
MAX_KNOWN = 2048  # elements of a case that tests a rule
MAX_LEFT_OUT = 4  # places of elements to leave out, one at a time
MAX_SIMPLIFIED = 24  # elements of random inputs that are simplified one by one
SHRUNK = (
    *WRONG_RESULTS, "input-changed", "out-of-bounds", "misaligned", "barrier", "deadlock", "endless-loop",
    "block-order", "race", "uninitialised", "assert", "trap",
)  # fmt: skip
"""Codes of failures that are shrunk."""

EVERY_SIZE = (
    "Every size fails. The command above shows what each thread reads and writes for the smallest input: which step "
    "differs from what you planned?"
)
RULE_HINTS = (
    ("wrong-result", r"^fails for every \w+ tried$", EVERY_SIZE),
    *((code, "where width and height differ", TRANSPOSED) for code in ("out-of-bounds", "not-written", "wrong-result")),
    *((code, "where width is (larger|smaller) than height", PITCH) for code in ("out-of-bounds", "not-written")),
)
"""Code, words in the rule, and the hint in place of the code's general hint, or of one about an edge."""

WAITS = ("endless-loop", "deadlock", "block-order")
"""Codes of failures that depend on the number of blocks and threads: below a size that passes, sizes are not tried."""

OF_FIRST_RUN = ("wrong-result", "not-written", "input-changed")
"""Codes of the first run only: other runs are compared with it."""


def is_shrunk(case: Case, found: Finding) -> bool:
    """Return True if a case's failure has a smallest input to search."""
    return not (case.hidden or found.hidden or found.because) and found.code in SHRUNK


def with_smallest(found: Finding, smallest: SmallestInput | None, hint: str = "") -> Finding:
    """Return a finding with its smallest input; `hint`, or that of the rule of sizes, replaces a general one."""
    if hint and found.hint in (HINTS[found.code], FROM_INDEX_ON, OFFSET):
        return replace(found, smallest=smallest, hint=hint)
    failing = smallest.rule if smallest else ""
    for code, words, hint in RULE_HINTS:
        swapped = (*EDGES, HINTS["uninitialised"]) if hint in (TRANSPOSED, PITCH) else ()
        general = (HINTS[code], *swapped)
        if found.code == code and found.hint in general and re.search(words, failing):
            return replace(found, smallest=smallest, hint=hint)
    return replace(found, smallest=smallest)


class Shrinker:
    """The smallest failing inputs of one submission, each searched once.

    Without `with_rules`, a rule of sizes is searched on request only.
    """

    def __init__(self, cases: CaseRuns, with_rules: bool = True) -> None:
        self._cases, self._builds, self._seed, self._with_rules = cases, cases.builds, cases.seed, with_rules
        self._found: dict[tuple[str, str, str], tuple[Case, SmallestInput | None, str]] = {}
        self._last: tuple[_Search, Trial] | None = None

    def added_to(self, case: Case, found: Finding, same: Same | None = None) -> Finding:
        """Return a finding of a visible case with the smallest input that fails in this way, if there is one."""
        if not is_shrunk(case, found):
            return found
        key = (found.code, found.where, self._kernel(case))
        if key not in self._found:
            if len(self._found) >= MAX_SEARCHES:
                return found
            self._found[key] = case, *self._search(case, found, same or same_failure(found))
        searched, smallest, hint = self._found[key]
        if smallest is not None:  # the search may have begun in a case with another statement of the failure
            smallest = replace(smallest, what=smallest.what.removesuffix(f": {found.what}"))
        shown = with_smallest(found, smallest, hint)
        return shown if variant_key(searched.variant) == variant_key(case.variant) else replace(shown, smallest=None)

    def _kernel(self, case: Case) -> str:
        """Return the first kernel that a case launches: mistakes of other kernels are others."""
        with suppress(BuildFailed, InstructorsMistake):
            problem = case.problem(self._builds.of(case.variant).tunables)
            return make_plan(self._builds.loaded.exercise, problem).launches[0].kernel
        return ""

    def _search(self, case: Case, found: Finding, same: Same) -> tuple[SmallestInput | None, str]:
        """Return the smallest input, and a hint that follows from its relation to the wrong result, if there is one."""
        try:
            search = _Search(self._cases, case, same, found)
            trial = search.smallest()
            rule = search.rule(trial) if self._with_rules and trial is not None else ""
            relation = search.relation(trial) if trial is not None else Relation()
        except (BuildFailed, InstructorsMistake):
            return None, ""
        if trial is None:
            return None, ""
        self._last = search, trial
        command = self._command(case, trial, search.pattern)
        return SmallestInput(search.words(trial, found.code), rule, command, relation.words), relation.hint

    def rule(self, stopped: Callable[[], bool]) -> str:
        """Return the rule of the last smallest input; empty if there is none, or if `stopped` ends the search."""
        if self._last is None:
            return ""
        search, trial = self._last
        search.stopped = stopped
        words = search.rule(trial)
        return "" if stopped() else words

    def _command(self, case: Case, trial: Trial, pattern: str) -> str:
        size = trial.problem.size
        words = ["gpulab", "explain", self._builds.path.name, "--case", case.name]
        words += ["--size", "x".join(map(str, size))] if isinstance(size, tuple) else ["--n", str(size)]
        for name, values in trial.prepared.inputs.items():
            words += [f"--{name}", as_option(values) or pattern]
        is_random = not all(map(as_option, trial.prepared.inputs.values()))
        has_state = self._builds.of(case.variant).module.has_state  # another input runs before, of random values
        return shlex.join([*words, "--seed", str(self._seed)] if is_random or has_state else words)


class _Search:
    """One search, which ends early once `stopped` returns True; see the module."""

    stopped: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, cases: CaseRuns, case: Case, same: Same, found: Finding) -> None:
        builds, exercise = cases.builds, cases.builds.loaded.exercise
        self._case, self._same = case, same
        # A failure of the first run, in lockstep, shows there at other sizes, too. Only a rule needs right sizes.
        self._is_first_wrong = found.code == "wrong-result" and not found.by_luck
        is_in_first = found.code in OF_FIRST_RUN or cases.has_passed(case)
        self._repeats = Repeats(orders=not is_in_first, luck=found.by_luck)
        is_wait = found.code in WAITS
        self._budget = TimeBudget(TimeLimits(SAFETY_S, SAFETY_S), WAIT_STEPS if is_wait else MAX_STEPS)
        self._trials = Trials(cases, self._budget)
        self._is_mixable = exercise.mixable
        build = builds.of(case.variant)
        self._own: Size = case.problem(build.tunables).size
        visible = [each for each in exercise.cases if not each.hidden]
        self._known = [(each, each.problem(build.tunables).size) for each in visible]
        like = cases_of(exercise, case.variant) if is_wait else ()
        sizes = [extents_of(size) for each, size in self._known if each in like and cases.has_passed(each)]
        self._passed = [size for size in sizes if len(size) == 1 and size < extents_of(self._own)]
        self.pattern = cases.failing_pattern(case)
        _, prepared = self._trials.prepared(case, self._own, self.pattern)
        self._edges = _edges(prepared.plan)
        self._axes = axes_of([size for _, size in self._known], self._edges)
        self._names = self._trials.names(case)
        self._tried: dict[Extents, Trial | None] = {}
        self._failed: dict[Extents, bool] = {}
        self._left = MAX_WORK["sizes"]

    def smallest(self) -> Trial | None:
        """Return the smallest failing trial, or None if no trial fails."""
        extents = self._smallest_extents()
        self._left = MAX_SHARE
        trial = self._at(extents)
        if trial is None:
            return None
        self._left = MAX_WORK["values"]
        return self._simplest(trial)

    def words(self, trial: Trial, code: str) -> str:
        """Return the input and its failure."""
        given = given_words(trial.problem, trial.prepared, trial.names)
        found = self._same(trial)
        what = (wrong_words(trial) if code in WRONG_RESULTS else "") or (found.what if found is not None else "")
        return f"{given}: {what}" if what else given

    def rule(self, smallest: Trial) -> str:
        """Return the sizes that fail, as far as sizes were tried; empty if no rule holds."""
        self._left = MAX_WORK["rule"]
        self._repeats = self._repeats._replace(orders=True)
        self._tried = {extents: trial for extents, trial in self._tried.items() if extents in self._failed}
        self._try_more_sizes(extents_of(smallest.problem.size))
        words = rule(self._failed, self._names, self._edges)
        if not words:
            return ""
        if all(self._failed.values()) or " but " in words:
            return f"fails for {words}"
        return f"fails for {words}; right for all others tried"

    def relation(self, smallest: Trial) -> Relation:
        """Return the relation of wrong results to random inputs, of a few more elements if these fail as well."""
        size = smallest.problem.size
        if not self._is_first_wrong or not self._is_mixable:
            return Relation()
        self._left, self._repeats = MAX_WORK["relation"], Repeats(orders=False, luck=False)
        few = FEW_ELEMENTS if not isinstance(size, tuple) and size < FEW_ELEMENTS else size
        for other in dict.fromkeys((few, size)):
            trial = self._at(extents_of(other))
            found = relation_of(trial, partial(self._trial, other)) if trial is not None else Relation()
            if found.words:
                return found if other == size else found._replace(words=f"with n = {other}: {found.words}")
        return Relation(hint=hint_of_single(smallest))

    # --- sizes --------------------------------------------------------------------------------------------------

    def _smallest_extents(self) -> Extents:
        best = extents_of(self._own)
        if len(best) > 1:  # sizes with equal extents first: few trials, and most mistakes show in them
            for low in sorted({extent for axis in self._axes for extent in axis.candidates()}):
                square = tuple(min(max(low, axis.lowest), own) for axis, own in zip(self._axes, best, strict=True))
                if all(map(Axis.allows, self._axes, square)) and self._at(square) is not None:
                    best = square
                    break
        for _ in range(2 if len(best) > 1 else 1):
            for axis in range(len(best)):
                best = self._smallest_along(axis, best)
        return best

    def _smallest_along(self, axis: int, best: Extents) -> Extents:
        """Return the extents with the smallest one that fails in the place of one of them."""

        def changed(extent: int) -> Extents:
            return (*best[:axis], extent, *best[axis + 1 :])

        passed = max((self._axes[axis].lowest - 1, *(size[axis] for size in self._passed)))
        for extent in filter(lambda extent: extent > passed, self._axes[axis].candidates()):
            if extent >= best[axis]:
                break
            if self._at(changed(extent)) is not None:
                return changed(self._between(axis, passed, extent, changed))
            passed = extent
        return changed(self._between(axis, passed, best[axis], changed))

    def _between(self, axis: int, passed: int, fails: int, changed: Callable[[int], Extents]) -> int:
        """Return a failing extent above one that passes, as if all above it failed."""
        while fails - passed > 1:
            middle = self._axes[axis].between(passed, fails)
            if middle is None or self._is_spent:
                break
            if self._at(changed(middle)) is not None:
                fails = middle
            else:
                passed = middle
        return fails

    def _try_more_sizes(self, smallest: Extents) -> None:
        """Try further sizes, so that a rule does not rest on a few."""
        self._at(smallest)
        if len(smallest) > 1:  # others differ from the smallest one along a single axis
            for size in {extents_of(size): None for _, size in self._known if prod(extents_of(size)) <= MAX_KNOWN}:
                self._at(size)
        for axis, candidates in enumerate(axis.candidates() for axis in self._axes):
            for extent in candidates:
                self._at((*smallest[:axis], extent, *smallest[axis + 1 :]))

    @property
    def _is_spent(self) -> bool:
        return self._left <= 0 or self._budget.is_used_up or self.stopped()

    def _at(self, extents: Extents) -> Trial | None:
        """Return the failing trial of a size with the case's input pattern; None if it does not fail."""
        if extents not in self._tried:
            self._tried[extents] = None
            size: Size = extents if isinstance(self._own, tuple) else extents[0]
            trial = self._trial(size)
            if trial is not None:
                fails = self._same(trial) is not None
                if fails or trial.outcome.verdict == "passed":
                    self._failed[extents] = fails
                self._tried[extents] = trial if fails else None
        return self._tried[extents]

    # --- values -------------------------------------------------------------------------------------------------

    def _simplest(self, trial: Trial) -> Trial:
        if not self._is_mixable:
            return trial
        own, best = trial.prepared.inputs, trial
        bounds = bounds_of(self._samples())
        passed: set[tuple[bytes, ...]] = set()  # contents; halves of zeros and one value repeat the whole

        def fails(inputs: Mapping[str, Array]) -> bool:
            nonlocal best
            contents = tuple(values.tobytes() for values in inputs.values())
            tried = None if contents in passed else self._trial(trial.problem.size, inputs)
            if tried is None or self._same(tried) is None:
                passed.add(contents)
                return False
            if all(values is own[name] or as_option(values) is not None for name, values in inputs.items()):
                best = tried  # a command can repeat it
            return True

        found = next((inputs for inputs in simple_inputs(own, bounds) if fails(inputs)), None)
        small = sum(values.size for values in own.values()) <= MAX_SIMPLIFIED
        if found is not None or small:
            simplified(own if found is None else found, bounds, fails, lambda: self._is_spent)
        return self._shorter(best)

    def _shorter(self, trial: Trial) -> Trial:
        """Return the trial without elements that the failure does not need; the random ones may need more of them."""
        inputs, size = trial.prepared.inputs, trial.problem.size
        if isinstance(size, tuple) or not self._axes[0].allows(size - 1):
            return trial
        if not all(values.shape == (size,) and as_option(values) for values in inputs.values()):
            return trial
        for at in _ends_of_runs(inputs):
            tried = self._trial(size - 1, {name: np.delete(values, at) for name, values in inputs.items()})
            if tried is not None and self._same(tried) is not None:
                self._tried[size - 1,], self._failed[size - 1,] = tried, True
                return self._shorter(tried)
        return trial

    def _samples(self) -> Iterator[Mapping[str, Array]]:
        """Yield the inputs of the variant's small cases, and of this one."""
        for case, size in self._known:
            is_small = prod(extents_of(size)) <= MAX_SAMPLED and case.variant is self._case.variant
            if is_small or case is self._case:
                with suppress(InstructorsMistake):
                    yield from (self._trials.prepared(case, size, pattern)[1].inputs for pattern in case.patterns)

    def _trial(self, size: Size, inputs: Mapping[str, Array] | None = None) -> Trial | None:
        """Return a trial, or None if it is too large, takes too long, or is no valid input."""
        if self._is_spent:
            return None
        try:
            change = dict if inputs is None else (lambda _: inputs)
            problem, prepared = self._trials.prepared(self._case, size, self.pattern, change)
        except InstructorsMistake:
            return None
        work = 1 + _elements(prepared.plan) // WORK_ELEMENTS
        if work > MAX_SHARE:
            return None
        self._left -= work
        trial = self._trials.run(self._case, problem, prepared, self._repeats)
        return None if any(fault.code == TIME_LIMIT for fault in trial.outcome.faults) else trial


def _ends_of_runs(inputs: Mapping[str, Array]) -> list[int]:
    """Return the last places of equal values in a row, the last one first, at most `MAX_LEFT_OUT`."""
    ends = {int(at) for values in inputs.values() for at in (*np.flatnonzero(np.diff(values)), values.size - 1)}
    return sorted(ends, reverse=True)[:MAX_LEFT_OUT]


def _elements(plan: Plan) -> int:
    """Return the elements and threads of a plan."""
    threads = sum(prod(launch.grid) * prod(launch.block) for launch in plan.launches)
    return threads + sum(prod(buffer.shape) for buffer in plan.buffers)


def _edges(plan: Plan) -> tuple[int, ...]:
    """Return the extents of the plan's blocks."""
    extents = {extent for launch in plan.launches for extent in (*launch.block, prod(launch.block))}
    return tuple(sorted(extents - {1}))

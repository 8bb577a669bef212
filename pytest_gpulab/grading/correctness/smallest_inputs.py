"""When the smallest failing inputs of a submission are searched: with each failed check, or on request."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pytest_gpulab.exercise import Case
from pytest_gpulab.grading.grade import CheckResult, Finding
from pytest_gpulab.grading.time_limits import Searched, TimeBudget

from .cases import CaseRuns
from .shrinking import Shrinker, is_shrunk
from .trials import same_hazard

Instead = Callable[[Case, Finding], "Finding | None"]
"""Gets a failed case before its smallest input is searched; a finding that it returns ends the search."""

Failing = tuple[Finding, Case, str]
"""A finding, a case that fails so, and the kind of a `safe` check; empty for a `correct` check."""


@dataclass
class SmallestInputs:
    """The smallest failing inputs of one submission; `cases` are its runs.

    A search takes its time from the `budget` of the file.
    """

    searched: Searched
    cases: CaseRuns
    budget: TimeBudget
    _shrinker: Shrinker | None = None
    _left_out: dict[str, tuple[Failing, ...]] = field(default_factory=dict)

    def added_to(self, check: str, *failing: Failing) -> tuple[Finding, ...]:
        """Return the findings of a check of this name, with their smallest inputs if these are searched at once."""
        if self.searched == "all":
            return tuple(map(self._search, failing))
        self._left_out[check] = failing
        return tuple(found for found, *_ in failing)

    def requested(self, result: CheckResult) -> Finding | None:
        """Return the first finding of a result that has a smallest input, with it."""
        if self.searched == "later":
            for shown, failing in zip(result.findings, self._left_out.get(result.name, ()), strict=False):
                if (smallest := self._search(failing).smallest) is not None:
                    return replace(shown, smallest=smallest)
        return None

    def first(self, result: CheckResult) -> tuple[Case, Finding] | None:
        """Return the first failure of a result that `requested` would search."""
        failing = self._left_out.get(result.name, ()) if self.searched == "later" else ()
        return next(((case, found) for found, case, _ in failing if is_shrunk(case, found)), None)

    def rule(self, stopped: Callable[[], bool]) -> str:
        """Return the rule of sizes of a requested input; empty if there is none, or once `stopped` returns True."""
        return self._shrinker.rule(stopped) if self._shrinker is not None else ""

    def _search(self, failing: Failing) -> Finding:
        found, case, hazard = failing
        self._shrinker = self._shrinker or Shrinker(self.cases, with_rules=self.searched != "later")
        if self.budget.is_used_up:
            return found
        with self.budget.charging(is_launch=False):
            return self._shrinker.added_to(case, found, same_hazard(hazard, found) if hazard else None)

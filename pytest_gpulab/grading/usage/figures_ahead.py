"""A second process that counts and estimates at the same time, from the last check to the first."""

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from pytest_gpulab.exercise import SpeedTier, UsesCheck
from pytest_gpulab.grading.compilation.builds import BuildFailed
from pytest_gpulab.grading.correctness.ahead import FoundAhead
from pytest_gpulab.grading.speed.estimate import EstimatedCosts
from pytest_gpulab.grading.usage.checks import Usages

_Known: TypeAlias = "tuple[dict[Any, Any], ...]"


class FiguresAhead:
    """The second process; `costs` asks it before it estimates.

    Its checks are of correct kernels, in the order in which this process grades them. `begin` begins a time limit.
    """

    def __init__(
        self,
        subjects: Iterable[UsesCheck | SpeedTier],
        costs: EstimatedCosts,
        usages: Usages,
        begin: Callable[[], None],
    ) -> None:
        self._costs, self._usages, self._begin = costs, usages, begin
        self._tasks: dict[Hashable, Callable[[], object]] = {}
        for subject in subjects:
            if isinstance(subject, UsesCheck):
                self._tasks[subject.name] = partial(usages.count, subject)
            else:  # all tiers of a size share one estimate
                self._tasks.setdefault(costs.key(subject), partial(costs.estimate, subject))
        self._ahead = FoundAhead(list(self._tasks), self._find)
        costs.learn = self.learn

    def learn(self, name: Hashable) -> None:
        """Add what the second process has found to what is known, unless it has not begun with this check or key."""
        if (found := self._ahead.take(name)) is not None:
            for known, more in zip(self._known, found, strict=True):
                known.update(more)

    def close(self) -> None:
        """End the second process."""
        self._ahead.close()

    def _find(self, name: Hashable) -> _Known:
        self._begin()
        with suppress(BuildFailed):  # it is known, too
            self._tasks[name]()
        return self._known

    @property
    def _known(self) -> _Known:
        return (*self._costs.known, self._usages.known)

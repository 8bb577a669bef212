"""Comparisons of failures: a smaller input must fail in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable

from pytest_gpulab.grading.grade import Finding

from .safety import unsafe
from .trials import Trial

RACES = re.compile(r"\((RAW|WAR|WAW)\)")

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

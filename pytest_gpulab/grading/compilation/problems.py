"""Everything that a file lacks to be graded, in one finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding


class Problem(NamedTuple):
    """A reason why a file cannot be graded.

    Attributes:
        finding: the finding if it is the only reason.
        request: the change that would solve it, in the imperative: `add ...`.
    """

    finding: Finding
    request: str


def joined(problems: Sequence[Problem]) -> Finding:
    """Return one finding for all problems; there is at least one."""
    first = problems[0].finding
    if len(problems) == 1:
        return first
    what = f"To grade this file: {'; '.join(problem.request for problem in problems)}."
    evidence = [line for problem in problems for line in (problem.finding.what, *problem.finding.evidence)]
    hints = dict.fromkeys(problem.finding.hint for problem in problems if problem.finding.hint)
    return finding(first.code, what, first.where, dict.fromkeys(evidence), " ".join(hints))

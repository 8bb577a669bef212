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
        is_complete: whether the request says all that the finding says, its evidence aside.
    """

    finding: Finding
    request: str
    is_complete: bool = False


def joined(problems: Sequence[Problem]) -> Finding:
    """Return one finding for all problems; there is at least one."""
    first = problems[0].finding
    if len(problems) == 1:
        return first
    what = f"To grade this file: {'; '.join(problem.request for problem in problems)}."
    evidence = dict[str, None]()
    for problem in problems:
        said = () if problem.is_complete else (problem.finding.what,)
        evidence |= dict.fromkeys((*said, *problem.finding.evidence))
    hints = dict.fromkeys(problem.finding.hint for problem in problems if not problem.is_complete)
    return finding(first.code, what, first.where, evidence, " ".join(filter(None, hints)))

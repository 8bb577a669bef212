"""What a class did as a whole: scores, how often each check was passed, which findings are commonest. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pytest_gpulab.grading.grade import COMPILER_WARNING, CheckResult, Finding, Grade

from .standings import Standing, exercises_of, share_of

BINS = 10
TOTAL = "total"
PASSING = 0.5


@dataclass(frozen=True)
class Scores:
    """How the points of one exercise, or of all together, are distributed.

    Attributes:
        title: the exercise, or `TOTAL`.
        max_points: the most that could be earned.
        shares: of the points possible, 0 to 1, one a submission or student, ascending.
    """

    title: str
    max_points: float
    shares: tuple[float, ...]

    @property
    def histogram(self) -> tuple[int, ...]:
        """How many lie in each tenth of the points; the last one holds those with all points, too."""
        counts = Counter(min(int(share * BINS + 1e-9), BINS - 1) for share in self.shares)
        return tuple(counts[tenth] for tenth in range(BINS))

    @property
    def mean(self) -> float:
        """Of the shares."""
        return statistics.fmean(self.shares)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """A quarter, half and three quarters of the shares are at most these."""
        if len(self.shares) == 1:
            return (self.shares[0],) * 3
        low, middle, high = statistics.quantiles(self.shares, n=4, method="inclusive")
        return low, middle, high

    @property
    def full(self) -> int:
        """How many have all points."""
        return sum(share >= 1 for share in self.shares)

    @property
    def below_half(self) -> int:
        """How many have less than half of the points."""
        return sum(share < PASSING for share in self.shares)


@dataclass(frozen=True)
class CheckRate:
    """How one check of an exercise went.

    Attributes:
        passed, failed, inconclusive: submissions; a bonus that was missed counts as failed.
        kept_off: those that did not come to it, as another check did not pass first or nothing was started.
        not_gradable: those that the machine kept from it.
    """

    exercise: str
    name: str
    required: bool
    max_points: float
    passed: int
    failed: int
    inconclusive: int
    kept_off: int
    not_gradable: int

    @property
    def decided(self) -> int:
        """Submissions that came to a verdict of their own on it."""
        return self.passed + self.failed + self.inconclusive

    @property
    def rate(self) -> float | None:
        """Passed of those decided, 0 to 1; inconclusive ones have the points, but did not pass."""
        return self.passed / self.decided if self.decided else None


@dataclass(frozen=True)
class FindingCount:
    """How often something went wrong: submissions with a finding of that code, and one of its sentences."""

    code: str
    submissions: int
    exercises: tuple[str, ...]
    example: str
    hint: str


def scores(grades: Sequence[Grade], everyone: Sequence[Standing]) -> list[Scores]:
    """Return the distribution of each exercise and, where there are several, of the total."""
    most = exercises_of(grades)
    found = [Scores(name, most[name], _shares(share_of(g) for g in grades if g.exercise == name)) for name in most]
    if len(most) > 1 and any(len(each.row.grades) > 1 for each in everyone):
        found.append(Scores(TOTAL, sum(most.values()), _shares(each.share for each in everyone)))
    return [each for each in found if each.shares]


def _shares(shares: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(sorted(share for share in shares if share is not None))


def check_rates(grades: Iterable[Grade]) -> list[CheckRate]:
    """Return every check of every exercise, in the exercises' order."""
    found: dict[tuple[str, str], list[CheckResult]] = {}
    for grade in grades:
        for check in grade.checks:
            found.setdefault((grade.exercise, check.name), []).append(check)
    return [_rate(exercise, name, results) for (exercise, name), results in found.items()]


def _rate(exercise: str, name: str, results: Sequence[CheckResult]) -> CheckRate:
    counts = Counter(_outcome(result) for result in results)
    return CheckRate(
        exercise,
        name,
        results[0].required,
        max(result.max_points for result in results),
        counts["passed"],
        counts["failed"] + counts["missed"],
        counts["inconclusive"],
        counts["kept off"] + counts["not started"],
        counts["not gradable"],
    )


def _outcome(result: CheckResult) -> str:
    is_consequence = result.verdict != "passed" and any(finding.because for finding in result.findings)
    return "kept off" if is_consequence and result.verdict != "not gradable" else result.verdict


def hardest(rates: Iterable[CheckRate], most: int) -> list[CheckRate]:
    """Return the checks that the smallest share passed, at most so many, none that all did."""
    hard = [rate for rate in rates if rate.rate is not None and rate.rate < 1]
    return sorted(hard, key=lambda rate: (rate.rate or 0.0, -rate.decided))[:most]


def commonest(grades: Iterable[Grade], most: int) -> list[FindingCount]:
    """Return what went wrong in most submissions, at most so many codes; consequences of others left out.

    Missed bonuses are no fault, and what is inconclusive has cost nothing.
    """
    seen: dict[str, list[tuple[Grade, str, str]]] = {}
    for grade in grades:
        for code, (what, hint) in dict(_own_findings(grade)).items():
            seen.setdefault(code, []).append((grade, what, hint))
    counts = [
        FindingCount(code, len(found), tuple(sorted({grade.exercise for grade, _, _ in found})), *found[0][1:])
        for code, found in seen.items()
    ]
    return sorted(counts, key=lambda count: (-count.submissions, count.code))[:most]


def _own_findings(grade: Grade) -> Iterator[tuple[str, tuple[str, str]]]:
    for check in grade.checks:
        if check.verdict in ("failed", "not gradable", "not started"):
            yield from ((each.code, (each.what, each.hint)) for each in check.findings if _is_own(each))


def _is_own(finding: Finding) -> bool:
    return not finding.because and finding.code != COMPILER_WARNING

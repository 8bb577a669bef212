"""Statistics of a class: distribution of scores, pass rates of checks, most common findings. Pure."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pytest_gpulab.grading.grade import COMPILER_WARNING, CheckResult, Grade

from .standings import FULL_POINTS, Standing, exercises_of, share_of

BINS = 10
TOTAL = "total"
PASSING = 0.5


@dataclass(frozen=True)
class Scores:
    """Distribution of the points of one exercise, or of all together."""

    title: str  # the exercise, or `TOTAL`
    max_points: float  # the most that could be earned
    # shares of the possible points, one per submission or student, ascending; above 1 with extra points
    shares: tuple[float, ...]

    @property
    def histogram(self) -> tuple[int, ...]:
        """Count per tenth of the points; the last tenth includes full points."""
        counts = Counter(min(int(share * BINS + 1e-9), BINS - 1) for share in self.shares)
        return tuple(counts[tenth] for tenth in range(BINS))

    @property
    def mean(self) -> float:
        """Mean of the shares."""
        return statistics.fmean(self.shares)

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile of the shares."""
        if len(self.shares) == 1:
            return (self.shares[0],) * 3
        low, middle, high = statistics.quantiles(self.shares, n=4, method="inclusive")
        return low, middle, high

    @property
    def full(self) -> int:
        """Count with full points."""
        return sum(share >= 1 for share in self.shares)

    @property
    def below_half(self) -> int:
        """Count with less than half of the points."""
        return sum(share < PASSING for share in self.shares)


@dataclass(frozen=True)
class CheckRate:
    """Results of one check of an exercise."""

    exercise: str
    name: str
    required: bool
    max_points: float
    passed: int  # submissions
    failed: int  # submissions; a bonus that was missed counts as failed
    inconclusive: int  # submissions
    not_reached: int  # submissions that did not reach it: a check that it needs failed, or the work is not started
    not_gradable: int  # submissions that the machine could not grade

    @property
    def decided(self) -> int:
        """Submissions with a verdict."""
        return self.passed + self.failed + self.inconclusive

    @property
    def rate(self) -> float | None:
        """Passed share of the decided, 0 to 1; inconclusive ones have the points, but did not pass."""
        return self.passed / self.decided if self.decided else None


@dataclass(frozen=True)
class FindingCount:
    """Frequency of a finding: submissions that have its code, and one example."""

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
        weights = everyone[0].row.weights
        adjusted = {name: FULL_POINTS for each in everyone for name in each.row.adjusted}
        total = sum(points * weights.get(name, 1) for name, points in (adjusted | most).items())
        found.append(Scores(TOTAL, total, _shares(each.share for each in everyone)))
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
        counts["not reached"] + counts["not started"],
        counts["not gradable"],
    )


def _outcome(result: CheckResult) -> str:
    is_consequence = result.verdict != "passed" and any(finding.because for finding in result.findings)
    return "not reached" if is_consequence and result.verdict != "not gradable" else result.verdict


def hardest(rates: Iterable[CheckRate], most: int) -> list[CheckRate]:
    """Return the checks with the lowest pass rates, at most this number, without those that all passed."""
    hard = [rate for rate in rates if rate.rate is not None and rate.rate < 1]
    return sorted(hard, key=lambda rate: (rate.rate or 0.0, -rate.decided))[:most]


def commonest(grades: Iterable[Grade], most: int) -> list[FindingCount]:
    """Return the most common findings, at most this number of codes, without those that only follow from others.

    Missed bonuses are no fault, and inconclusive checks cost no points.
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
            own = (each for each in check.findings if not each.because and each.code != COMPILER_WARNING)
            yield from ((each.code, (each.what, each.hint)) for each in own)

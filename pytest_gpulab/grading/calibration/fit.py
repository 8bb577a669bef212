"""Thresholds for a device from a ladder of graded solutions, such that they separate its steps.

The instructor's expected verdicts define the tiers that each solution must reach. The threshold of a tier is a fraction
of the slowest solution that must reach it, its *reference*. It must be above the fastest solution that must not reach
it. Both speeds are taken at the less favourable end of their intervals.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain, combinations, groupby

from pytest_gpulab.exercise import Exercise, SpeedTier
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import Check, checks_of
from pytest_gpulab.grading.expected import Expectation
from pytest_gpulab.grading.grade import Grade, Measurement

from .choice import identity
from .file import Table

ABOUT_SPEED = {"too-slow", "inconclusive"}
"""Codes of findings about speed only: the measurement's results were correct."""


@dataclass(frozen=True)
class Step:
    """A solution of a ladder, with the tiers that it alone must reach, and its measurements by tier."""

    name: str
    reaches: frozenset[str]
    measured: Mapping[str, Measurement]

    def low(self, tier: SpeedTier) -> float:
        """Return the lower end of the speedup's interval."""
        measured = self.measured[tier.name]
        return measured.speedup if measured.low is None else measured.low

    def high(self, tier: SpeedTier) -> float:
        """Return the upper end of the speedup's interval."""
        measured = self.measured[tier.name]
        return measured.speedup if measured.high is None else measured.high


@dataclass(frozen=True)
class Proposal:
    """A proposed threshold of a tier on the device."""

    tier: SpeedTier
    steps: tuple[Step, ...]  # the solutions measured for it, by name
    threshold: float | None = None  # None if there is a `problem`
    reference: Step | None = None  # the slowest solution that must reach it; None if none was measured
    below: Step | None = None  # the fastest solution that must not reach it; None if none was measured
    problem: str = ""  # the reason why no threshold separates the steps

    @property
    def own_holds(self) -> bool:
        """True if the exercise's own threshold separates the steps on this device."""
        own = self.tier.threshold
        reached = self.reference is None or self.reference.low(self.tier) >= own
        return reached and (self.below is None or self.below.high(self.tier) < own)


@dataclass(frozen=True)
class Ladder:
    """The measured ladder of one exercise."""

    name: str
    table: Table  # its table in the calibration file
    proposals: tuple[Proposal, ...]  # proposals in the order of the tiers
    left_out: Mapping[str, str]  # graded files that are not steps, with the reasons


def ladders(
    grades: Sequence[Grade], catalogue: Catalogue, expectations: Callable[[Grade], Expectation | None], fraction: float
) -> tuple[Ladder, ...]:
    """Return the graded ladders that have a measured step, of solutions graded with `Thresholds.measuring`.

    `expectations` returns the expected verdict of a grade. `fraction` is the threshold over the reference's speedup,
    above 0 and at most 1.
    """
    created_utc = datetime.now(timezone.utc).isoformat(timespec="seconds")
    found = []
    for name, group in groupby(sorted(grades, key=lambda grade: grade.exercise), key=lambda grade: grade.exercise):
        members, exercise = list(group), catalogue.load(name).exercise
        if not isinstance(exercise, Exercise):  # a program has no tiers
            continue
        judged = {grade.submission: step_of(exercise, grade, expectations(grade)) for grade in members}
        proposed = proposals(exercise, [step for step in judged.values() if isinstance(step, Step)], fraction)
        left_out = {submission: why for submission, why in judged.items() if isinstance(why, str)}
        if any(proposal.steps for proposal in proposed):
            table = exercise_table(exercise, proposed, members[0], fraction, created_utc)
            found.append(Ladder(name, table, proposed, left_out))
    return tuple(found)


def reached_tiers(exercise: Exercise, expectation: Expectation, grade: Grade | None = None) -> frozenset[str] | None:
    """Return the names of the tiers that a solution must reach by its expected verdict; None if that is ambiguous.

    Tiers in `fails` are not reached, and other required tiers are. `points` determine the bonuses. Other bonuses than
    speed tiers count as in the grade, if they were graded. An ambiguous solution is not a step of the ladder.
    """
    checks = checks_of(exercise)
    fails = [check for check in checks if check.name in expectation.fails]
    if any(check.kind not in ("speedup", "uses") for check in fails):
        return None
    known = {done.name: done.verdict for done in grade.checks if done.kind == "uses"} if grade else {}
    settled = [check for check in checks if check.required and check not in fails]
    bonuses = [check for check in checks if not check.required and check not in fails]
    settled += [check for check in bonuses if known.get(check.name) == "passed"]
    bonuses = [check for check in bonuses if known.get(check.name) not in ("passed", "missed")]
    certain = _points(settled)
    possible = {
        _tiers([*settled, *reached])
        for reached in chain.from_iterable(combinations(bonuses, count) for count in range(len(bonuses) + 1))
        if _is_consistent([*settled, *reached], exercise)
        and (expectation.points is None or abs(certain + _points(reached) - expectation.points) < 1e-6)
    }
    return possible.pop() if len(possible) == 1 else None


def _points(checks: Sequence[Check]) -> float:
    return sum(check.max_points + check.extra_points for check in checks)


def _tiers(checks: Sequence[Check]) -> frozenset[str]:
    return frozenset(check.subject.name for check in checks if isinstance(check.subject, SpeedTier))


def _is_consistent(reached: Sequence[Check], exercise: Exercise) -> bool:
    """Return whether all lower tiers of the same benchmark are reached, too."""
    names = _tiers(reached)
    return all(
        lower.name in names
        for tier in exercise.speed
        for lower in exercise.speed
        if tier.name in names and identity(lower) == identity(tier) and lower.threshold < tier.threshold
    )


def step_of(exercise: Exercise, grade: Grade, expectation: Expectation | None) -> Step | str:
    """Return a graded solution as a step of the ladder, or the reason why it is not one."""
    if expectation is None:
        return "it has no expected verdict"
    reaches = reached_tiers(exercise, expectation, grade)
    if reaches is None:
        return "its expected verdict and its graded checks leave open which speed tiers it must reach"
    by_check = {check.name: check for check in grade.checks}
    measured = {}
    for tier in exercise.speed:
        check = by_check.get(f"speedup[{tier.name}]")
        if check is None:
            continue
        obstacle = next((found for found in check.findings if found.code not in ABOUT_SPEED), None)
        if check.measurement is None or obstacle is not None:
            return f"{check.name} was not measured" + (f": {obstacle.what}" if obstacle else "")
        measured[tier.name] = check.measurement
    return Step(grade.submission.rpartition("/")[2], reaches, measured)


def proposals(exercise: Exercise, steps: Sequence[Step], fraction: float) -> tuple[Proposal, ...]:
    """Return the proposed threshold of each tier; `fraction` is above 0 and at most 1.

    Of tiers that the same solutions reach, the fraction of the reference's speedup applies to the highest. The others
    keep their ratio to it, because the ladder does not determine them.
    """
    highest = {tier.name: _highest_alike(exercise, tier, steps) for tier in exercise.speed}
    return tuple(
        _proposal(tier, steps, fraction, tier.threshold / highest[tier.name].threshold) for tier in exercise.speed
    )


def _highest_alike(exercise: Exercise, tier: SpeedTier, steps: Sequence[Step]) -> SpeedTier:
    """Return the highest tier of the same benchmark that the same solutions reach."""
    alike = [
        other
        for other in exercise.speed
        if identity(other) == identity(tier)
        and all((other.name in step.reaches) == (tier.name in step.reaches) for step in steps)
    ]
    return max(alike, key=lambda other: other.threshold)


def _proposal(tier: SpeedTier, steps: Sequence[Step], fraction: float, share: float) -> Proposal:
    timed = sorted((step for step in steps if tier.name in step.measured), key=lambda step: step.name)
    reaching = [step for step in timed if tier.name in step.reaches]
    others = [step for step in timed if tier.name not in step.reaches]
    reference = min(reaching, key=lambda step: step.low(tier), default=None)
    below = max(others, key=lambda step: step.high(tier), default=None)
    if reference is None:
        problem = "no solution that must reach it was measured"
        return Proposal(tier, tuple(timed), None, None, below, problem)
    threshold = float(f"{fraction * share * reference.low(tier):.3g}")
    problem = "" if below is None else _inseparable(tier, reference, below, threshold, share)
    return Proposal(tier, tuple(timed), None if problem else threshold, reference, below, problem)


def _inseparable(tier: SpeedTier, reference: Step, below: Step, threshold: float, share: float) -> str:
    least, most = reference.low(tier), below.high(tier)
    if threshold > most:
        return ""
    facts = f"{reference.name} reaches {least:.3g}x, and {below.name}, which must not reach it, {most:.3g}x"
    needed = math.ceil(100 * most / (share * least) + 1) / 100
    if needed >= 1:
        return f"no threshold separates these steps on this device: {facts}"
    return f"{facts}; --gpulab-calibrate-fraction={needed:g} would separate them"


def exercise_table(
    exercise: Exercise, proposed: Sequence[Proposal], grade: Grade, fraction: float, created_utc: str
) -> Table:
    """Return an exercise's table of the calibration file, from the proposals for its tiers that have measurements.

    One of the measured grades gives the provenance; `created_utc` is the present time, ISO 8601.
    """
    source = grade.provenance
    return {
        "version": exercise.version,
        "created_utc": created_utc,
        "driver": source.details.get("driver", "n/a"),
        "compiler": source.compiler,
        "plugin_version": source.plugin_version,
        "fraction": fraction,
        "tiers": {proposal.tier.name: _tier_table(proposal) for proposal in proposed if proposal.steps},
    }


def _tier_table(proposal: Proposal) -> Table:
    tier, reference, below = proposal.tier, proposal.reference, proposal.below
    judged = {"threshold": proposal.threshold} if proposal.threshold is not None else {"problem": proposal.problem}
    return {
        **judged,
        "own_threshold": tier.threshold,
        "own_threshold_holds": proposal.own_holds,
        **identity(tier),
        "reference": reference.name if reference else "",
        "fastest_below": below.name if below else "",
        "measured": {step.name: _figures(step, tier) for step in proposal.steps},
    }


def _figures(step: Step, tier: SpeedTier) -> Table:
    measured = step.measured[tier.name]
    figures = {"speedup": measured.speedup, "low": step.low(tier), "high": step.high(tier)}
    return {
        "must_reach": tier.name in step.reaches,
        **{name: round(value, 4) for name, value in figures.items()},
        "rounds": measured.rounds,
        "caches": measured.caches,
    }

"""The checks of an exercise, listed without compiling anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from pytest_gpulab.exercise import Case, Exercise, SafeCheck, SpeedTier, UsesCheck

from .grade import CheckKind, CheckResult, Finding, Measurement, Provenance, Verdict

if TYPE_CHECKING:  # loaded by the exercises that use it
    from pytest_gpulab.program_exercise import ProgramCase, ProgramExercise, ProgramSafe, ProgramUse

Subject: TypeAlias = "Case | SafeCheck | UsesCheck | SpeedTier | ProgramCase | ProgramSafe | ProgramUse"
AnyCase = TypeVar("AnyCase", bound="Case | ProgramCase")


class Check(NamedTuple):
    """A check before it is graded."""

    name: str  # as in the pytest id, such as `correct[n=1023]`; unique in the exercise
    kind: CheckKind
    max_points: float  # points for passing
    required: bool  # False for a bonus, which is missed instead of failed
    subject: Subject | None  # the instructor's description; None for `compile`
    extra_points: float = 0.0  # points for passing that are not among the possible ones

    @property
    def hidden(self) -> bool:
        """True if it runs a hidden case."""
        return bool(getattr(self.subject, "hidden", False))

    def result(
        self,
        verdict: Verdict,
        findings: tuple[Finding, ...] = (),
        measurement: Measurement | None = None,
        printed: str = "",
    ) -> CheckResult:
        """Return the result, with the points that the verdict earns.

        Noise never costs a point: an inconclusive check earns full points.
        """
        points = self.max_points + self.extra_points if verdict in ("passed", "inconclusive") else 0.0
        return CheckResult(
            self.name,
            self.kind,
            verdict,
            points,
            self.max_points,
            findings,
            measurement,
            self.required,
            printed=printed,
            hidden=self.hidden,
        )


class CheckGrader(Protocol):
    """A grader of one submission's checks, in this process or elsewhere."""

    @property
    def provenance(self) -> Provenance:
        """The inputs that the grade depends on."""

    def run(self, check: Check) -> CheckResult:
        """Return the result of one check; errors of the submission and of the exercise are findings in it."""

    def close(self) -> None:
        """Release the grader's own resources."""


def checks_of(exercise: Exercise | ProgramExercise) -> tuple[Check, ...]:
    """Return `compile`, then the `correct`, `safe`, `uses` and `speedup` checks, each in the instructor's order.

    Hidden cases come last, so that no kernel can store their data and reveal it in results of visible cases.
    """
    return (
        Check("compile", "compile", float(exercise.compile_points), True, None),
        *(
            Check(correct_name(case), "correct", float(case.points), True, case)
            for case in visible_first(exercise.cases)
        ),
        *(Check(f"safe[{safe.kind}]", "safe", float(safe.points), True, safe) for safe in exercise.safe),
        *(_with_extra(f"uses[{uses.name}]", "uses", uses) for uses in exercise.uses),
        *(_with_extra(f"speedup[{tier.name}]", "speedup", tier) for tier in exercise.speed),
    )


def _with_extra(name: str, kind: CheckKind, subject: UsesCheck | SpeedTier | ProgramUse) -> Check:
    points, extra = (0.0, float(subject.points)) if subject.extra else (float(subject.points), 0.0)
    return Check(name, kind, points, subject.required, subject, extra)


def visible_first(cases: Iterable[AnyCase]) -> tuple[AnyCase, ...]:
    """Return the cases with the hidden ones last, so that a finding names a visible case if one shows it."""
    return tuple(sorted(cases, key=lambda case: case.hidden))


def correct_name(case: Case | ProgramCase) -> str:
    """Return the name of a case's check; findings of other checks refer to it."""
    return f"correct[{case.name}]"

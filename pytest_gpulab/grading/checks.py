"""The checks of an exercise, known without compiling anything."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_gpulab.exercise import Case, Exercise, SafeCheck, SpeedTier, UsesCheck
from pytest_gpulab.grading.grade import CheckKind


@dataclass(frozen=True)
class Check:
    """One gradable statement before it is graded.

    Attributes:
        name: as in the pytest id, such as `correct[n=1023]`; unique in the exercise.
        max_points: what passing it earns.
        required: False for a bonus, which is missed instead of failed.
        subject: the instructor's description; None for `compile`.
    """

    name: str
    kind: CheckKind
    max_points: float
    required: bool
    subject: Case | SafeCheck | UsesCheck | SpeedTier | None


def checks_of(exercise: Exercise) -> tuple[Check, ...]:
    """Return `compile`, then the `correct`, `safe`, `uses` and `speedup` checks, each in the instructor's order."""
    return (
        Check("compile", "compile", float(exercise.compile_points), True, None),
        *(Check(correct_name(case), "correct", float(case.points), True, case) for case in exercise.cases),
        *(Check(f"safe[{safe.kind}]", "safe", float(safe.points), True, safe) for safe in exercise.safe),
        *(Check(f"uses[{uses.name}]", "uses", float(uses.points), uses.required, uses) for uses in exercise.uses),
        *(Check(f"speedup[{t.name}]", "speedup", float(t.points), t.required, t) for t in exercise.speed),
    )


def correct_name(case: Case) -> str:
    """Return the id of a case's check; findings of other checks point at it."""
    return f"correct[{case.name}]"

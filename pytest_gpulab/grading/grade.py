"""The result of grading, as plain data: everything printed or exported is made from Grades alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1

Verdict = Literal["passed", "failed", "missed", "inconclusive", "not gradable", "not started"]
CheckKind = Literal["compile", "correct", "safe", "uses", "speedup"]


@dataclass(frozen=True)
class Finding:
    """Why a check did not pass.

    Attributes:
        code: a stable word that instructors name in expected verdicts, such as `wrong-result` or `out-of-bounds`.
        what: what happened, one sentence.
        where: `file:line` where known.
        evidence: lines of proof, such as the first bad indices, the compiler's message, an interval.
        hint: what to think about next; never the solution.
    """

    code: str
    what: str
    where: str = ""
    evidence: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True)
class Measurement:
    """A time, or the estimate of one, with what it was compared to.

    Attributes:
        elapsed_ms, baseline_ms: the submission's and the baseline's time at `size`.
        speedup: baseline over submission.
        threshold: the speedup asked for.
        estimated: whether the times come from a cost model instead of a clock.
        bandwidth_gb_s: minimal bytes over time, in 1e9 bytes a second.
        occupancy: theoretical, 0 to 1, of the launch that takes longest.
        registers: a thread of that launch.
        bottleneck: what limits it, in words, where known.
        baseline: the file that it was compared to.
    """

    size: str
    elapsed_ms: float
    baseline_ms: float
    speedup: float
    threshold: float
    estimated: bool
    bandwidth_gb_s: float | None = None
    occupancy: float | None = None
    registers: int | None = None
    bottleneck: str = ""
    baseline: str = "naive.cu"


@dataclass(frozen=True)
class CheckResult:
    """One gradable statement and what became of it.

    Attributes:
        name: as in the pytest id: `compile`, `correct[n=1023]`, `speedup[1.5x]`.
        points, max_points: earned and possible.
        required: False for a bonus tier.
        duration_s: wall time that grading it took.
    """

    name: str
    kind: CheckKind
    verdict: Verdict
    points: float
    max_points: float
    findings: tuple[Finding, ...] = ()
    measurement: Measurement | None = None
    required: bool = True
    duration_s: float = 0.0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CheckResult:
        """Rebuild a result from `dataclasses.asdict`, also after a journey through JSON."""
        findings = tuple(Finding(**finding | {"evidence": tuple(finding["evidence"])}) for finding in data["findings"])
        measurement = data["measurement"] and Measurement(**data["measurement"])
        return cls(**{**data, "findings": findings, "measurement": measurement})


@dataclass(frozen=True)
class Provenance:
    """Where a grade comes from, enough to repeat it."""

    device: str
    device_kind: str
    architecture: str
    compiler: str
    seed: int
    exercise_version: str
    plugin_version: str
    source_sha256: str
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Grade:
    """The result of one submission; `to_dict` and `from_dict` are each other's inverse."""

    submission: str
    exercise: str
    checks: tuple[CheckResult, ...]
    provenance: Provenance

    @property
    def points(self) -> float:
        """Points earned."""
        return sum(check.points for check in self.checks)

    @property
    def max_points(self) -> float:
        """Points of the checks that were graded."""
        return sum(check.max_points for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only, ready for JSON."""
        return asdict(self) | {"points": self.points, "max_points": self.max_points}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Grade:
        """Rebuild a grade from `to_dict`, also after a journey through JSON."""
        checks = tuple(CheckResult.from_dict(check) for check in data["checks"])
        return cls(data["submission"], data["exercise"], checks, Provenance(**data["provenance"]))

"""The result of grading, as plain data: everything printed or exported is made from Grades alone.

The JSON form, version 1: `Grade.to_dict` gives one object whose keys are the attributes below, `submission`,
`exercise`, `checks`, `provenance` and `student`, and besides them `schema_version`, `points` and `max_points`. Checks,
findings and measurements are objects with their attributes as keys; tuples are lists; what is unknown is null; texts
are never null but may be empty. A key may be added without a new version; a key that goes or changes its meaning raises
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from pytest_gpulab.devices.hardware.occupancy import KernelOccupancy as KernelOccupancy  # a part of grades

from .counters import KernelCounters as KernelCounters
from .listing import Listing as Listing
from .thresholds import OWN

SCHEMA_VERSION = 1
COMPILER_WARNING = "compiler-warning"
"""The code of a finding that holds what the compiler said, beside the reason why a check failed."""
LEAST_TOLD_PCT = 0.05  # of an error: less would read 0.0 %

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
        because: the check that did not pass and that this one needs, if this one could not be graded for it; all else
            is then about that one.
        by_luck: of a wrong result, whether another order of warps or other leftovers in memory change it.
        hidden: whether only an instructor's hidden case shows it: the texts may tell of that case.
        line: the source line at `where`, trimmed; empty where it is not the submission's own.
        bits: of a wrong result, how much its pattern says of the cause, at most 64: it holds by chance once in 2**bits.
    """

    code: str
    what: str
    where: str = ""
    evidence: tuple[str, ...] = ()
    hint: str = ""
    because: str = ""
    by_luck: bool = False
    hidden: bool = False
    line: str = ""
    bits: int = 0

    @property
    def quote(self) -> str:
        """The source line with its number, as `12 | tile[t] = in[i];`; empty where there is none."""
        return f"{self.where.rpartition(':')[2]} | {self.line}" if self.line else ""


@dataclass(frozen=True)
class Measurement:
    """A time, or the estimate of one, with what it was compared to.

    Attributes:
        size: at which both were timed, in words.
        elapsed_ms, baseline_ms: the submission's and the baseline's time at `size`.
        speedup: baseline over submission.
        threshold: the speedup asked for.
        calibrated: whether the threshold comes from the device's calibration instead of the exercise, whose own stands
            in the check's name.
        estimated: whether the times come from a cost model instead of a clock.
        bandwidth_gb_s: minimal bytes over time, in 1e9 bytes a second.
        occupancy: theoretical, 0 to 1, of the launch that is estimated to take longest; where a clock timed, of the one
            with the most threads, because it times all launches together.
        registers: a thread of that launch.
        bottleneck: what limits it, in words, where known.
        baseline: the file that it was compared to.
        low, high: the speedup's confidence interval, of at least 95 %; None where there is no clock.
        sampling_error_pct: standard error of an estimated speedup, because some of the blocks stand for all; None where
            that is not known, or a clock timed.
        rounds: how often both were timed; 0 where there is no clock.
        dropped: rounds left out because something disturbed them.
        caches: `cold` (nothing left in them from before) or `warm`; empty where there is no clock.
        shared_with: other processes seen on the GPU meanwhile.
        held_down_by: what slowed the GPU down in rounds that count, because there were too few others.
        kernels: how each of the submission's kernels fills the GPU's multiprocessors, in the order of their launches.
        peak_bandwidth_gb_s: what the GPU's memory transfers at most.
        reference_ms: how long the CPU's reference takes at this size; None where that is not known.
        counters: what the hardware counted in each different launch, where that was asked for.
        counters_note: why there are none although they were asked for, in a line.
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
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    dropped: int = 0
    caches: Literal["cold", "warm", ""] = ""
    shared_with: tuple[str, ...] = ()
    kernels: tuple[KernelOccupancy, ...] = ()
    peak_bandwidth_gb_s: float | None = None
    reference_ms: float | None = None
    calibrated: bool = False
    counters: tuple[KernelCounters, ...] = ()
    counters_note: str = ""
    sampling_error_pct: float | None = None
    held_down_by: tuple[str, ...] = ()

    @property
    def certainty(self) -> str:
        """How sure the speedup is and how it was timed, in words; empty for an estimate that no sample can spoil."""
        if self.low is None or self.high is None:
            error_pct = self.sampling_error_pct or 0.0
            told = f"estimated from a sample of the blocks, which may err by {error_pct:.1f} %"
            return told if error_pct >= LEAST_TOLD_PCT else ""
        dropped = f", {self.dropped} of them disturbed and left out" if self.dropped else ""
        between = f"between {self.low:.3f}x and {self.high:.3f}x"
        held_down = f", while the GPU was slowed down ({', '.join(self.held_down_by)})" if self.held_down_by else ""
        return f"{between}, from {self.rounds} rounds{dropped}, with {self.caches} caches{held_down}"


@dataclass(frozen=True)
class CheckResult:
    """One gradable statement and what became of it.

    Attributes:
        name: as in the pytest id: `compile`, `correct[n=1023]`, `speedup[1.5x]`.
        points, max_points: earned and possible.
        required: False for a bonus tier.
        duration_s: wall time that grading it took.
        printed: what the kernel printed with printf (capped).
        listing: what each source line did and cost, where that was asked for and this check is the one to tell.
        hidden: whether it runs an instructor's hidden case, of which students learn no more than that it is there.
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
    printed: str = ""
    listing: Listing | None = None
    hidden: bool = False

    @property
    def other_threshold(self) -> float | None:
        """The speedup that is asked for, where it is not what the name says: calibrated, or for the simulated GPU."""
        measured = self.measurement
        return measured.threshold if measured and f"[{measured.threshold:g}x" not in self.name else None

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only, ready for JSON."""
        return _plain_fields(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CheckResult:
        """Build the result that `to_dict` was made from; unknown keys are ignored."""
        measured, listing = data["measurement"], data.get("listing")
        rebuilt = {
            "listing": None if listing is None else Listing.from_dict(listing),
            "findings": tuple(_finding(finding) for finding in data["findings"]),
            "measurement": None if measured is None else _measurement(measured),
        }
        return cls(**_known(cls, data) | rebuilt)


@dataclass(frozen=True)
class Provenance:
    """Where a grade comes from, enough to repeat it; `thresholds` says in words who set those of the speed tiers."""

    device: str
    device_kind: str
    architecture: str
    compiler: str
    seed: int
    exercise_version: str
    plugin_version: str
    source_sha256: str
    details: Mapping[str, str] = field(default_factory=dict)
    thresholds: str = OWN


@dataclass(frozen=True)
class Student:
    """Who handed something in, or should have; the name is empty where only the id is known."""

    id: str
    name: str = ""


@dataclass(frozen=True)
class Grade:
    """The result of one submission; `to_dict` and `from_dict` are each other's inverse.

    `student` is the id of whose submission it is; empty where nobody said.
    """

    submission: str
    exercise: str
    checks: tuple[CheckResult, ...]
    provenance: Provenance
    student: str = ""

    @property
    def points(self) -> float:
        """Points earned."""
        return sum(check.points for check in self.checks)

    @property
    def max_points(self) -> float:
        """Points of the checks that could be graded: the machine's fault never costs a point."""
        return sum(check.max_points for check in self.checks if check.verdict != "not gradable")

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only, ready for JSON: see the module's docstring."""
        totals = {"points": _plain(self.points), "max_points": _plain(self.max_points)}
        return {"schema_version": SCHEMA_VERSION} | _plain_fields(self) | totals

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Grade:
        """Build the grade that `to_dict` was made from; unknown keys are ignored.

        Raises:
            ValueError: the data has another schema version.
        """
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"grade of schema version {data['schema_version']}; this is version {SCHEMA_VERSION}")
        checks = tuple(map(CheckResult.from_dict, data["checks"]))
        provenance = Provenance(**_known(Provenance, data["provenance"]))
        return cls(data["submission"], data["exercise"], checks, provenance, data.get("student", ""))


def _finding(data: Mapping[str, Any]) -> Finding:
    return Finding(**_known(Finding, data) | {"evidence": tuple(data["evidence"])})


def _measurement(data: Mapping[str, Any]) -> Measurement:
    kernels = tuple(_kernel_occupancy(kernel) for kernel in data.get("kernels", ()))
    counters = tuple(KernelCounters.from_dict(kernel) for kernel in data.get("counters", ()))
    rebuilt = {name: tuple(data.get(name, ())) for name in ("shared_with", "held_down_by")}
    rebuilt |= {"kernels": kernels, "counters": counters}
    return Measurement(**_known(Measurement, data) | rebuilt)


def _kernel_occupancy(data: Mapping[str, Any]) -> KernelOccupancy:
    return KernelOccupancy(**_known(KernelOccupancy, data) | {"limited_by": tuple(data["limited_by"])})


def _plain_fields(record: Any) -> dict[str, Any]:
    return {item.name: _plain(getattr(record, item.name)) for item in fields(record)}


def _plain(value: Any) -> Any:
    """Return the value made of builtins: pytest-xdist and JSON refuse NumPy scalars, mapping proxies and tuples."""
    if is_dataclass(value):
        return _plain_fields(value)
    if hasattr(value, "item"):  # a NumPy scalar; NumPy itself is not loaded just to read a grade
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _known(record: type, data: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(record)}
    return {key: value for key, value in data.items() if key in names}

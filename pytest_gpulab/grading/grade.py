"""The result of grading, as plain data. Everything printed or exported is made from Grades alone.

The JSON form, version 1: `Grade.to_dict` gives one object with the attributes below as keys: `submission`,
`exercise`, `checks`, `provenance` and `student`, and besides them `schema_version`, `points` and `max_points`. Checks,
findings and measurements are objects with their attributes as keys. Tuples are lists, unknown values are null, and
texts are never null but may be empty. A new key keeps the version; removing a key or changing its meaning raises it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pytest_gpulab.exercise_rules import NAIVE

if TYPE_CHECKING:  # parts of grades that not every grading has
    from pytest_gpulab.devices.hardware.occupancy import KernelOccupancy as KernelOccupancy

    from .counters import KernelCounters as KernelCounters
    from .listing import Listing as Listing

SCHEMA_VERSION = 1
_PLAIN = frozenset((str, int, float, bool, type(None)))
COMPILER_WARNING = "compiler-warning"
"""The code of a finding with the compiler's warnings, beside the reason why a check failed."""
EXERCISES_MISTAKE = "reference-mismatch"
"""The code of a finding on the exercise's own code or baseline."""
PROOF = ("out-of-bounds", "misaligned", "not-repeatable", "block-order")
"""Codes of the simulated GPU that prove that a correct result on a real GPU is luck."""
NEEDS_A_GPU = ("cannot-simulate", "missing-function")
"""Codes of findings on a submission's own code that only a real GPU can run: they say nothing about its results."""
NOT_ENABLED = "not-enabled"
"""The code of a finding on checks that need an option of the instructor."""
OWN = "the exercise's own"
"""The source of thresholds without a calibration."""
MIN_SHOWN_PCT = 0.05  # of an error: less would read 0.0 %

RUN_IT = "run it:"
Verdict = Literal["passed", "failed", "missed", "inconclusive", "not gradable", "not started"]
CheckKind = Literal["compile", "correct", "safe", "uses", "speedup"]
Record = TypeVar("Record")

_RECORDS: Mapping[str, str] = {
    **dict.fromkeys(("SmallestInput", "Finding", "Measurement", "CheckResult", "Provenance", "Adjustment"), __name__),
    **dict.fromkeys(("KernelCounters", "Counter"), "pytest_gpulab.grading.counters"),
    **dict.fromkeys(("Listing", "ListedFile", "ListedLine", "ListedHazard"), "pytest_gpulab.grading.listing"),
    "KernelOccupancy": "pytest_gpulab.devices.hardware.occupancy",
}
"""The records within records, to their modules, which are imported on first use."""


class _Plain:
    """A record that can be converted to builtins and back."""

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only, ready for JSON."""
        return _plain_fields(self)

    @classmethod
    def from_dict(cls: type[Record], data: Mapping[str, Any]) -> Record:
        """Return the record that `to_dict` was called on; unknown keys are ignored."""
        record: Record = from_plain(cls, data)
        return record


@dataclass(frozen=True)
class SmallestInput:
    """The smallest input that was found to fail in the same way, on the simulated GPU."""

    what: str  # the input and the failure, such as `n = 3, in = [0 0 1]: out should be [1], is [0]`
    # the sizes that fail, as far as sizes were tried, such as `fails for every n that is no multiple of 256; right for
    # all others tried`; empty if no rule holds
    rule: str
    command: str  # the command that runs the submission on this input; empty if it is shown elsewhere
    # the elements that a wrong result adds up, such as `out[0] is in[0] + in[2], expected in[0] + in[1] + in[2]`; empty
    # if the result is no such sum
    relation: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of a report."""
        known = (words for words in (self.relation, self.rule) if words)
        return (f"smallest failing input: {self.what}", *known, f"{RUN_IT} {self.command}")


@dataclass(frozen=True)
class Finding(_Plain):
    """The reason why a check did not pass."""

    code: str  # a stable word that instructors name in expected verdicts, such as `wrong-result` or `out-of-bounds`
    what: str  # the problem, one sentence
    where: str = ""  # `file:line` where known
    evidence: tuple[str, ...] = ()  # lines such as the first wrong indices, the compiler's message, an interval
    hint: str = ""  # a next step or a question; never the solution
    because: str = ""  # the name of a failed check that this one needs; all other fields then describe that check
    by_luck: bool = False  # whether a wrong result changes with the order of warps or with leftovers in memory
    hidden: bool = False  # whether only an instructor's hidden case shows it, so that the texts may reveal that case
    line: str = ""  # the source line at `where`, trimmed; empty if it is not in the submission
    bits: int = 0  # for a wrong result, the strength of its pattern, at most 64: by chance it holds once in 2**bits
    smallest: SmallestInput | None = None  # the smallest failing input; None if none was looked for or found

    def without(self, shown: Collection[object]) -> Finding:
        """Return the finding without its hint, its smallest input and the command of it if these were shown before."""
        hint = "" if self.hint in shown else self.hint
        smallest = None if self.smallest in shown else self.smallest
        if smallest is not None and smallest.command in shown:  # it fails in another way, too
            smallest = replace(smallest, command="")
        return replace(self, hint=hint, smallest=smallest)

    def with_file(self, path: str) -> Finding:
        """Return the finding with the path of the submission in the command of its smallest input, if it has one."""
        if self.smallest is None:
            return self
        gpulab, explain, _, *options = shlex.split(self.smallest.command)
        command = shlex.join([gpulab, explain, path, *options])
        return replace(self, smallest=replace(self.smallest, command=command))

    @property
    def quote(self) -> str:
        """The source line with its number, as `12 | tile[t] = in[i];`; empty where there is none."""
        return f"{self.where.rpartition(':')[2]} | {self.line}" if self.line else ""


@dataclass(frozen=True)
class Measurement:
    """A measured or estimated speedup."""

    size: str  # the size of both runs, in words
    elapsed_ms: float  # time of the submission at `size`
    baseline_ms: float  # time of the baseline at `size`
    speedup: float  # baseline over submission
    threshold: float  # the required speedup
    estimated: bool  # whether the times come from a cost model, not from a clock
    bandwidth_gb_s: float | None = None  # minimal bytes over time, in 1e9 bytes per second
    # theoretical, 0 to 1, of the launch with the longest estimate. A clock times all launches together; then it is that
    # of the launch with the most threads
    occupancy: float | None = None
    registers: int | None = None  # per thread of that launch
    bottleneck: str = ""  # the limiting resource, in words, where known
    baseline: str = NAIVE  # the file name of the baseline
    low: float | None = None  # lower end of the speedup's confidence interval, of at least 95 %; None for estimates
    high: float | None = None  # upper end of this interval
    rounds: int = 0  # number of samples of each side; 0 for estimates
    dropped: int = 0  # rounds left out because of interference
    caches: Literal["cold", "warm", ""] = ""  # `cold` (flushed before each run) or `warm`; empty for estimates
    shared_with: tuple[str, ...] = ()  # other processes seen on the GPU during the measurement
    # occupancy of each of the submission's kernels, in the order of their launches
    kernels: tuple[KernelOccupancy, ...] = ()
    peak_bandwidth_gb_s: float | None = None  # peak bandwidth of the GPU's memory, in 1e9 bytes per second
    reference_ms: float | None = None  # time of the CPU reference at this size; None if unknown
    # whether the threshold comes from the device's calibration; the check's name has the exercise's own
    calibrated: bool = False
    counters: tuple[KernelCounters, ...] = ()  # hardware counters of each different launch, if requested
    counters_note: str = ""  # one line on why requested counters are missing
    # standard error of an estimated speedup, because only a sample of the blocks ran; None if unknown, and for measured
    # times
    sampling_error_pct: float | None = None
    held_down_by: tuple[str, ...] = ()  # reasons for throttling in rounds that count because there were too few others

    @property
    def certainty(self) -> str:
        """The interval and the conditions of the timing, in words; empty for an estimate without a sampling error."""
        if self.low is None or self.high is None:
            error_pct = self.sampling_error_pct or 0.0
            sampled = f"estimated from a sample of the blocks, with a standard error of {error_pct:.1f} %"
            return sampled if error_pct >= MIN_SHOWN_PCT else ""
        dropped = f", {self.dropped} of them discarded because of interference" if self.dropped else ""
        between = f"between {self.low:.3f}x and {self.high:.3f}x"
        held_down = f", while the GPU was slowed down ({', '.join(self.held_down_by)})" if self.held_down_by else ""
        return f"{between}, from {self.rounds} rounds{dropped}, with {self.caches} caches{held_down}"


@dataclass(frozen=True)
class CheckResult(_Plain):
    """The result of one check."""

    name: str  # as in the pytest id: `compile`, `correct[n=1023]`, `speedup[1.5x]`
    kind: CheckKind
    verdict: Verdict
    points: float  # earned
    max_points: float  # possible; extra points are earned where it is 0
    findings: tuple[Finding, ...] = ()
    measurement: Measurement | None = None
    required: bool = True  # False for a bonus tier
    duration_s: float = 0.0  # wall time of grading it
    printed: str = ""  # output of printf in the kernel (capped)
    listing: Listing | None = None  # the annotated source, if requested and shown with this check
    hidden: bool = False  # whether it runs an instructor's hidden case; students learn only that the case exists

    @property
    def other_threshold(self) -> float | None:
        """The required speedup if it differs from the name: calibrated, or for the simulated GPU."""
        measured = self.measurement
        return measured.threshold if measured and f"[{measured.threshold:g}x" not in self.name else None

    @property
    def is_exercises_mistake(self) -> bool:
        """True if the exercise is the cause that the check is not gradable."""
        codes = (found.code for found in self.findings)
        return self.verdict == "not gradable" and EXERCISES_MISTAKE in codes


@dataclass(frozen=True)
class Provenance:
    """The inputs of a grade, enough to repeat it; `thresholds` is the origin of the speed thresholds, in words."""

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
    """A student with a submission or on the roster; the name is empty if only the id is known."""

    id: str
    name: str = ""


@dataclass(frozen=True)
class Adjustment:
    """Points that the instructor adds to a student's exercise, or takes away, with a comment for the student."""

    points: float
    comment: str

    @property
    def text(self) -> str:
        """Points and comment in words: `-5 points: two days late`."""
        number = f"{self.points:+.4f}".rstrip("0").rstrip(".")
        unit = "point" if abs(self.points) == 1 else "points"
        return f"{number} {unit}" + (f": {self.comment}" if self.comment else "")


@dataclass(frozen=True)
class Grade(_Plain):
    """The result of one submission; `to_dict` and `from_dict` are each other's inverse."""

    submission: str
    exercise: str
    checks: tuple[CheckResult, ...]
    provenance: Provenance
    student: str = ""  # the id of the student; empty if unknown
    # tunables with the values that a sweep gave them; empty for the file as it is
    swept: Mapping[str, int] = field(default_factory=dict)
    adjustment: Adjustment | None = None  # the instructor's; None without one

    @property
    def points(self) -> float:
        """Points earned, at least 0, with the instructor's adjustment."""
        earned = sum(check.points for check in self.checks)
        return earned if self.adjustment is None else max(0.0, earned + self.adjustment.points)

    @property
    def max_points(self) -> float:
        """Points of the checks that could be graded: a failure of the machine never costs a point."""
        return sum(check.max_points for check in self.checks if check.verdict != "not gradable")

    def to_dict(self) -> dict[str, Any]:
        """Return builtins only, ready for JSON: see the module's docstring."""
        totals = {"points": _plain(self.points), "max_points": _plain(self.max_points)}
        return {"schema_version": SCHEMA_VERSION} | _plain_fields(self) | totals

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Grade:
        """Return the grade that `to_dict` was called on, or raise ValueError for data of another schema version."""
        if data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"grade of schema version {data['schema_version']}; this is version {SCHEMA_VERSION}")
        return super().from_dict(data)


def from_plain(record: type, data: Mapping[str, Any]) -> Any:
    """Return a record from builtins, as in a grade's JSON form; unknown keys are ignored."""
    known = _annotations(record)
    return record(**{name: _rebuilt(known[name], value) for name, value in data.items() if name in known})


def _rebuilt(annotation: str, value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, tuple | list):
        return tuple(_rebuilt(annotation, item) for item in value)
    record = _record_in(annotation) if isinstance(value, Mapping) else None
    return value if record is None else from_plain(record, value)


@cache
def _record_in(annotation: str) -> type | None:
    """Return the record in a field's annotation, such as `tuple[Finding, ...]`; None for other data."""
    name = next((word for word in re.findall(r"\w+", annotation) if word in _RECORDS), None)
    return None if name is None else resolve_name(f"{_RECORDS[name]}:{name}")


@cache
def _annotations(record: type) -> Mapping[str, str]:
    """Return the annotations of a record's fields by name."""
    return {item.name: str(item.type) for item in fields(record)}


def _plain_fields(record: Any) -> dict[str, Any]:
    return {name: _plain(getattr(record, name)) for name in _annotations(record.__class__)}


def _plain(value: Any) -> Any:
    """Return the value as builtins: pytest-xdist and JSON reject NumPy scalars, mapping proxies and tuples."""
    if type(value) in _PLAIN:  # nearly all values, hundreds of thousands in a class
        return value
    if is_dataclass(value):
        return _plain_fields(value)
    if hasattr(value, "item"):  # a NumPy scalar; reading a grade must not import NumPy
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value

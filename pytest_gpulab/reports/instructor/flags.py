"""Flags: submissions to look at before grades are published. Questions, never verdicts.

The instructor may dismiss flags in a file beside the report: beside `report.html` it is `report-dismissed.txt`. Each
line has the number of a flag, as the report shows it, and a reason. The number depends only on the kind of the flag,
the exercise and the submissions: a new run keeps it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_gpulab.grading.grade import CheckResult, Grade
from pytest_gpulab.reports.gradebook import Gradebook, SimilarPair

from .speeds import interval_of, is_usable

IMPOSSIBLE, LIKENESS, BORDERLINE, UNGRADABLE, SHARED = (
    "impossible time", "near-identical sources", "borderline", "not gradable", "shared GPU",
)  # fmt: skip
MEANING = {
    IMPOSSIBLE: "Faster than the device's memory allows: the kernel skips work, or someone cheats.",
    LIKENESS: "Sources of different students that are nearly the same. Short exercises have few right answers: ask.",
    BORDERLINE: "Another run may give another verdict: the interval of the speedup contains the threshold, or the "
    "speedup is within 2 % of it.",
    UNGRADABLE: "The machine's fault, not the student's: these checks cost no points, and may be graded again.",
    SHARED: "Other processes used the GPU while it timed, so times may be too long.",
}
NEAR = 0.02
_DIGITS = 6  # of a flag's number

_Source = tuple[str, str]  # exercise and submission


@dataclass(frozen=True)
class Flag:
    """A reason to look at submissions."""

    kind: str  # a key of `MEANING`
    exercise: str
    submissions: tuple[str, ...]  # one, or all with similar sources
    what: str  # one sentence
    evidence: tuple[str, ...] = ()  # for similar sources a line per pair with the matching lines, most similar first
    pairs: tuple[SimilarPair, ...] = ()  # those pairs


def flags(gradebook: Gradebook, grades: Iterable[Grade]) -> list[Flag]:
    """Return all flags, by kind and exercise."""
    found = [*_likenesses(gradebook), *(flag for grade in grades for flag in _flags(grade))]
    order = list(MEANING)
    return sorted(found, key=lambda flag: (order.index(flag.kind), flag.exercise))


def _likenesses(gradebook: Gradebook) -> Iterator[Flag]:
    """Yield one flag per connected group: a class that shares one source has more pairs than students."""
    by_source: dict[_Source, list[SimilarPair]] = {}
    for pair in sorted(gradebook.duplicates, key=_closest):
        for submission in pair.submissions:
            by_source.setdefault((pair.exercise, submission), []).append(pair)
    left = dict(by_source)
    while left:
        exercise = next(iter(left))[0]
        group = _connected(next(iter(left)), by_source)
        pairs = [pair for source in group for pair in left.pop(source)]
        different = tuple(dict.fromkeys(sorted(pairs, key=_closest)))  # each pair appears from both ends
        texts = tuple(dict.fromkeys(pair.text for pair in different))
        members = tuple(sorted(submission for _, submission in group))
        yield Flag(LIKENESS, exercise, members, _alike(pairs), texts, different)


def _closest(pair: SimilarPair) -> tuple[float, tuple[str, str]]:
    return -pair.similarity, pair.submissions


def _connected(start: _Source, by_source: Mapping[_Source, Sequence[SimilarPair]]) -> set[_Source]:
    """Return the sources that are connected to one by similar pairs."""
    found, ahead = {start}, [start]
    while ahead:
        for pair in by_source[ahead.pop()]:
            fresh = {(pair.exercise, submission) for submission in pair.submissions} - found
            found |= fresh
            ahead += fresh
    return found


def _alike(pairs: Sequence[SimilarPair]) -> str:
    low, high = (f"{100 * end(pair.similarity for pair in pairs):.0f}" for end in (min, max))
    return f"{low} % alike" if low == high else f"{low} to {high} % alike"


def _flags(grade: Grade) -> Iterator[Flag]:
    own = (grade.submission,)
    impossible = (found.what for check in grade.checks for found in check.findings if found.code == "impossible-time")
    yield from (Flag(IMPOSSIBLE, grade.exercise, own, what) for what in dict.fromkeys(impossible))
    near = [text for check in grade.checks if (text := _borderline(check))]
    if near:
        yield Flag(BORDERLINE, grade.exercise, own, "; ".join(near))
    ungraded = [check.name for check in grade.checks if check.verdict == "not gradable"]
    if ungraded:
        yield Flag(UNGRADABLE, grade.exercise, own, _named(ungraded, len(grade.checks)))
    others = {name for check in grade.checks if check.measurement for name in check.measurement.shared_with}
    if others:
        yield Flag(SHARED, grade.exercise, own, ", ".join(sorted(others)))


def _borderline(check: CheckResult) -> str:
    measured = check.measurement
    if (
        measured is None
        or not is_usable(measured)
        or check.verdict not in ("passed", "failed", "missed", "inconclusive")
    ):
        return ""
    low, high = interval_of(measured)
    near = abs(measured.speedup / measured.threshold - 1) <= NEAR
    if check.verdict != "inconclusive" and not low <= measured.threshold <= high and not near:
        return ""
    between = f" ({low:.3f}x to {high:.3f}x)" if low < high else ""
    return f"{check.name} {check.verdict} with {measured.speedup:.3f}x{between}"


def _named(names: list[str], checks: int) -> str:
    if len(names) == checks:
        return "all checks"
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def read_dismissals(report: Path) -> dict[str, str]:
    """Return the reasons by the flags' numbers, nothing if there is no file, or raise OSError if it cannot be read."""
    path = report.with_name(f"{report.stem}-dismissed.txt")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    words = (line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#"))
    return {word[0]: word[1].strip() if len(word) > 1 else "" for word in words}


def number_of(flag: Flag) -> str:
    """Return the number of a flag, such as `f3a09c`."""
    text = "\0".join((flag.kind, flag.exercise, *flag.submissions))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]

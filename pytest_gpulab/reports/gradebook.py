"""The grades of a run, assembled from the results of single checks.

Checks may be graded in other processes and in any order. Each result travels as properties of its pytest report,
builtins only, so that pytest-xdist and JUnit XML carry them too; the gradebook is where they arrive.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from pytest_gpulab.grading.grade import Adjustment, Finding, Grade, Student

RECORD = "gpulab"
VERDICT = "gpulab_verdict"
MISTAKE = "gpulab_mistake"
MAX_RANGES = 6
"""Ranges of matching lines that are shown per source."""

Properties = list[tuple[str, object]]
LineRanges = tuple[tuple[int, int], ...]


def result_properties(grade: Grade, position: int, of: int = 0) -> Properties:
    """Return the report properties of a graded check: figures to read in JUnit XML, and the whole as JSON text.

    The grade has this check alone, which is at a position of the exercise's checks: another process may send a later
    one first. `of` is the number of these checks; 0 if unknown.
    """
    (result,) = grade.checks
    return [
        (VERDICT, result.verdict),
        ("gpulab_points", result.points),
        ("gpulab_max_points", result.max_points),
        *([(MISTAKE, "exercise")] if result.is_exercises_mistake else []),
        (RECORD, json.dumps({"grade": grade.to_dict(), "position": position, "of": of})),
    ]


def ungraded_properties(submission: str, finding: Finding) -> Properties:
    """Return the report properties of a file that could not be graded."""
    return [(RECORD, json.dumps({"submission": submission, "ungraded": asdict(finding)}))]


def is_missed_bonus(properties: Iterable[tuple[str, object]]) -> bool:
    """Return whether the properties are those of a missed bonus tier."""
    return (VERDICT, "missed") in properties


def is_exercises_mistake(properties: Iterable[tuple[str, object]]) -> bool:
    """Return whether the properties are those of a check that a mistake of the exercise makes not gradable."""
    return (MISTAKE, "exercise") in properties


class SimilarPair(NamedTuple):
    """Two students' sources for one exercise that are nearly the same: a question to ask, never a verdict."""

    exercise: str
    submissions: tuple[str, str]  # named as grades name them
    similarity: float  # 1 if nothing but layout and names differs
    # the matching lines of each, as ranges (first, last) counted from 1
    lines: tuple[LineRanges, LineRanges] = ((), ())

    @property
    def text(self) -> str:
        """Similarity and line ranges, such as `94 % alike: ann/scan.cu:12-40 and bob/scan.cu:3-31, 37`."""
        places = map(_place, self.submissions, self.lines)
        return f"{100 * self.similarity:.0f} % alike: {' and '.join(places)}"


def _place(submission: str, lines: LineRanges) -> str:
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in lines[:MAX_RANGES]]
    more = f" ({len(lines) - MAX_RANGES} more places)" if len(lines) > MAX_RANGES else ""
    return f"{submission}:{', '.join(shown)}{more}" if shown else submission


Links = Mapping[tuple[str, str], str]
"""Addresses of figures by submission and the command of the smallest failing input."""


class Drawing(NamedTuple):
    """The figures of one input as a section of a page."""

    submission: str  # named as grades name them
    command: str  # that of the smallest failing input; empty for a submission that passed
    place: str  # the section's anchor
    title: str  # the submission with the checks that fail on this input
    html: str  # the section


class Drawings(NamedTuple):
    """The figures of a run, and a line for each that the page lacks."""

    path: Path
    drawn: tuple[Drawing, ...] = ()
    left_out: tuple[str, ...] = ()

    def links(self, page: Path) -> Links:
        """Return the addresses of the figures as another page links to them."""
        way = quote(Path(os.path.relpath(self.path, page.parent)).as_posix())
        return {(each.submission, each.command): f"{way}#{each.place}" for each in self.drawn if each.command}

    def of(self, submissions: Collection[str], path: Path) -> Drawings:
        """Return the figures of some submissions, for a page of their own."""
        return Drawings(path, tuple(each for each in self.drawn if each.submission in submissions))


@dataclass
class Gradebook:
    """Everything graded so far."""

    ungraded: dict[str, Finding] = field(default_factory=dict)  # submissions that could not be graded, with the reason
    owners: dict[str, str] = field(default_factory=dict)  # the students' ids of those, where known
    # (submission, check name) of the failures that the instructor expects
    expected: set[tuple[str, str]] = field(default_factory=set)
    roster: tuple[Student, ...] = ()  # the class, as the instructor listed it; empty where no list was given
    absent: tuple[Student, ...] = ()  # students on the roster without a submission
    problems: tuple[str, ...] = ()  # oddities of the submissions, one sentence each
    changes: tuple[str, ...] = ()  # changes since the last grading, one sentence each
    duplicates: tuple[SimilarPair, ...] = ()  # sources of several students that are nearly the same
    # student's id to the exercises with a file, and the number of those that can be graded; None if unknown
    handed_in: Mapping[str, Mapping[str, int]] | None = None
    # student's id to the files that count for no exercise, by name, with the reason
    left_out: Mapping[str, Mapping[str, Finding]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)  # the sources of `duplicates`, by submission
    title: str = ""  # the title of the course; empty if unknown
    titles: Mapping[str, str] = field(default_factory=dict)  # the exercises' titles, by exercise
    chosen: frozenset[str] = frozenset()  # ids of the students that this run grades
    # the instructor's, by the student's id and the exercise
    adjustments: Mapping[tuple[str, str], Adjustment] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)  # exercise to its weight in totals; 1 for others
    root: Path | None = None  # the folder that submissions are relative to; None if unknown
    drawings: Drawings | None = None  # figures of failed checks; None if no page of them is written
    _numbers: dict[str, int] = field(default_factory=dict)
    _parts: dict[str, dict[int, Grade]] = field(default_factory=dict)

    def add(self, properties: Iterable[tuple[str, object]], is_expected: bool = False) -> None:
        """Add the properties of one report; reports of other tests have none for the gradebook."""
        text = dict(properties).get(RECORD)
        if isinstance(text, str):
            self._add_record(json.loads(text), is_expected)

    def _add_record(self, record: dict[str, Any], is_expected: bool) -> None:
        if "ungraded" in record:
            self.ungraded[record["submission"]] = Finding.from_dict(record["ungraded"])
            return
        grade = Grade.from_dict(record["grade"])
        self._parts.setdefault(grade.submission, {})[record["position"]] = grade
        self._numbers[grade.exercise] = record["of"]
        if is_expected:
            self.expected.add((grade.submission, grade.checks[0].name))

    @property
    def grades(self) -> tuple[Grade, ...]:
        """One grade per submission, sorted by exercise and then by name in natural order (2 before 10)."""
        grades = map(self._joined, self._parts.values())
        return tuple(sorted(grades, key=lambda grade: (grade.exercise, natural_sort_key(grade.submission))))

    def _joined(self, parts: Mapping[int, Grade]) -> Grade:
        in_order = [parts[position] for position in sorted(parts)]
        first, checks = in_order[0], tuple(grade.checks[0] for grade in in_order)
        return replace(first, checks=checks, adjustment=self.adjustments.get((first.student, first.exercise)))

    def is_part(self, grade: Grade) -> bool:
        """Return whether a grade lacks checks of its exercise."""
        return len(grade.checks) < self._numbers[grade.exercise]

    def part_of(self, grade: Grade) -> str:
        """Return how many of an exercise's checks a grade has, such as `2 of 33 checks`; empty if it has all."""
        return f"{len(grade.checks)} of {self._numbers[grade.exercise]} checks" if self.is_part(grade) else ""


def natural_sort_key(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts names with numbers naturally: 2 before 10."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]

"""The grades of a whole run, put together again from the results of single checks.

Checks may be graded in other processes and in any order. Each result travels as properties of its pytest report,
builtins only, so that pytest-xdist and JUnit XML carry them too; the gradebook is where they arrive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Provenance

RECORD = "gpulab"
VERDICT = "gpulab_verdict"

Properties = list[tuple[str, object]]


def result_properties(
    submission: str, exercise: str, position: int, result: CheckResult, provenance: Provenance
) -> Properties:
    """Return what travels for one graded check: figures to read in JUnit XML, and the whole as JSON text.

    `position` is the check's place among the exercise's checks: other processes may send a later one first.
    """
    record = {
        "submission": submission,
        "exercise": exercise,
        "position": position,
        "check": asdict(result),
        "provenance": asdict(provenance),
    }
    return [
        (VERDICT, result.verdict),
        ("gpulab_points", result.points),
        ("gpulab_max_points", result.max_points),
        (RECORD, json.dumps(record)),
    ]


def ungraded_properties(submission: str, finding: Finding) -> Properties:
    """Return what travels for a file that could not be graded at all."""
    return [(RECORD, json.dumps({"submission": submission, "ungraded": asdict(finding)}))]


@dataclass
class Gradebook:
    """What has been graded so far.

    Attributes:
        ungraded: submission to why it could not be graded.
        expected: (submission, check name) of the failures that the instructor expects.
    """

    ungraded: dict[str, Finding] = field(default_factory=dict)
    expected: set[tuple[str, str]] = field(default_factory=set)
    _exercise_of: dict[str, str] = field(default_factory=dict)
    _provenance: dict[str, Provenance] = field(default_factory=dict)
    _checks: dict[str, dict[int, CheckResult]] = field(default_factory=dict)

    def add(self, properties: Iterable[tuple[str, object]], is_expected: bool = False) -> None:
        """Take in the properties of one report; those of other people's tests hold nothing for the gradebook."""
        text = dict(properties).get(RECORD)
        if isinstance(text, str):
            self._add_record(json.loads(text), is_expected)

    def _add_record(self, record: dict[str, Any], is_expected: bool) -> None:
        submission = record["submission"]
        if "ungraded" in record:
            finding = record["ungraded"]
            self.ungraded[submission] = Finding(**{**finding, "evidence": tuple(finding["evidence"])})
            return
        result = CheckResult.from_dict(record["check"])
        self._exercise_of[submission] = record["exercise"]
        self._provenance[submission] = Provenance(**record["provenance"])
        self._checks.setdefault(submission, {})[record["position"]] = result
        if is_expected:
            self.expected.add((submission, result.name))

    @property
    def grades(self) -> tuple[Grade, ...]:
        """One grade a submission, sorted by exercise and then by name as people count (2 before 10)."""
        grades = (
            Grade(name, self._exercise_of[name], tuple(checks[i] for i in sorted(checks)), self._provenance[name])
            for name, checks in self._checks.items()
        )
        return tuple(sorted(grades, key=lambda grade: (grade.exercise, _as_people_count(grade.submission))))


def _as_people_count(name: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]

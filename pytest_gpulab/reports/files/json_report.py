"""`--gpulab-report=json:PATH`: every grade with its provenance, for programs.

docs/json-report.md and docs/grade.schema.json describe the format; a test compares both with real reports. Unknown
figures are null, and times that a cost model estimated have `estimated` true.
"""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_gpulab.grading.grade import SCHEMA_VERSION, Grade
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.formats import write_text
from pytest_gpulab.reports.gradebook import Gradebook

FORMAT = "pytest-gpulab/grades"


def document(gradebook: Gradebook, context: Context) -> dict[str, Any]:
    """Return the report as docs/json-report.md describes it, builtins only."""
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "created_utc": context.finished.isoformat(timespec="seconds"),
        "interrupted": context.interrupted,
        "grades": [_grade(grade, gradebook) for grade in gradebook.grades],
        "ungraded": [
            {"submission": name} | asdict(finding) | {"student": gradebook.owners.get(name, "")}
            for name, finding in sorted(gradebook.ungraded.items())
        ],
        "roster": [asdict(student) for student in gradebook.roster],
        "absent": [asdict(student) for student in gradebook.absent],
        "problems": list(gradebook.problems),
        "changes": list(gradebook.changes),
        "duplicates": [pair._asdict() for pair in gradebook.duplicates],
        "adjustments": [
            {"student": student, "exercise": exercise} | asdict(each)
            for (student, exercise), each in sorted(gradebook.adjustments.items())
        ],
        "weights": dict(sorted(gradebook.weights.items())),
    }


def _grade(grade: Grade, gradebook: Gradebook) -> dict[str, Any]:
    data = grade.to_dict()
    for check in data["checks"]:
        check["expected"] = (grade.submission, check["name"]) in gradebook.expected
    return data


def write(path: Path, gradebook: Gradebook, context: Context) -> None:
    """Write the file."""
    write_text(path, json_text(document(gradebook, context)))


def json_text(value: Any) -> str:
    """Return builtins as indented JSON for strict readers: no infinities and NaNs (null), bytes as escapes."""
    return json.dumps(_strict(value), indent=2, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value

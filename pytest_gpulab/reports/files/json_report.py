"""`--gpulab-report=json:PATH`: every grade with where it comes from, for programs.

The file holds one JSON object:

    format          always "pytest-gpulab/grades"
    schema_version  1; raised when a key changes its meaning or goes away, not when one is added
    created_utc     when it was written, ISO 8601
    interrupted     true if the run was stopped (Ctrl-C, -x): some checks or submissions are missing
    grades          a list, sorted by exercise and submission, of
        submission, exercise    the `.cu` file relative to pytest's rootdir, and the exercise's name
        points, max_points      sums over `checks`, `points` with the adjustment and at least 0; `max_points` is below
                                100 if not all checks were selected
        checks                  a list of
            name, kind          such as "correct[n=1023]" and compile | correct | safe | uses | speedup
            verdict             passed | failed | missed | inconclusive | not gradable | not started
            points, max_points, required (false: a bonus, "missed" rather than "failed"), duration_s
            expected            true if the check did not pass and the instructor's configuration says so
            findings            a list of {code, what, where, evidence (a list of lines), hint, because, by_luck, line,
                                bits (how much a pattern says), hidden (only hidden cases show it)}
            measurement         null, or {size, elapsed_ms, baseline_ms, speedup, threshold, estimated,
                                bandwidth_gb_s, occupancy (0 to 1), registers, bottleneck, baseline,
                                low, high (of the speedup's interval; null for estimates), rounds, dropped,
                                caches, shared_with (a list of other processes on the GPU), kernels,
                                peak_bandwidth_gb_s, reference_ms (of the CPU's reference),
                                counters (a list of {kernel, grid, block, counters: a list of
                                {name, value, unit}}), counters_note (why there are none though asked for),
                                calibrated (whether the threshold is the device's calibration's),
                                held_down_by (a list of what slowed the GPU down)}
            listing             null, or {size, variant, device, estimated_ms, files (a list of {name, lines: a list
                                of {number, text, counters}}), hazards (a list of {file, line, what, harmless}),
                                note}
            hidden              true if it runs a hidden case: not for students' eyes
        provenance              device, device_kind, architecture, compiler, seed, exercise_version, plugin_version,
                                source_sha256, thresholds (who set those of the speed tiers), and details: an
                                object of further texts
        student                 the student's id; empty if files were graded without a class
    ungraded        a list of {submission, code, what, where, evidence, hint, because, by_luck, hidden, line, bits,
                    student}: files that belong to no exercise or to one that cannot be loaded
    roster, absent  lists of {id, name}: the class, and those of it who handed in nothing; empty without a roster
    problems        texts: what is odd about what was handed in
    changes         texts: what grading again changed
    duplicates      a list of {exercise, submissions (two), similarity (0 to 1), lines (of each, a list of ranges
                    [first, last])}: to be looked at, never a verdict
    adjustments     a list of {student, exercise, points, comment}: all of them, also where there is no grade
    weights         an object of the exercises' weights in totals; 1 for exercises that it lacks

Unknown figures are null. Times that a cost model estimated have `estimated` true: they are never measurements.
"""

from __future__ import annotations

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
    """Return the object described in the module's docstring, builtins only."""
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
        "duplicates": [asdict(pair) for pair in gradebook.duplicates],
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
    """Return builtins as indented JSON that strict readers take.

    Infinities and NaNs become null, and bytes in file names that are not text become escapes.
    """
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

"""`--gpulab-report=json:PATH`: every grade with where it comes from, for programs.

The file holds one JSON object:

    format          always "pytest-gpulab/grades"
    schema_version  1; raised when a key changes its meaning or goes away, not when one is added
    created_utc     when it was written, ISO 8601
    interrupted     true if the run was stopped (Ctrl-C): some checks or submissions are missing
    grades          a list, sorted by exercise and submission, of
        submission, exercise    the `.cu` file relative to pytest's rootdir, and the exercise's name
        points, max_points      sums over `checks`; `max_points` is below 100 if not all checks were selected
        checks                  a list of
            name, kind          such as "correct[n=1023]" and compile | correct | safe | uses | speedup
            verdict             passed | failed | missed | inconclusive | not gradable | not started
            points, max_points, required (false: a bonus, "missed" rather than "failed"), duration_s
            expected            true if the check did not pass and the instructor's configuration says so
            findings            a list of {code, what, where, evidence (a list of lines), hint, because, by_luck}
            measurement         null, or {size, elapsed_ms, baseline_ms, speedup, threshold, estimated,
                                bandwidth_gb_s, occupancy (0 to 1), registers, bottleneck, baseline,
                                low, high (of the speedup's interval; null for estimates), rounds, dropped,
                                caches, shared_with (a list of other processes on the GPU), kernels,
                                peak_bandwidth_gb_s, reference_ms (of the CPU's reference),
                                counters (a list of {kernel, grid, block, counters: a list of
                                {name, value, unit}}), counters_note (why there are none though asked for),
                                calibrated (whether the threshold is the device's calibration's)}
            listing             null, or {size, variant, device, estimated_ms, files (a list of {name, lines: a list
                                of {number, text, counters}}), hazards (a list of {file, line, what, harmless}),
                                note}
        provenance              device, device_kind, architecture, compiler, seed, exercise_version, plugin_version,
                                source_sha256, thresholds (who set those of the speed tiers), and details: an
                                object of further texts
    ungraded        a list of {submission, code, what, where, evidence, hint, because, by_luck}: files that belong to no
                    exercise or to one that cannot be loaded

Unknown figures are null. Times that a cost model estimated have `estimated` true: they are never measurements.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pytest_gpulab.grading.grade import SCHEMA_VERSION, Grade
from pytest_gpulab.reports.gradebook import Gradebook

FORMAT = "pytest-gpulab/grades"


def document(gradebook: Gradebook, interrupted: bool) -> dict[str, Any]:
    """Return the object that the module's docstring describes, builtins only."""
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "created_utc": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "interrupted": interrupted,
        "grades": [_grade(grade, gradebook) for grade in gradebook.grades],
        "ungraded": [{"submission": name} | asdict(finding) for name, finding in sorted(gradebook.ungraded.items())],
    }


def _grade(grade: Grade, gradebook: Gradebook) -> dict[str, Any]:
    data = grade.to_dict()
    for check in data["checks"]:
        check["expected"] = (grade.submission, check["name"]) in gradebook.expected
    return data


def write(path: Path, gradebook: Gradebook, interrupted: bool) -> None:
    """Write the file.

    Raises:
        OSError: it cannot be written.
    """
    text = json.dumps(_finite(document(gradebook, interrupted)), indent=2, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value

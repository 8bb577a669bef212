"""The smallest failing input of a submission, for its figures."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.grading.correctness.outcomes import CaseLimits

from .catalogue import LoadedExercise
from .checks import checks_of
from .grade import Finding
from .grader import Grader
from .time_limits import TIME_LIMIT, TimeLimits

SEARCHED = CaseLimits(TimeLimits(case_s=1.0, file_s=5.0), smallest="first", ahead=True)
"""Limits of `smallest_failing`: cases of kernels that end take 0.3 s at most."""


def smallest_failing(exercise: LoadedExercise, path: Path, device: Device, seed: int) -> Finding | None:
    """Return a submission's first failure that has a smallest failing input, or else its first failure."""
    with closing(Grader(exercise, path, device, seed, limits=SEARCHED)) as grader:
        return _first_failing(grader, exercise)


def _first_failing(grader: Grader, loaded: LoadedExercise) -> Finding | None:
    first = None
    for check in checks_of(loaded.exercise):
        if check.kind in ("compile", "correct", "safe") and not check.hidden:
            result = grader.run(check)
            for found in result.findings if result.verdict == "failed" else ():
                named = replace(found, what=f"{check.name}: {found.what}")
                if found.smallest is not None:
                    return named
                if first is None and not (found.hidden or found.because):
                    first = named
                if found.code == TIME_LIMIT:
                    return first
    return first

"""The smallest failing input of a submission, for its figures."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise import Case
from pytest_gpulab.grading.correctness.smallest_inputs import Instead

from .catalogue import LoadedExercise
from .checks import Check, checks_of
from .grade import CheckResult, Finding
from .grader import Grader
from .time_limits import TIME_LIMIT, CaseLimits, TimeLimits

TIME = TimeLimits(case_s=3.0, file_s=9.0, is_verdict=False, has_builds=False)
SEARCHED = CaseLimits(TIME, smallest="later", causes=False, ahead=True)
"""Limits of `smallest_failing`: inputs of kernels that end take 0.3 s, and on a busy machine five times as long."""


def smallest_failing(
    exercise: LoadedExercise, path: Path, device: Device, seed: int, case: str = "", instead: Instead | None = None
) -> Finding | None:
    """Return a submission's first failure that has a smallest failing input, or else its first failure.

    `case` is the only case to run; empty for all. `instead` may return the finding in place of a search.
    """
    with closing(Grader(exercise, path, device, seed, limits=SEARCHED._replace(ahead=not case))) as grader:
        return _first_failing(grader, _searched(exercise, case), instead)


def _searched(loaded: LoadedExercise, case: str) -> Iterator[Check]:
    for check in checks_of(loaded.exercise):
        is_any = not case and check.kind in ("compile", "correct", "safe")
        is_it = isinstance(check.subject, Case) and check.subject.name == case  # only its variant is compiled
        if (is_any or is_it) and not check.hidden:
            yield check


def _first_failing(grader: Grader, checks: Iterable[Check], instead: Instead | None) -> Finding | None:
    """Return the first failure; a hazard comes with the first case that shows it, because it may cause the others."""
    first = None
    for check in checks:
        result = grader.run(check)
        if result.verdict == "passed":
            result = grader.unsafe_so_far() or result
        failing = None if instead is None else grader.smallest_inputs.first(result)
        if instead is not None and failing is not None and (found := instead(*failing)) is not None:
            return found
        if (smallest := grader.smallest_inputs.requested(result)) is not None:
            return _named(result, smallest)
        for found in result.findings if result.verdict == "failed" else ():
            if first is None and not (found.hidden or found.because):
                first = _named(result, grader.with_likely_cause(check, found))
            if found.code == TIME_LIMIT:
                return first
    return first


def _named(result: CheckResult, found: Finding) -> Finding:
    return replace(found, what=f"{result.name}: {found.what}")

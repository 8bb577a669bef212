"""Arrays that every thread reads as a whole: a cause of slow kernels, and of work repeated in each thread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.exercise import Case, Launch, Plan
from pytest_gpulab.grading.checks import correct_name
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.parameter_names import Names
from pytest_gpulab.grading.plans.replay import Run

from .compare import WRONG_RESULTS

if TYPE_CHECKING:
    from pytest_gpulab.grading.compilation.builds import Build

LEAST_ELEMENTS = 256  # a smaller array may be a table that every thread needs
MOST_THREADS_PER_ELEMENT = 16  # for an array with about one element per thread
ALL, MUCH = 0.9, 0.4  # shares of the elements: in a naive prefix sum, a thread reads half of them on average
STOPPED_ELEMENTS = 1000  # read per thread of a kernel that was stopped


EXPLAINED = (*WRONG_RESULTS, "time-limit", "endless-loop", "too-slow", "concept")
"""Codes of findings that such reads may explain."""


Replayed: TypeAlias = "tuple[Case, Plan, tuple[Run, ...], Build]"
"""The replays of a case by a build."""


def with_rereads(
    findings: tuple[Finding, ...], earlier: Iterable[Replayed], here: Replayed | None = None
) -> tuple[Finding, ...]:
    """Add the clauses on such reads to the evidence of findings that they may explain.

    They come from `here`, the failing case, if it has any, else from the first of the `earlier` visible cases that
    does.
    """
    lines = _clauses_of(here) if here is not None else ()
    for other in () if lines else earlier:
        case, *_ = other
        if lines := tuple(f"in {correct_name(case)}, {clause}" for clause in _clauses_of(other)):
            break
    return tuple(
        replace(found, evidence=(*found.evidence, *lines)) if found.code in EXPLAINED and not found.because else found
        for found in findings
    )


def _clauses_of(replayed: Replayed) -> tuple[str, ...]:
    _, plan, runs, build = replayed
    return rereads(plan, runs, build.parameters)


def rereads(plan: Plan, runs: Sequence[Run], names: Names) -> tuple[str, ...]:
    """Return a clause per array that every thread of a launch reads; only replays with hazard checks count."""
    return tuple(dict.fromkeys(line for run in runs for line in _of_run(plan, run, names)))


def _of_run(plan: Plan, run: Run, names: Names) -> Iterator[str]:
    reads = [(profile.read_per_thread, False) for profile in run.profiles]
    if isinstance(run.error, KernelFault):
        reads.append((run.error.read_per_thread, True))
    for launch, (read, is_stopped) in zip(plan.launches, reads, strict=False):
        for position, nbytes in sorted(read.items()):
            yield from _clauses(plan, launch, position, nbytes, is_stopped, names)


def _clauses(plan: Plan, launch: Launch, position: int, nbytes: float, is_stopped: bool, names: Names) -> Iterator[str]:
    argument = launch.args[position]
    if not isinstance(argument, str):
        return
    buffer = plan.buffer(argument)
    elements, itemsize = math.prod(buffer.shape), np.dtype(buffer.dtype).itemsize
    threads, each = math.prod((*launch.grid, *launch.block)), nbytes / itemsize
    if elements < LEAST_ELEMENTS or threads > MOST_THREADS_PER_ELEMENT * elements or threads < LEAST_ELEMENTS:
        return
    known = names.get(launch.kernel, ())
    name = known[position] if len(known) == len(launch.args) else argument
    readers = f"every thread of `{launch.kernel}`"
    if each >= ALL * elements:
        yield f"{readers} reads all {elements:,} elements of `{name}`"
    elif each >= MUCH * elements:
        yield f"{readers} reads `{name}` anew: {each:,.0f} of its {elements:,} elements on average"
    elif is_stopped and each >= STOPPED_ELEMENTS:
        yield f"until then, {readers} had read {each:,.0f} of the {elements:,} elements of `{name}`"

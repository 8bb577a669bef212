"""The share of reads of constant memory whose values the outputs depend on.

A kernel can read constant memory for show, and take the values from elsewhere. So some of its reads, chosen at random,
give other values, each in a run of its own. A read whose values are used changes an output.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Device, DisturbedRead, KernelFault
from pytest_gpulab.exercise import Plan
from pytest_gpulab.grading.compilation.builds import Build, BuildFailed
from pytest_gpulab.grading.correctness.checked_launches import run_fresh
from pytest_gpulab.grading.findings import of_error
from pytest_gpulab.grading.plans.replay import FIRST, Run
from pytest_gpulab.grading.time_limits import TIME_LIMIT

Array = npt.NDArray[Any]

COUNTERS = ("gpulab__constant_requests.sum", "gpulab__constant_words.sum")
READS = 12  # that are disturbed; of a kernel that uses a quarter of them, nine or more count once in 2,500 times
ENOUGH = 0.75  # of them: the others may be of threads that have no element, or cancel out
LIMIT_S, LIMIT_TIMES = 1.0, 2.0  # what a run may take beyond so many undisturbed ones: the value may end a loop


def used_share(
    device: Device, build: Build, plan: Plan, inputs: Mapping[str, Array], rng: np.random.Generator
) -> float:
    """Return the share of a submission's reads of the plan's constants, of all of constant memory, that are used.

    Args:
        device, build, plan, inputs: as in `replay`.
        rng: chooses the reads.

    Raises:
        BuildFailed: there is not enough time for all these runs, or they fail for another reason than the reads.
    """
    none = DisturbedRead(nth=-1, flipped=0)
    begin_s = time.perf_counter()
    undisturbed = _undisturbed(device, build, plan, inputs, none)
    limit_s = LIMIT_S + LIMIT_TIMES * (time.perf_counter() - begin_s)
    if not none.seen:
        return 1.0
    flipped = int.from_bytes(rng.integers(1, 256, 8, np.uint8).tobytes(), "little")
    reads = (DisturbedRead(int(nth), flipped) for nth in rng.integers(none.seen, size=READS))
    used = 0
    for read in reads:
        run = _run(device, build, plan, inputs, read, limit_s)
        if isinstance(run.error, KernelFault) and run.error.code == TIME_LIMIT:  # its own, or the time of all is up
            _undisturbed(device, build, plan, inputs, none)
        used += _differ(undisturbed, run)
    return 1.0 if used >= ENOUGH * READS else used / READS


def _undisturbed(device: Device, build: Build, plan: Plan, inputs: Mapping[str, Array], none: DisturbedRead) -> Run:
    run = _run(device, build, plan, inputs, none)
    if run.error is not None:
        raise BuildFailed(*of_error(run.error))
    return run


def _run(
    device: Device,
    build: Build,
    plan: Plan,
    inputs: Mapping[str, Array],
    read: DisturbedRead,
    limit_s: float | None = None,
) -> Run:
    options = replace(FIRST.options, check=False, disturbed=read, time_limit_s=limit_s)
    return run_fresh(device, build, plan, inputs, options)


def _differ(one: Run, other: Run) -> bool:
    """Return whether outputs differ in any bit; a run that faults depends on what it read."""
    if other.error is not None:
        return True
    return any(one.outputs[name].tobytes() != other.outputs[name].tobytes() for name in one.outputs)

"""The share of reads of constant memory whose values the outputs depend on.

A kernel can read constant memory for show, and take the values from elsewhere. So some of its reads, chosen at random,
give other values, each in a run of its own. A read whose values are used changes an output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.protocol import Device, DisturbedRead
from pytest_gpulab.exercise import Plan
from pytest_gpulab.grading.build import Build
from pytest_gpulab.grading.costed import run_fresh
from pytest_gpulab.grading.replay import FIRST, Run

Array = npt.NDArray[Any]

COUNTERS = ("gpulab__constant_requests.sum", "gpulab__constant_words.sum")
READS = 12  # that are disturbed; of a kernel that uses a quarter of them, nine or more count once in 2,500 times
ENOUGH = 0.75  # of them: the others may be of threads that have no element, or cancel out
LIMIT_S = 1.0  # of a run: a disturbed value may be the end of a loop


def used_share(
    device: Device, build: Build, plan: Plan, inputs: Mapping[str, Array], rng: np.random.Generator
) -> float:
    """Return the share of a submission's reads of the plan's constants, of all of constant memory, that are used.

    Args:
        device, build, plan, inputs: as in `replay`.
        rng: chooses the reads.
    """
    none = DisturbedRead(nth=-1, flipped=0)
    undisturbed = _run(device, build, plan, inputs, none)
    if not none.seen or undisturbed.error is not None:
        return 1.0
    flipped = int.from_bytes(rng.integers(1, 256, 8, np.uint8).tobytes(), "little")
    reads = (DisturbedRead(int(nth), flipped) for nth in rng.integers(none.seen, size=READS))
    used = sum(_differ(undisturbed, _run(device, build, plan, inputs, read)) for read in reads)
    return 1.0 if used >= ENOUGH * READS else used / READS


def _run(device: Device, build: Build, plan: Plan, inputs: Mapping[str, Array], read: DisturbedRead) -> Run:
    options = replace(FIRST.options, check=False, disturbed=read, time_limit_s=LIMIT_S)
    return run_fresh(device, build, plan, inputs, options)


def _differ(one: Run, other: Run) -> bool:
    """Return whether outputs differ in any bit; a run that faults depends on what it read."""
    if other.error is not None:
        return True
    return any(one.outputs[name].tobytes() != other.outputs[name].tobytes() for name in one.outputs)

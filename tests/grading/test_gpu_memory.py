"""How much of a GPU's memory a grader takes: default numbers of processes go by it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from pytest_gpulab.devices.cuda.fleet import BYTES_PER_GRADER
from pytest_gpulab.devices.stopwatch import TimingDevice
from pytest_gpulab.exercise import Buffer, Problem
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.plans.prepare import make_plan
from pytest_gpulab.grading.speed.buffers import BufferPool
from pytest_gpulab.grading.speed.targets import BenchmarkTarget
from pytest_gpulab.grading.speed.validation import SETS, most_checked

CATALOGUE = Catalogue(Path(__file__).parents[2] / "exercises")
CONTEXT_BYTES = 3 << 28  # with kernels, stacks and what is flushed: some 0.5 GiB on an H200


class Scales:
    """A device that only adds up what is allocated."""

    def __init__(self) -> None:
        self.nbytes = 0

    def empty(self, shape: Any, dtype: Any) -> Any:
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        self.nbytes += nbytes
        return SimpleNamespace(nbytes=nbytes)

    def array(self, values: Any) -> Any:
        return self.empty(np.shape(values), values.dtype)

    def part(self, *place: Any) -> Any:
        """Return what takes no further room."""
        return SimpleNamespace(set=lambda values: None)

    def copy(self, copies: Any) -> None:
        """Leave everything as it is."""


def zeros(buffer: Buffer) -> Any:
    return np.broadcast_to(np.zeros((), buffer.dtype), buffer.shape)


@pytest.mark.parametrize("name", [name for name in CATALOGUE.names if name != "reduction_host"])
def test_a_benchmark_leaves_memory_for_a_context(name: str) -> None:
    exercise = CATALOGUE.load(name).exercise
    tunables = {each.name: each.allowed[0] if each.default is None else each.default for each in exercise.tunables}
    for tier in {(tier.size, tier.variant.name): tier for tier in exercise.speed}.values():
        plan, scales = make_plan(exercise, Problem(tier.size, tunables, tier.variant)), Scales()
        inputs = [{each.name: zeros(each) for each in plan.buffers if each.role == "input"} for _ in range(SETS)]
        contender = BenchmarkTarget(BufferPool(cast(TimingDevice, scales)), cast(Any, None), plan, inputs)
        contender.spare_outputs(most_checked(contender))
        assert contender.nbytes < scales.nbytes <= BYTES_PER_GRADER - CONTEXT_BYTES

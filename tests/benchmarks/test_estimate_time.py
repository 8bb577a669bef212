"""How long an estimate of a launch on 2^25 elements takes: at most two seconds, for every kernel of the ladders."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.device import SimulatedMemory
from pytest_gpulab.exercise import Buffer, Exercise, Plan, Problem
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.compilation.builds import Builds
from pytest_gpulab.grading.correctness.checked_launches import SAMPLED
from pytest_gpulab.grading.plans.prepare import make_inputs, make_plan, rng_for
from pytest_gpulab.grading.plans.replay import allocated, initial_contents
from pytest_gpulab.grading.speed.costs import pattern_of

ROOT = Path(__file__).parents[2]
LIMIT_S = 2.0
MATRIX, LINE = (8192, 4096), 2**25
SIZES = {
    "constant_memory": (*MATRIX, 20),
    **dict.fromkeys(("divergence", "histogram", "reduction", "scan"), LINE),
    **dict.fromkeys(("matrix_sum", "stencil", "transpose"), MATRIX),
}
SOLUTIONS = sorted(set(ROOT.glob("solutions/*/*.cu")) - set(ROOT.glob("solutions/reduction_host/*.cu")))  # no programs


def launched_s(module: Any, *launch: Any) -> float:
    """CPU time: other work on the machine does not count."""
    start = time.process_time()
    profile = module.launch(*launch, options=LaunchOptions(sample_blocks=64))
    assert profile.estimated_ms is not None
    return time.process_time() - start


class Prepared:
    """A device with the memory of an exercise, which takes longer to fill than an estimate."""

    def __init__(self) -> None:
        self.device = SimulatedDevice()
        self.inputs: dict[str, Any] = {}
        self._arrays: dict[Buffer, SimulatedMemory] = {}

    def memory_of(self, exercise: Exercise, problem: Problem, plan: Plan) -> dict[str, SimulatedMemory]:
        buffers = allocated(plan)
        if not self.inputs:
            pattern = pattern_of(exercise, problem.variant)
            self.inputs = make_inputs(exercise, problem, plan, pattern, rng_for(1, "estimate"))
        for buffer in buffers:
            if buffer.zeroed or buffer not in self._arrays:
                self._arrays[buffer] = self.device.array(initial_contents(buffer, self.inputs, SAMPLED.poison))
        return {buffer.name: self._arrays[buffer] for buffer in buffers}


@lru_cache(maxsize=1)
def prepared_for(_exercise: str) -> Prepared:
    return Prepared()


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_solution(path: Path) -> None:
    loaded, prepared = Catalogue(ROOT / "exercises").load(path.parent.name), prepared_for(path.parent.name)
    variant = loaded.exercise.speed[0].variant
    build = Builds(path, loaded, prepared.device).of(variant)
    problem = Problem(SIZES[loaded.name], build.tunables, variant)
    plan = make_plan(loaded.exercise, problem)
    memory = prepared.memory_of(loaded.exercise, problem, plan)
    for symbol, name in plan.constants.items():
        build.module.set_constant(symbol, prepared.inputs[name])
    taken_s = 0.0
    for launch in plan.launches:
        args = [memory[arg] if isinstance(arg, str) else arg for arg in launch.args]
        taken_s += launched_s(build.module, launch.kernel, launch.grid, launch.block, args, launch.shared_bytes)
    assert taken_s <= LIMIT_S

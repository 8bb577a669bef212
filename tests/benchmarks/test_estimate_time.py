"""How long an estimate of a launch on 2^25 elements takes: at most two seconds, for every kernel of the ladders."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.exercise import Problem
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


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_solution(path: Path) -> None:
    loaded, device = Catalogue(ROOT / "exercises").load(path.parent.name), SimulatedDevice()
    variant = loaded.exercise.speed[0].variant
    build = Builds(path, loaded, device).of(variant)
    problem = Problem(SIZES[loaded.name], build.tunables, variant)
    plan = make_plan(loaded.exercise, problem)
    pattern = pattern_of(loaded.exercise, variant)
    inputs = make_inputs(loaded.exercise, problem, plan, pattern, rng_for(1, "estimate"))
    memory = {b.name: device.array(initial_contents(b, inputs, SAMPLED.poison)) for b in allocated(plan)}
    for symbol, name in plan.constants.items():
        build.module.set_constant(symbol, inputs[name])
    taken_s = 0.0
    for launch in plan.launches:
        args = [memory[arg] if isinstance(arg, str) else arg for arg in launch.args]
        taken_s += launched_s(build.module, launch.kernel, launch.grid, launch.block, args, launch.shared_bytes)
    assert taken_s <= LIMIT_S

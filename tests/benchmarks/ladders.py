"""The kernels of all solutions, with the launches that their exercises check, for benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pytest_gpulab.devices.protocol import Device, LaunchOptions, Module
from pytest_gpulab.exercise import Plan, Problem
from pytest_gpulab.grading.build import Builds, cases_of, variants_of
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.prepare import Array, make_inputs, make_plan
from pytest_gpulab.grading.replay import FIRST, replay

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Replayable:
    """A solution's plan for one case of its exercise, ready to run."""

    name: str
    device: Device
    module: Module
    plan: Plan
    inputs: Mapping[str, Array]

    def run(self, options: LaunchOptions) -> None:
        """Replay it; a kernel that faults is an error."""
        repetition = replace(FIRST, options=options)
        run = replay(self.device, self.module, self.plan, self.inputs, repetition, read_back=False)
        assert run.error is None, (self.name, run.error)


def ladder_cases(device: Device) -> Iterator[Replayable]:
    """Yield every case of every solution."""
    catalogue = Catalogue(ROOT / "exercises")
    for path in sorted((ROOT / "solutions").glob("*/*.cu")):
        loaded = catalogue.load(path.parent.name)
        builds = Builds(path, loaded, device)
        for variant in variants_of(loaded.exercise):
            build = builds.of(variant)
            for case in cases_of(loaded.exercise, variant):
                size = case.size(build.tunables) if callable(case.size) else case.size
                problem = Problem(size, build.tunables, variant)
                plan = make_plan(loaded.exercise, problem)
                inputs = make_inputs(loaded.exercise, problem, plan, "random", np.random.default_rng(1))
                yield Replayable(f"{path.parent.name}/{path.stem} {case.name}", device, build.module, plan, inputs)

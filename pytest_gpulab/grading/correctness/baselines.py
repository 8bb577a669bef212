"""The outputs of a baseline: a wrong one makes kernels look slow or fast."""

import math
from dataclasses import replace

import numpy as np

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.exercise import Case, Variant
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.builds import Build, BuildFailed, Builds, cases_of
from pytest_gpulab.grading.diagnosis.compare import wrong_with
from pytest_gpulab.grading.findings import of_error
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.prepare import make_plan, prepare, problem_of, rng_for
from pytest_gpulab.grading.plans.replay import FIRST

from .checked_launches import run_fresh
from .sizes import extents_of

MAX_ELEMENTS = 1 << 16  # of the compared case: a naive kernel takes some ten milliseconds on the simulated GPU


def check_baseline(loaded: LoadedExercise, builds: Builds, device: Device, variant: Variant, seed: int) -> None:
    """Compare the outputs of a baseline in the largest case of a variant; `gpulab check` compares them in all cases.

    Raises BuildFailed if it has no build, ends abnormally or is wrong, and InstructorsMistake.
    """
    build = builds.of(variant)
    problems = ((problem_of(case, build.tunables), case) for case in cases_of(loaded.exercise, variant))
    cases = [(math.prod(map(int, extents_of(problem.size))), case) for problem, case in problems]
    fitting = [sized for sized in cases if sized[0] <= MAX_ELEMENTS]
    if not fitting:
        return
    case = max(fitting, key=lambda sized: sized[0])[1]
    pattern = case.patterns[0]
    rng = rng_for(seed, loaded.name, "baseline", case.name, pattern)
    if found := _failure(loaded, build, device, case, pattern, rng):
        raise BuildFailed("failed", replace(found, what=f"in case {case.name!r}, {found.what}"))


def _failure(
    loaded: LoadedExercise, build: Build, device: Device, case: Case, pattern: str, rng: np.random.Generator
) -> Finding | None:
    """Return the fault or the wrong result of a baseline in a case; None if it is correct.

    Raises BuildFailed if the device cannot run it, and InstructorsMistake.
    """
    problem = problem_of(case, build.tunables)
    plan = make_plan(loaded.exercise, problem)
    prepared = prepare(loaded.exercise, problem, plan, pattern, rng)
    run = run_fresh(device, build, plan, prepared.inputs, FIRST.options)
    if run.error is not None:
        verdict, found = of_error(run.error)
        if verdict != "failed":  # such as too little memory: no mistake of the baseline
            raise BuildFailed(verdict, found)
        return found
    return next(iter(wrong_with(run, prepared, FIRST)), None)

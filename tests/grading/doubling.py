"""The exercise that the tests of grading use: `out[i] = 2 * in[i]`, and programs that do it right or wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fake_device import FakeDevice, Program

from pytest_gpulab.devices.protocol import KernelFault, Lane, SourceLine
from pytest_gpulab.exercise import (
    Array,
    Buffer,
    Case,
    Exercise,
    Expected,
    Launch,
    Plan,
    Problem,
    SafeCheck,
    SpeedTier,
    Tunable,
)
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.time_limits import CaseLimits


def plan(problem: Problem) -> Plan:
    n = problem.size
    block = problem.tunables.get("BLOCK_SIZE", 32)
    return Plan(
        (Buffer("in", "input", np.float32, (n,)), Buffer("out", "output", np.float32, (n,))),
        (Launch("twice", (-(-n // block),), (block,), ("in", "out", np.uint32(n))),),
    )


def inputs(problem: Problem, pattern: str, rng: np.random.Generator) -> Mapping[str, Array]:
    low = 10 if pattern == "large" else 0
    return {"in": rng.uniform(low, low + 1, problem.size).astype(np.float32)}


def reference(problem: Problem, inputs: Mapping[str, Array]) -> Expected:
    return Expected({"out": 2 * inputs["in"].astype(np.float64)}, {"out": 1e-5})


EXERCISE = Exercise(
    title="Twice",
    plan=plan,
    inputs=inputs,
    reference=reference,
    cases=(Case("n=4", 4, 25), Case("n=70", lambda tunables: 70, 25, ("random", "large"))),
    safe=(SafeCheck("memory", 5), SafeCheck("barrier", 5)),
    speed=(SpeedTier(1.5, 20, 2**20, required=True, simulated_size=2**10), SpeedTier(3, 20, 2**10)),
    min_bytes=lambda problem: 8 * problem.size,
    version="7",
)


def kernel(costs_ms: float = 1.0, **profile: Any) -> Any:
    """Return a right kernel; the profile's further fields may be given."""

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[:n] = 2 * source.values[:n]
        return {"estimated_ms": costs_ms, **profile}

    return twice


def right(costs_ms: float = 1.0, **profile: Any) -> Program:
    return Program({"twice": kernel(costs_ms, **profile)}, (8, 8, 4))


def program(twice: Any, **rest: Any) -> Program:
    return Program({"twice": twice}, (8, 8, 4), **rest)


class Bench:
    """Grades programs for variations of the exercise, in a temporary folder."""

    def __init__(self, folder: Path, estimates: bool = True) -> None:
        self.folder = folder
        self.programs: dict[str, Program] = {"naive": right(3.0, bottleneck="memory")}
        self.device = FakeDevice(self.programs, estimates)
        (folder / "naive.cu").write_text("naive")

    def grader(self, submission: Program | str | bytes, seed: int = 1, **changes: Any) -> Grader:
        if isinstance(submission, Program):
            self.programs["submission"] = submission
            submission = "submission"
        path = self.folder / "student.cu"
        path.write_bytes(submission if isinstance(submission, bytes) else submission.encode())
        loaded = LoadedExercise("twice", self.folder, replace(EXERCISE, **changes))
        return Grader(loaded, path, self.device, seed, "student", CaseLimits(smallest="none"))

    def results(self, submission: Program | str | bytes, **changes: Any) -> dict[str, CheckResult]:
        return {check.name: check for check in self.grader(submission, **changes).grade().checks}

    def result(self, check: str, submission: Program | str | bytes, **changes: Any) -> CheckResult:
        grader = self.grader(submission, **changes)
        wanted = next(c for c in checks_of(replace(EXERCISE, **changes)) if c.name == check)
        return grader.run(wanted)


def codes(results: Mapping[str, CheckResult]) -> dict[str, str]:
    """Return check to the code of its first finding, for those that have one."""
    return {name: result.findings[0].code for name, result in results.items() if result.findings}


def tunable(name: str, value: int, n_bytes: int = 4) -> dict[str, bytes]:
    return {f"gpulab_tunable_{name}": value.to_bytes(n_bytes, "little", signed=True)}


BLOCK_SIZE = Tunable("BLOCK_SIZE", (32, 64, 128))


PLACE = SourceLine("student.cu", 5)
LANE = Lane((0, 0, 0), (32, 0, 0))


def faulting(code: str, above: int = 0) -> Program:
    """A program that ends abnormally for more than `above` elements."""

    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        if n > above:
            raise KernelFault(code, "it happened", PLACE, LANE)
        return kernel()(options, source, out, n)

    return program(twice)

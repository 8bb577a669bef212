"""From an exercise's own functions to checked data: plan, inputs and expected values.

The data of a case depends on the seed and the case alone, so it is the same in whatever order, process or selection
checks run, and the same for a submission and its baseline.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_gpulab.exercise import Exercise, ExerciseError, Expected, Plan, Problem
from pytest_gpulab.grading.findings import finding
from pytest_gpulab.grading.grade import Finding

Array = npt.NDArray[Any]

LOOK_ALIKE_SHARE = 16  # one element of so many differs


class InstructorsMistake(Exception):
    """The exercise's own code raised or contradicts itself; the check is not gradable."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


@dataclass(frozen=True)
class Prepared:
    """All that one replay and its judgement need."""

    plan: Plan
    inputs: Mapping[str, Array]
    expected: Expected
    tunables: Mapping[str, int] = field(default_factory=dict)


def prepare(exercise: Exercise, problem: Problem, plan: Plan, pattern: str, rng: np.random.Generator) -> Prepared:
    """Make the inputs of a plan and what must come out.

    Raises:
        InstructorsMistake: see there.
    """
    inputs = make_inputs(exercise, problem, plan, pattern, rng)
    return Prepared(plan, inputs, expected_of(exercise, problem, plan, inputs), problem.tunables)


def expected_of(exercise: Exercise, problem: Problem, plan: Plan, inputs: Mapping[str, Array]) -> Expected:
    """Compute what must come out.

    Raises:
        InstructorsMistake: see there.
    """
    with instructors_code("reference"):
        expected = exercise.reference(problem, inputs)
        _check_expected(plan, expected)
    return expected


def make_plan(exercise: Exercise, problem: Problem) -> Plan:
    """Build the plan of a problem.

    Raises:
        InstructorsMistake: see there.
    """
    with instructors_code("plan"):
        return exercise.plan(problem)


def make_inputs(
    exercise: Exercise, problem: Problem, plan: Plan, pattern: str, rng: np.random.Generator
) -> Mapping[str, Array]:
    """Return the contents of every input buffer of the plan, read-only, contiguous, of the buffer's dtype and shape.

    Raises:
        InstructorsMistake: see there.
    """
    with instructors_code("inputs"):
        made = exercise.inputs(problem, pattern, rng)
        inputs = {}
        for buffer in plan.buffers:
            if buffer.role == "input":
                inputs[buffer.name] = _pristine(made, buffer.name, np.dtype(buffer.dtype), buffer.shape)
        return inputs


def look_alike(inputs: Mapping[str, Array], others: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Return inputs in which few elements, and neither the first nor the last, are those of other inputs.

    Whoever recognises inputs by their length and some of their elements takes them for the same. Where there are no
    elements but the first and the last they are the other inputs altogether.
    """
    return {name: _altered(values, others[name], rng) for name, values in inputs.items()}


def _altered(values: Array, others: Array, rng: np.random.Generator) -> Array:
    if values.size <= 2:
        return others
    altered: Array = values.copy()
    inner = values.size - 2
    changed = 1 + rng.choice(inner, max(1, inner // LOOK_ALIKE_SHARE), replace=False)
    altered.reshape(-1)[changed] = others.reshape(-1)[changed]
    return altered


def _pristine(made: Mapping[str, Array], name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    if name not in made:
        raise ExerciseError(f"`inputs` makes nothing for the input buffer {name!r}")
    values: Array = np.ascontiguousarray(made[name]).reshape(np.shape(made[name])).view()
    if values.dtype != dtype or values.shape != shape:
        raise ExerciseError(f"input {name!r} is {values.dtype} {values.shape}, but its buffer is {dtype} {shape}")
    values.setflags(write=False)
    return values


def _check_expected(plan: Plan, expected: Expected) -> None:
    outputs = {buffer.name: buffer for buffer in plan.buffers if buffer.role == "output"}
    if set(outputs) != set(expected.values):
        raise ExerciseError(
            f"`reference` gives {sorted(expected.values)}, but the output buffers are {sorted(outputs)}"
        )
    for name, buffer in outputs.items():
        if np.shape(expected.values[name]) != buffer.shape:
            shape = np.shape(expected.values[name])
            raise ExerciseError(f"the reference of {name!r} has shape {shape}, but its buffer has {buffer.shape}")


def rng_for(seed: int, *key: str) -> np.random.Generator:
    """Return the generator that belongs to a seed and a key, independent of any other."""
    digest = hashlib.sha256("\0".join((str(seed), *key)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


@contextmanager
def instructors_code(what: str) -> Iterator[None]:
    """Run a piece of the exercise's own code: whatever it raises becomes an `InstructorsMistake` with its traceback."""
    try:
        yield
    except Exception as error:
        frames = error.__traceback__.tb_next if error.__traceback__ else None  # the first one is this function's
        lines = "".join(traceback.format_exception(type(error), error, frames)).splitlines()
        mistake = finding("reference-mismatch", f"The exercise's own `{what}` is wrong: {error}", evidence=lines)
        raise InstructorsMistake(mistake) from error

"""The protocol of costs, estimated or timed, and the facts of a tier that both implementations share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from pytest_gpulab.devices.hardware.occupancy import KernelOccupancy
from pytest_gpulab.devices.protocol import Device, LaunchProfile
from pytest_gpulab.exercise import Exercise, ExerciseError, Plan, Problem, Size, SpeedTier, Variant
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.builds import cases_of, variant_key
from pytest_gpulab.grading.grade import Finding, Measurement
from pytest_gpulab.grading.plans.prepare import instructors_code, make_plan
from pytest_gpulab.grading.plans.stand_in import standing_in


class Costs(Protocol):
    """The costs of one submission and its baselines, measured once per size, variant and baseline."""

    def measure(self, tier: SpeedTier) -> Measurement:
        """Return the speedup of the submission over the tier's baseline, on the same data.

        Raises BuildFailed if there is no figure: `not gradable` because of the device or the exercise, `failed` if the
        submission's kernel ends abnormally at this size. Raises InstructorsMistake if the exercise's own code is wrong.
        """
        ...

    def wrong(self, tier: SpeedTier) -> tuple[Finding, ...]:
        """Return the errors in the measured work: wrong outputs, an impossible time. `measure` comes first."""
        ...

    def races(self, tier: SpeedTier) -> tuple[Finding, ...]:
        """Return the races in an estimated launch; none in a timed one, because a GPU does not show them."""
        return ()

    def reference_ms(self, tier: SpeedTier) -> float | None:
        """Return the time of the CPU reference; None where it is unknown or says nothing. `measure` comes first."""
        ...

    def record_failure(self, tier: SpeedTier, found: Finding) -> None:
        """Record that measuring the tier ended another process abnormally: it is not measured again."""
        ...


def timed_size(tier: SpeedTier, device: Device) -> Size:
    """Return the tier's size on this device."""
    if device.info.estimates and tier.simulated_size is not None:
        return tier.simulated_size
    return tier.size


def estimated_plan(exercise: Exercise, problem: Problem) -> Plan:
    """Return the plan of an estimate, of launches at the size on a GPU: the smallest size if tiers differ."""
    plan = make_plan(exercise, problem)
    tiers = (tier for tier in exercise.speed if variant_key(tier.variant) == variant_key(problem.variant))
    size = min((tier.size for tier in tiers if tier.simulated_size == problem.size), key=np.prod, default=problem.size)
    return plan if size == problem.size else standing_in(plan, make_plan(exercise, replace(problem, size=size)))


def size_text(size: Size) -> str:
    """Return a size as text: `2^20`, `1000`, `256 x 256 x 20`."""
    if isinstance(size, tuple):
        return " x ".join(map(str, size))
    is_power = size >= 1024 and size & (size - 1) == 0
    return f"2^{size.bit_length() - 1}" if is_power else str(size)


def pattern_of(exercise: Exercise, variant: Variant) -> str:
    """Return the input pattern for measuring a variant: the first of its first case."""
    return (cases_of(exercise, variant) or exercise.cases)[0].patterns[0]


def min_bytes(loaded: LoadedExercise, problem: Problem) -> float | None:
    """Return the bytes that any correct submission must move; None without `min_bytes`. Raises InstructorsMistake."""
    if loaded.exercise.min_bytes is None:
        return None
    with instructors_code("min_bytes"):
        found = loaded.exercise.min_bytes(problem)
        if not isinstance(found, int | float | np.number) or not 0 < found < math.inf:
            raise ExerciseError(f"it must return a number of bytes above 0, but returns {found!r}")
        return float(found)


def kernels_of(profiles: Sequence[LaunchProfile]) -> tuple[KernelOccupancy, ...]:
    """Return the occupancy of the launches, without repetitions."""
    found = (
        replace(
            profile.kernel_occupancy,
            local_bytes=profile.resources.local_bytes,
            constant_bytes=profile.resources.constant_bytes,
        )
        for profile in profiles
        if profile.kernel_occupancy is not None
    )
    return tuple(dict.fromkeys(found))

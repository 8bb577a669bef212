"""The protocol of costs, estimated or timed, and the facts of a tier that both implementations share.

At a small size, a right kernel with many elements per thread may have fewer blocks than the GPU has SMs, and the launch
itself may take longer than the work. Neither is so at the size at which a GPU is timed. So `standing_in` estimates the
larger launch from the smaller one, which shows the work of a block.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from pytest_gpulab.devices.hardware.occupancy import KernelOccupancy
from pytest_gpulab.devices.protocol import Device, LargerLaunch, LaunchProfile
from pytest_gpulab.exercise import Exercise, ExerciseError, Launch, Plan, Problem, Size, SpeedTier, Variant
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.builds import cases_of, variant_key
from pytest_gpulab.grading.grade import Finding, Measurement
from pytest_gpulab.grading.plans.prepare import instructors_code, make_plan
from pytest_gpulab.grading.plans.replay import StandIn


class Costs(Protocol):
    """The costs of one submission and its baselines, measured once per size, variant and baseline."""

    def measure(self, tier: SpeedTier) -> Measurement:
        """Return the speedup of the submission over the tier's baseline, on the same data.

        Raises BuildFailed if there is no figure: `not gradable` because of the device or the exercise, `failed` if the
        submission's kernel ends abnormally at this size. Raises InstructorsMistake if the exercise's own code is wrong.
        """

    def wrong(self, tier: SpeedTier) -> tuple[Finding, ...]:
        """Return the errors in the measured work: wrong outputs, an impossible time. `measure` comes first."""

    def races(self, tier: SpeedTier) -> tuple[Finding, ...]:
        """Return the races in an estimated launch; none in a timed one, because a GPU does not show them."""
        return ()

    def reference_ms(self, tier: SpeedTier) -> float | None:
        """Return the time of the CPU reference; None where it is unknown or says nothing. `measure` comes first."""

    def record_failure(self, tier: SpeedTier, found: Finding) -> None:
        """Record that measuring the tier ended another process abnormally: it is not measured again."""


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
    return patterns_of(exercise, variant)[0]


def patterns_of(exercise: Exercise, variant: Variant) -> tuple[str, ...]:
    """Return the input patterns of a variant's first case."""
    return (cases_of(exercise, variant) or exercise.cases)[0].patterns


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


def standing_in(plan: Plan, full: Plan) -> Plan:
    """Return a plan at a small size with launches from which those of a `full` plan, for a GPU, are estimated.

    The counterpart of a launch has the same kernel, block and rank by number of blocks: the levels of a recursion
    differ in nothing else. A launch without a counterpart is estimated as it is.
    """
    share = _data_bytes(plan) / _data_bytes(full)
    counterparts = _by_kernel(full)
    found: dict[int, Launch] = {}
    for key, launches in _by_kernel(plan).items():
        most = max(_bytes_per_block(plan, launch) for launch in launches)
        for launch, other in zip(launches, counterparts.get(key, ()), strict=False):
            work = max(_bytes_per_block(full, other) / most, 1.0) if most else 1.0
            larger = LargerLaunch(math.prod(other.grid), work, share)
            found[id(launch)] = StandIn(**vars(launch), larger=larger)
    return replace(plan, launches=tuple(found.get(id(launch), launch) for launch in plan.launches))


def _data_bytes(plan: Plan) -> int:
    """Return the bytes of the inputs and outputs, which do not depend on the submission; at least 1."""
    return max(sum(buffer.nbytes for buffer in plan.buffers if buffer.role != "scratch"), 1)


def _by_kernel(plan: Plan) -> dict[tuple[str, tuple[int, ...]], list[Launch]]:
    """Return the launches of each kernel and block, those with most blocks first."""
    found = defaultdict(list)
    for launch in plan.launches:
        found[launch.kernel, launch.block].append(launch)
    return {key: sorted(launches, key=lambda launch: -math.prod(launch.grid)) for key, launches in found.items()}


def _bytes_per_block(plan: Plan, launch: Launch) -> float:
    return sum(plan.buffer(arg).nbytes for arg in launch.args if isinstance(arg, str)) / math.prod(launch.grid)

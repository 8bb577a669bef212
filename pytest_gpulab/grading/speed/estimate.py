"""Estimated costs of a submission and its baselines, for devices with a cost model instead of a clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pytest_gpulab.devices.hardware.occupancy import KernelOccupancy
from pytest_gpulab.devices.protocol import Device, LaunchProfile
from pytest_gpulab.exercise import Array, Plan, Problem, Size, SpeedTier, Variant
from pytest_gpulab.grading.compilation.builds import BuildFailed, Builds, VariantKey, made_once, variant_key
from pytest_gpulab.grading.correctness.baselines import check_baseline
from pytest_gpulab.grading.correctness.checked_launches import (
    OTHER_INPUTS,
    CostedRun,
    ReplayInput,
    adds_to_outputs,
    races,
    run_again,
    run_costed,
    run_unread_sample,
    with_ranges_of,
    wrong_outputs,
)
from pytest_gpulab.grading.counters import KernelCounters, counted
from pytest_gpulab.grading.findings import finding, of_error
from pytest_gpulab.grading.grade import Finding, Measurement
from pytest_gpulab.grading.plans.prepare import make_inputs, rng_for
from pytest_gpulab.grading.plans.replay import Run

from .costs import Costs, estimated_plan, kernels_of, min_bytes, pattern_of, patterns_of, size_text, timed_size
from .reference_time import reference_ms
from .verdict import not_timed, unusable

MOVED_SHARE = 0.9  # below 1, because counts are scaled up from sampled blocks
WORTH_COSTING = 0.9  # share of a threshold; if an estimate from a sample of blocks reaches it, all blocks run
SECTORS = "gpulab__touched_sectors.sum"  # the counter of distinct sectors that a launch reads or writes
SECTOR_BYTES = 32
SAMPLING_ERROR = "gpulab__sampling_error.pct"

_Replayed = tuple[ReplayInput, int]
CostKey = tuple[Size, VariantKey]
_BaselineKey = tuple[str, str, str, Size, VariantKey, int]
_baselines: WeakKeyDictionary[Device, dict[_BaselineKey, Timing]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Timing:
    """The cost of one replay of a plan."""

    elapsed_ms: float  # time of all launches
    estimated: bool  # whether the time comes from a cost model
    slowest: LaunchProfile  # profile of the longest launch
    moved_bytes: float | None = None  # bytes of global memory that are read or written, if the device counts them
    kernels: tuple[KernelOccupancy, ...] = ()  # occupancy of the different launches, in order
    counters: tuple[KernelCounters, ...] = ()  # counters of the different launches, in order
    profiles: tuple[LaunchProfile, ...] = ()  # profiles of all launches
    # standard error of `elapsed_ms` because only a sample of the blocks ran; None if unknown
    error_pct: float | None = None


class EstimatedCosts(Costs):
    """Estimated costs, one run per size and variant of the submission, one per baseline of the device."""

    def __init__(self, builds: Builds, seed: int, decides: bool = True) -> None:
        """Keep references to the submission's builds on the device that estimates.

        The seed is that of the input data. If a real GPU `decides` the speed checks, a sample of blocks serves for
        `profiles`.
        """
        self._builds, self._seed, self._decides = builds, seed, decides
        self._loaded, self._device = builds.loaded, builds.device
        self._own: dict[CostKey, Timing | BuildFailed] = {}
        self._costed: dict[CostKey, tuple[CostedRun, CostedRun | None]] = {}  # kept until their outputs are compared
        self._wrong: dict[CostKey, tuple[Finding, ...] | BuildFailed] = {}
        self._raced: dict[CostKey, tuple[Finding, ...] | BuildFailed] = {}
        self._failures: dict[CostKey, Finding] = {}
        self._reference_ms: dict[CostKey, float | None] = {}
        self.learn: Callable[[CostKey], None] = lambda key: None
        """A function that adds what another process knows to `known`."""

    def key(self, tier: SpeedTier) -> CostKey:
        """Return the size and variant of a tier, which share one estimate."""
        return timed_size(tier, self._device), variant_key(tier.variant)

    @property
    def known(self) -> tuple[dict[Any, Any], ...]:
        """All that is known so far; other processes can learn it."""
        return self._own, self._wrong, self._raced, _baselines.setdefault(self._device, {})

    def estimate(self, tier: SpeedTier) -> None:
        """Find all that `measure`, `wrong` and `races` return for a tier, and keep it in `known`."""
        with suppress(BuildFailed):  # it is known, or found again
            self.measure(tier)
        with suppress(BuildFailed):
            if self.key(tier) in self._costed:
                self.wrong(tier)

    def record_failure(self, tier: SpeedTier, found: Finding) -> None:
        """Record that a size ended another process abnormally: it is not run again."""
        self._failures[timed_size(tier, self._device), variant_key(tier.variant)] = found

    def measure(self, tier: SpeedTier) -> Measurement:
        """Return the estimated speedup; see `Costs`."""
        size = timed_size(tier, self._device)
        problem = Problem(size, self._builds.of(tier.variant).tunables, tier.variant)
        own, baseline = self._own_timing(size, tier.variant), self._baseline(tier, size)
        if not (own.elapsed_ms > 0 and baseline.elapsed_ms > 0):
            raise not_timed("the estimated time is zero: the size is too small")
        least = min_bytes(self._loaded, problem)
        return Measurement(
            size=size_text(size),
            elapsed_ms=own.elapsed_ms,
            baseline_ms=baseline.elapsed_ms,
            speedup=baseline.elapsed_ms / own.elapsed_ms,
            threshold=self._threshold(tier),
            calibrated=self._loaded.thresholds.is_calibrated(tier),
            estimated=own.estimated,
            bandwidth_gb_s=None if least is None else least / (own.elapsed_ms * 1e-3) / 1e9,
            occupancy=own.slowest.occupancy,
            registers=own.slowest.resources.registers,
            bottleneck=own.slowest.bottleneck,
            baseline=tier.baseline,
            kernels=own.kernels,
            peak_bandwidth_gb_s=self._device.info.peak_bandwidth_gb_s,
            counters=own.counters,
            sampling_error_pct=_of_both(own.error_pct, baseline.error_pct),
        )

    def wrong(self, tier: SpeedTier) -> tuple[Finding, ...]:
        """Return the errors of the estimated run: outputs, bytes moved or time; see `Costs`."""
        size, variant = timed_size(tier, self._device), tier.variant
        key = (size, variant_key(variant))
        return made_once(self._wrong, key, partial(self._found_wrong, key, size, variant))

    def _found_wrong(self, key: CostKey, size: Size, variant: Variant) -> tuple[Finding, ...]:
        problem, (costed, again) = Problem(size, self._builds.of(variant).tunables, variant), self._costed.pop(key)
        timing = self._own_timing(size, variant)
        found = wrong_outputs(self._loaded.exercise, problem, costed)
        found = found or (() if again is None else self._wrong_again(problem, again))
        self._raced[key] = () if found else costed.raced
        found = found or (*self._work_left_out(problem, timing), *self._impossible(problem, timing))
        at = f"At the timed size {size_text(size)}: "
        return tuple(replace(finding, what=at + finding.what) for finding in found)

    def _second_run(self, problem: Problem, costed: CostedRun) -> CostedRun | None:
        """Run again with other inputs, if the first run may have kept state, or its blocks add to the outputs."""
        build, exercise = self._builds.of(problem.variant), self._loaded.exercise
        adds = exercise.mixable and adds_to_outputs(costed.plan)
        if not (costed.is_complete and (adds or build.module.has_state)):
            return None
        first, rng = self._data(problem.size, problem.variant)
        patterns = patterns_of(exercise, problem.variant) if adds else (first,)
        *drawn, placed = rng.spawn(1 + len(patterns))
        others = [make_inputs(exercise, problem, costed.plan, *each) for each in zip(patterns, drawn, strict=True)]
        inputs = with_ranges_of(costed.inputs, others, placed) if exercise.mixable else others[0]
        return run_again(self._device, build, costed.plan, inputs)

    def _wrong_again(self, problem: Problem, again: CostedRun) -> tuple[Finding, ...]:
        if again.run.error is not None:
            verdict, broke = of_error(again.run.error)
            if verdict != "failed":
                raise BuildFailed(verdict, broke)
            return (broke,)
        found = wrong_outputs(self._loaded.exercise, problem, again)
        return tuple(replace(each, evidence=(*each.evidence, OTHER_INPUTS)) for each in found)

    def races(self, tier: SpeedTier) -> tuple[Finding, ...]:
        """Return the races in some blocks of an estimated launch, of inputs that are larger than the cases'."""
        size, variant = timed_size(tier, self._device), tier.variant
        problem = Problem(size, self._builds.of(variant).tunables, variant)
        key = (size, variant_key(variant))
        found = made_once(self._raced, key, lambda: self._races(problem, *self._planned(problem)))
        return tuple(replace(finding, what=f"At size {size_text(size)}: {finding.what}") for finding in found)

    def _races(self, problem: Problem, plan: Plan, inputs: Mapping[str, Array]) -> tuple[Finding, ...]:
        identity = self._loaded.name, "checked", size_text(problem.size), self._builds.sha256
        seed = int(rng_for(self._seed, *identity).integers(1 << 62))
        return races(ReplayInput(self._device, self._builds.of(problem.variant), plan, inputs), seed)

    def profiles(self, variant: Variant) -> Mapping[Size, Sequence[LaunchProfile]]:
        """Return the launches by size, for all sizes at which a variant has an estimate.

        A speedup that needs a concept needs it at the size that a GPU times, too.
        """
        found: dict[Size, Sequence[LaunchProfile]] = {}
        for tier in self._loaded.exercise.speed:
            is_like = variant_key(tier.variant) == variant_key(variant)
            on_gpu = (tier.size,) if tier.needs and not self._decides else ()
            for size in (timed_size(tier, self._device), *on_gpu) if is_like else ():
                with suppress(BuildFailed):  # the speed check reports it
                    found[size] = self._own_timing(size, variant).profiles
        return found

    def reference_ms(self, tier: SpeedTier) -> float | None:
        """Return the measured time of the CPU reference, for information; see `Costs`."""
        size, variant = timed_size(tier, self._device), tier.variant
        key = (size, variant_key(variant))
        if key not in self._reference_ms:  # once for all tiers: it reads the cache and the exercise's files
            problem = Problem(size, self._builds.of(variant).tunables, variant)
            self._reference_ms[key] = reference_ms(self._loaded, problem, partial(self._planned, problem))
        return self._reference_ms[key]

    def _planned(self, problem: Problem) -> tuple[Plan, Mapping[str, Array]]:
        plan = estimated_plan(self._loaded.exercise, problem)
        data = self._data(problem.size, problem.variant)
        return plan, make_inputs(self._loaded.exercise, problem, plan, *data)

    def _work_left_out(self, problem: Problem, timing: Timing) -> tuple[Finding, ...]:
        least = min_bytes(self._loaded, problem)
        if least is None or timing.moved_bytes is None or timing.moved_bytes >= MOVED_SHARE * least:
            return ()
        moved_mb, least_mb = timing.moved_bytes / 1e6, least / 1e6
        what = f"the kernels touch {moved_mb:.3g} MB of memory, but a correct kernel needs at least {least_mb:.3g} MB."
        return (finding("wrong-result", what, hint="Is every element read and written at this size, too?"),)

    def _impossible(self, problem: Problem, timing: Timing) -> tuple[Finding, ...]:
        """Return a finding if the estimate is shorter than the minimal bytes take at peak bandwidth."""
        least, peak_gb_s = min_bytes(self._loaded, problem), self._device.info.peak_bandwidth_gb_s
        if least is None or not peak_gb_s or timing.elapsed_ms >= (floor_ms := least / (peak_gb_s * 1e6)):
            return ()
        what = (
            f"an estimate of {timing.elapsed_ms:.4g} ms is not possible: a correct kernel moves {least / 1e6:.4g} MB, "
            f"which takes {floor_ms:.4g} ms at the memory's {peak_gb_s:.0f} GB/s."
        )
        return (finding("impossible-time", what),)

    def _baseline(self, tier: SpeedTier, size: Size) -> Timing:
        """Return the estimate of the baseline, shared by all submissions to the exercise on the device."""
        cache = _baselines.setdefault(self._device, {})
        folder, version = self._loaded.folder, self._loaded.exercise.version
        key = (str(folder), version, tier.baseline, size, variant_key(tier.variant), self._seed)
        if key not in cache:
            try:
                builds = Builds(folder / tier.baseline, self._loaded, self._device)
                check_baseline(self._loaded, builds, self._device, tier.variant, self._seed)
                timing = self._time(run_unread_sample, self._replayed(builds, size, tier.variant))[0]
                self._compare_with_min_bytes(Problem(size, builds.of(tier.variant).tunables, tier.variant), timing)
                cache[key] = timing
            except BuildFailed as blocked:
                raise unusable(tier.baseline, blocked) from blocked
        return cache[key]

    def _compare_with_min_bytes(self, problem: Problem, timing: Timing) -> None:
        """Raise BuildFailed if the baseline, which is correct, moves less than `min_bytes`: no kernel would do."""
        least = min_bytes(self._loaded, problem)
        if least is not None and timing.moved_bytes is not None and timing.moved_bytes < MOVED_SHARE * least:
            what = f"it touches {timing.moved_bytes / 1e6:.3g} MB of memory, but `min_bytes` is {least / 1e6:.3g} MB."
            raise BuildFailed("failed", finding("wrong-result", f"at size {size_text(problem.size)}, {what}"))

    def _own_timing(self, size: Size, variant: Variant) -> Timing:
        key = (size, variant_key(variant))
        if key in self._failures:
            raise BuildFailed("failed", self._failures[key])
        if key not in self._own:
            self.learn(key)
        # cached also if it fails: a kernel that reaches the time limit does so once, not in each check
        return made_once(self._own, key, partial(self._costed_once, key, size, variant))

    def _costed_once(self, key: CostKey, size: Size, variant: Variant) -> Timing:
        replayed = self._replayed(self._builds, size, variant)
        timing, _ = self._time(run_unread_sample, replayed)
        if self._decides and self._may_reach_a_threshold(size, variant, timing):  # then all blocks must run
            timing, costed = self._time(run_costed, replayed)
            problem = Problem(size, self._builds.of(variant).tunables, variant)
            self._costed[key] = costed, self._second_run(problem, costed)
        return timing

    def _may_reach_a_threshold(self, size: Size, variant: Variant, timing: Timing) -> bool:
        tiers = [tier for tier in self._loaded.exercise.speed if variant_key(tier.variant) == variant_key(variant)]
        return not timing.elapsed_ms or any(
            self._baseline(tier, size).elapsed_ms / timing.elapsed_ms >= WORTH_COSTING * self._threshold(tier)
            for tier in tiers
            if timed_size(tier, self._device) == size
        )

    def _threshold(self, tier: SpeedTier) -> float:
        return float(tier.simulated_threshold or self._loaded.thresholds.of(tier))

    def _time(self, how: Callable[..., CostedRun], replayed: _Replayed) -> tuple[Timing, CostedRun]:
        costed = how(*replayed)
        if costed.run.error is not None:
            raise BuildFailed(*of_error(costed.run.error)) from costed.run.error
        return _estimated(costed.run), costed

    def _replayed(self, builds: Builds, size: Size, variant: Variant) -> _Replayed:
        """Return the input of a replay, and the seed of the block sample."""
        if not self._device.info.estimates:
            raise not_timed(f"{self._device.info.name} can neither time nor estimate")
        build = builds.of(variant)
        plan, inputs = self._planned(Problem(size, build.tunables, variant))
        chooser = rng_for(self._seed, self._loaded.name, "sample", size_text(size), variant.name, builds.sha256)
        return ReplayInput(self._device, build, plan, inputs), int(chooser.integers(1 << 62))

    def _data(self, size: Size, variant: Variant) -> tuple[str, np.random.Generator]:
        """Return the input pattern, and a generator that gives all submissions the same data."""
        return pattern_of(self._loaded.exercise, variant), rng_for(
            self._seed, self._loaded.name, "speedup", size_text(size), variant.name
        )


def _estimated(run: Run) -> Timing:
    estimates = [profile.estimated_ms for profile in run.profiles]
    known = [estimate for estimate in estimates if estimate is not None]
    if not known or len(known) < len(estimates):
        raise not_timed("one of the launches has no estimate")
    sectors = [profile.counters[SECTORS] for profile in run.profiles if SECTORS in profile.counters]
    moved_bytes = SECTOR_BYTES * float(sum(sectors)) if sectors else None
    slowest = run.profiles[int(np.argmax(known))]
    kernels, counters = kernels_of(run.profiles), counted(run.profiles)
    error_pct = _error_pct(run.profiles, known)
    return Timing(float(sum(known)), True, slowest, moved_bytes, kernels, counters, run.profiles, error_pct)


def _error_pct(profiles: Sequence[LaunchProfile], estimates_ms: Sequence[float]) -> float | None:
    """Return the standard error of a sum of independent estimates, in percent; None if one is unknown."""
    if any(SAMPLING_ERROR not in profile.counters for profile in profiles) or not sum(estimates_ms):
        return None
    errors = (ms * profile.counters[SAMPLING_ERROR] for ms, profile in zip(estimates_ms, profiles, strict=True))
    return math.hypot(*errors) / sum(estimates_ms)


def _of_both(own_pct: float | None, baseline_pct: float | None) -> float | None:
    return None if own_pct is None or baseline_pct is None else math.hypot(own_pct, baseline_pct)

"""Measured costs of a submission and its baselines, for devices with a clock."""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np

from pytest_gpulab.devices.protocol import Device, DeviceError, LaunchProfile, at_work_on
from pytest_gpulab.devices.stopwatch import TimingDevice
from pytest_gpulab.exercise import Plan, Problem, SpeedTier
from pytest_gpulab.grading.compilation.builds import BuildFailed, Builds, VariantKey, made_once, variant_key
from pytest_gpulab.grading.correctness.baselines import check_baseline
from pytest_gpulab.grading.correctness.checked_launches import (
    OTHER_INPUTS,
    adds_to_outputs,
    run_again,
    with_ranges_of,
)
from pytest_gpulab.grading.diagnosis.compare import wrong_with
from pytest_gpulab.grading.findings import finding, of_error
from pytest_gpulab.grading.grade import Finding, Measurement
from pytest_gpulab.grading.plans.prepare import Prepared, expected_of, make_plan, rng_for
from pytest_gpulab.grading.plans.replay import FIRST, Run

from .benchmark import Benchmark, BenchmarkResult, RetryBudget
from .buffers import BufferPool
from .contents import Inputs, timed_inputs
from .costs import Costs, kernels_of, min_bytes, pattern_of, patterns_of, size_text
from .interference import SLOWED_BY_OTHERS
from .mixing import Mix, mixed
from .reference_time import reference_ms
from .sampled_comparison import right_at_places
from .targets import Baseline, BaselineFailed, BenchmarkTarget
from .validation import SETS, CheckedRun, most_checked
from .verdict import not_timed, unusable

_BenchmarkKey = tuple[object, VariantKey, str]
_baselines: WeakKeyDictionary[Device, dict[tuple[str, str], tuple[Builds, set[VariantKey]]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class _Side:
    builds: Builds
    problem: Problem
    plan: Plan
    contents: tuple[Inputs, ...]


@dataclass(frozen=True)
class _Benchmarked:
    """A finished benchmark, with the outputs of its checked runs by their contents."""

    result: BenchmarkResult
    own: _Side
    profiles: tuple[LaunchProfile, ...]
    checked: Mapping[Mix, Sequence[Run]]

    @property
    def largest(self) -> LaunchProfile:
        """The launch with the most threads, which stands for the longest one."""
        return max(self.profiles, key=lambda profile: math.prod((*profile.grid, *profile.block)))


class TimedCosts(Costs):
    """Measured costs, with one benchmark per size, variant and baseline, shared by all tiers."""

    def __init__(self, device: TimingDevice, builds: Builds, seed: int) -> None:
        self._loaded, self._device, self._builds, self._seed = builds.loaded, device, builds, seed
        self._benchmarked: dict[_BenchmarkKey, _Benchmarked | BuildFailed] = {}
        self._wrong: dict[_BenchmarkKey, tuple[Finding, ...]] = {}
        self._reference_ms: dict[_BenchmarkKey, float | None] = {}
        self._retry_budget = RetryBudget()

    def measure(self, tier: SpeedTier) -> Measurement:
        """Return the measured speedup; see `Costs`."""
        measured = self._benchmark(tier)
        result, least = measured.result, min_bytes(self._loaded, measured.own.problem)
        return Measurement(
            size=size_text(tier.size),
            elapsed_ms=result.own_ms,
            baseline_ms=result.baseline_ms,
            speedup=result.ratio.value,
            threshold=self._loaded.thresholds.of(tier),
            calibrated=self._loaded.thresholds.is_calibrated(tier),
            estimated=False,
            bandwidth_gb_s=None if least is None else least / (result.own_ms * 1e-3) / 1e9,
            occupancy=measured.largest.occupancy,
            registers=measured.largest.resources.registers,
            baseline=tier.baseline,
            low=result.ratio.low,
            high=result.ratio.high,
            rounds=result.rounds,
            dropped=result.dropped,
            caches=result.caches,
            shared_with=result.others,
            held_down_by=result.held_down_by,
            kernels=kernels_of(measured.profiles),
            peak_bandwidth_gb_s=result.peak_bandwidth_gb_s or None,
        )

    def record_failure(self, tier: SpeedTier, found: Finding) -> None:
        """Record that a benchmark ended another process abnormally: it is not run again."""
        self._benchmarked[_key(tier)] = BuildFailed("failed", found)

    def wrong(self, tier: SpeedTier) -> tuple[Finding, ...]:
        """Return the errors of timed runs: wrong outputs, an impossible time, or both; see `Costs`."""
        key, measured = _key(tier), self._benchmark(tier)
        if key not in self._wrong:
            # Wrong outputs may explain an impossible time.
            found = (*self._wrong_runs(measured), *self._impossible(measured))
            at = f"At the timed size {size_text(tier.size)}: "
            self._wrong[key] = tuple(replace(finding, what=at + finding.what) for finding in found)
        return self._wrong[key]

    def _impossible(self, measured: _Benchmarked) -> tuple[Finding, ...]:
        least, result = min_bytes(self._loaded, measured.own.problem), measured.result
        written = sum(buffer.nbytes for buffer in measured.own.plan.buffers if buffer.role == "output")
        floor_ms = 0.0 if least is None else result.floor_ms(least, written)
        if least is None or result.own_ms >= floor_ms:
            return ()
        what = (
            f"{result.own_ms:.4g} ms is not possible: a correct kernel moves {least / 1e6:.4g} MB. Without what stays "
            f"in the cache, that takes {floor_ms:.4g} ms at the memory's {result.peak_bandwidth_gb_s:.0f} GB/s."
        )
        return (finding("impossible-time", what),)

    def reference_ms(self, tier: SpeedTier) -> float | None:
        """Return the time of the CPU reference, if known; see `Costs`."""
        key, own = _key(tier), self._benchmark(tier).own
        if self._reference_ms.get(key) is None:
            self._reference_ms[key] = reference_ms(self._loaded, own.problem, lambda: (own.plan, own.contents[0]))
        return self._reference_ms[key]

    def _wrong_runs(self, measured: _Benchmarked) -> tuple[Finding, ...]:
        """Return the errors of the first wrong run among the checked ones."""
        rng = rng_for(self._seed, self._loaded.name, "places", self._builds.sha256)
        for mix, runs in measured.checked.items():
            if found := self._wrong_on(measured.own, mix, runs, rng):
                return tuple(replace(finding, what=f"in a timed run, {finding.what}") for finding in found)
        return self._wrong_counts(measured.own, rng)

    def _wrong_counts(self, own: _Side, rng: np.random.Generator) -> tuple[Finding, ...]:
        """Return the errors on ranges of all input patterns, if blocks add to the outputs."""
        exercise, problem, plan = self._loaded.exercise, own.problem, own.plan
        if not (exercise.mixable and adds_to_outputs(plan)):
            return ()
        names = self._loaded.name, "counts", size_text(problem.size), problem.variant.name
        patterns = patterns_of(exercise, problem.variant)[1:]
        others = [timed_inputs(exercise, problem, plan, each, self._seed, (*names, each)) for each in patterns]
        inputs, build = with_ranges_of(own.contents[0], others, rng), own.builds.of(problem.variant)
        with at_work_on(self._device):
            run = run_again(self._device, build, plan, inputs).run
        if run.error is not None:
            raise BuildFailed(*of_error(run.error)) from run.error
        found = wrong_with(run, Prepared(plan, inputs, expected_of(exercise, problem, plan, inputs)), FIRST)
        return tuple(replace(each, evidence=(*each.evidence, OTHER_INPUTS)) for each in found)

    def _wrong_on(self, own: _Side, mix: Mix, runs: Sequence[Run], rng: np.random.Generator) -> tuple[Finding, ...]:
        contents, outputs = mixed(own.contents, mix), [run.outputs for run in runs]
        seems_right = right_at_places(self._loaded.exercise, own.problem, own.plan, contents, mix, outputs, rng)
        if seems_right and not any(run.changed for run in runs):
            return ()
        expected = expected_of(self._loaded.exercise, own.problem, own.plan, contents)
        found = (wrong_with(run, Prepared(own.plan, contents, expected), FIRST) for run in runs)
        return next(filter(None, found), ())

    def _benchmark(self, tier: SpeedTier) -> _Benchmarked:
        return made_once(self._benchmarked, _key(tier), partial(self._run_benchmark, tier))

    def _run_benchmark(self, tier: SpeedTier) -> _Benchmarked:
        own = self._side(self._builds, tier, ())
        required = self._loaded.thresholds
        thresholds = [required.of(other) for other in self._loaded.exercise.speed if _key(other) == _key(tier)]
        rng = rng_for(self._seed, self._loaded.name, "race", self._builds.sha256)
        with closing(BufferPool(self._device)) as pool:
            _reset(own)
            target, profiles = _on_device(own, pool)
            target.spare_outputs(most_checked(target))
            try:
                builds = self._baseline_builds(tier)
                other = self._side(builds, tier, own.contents)
                baseline, _ = _on_device(other, pool, Baseline)
            except BuildFailed as blocked:
                raise unusable(tier.baseline, blocked) from blocked
            try:
                aims = None if required.measuring else thresholds
                benchmark = Benchmark(pool, baseline, target, aims, self._loaded.exercise.mixable, rng)
                result = benchmark.run(self._device, self._retry_budget)
                # Read after the GPU lock is released: reading takes longer than most benchmarks.
                checked = _read(self._device, result.checked)
            except BaselineFailed as failed:
                raise unusable(tier.baseline, BuildFailed(*of_error(failed.error))) from failed
            except DeviceError as error:
                raise BuildFailed(*of_error(error)) from error

        if required.measuring and result.interruption_ms:
            raise too_much_interference(result.interruption_ms, SLOWED_BY_OTHERS in result.held_down_by)
        return _Benchmarked(result, own, profiles, checked)

    def _baseline_builds(self, tier: SpeedTier) -> Builds:
        """Return the builds of a baseline, shared by all submissions, or raise BuildFailed if it is wrong there."""
        path = self._loaded.folder / tier.baseline
        cache, key = _baselines.setdefault(self._device, {}), (str(path), self._loaded.exercise.version)
        builds, right = cache.setdefault(key, (Builds(path, self._loaded, self._device), set()))
        if variant_key(tier.variant) not in right:
            check_baseline(self._loaded, builds, self._device, tier.variant, self._seed)
            right.add(variant_key(tier.variant))
        return builds

    def _side(self, builds: Builds, tier: SpeedTier, ready: Sequence[Inputs]) -> _Side:
        """Plan a run and make its inputs, or reuse the other side's if they fit."""
        problem = Problem(tier.size, builds.of(tier.variant).tunables, tier.variant)
        plan = make_plan(self._loaded.exercise, problem)
        if ready and all(_fits(plan, inputs) for inputs in ready):
            return _Side(builds, problem, plan, tuple(ready))
        pattern = pattern_of(self._loaded.exercise, tier.variant)
        names = self._loaded.name, "speedup", size_text(tier.size), tier.variant.name
        # Processes that start together make different sets first, and share them.
        in_turn = [(os.getpid() + nth) % SETS for nth in range(SETS)]
        made = {
            index: timed_inputs(self._loaded.exercise, problem, plan, pattern, self._seed, (*names, str(index)))
            for index in in_turn
        }
        contents = tuple(made[index] for index in range(SETS))
        return _Side(builds, problem, plan, contents)


def too_much_interference(interruption_ms: float, is_slow: bool) -> BuildFailed:
    """Return the failure of a calibration run because of interference, even if a threshold were certain."""
    effect = "may have slowed its clock" if is_slow else "would distort the times"
    at_a_time = f"{interruption_ms:.2g} ms at a time"
    return not_timed(f"other programs used the GPU meanwhile, {at_a_time}, which {effect}")


def _reset(side: _Side) -> None:
    """Reset the variables of a module to their state before any launch."""
    try:
        side.builds.of(side.problem.variant).module.reset_variables()
    except DeviceError as error:
        raise BuildFailed(*of_error(error)) from error


def _on_device(
    side: _Side, pool: BufferPool, kind: type[BenchmarkTarget] = BenchmarkTarget
) -> tuple[BenchmarkTarget, tuple[LaunchProfile, ...]]:
    """Copy the data of a side to the device and run it once."""
    module = side.builds.of(side.problem.variant).module
    try:
        target = kind(pool, module, side.plan, side.contents)
        return target, target.profiles()
    except DeviceError as error:
        raise BuildFailed(*of_error(error)) from error


def _read(device: TimingDevice, runs: Sequence[CheckedRun]) -> Mapping[Mix, Sequence[Run]]:
    """Return the runs grouped by contents: runs with the same contents share one reference."""
    found: dict[Mix, list[Run]] = {}
    with at_work_on(device):
        for run in runs:
            outputs = {name: memory.get() for name, memory in run.outputs.items()}
            found.setdefault(run.mix, []).append(Run(outputs, run.changed))
    return found


def _fits(plan: Plan, inputs: Inputs) -> bool:
    wanted = {buffer.name: (np.dtype(buffer.dtype), buffer.shape) for buffer in plan.buffers if buffer.role == "input"}
    return wanted == {name: (values.dtype, values.shape) for name, values in inputs.items()}


def _key(tier: SpeedTier) -> _BenchmarkKey:
    return tier.size, variant_key(tier.variant), tier.baseline

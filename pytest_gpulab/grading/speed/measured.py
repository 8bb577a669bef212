"""What a submission costs on a device that can time: the counterpart of `speed.Costs`, which asks for estimates."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from pytest_gpulab.devices.protocol import Device, DeviceError, LaunchProfile
from pytest_gpulab.devices.stopwatch import TimingDevice, at_work_on
from pytest_gpulab.exercise import Plan, Problem, SpeedTier
from pytest_gpulab.grading.catalogue import LoadedExercise
from pytest_gpulab.grading.compilation.builds import BuildFailed, Builds, VariantKey, variant_key
from pytest_gpulab.grading.correctness.judging import wrong_with
from pytest_gpulab.grading.findings import finding, of_error
from pytest_gpulab.grading.grade import Finding, Measurement
from pytest_gpulab.grading.plans.prepare import Prepared, expected_of, make_plan, rng_for
from pytest_gpulab.grading.plans.replay import FIRST, Run

from .benchmark import Benchmark, RaceResult, RetryBudget
from .buffers import BufferPool
from .contents import Inputs, timed_inputs
from .costs import Costs, kernels_of, min_bytes, pattern_of, size_text
from .interference import SLOWED_BY_OTHERS
from .mixing import Mix, mixed
from .reference_time import reference_ms
from .sampled_comparison import right_at_places
from .targets import Baseline, BaselineFailed, BenchmarkTarget
from .validation import SETS, CheckedRun, most_checked
from .verdict import not_timed, unusable

_RaceKey = tuple[object, VariantKey, str]
_baselines: WeakKeyDictionary[Device, dict[tuple[str, str], Builds]] = WeakKeyDictionary()


@dataclass(frozen=True)
class _Entrant:
    builds: Builds
    problem: Problem
    plan: Plan
    contents: tuple[Inputs, ...]


@dataclass(frozen=True)
class _Raced:
    """A race, with what it takes to check some of its timed runs: what came of them, by their contents."""

    result: RaceResult
    own: _Entrant
    profiles: tuple[LaunchProfile, ...]
    checked: Mapping[Mix, Sequence[Run]]

    @property
    def largest(self) -> LaunchProfile:
        """The launch with the most threads, which is taken for the one that takes longest."""
        return max(self.profiles, key=lambda profile: math.prod((*profile.grid, *profile.block)))


class TimedCosts(Costs):
    """What one submission costs at each size, variant and baseline that is asked for, timed once for all tiers."""

    def __init__(self, loaded: LoadedExercise, device: TimingDevice, builds: Builds, seed: int) -> None:
        self._loaded, self._device, self._builds, self._seed = loaded, device, builds, seed
        self._raced: dict[_RaceKey, _Raced | BuildFailed] = {}
        self._wrong: dict[_RaceKey, tuple[Finding, ...]] = {}
        self._reference_ms: dict[_RaceKey, float | None] = {}
        self._patience = RetryBudget()

    def measure(self, tier: SpeedTier) -> Measurement:
        """Time a submission and its baseline on the same data.

        Raises:
            BuildFailed: no figure can be had, through nobody's fault or the instructor's (`not gradable`), or because
                the submission's kernel ends abnormally at this size (`failed`).
            InstructorsMistake: the exercise's own code is wrong.
        """
        raced = self._race(tier)
        result, least = raced.result, min_bytes(self._loaded, raced.own.problem)
        return Measurement(
            size=size_text(tier.size),
            elapsed_ms=result.own_ms,
            baseline_ms=result.baseline_ms,
            speedup=result.ratio.value,
            threshold=self._loaded.thresholds.of(tier),
            calibrated=self._loaded.thresholds.is_calibrated(tier),
            estimated=False,
            bandwidth_gb_s=None if least is None else least / (result.own_ms * 1e-3) / 1e9,
            occupancy=raced.largest.occupancy,
            registers=raced.largest.resources.registers,
            baseline=tier.baseline,
            low=result.ratio.low,
            high=result.ratio.high,
            rounds=result.rounds,
            dropped=result.dropped,
            caches=result.caches,
            shared_with=result.others,
            held_down_by=result.held_down_by,
            kernels=kernels_of(raced.profiles),
            peak_bandwidth_gb_s=result.peak_bandwidth_gb_s or None,
        )

    def record_failure(self, tier: SpeedTier, found: Finding) -> None:
        """Take a race for failed, because it brought down another process that ran it."""
        self._raced[_key(tier)] = BuildFailed("failed", found)

    def wrong(self, tier: SpeedTier) -> tuple[Finding, ...]:
        """Return what is wrong with the timed work: outputs of timed runs that are wrong, an impossible time, or both.

        Raises:
            BuildFailed, InstructorsMistake: as in `measure`.
        """
        key, raced = _key(tier), self._race(tier)
        if key not in self._wrong:
            found = (*self._wrong_runs(raced), *self._impossible(raced))  # the first may explain the second
            at = f"At the timed size {size_text(tier.size)}: "
            self._wrong[key] = tuple(replace(finding, what=at + finding.what) for finding in found)
        return self._wrong[key]

    def _impossible(self, raced: _Raced) -> tuple[Finding, ...]:
        least, result = min_bytes(self._loaded, raced.own.problem), raced.result
        written = sum(buffer.nbytes for buffer in raced.own.plan.buffers if buffer.role == "output")
        floor_ms = 0.0 if least is None else result.floor_ms(least, written)
        if least is None or result.own_ms >= floor_ms:
            return ()
        what = (
            f"{result.own_ms:.4g} ms is not possible: a right kernel moves {least / 1e6:.4g} MB, and the memory's "
            f"{result.peak_bandwidth_gb_s:.0f} GB/s take {floor_ms:.4g} ms for what does not stay in the cache."
        )
        return (finding("impossible-time", what),)

    def reference_ms(self, tier: SpeedTier) -> float | None:
        """Return how long the CPU takes for the reference, where that is known.

        Raises:
            BuildFailed, InstructorsMistake: as in `measure`, which comes first.
        """
        key, own = _key(tier), self._race(tier).own
        if self._reference_ms.get(key) is None:
            self._reference_ms[key] = reference_ms(self._loaded, own.problem, own.plan, own.contents[0])
        return self._reference_ms[key]

    def _wrong_runs(self, raced: _Raced) -> tuple[Finding, ...]:
        """Return what is wrong with the first of the checked runs that is wrong."""
        rng = rng_for(self._seed, self._loaded.name, "places", self._builds.sha256)
        for mix, runs in raced.checked.items():
            if found := self._wrong_on(raced.own, mix, runs, rng):
                return tuple(replace(finding, what=f"in a timed run, {finding.what}") for finding in found)
        return ()

    def _wrong_on(self, own: _Entrant, mix: Mix, runs: Sequence[Run], rng: np.random.Generator) -> tuple[Finding, ...]:
        contents, outputs = mixed(own.contents, mix), [run.outputs for run in runs]
        seems_right = right_at_places(self._loaded.exercise, own.problem, own.plan, contents, mix, outputs, rng)
        if seems_right and not any(run.changed for run in runs):
            return ()
        expected = expected_of(self._loaded.exercise, own.problem, own.plan, contents)
        found = (wrong_with(run, Prepared(own.plan, contents, expected), FIRST) for run in runs)
        return next(filter(None, found), ())

    def _race(self, tier: SpeedTier) -> _Raced:
        key = _key(tier)
        if key not in self._raced:
            try:
                self._raced[key] = self._run_race(tier)
            except BuildFailed as blocked:
                self._raced[key] = blocked
        raced = self._raced[key]
        if isinstance(raced, BuildFailed):
            raise BuildFailed(raced.verdict, raced.finding)
        return raced

    def _run_race(self, tier: SpeedTier) -> _Raced:
        own = self._entrant(self._builds, tier, ())
        asked = self._loaded.thresholds
        thresholds = [asked.of(other) for other in self._loaded.exercise.speed if _key(other) == _key(tier)]
        rng = rng_for(self._seed, self._loaded.name, "race", self._builds.sha256)
        with closing(BufferPool(self._device)) as pool:
            _reset(own)
            contender, profiles = _on_device(own, pool)
            contender.spare_outputs(most_checked(contender))
            try:
                other = self._entrant(self._baseline_builds(tier.baseline), tier, own.contents)
                baseline, _ = _on_device(other, pool, Baseline)
            except BuildFailed as blocked:
                raise unusable(tier.baseline, blocked) from blocked
            try:
                aims = None if asked.measuring else thresholds
                race = Benchmark(pool, baseline, contender, aims, self._loaded.exercise.mixable, rng)
                result = race.run(self._device, self._patience)
                # Read while others may time already: it takes longer than most races.
                checked = _read(self._device, result.checked)
            except BaselineFailed as failed:
                raise unusable(tier.baseline, BuildFailed(*of_error(failed.error))) from failed
            except DeviceError as error:
                raise BuildFailed(*of_error(error)) from error

        if asked.measuring and result.interruption_ms:
            raise others_work(result.interruption_ms, SLOWED_BY_OTHERS in result.held_down_by)
        return _Raced(result, own, profiles, checked)

    def _baseline_builds(self, baseline: str) -> Builds:
        """Compile a baseline once for all submissions on the same device."""
        path = self._loaded.folder / baseline
        cache, key = _baselines.setdefault(self._device, {}), (str(path), self._loaded.exercise.version)
        if key not in cache:
            cache[key] = Builds(path, self._loaded, self._device)
        return cache[key]

    def _entrant(self, builds: Builds, tier: SpeedTier, ready: Sequence[Inputs]) -> _Entrant:
        """Plan a run and make its data, unless the other side's will do."""
        problem = Problem(tier.size, builds.of(tier.variant).tunables, tier.variant)
        plan = make_plan(self._loaded.exercise, problem)
        if ready and all(_fits(plan, inputs) for inputs in ready):
            return _Entrant(builds, problem, plan, tuple(ready))
        pattern = pattern_of(self._loaded.exercise, tier.variant)
        names = self._loaded.name, "speedup", size_text(tier.size), tier.variant.name
        made = {
            index: timed_inputs(self._loaded.exercise, problem, plan, pattern, self._seed, (*names, str(index)))
            for index in _sets_in_turn()
        }
        contents = tuple(made[index] for index in range(SETS))
        return _Entrant(builds, problem, plan, contents)


def _sets_in_turn() -> Sequence[int]:
    """Return the sets in an order that processes differ in: those that begin together share the making."""
    return [(os.getpid() + nth) % SETS for nth in range(SETS)]


def others_work(interruption_ms: float, is_slow: bool) -> BuildFailed:
    """Return why a ratio cannot be told, though a threshold might be reached with certainty."""
    effect = "may have held its clock down" if is_slow else "would be taken for the kernels"
    at_a_time = f"{interruption_ms:.2g} ms at a time"
    return not_timed(f"other programs worked on the GPU meanwhile, {at_a_time}, and {effect}")


def _reset(entrant: _Entrant) -> None:
    """Undo what earlier launches left in the variables of an entrant's module."""
    try:
        entrant.builds.of(entrant.problem.variant).module.reset_variables()
    except DeviceError as error:
        raise BuildFailed(*of_error(error)) from error


def _on_device(
    entrant: _Entrant, pool: BufferPool, side: type[BenchmarkTarget] = BenchmarkTarget
) -> tuple[BenchmarkTarget, tuple[LaunchProfile, ...]]:
    """Copy an entrant's data to the device and run it once."""
    module = entrant.builds.of(entrant.problem.variant).module
    try:
        contender = side(pool, module, entrant.plan, entrant.contents)
        return contender, contender.profiles()
    except DeviceError as error:
        raise BuildFailed(*of_error(error)) from error


def _read(device: TimingDevice, runs: Sequence[CheckedRun]) -> Mapping[Mix, Sequence[Run]]:
    """Return what came of runs, by their contents: one reference does for all that have the same."""
    found: dict[Mix, list[Run]] = {}
    with at_work_on(device):
        for run in runs:
            outputs = {name: memory.get() for name, memory in run.outputs.items()}
            found.setdefault(run.mix, []).append(Run(outputs, run.changed))
    return found


def _fits(plan: Plan, inputs: Inputs) -> bool:
    wanted = {buffer.name: (np.dtype(buffer.dtype), buffer.shape) for buffer in plan.buffers if buffer.role == "input"}
    return wanted == {name: (values.dtype, values.shape) for name, values in inputs.items()}


def _key(tier: SpeedTier) -> _RaceKey:
    return tier.size, variant_key(tier.variant), tier.baseline

"""Replays that are counted or costed, and the comparison of their outputs.

The outputs of every counted or costed launch are compared. If all blocks of a plan run in reasonable time, all of them
run, and some are counted. A kernel cannot know which: the choice differs between submissions and between runs.
Otherwise only a sample of blocks runs, and the elements that it must have written are compared. If they do not show
that the outputs are right, all blocks may take longer: a kernel could have more work only to be sampled. If all
blocks have much more work than the sample shows, the run earns nothing: a kernel could do less if it has few blocks.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pytest_gpulab.devices.protocol import Device, DeviceError, KernelFault, LaunchOptions, TooMuchWork
from pytest_gpulab.exercise import Array, Exercise, Plan, Problem
from pytest_gpulab.grading.compilation.builds import Build
from pytest_gpulab.grading.diagnosis.compare import compare, overwritten, wrong_with
from pytest_gpulab.grading.findings import finding, of_error
from pytest_gpulab.grading.grade import PROOF, Finding
from pytest_gpulab.grading.plans.prepare import Prepared, expected_of
from pytest_gpulab.grading.plans.replay import FIRST, Poison, Run, replay

from .safety import skipping, wrong_order

# 64 blocks have enough threads (16 k with usual blocks) for NumPy, and include every kind of block of a regular grid.
SAMPLE_BLOCKS = 64
# All blocks run if they issue at most this number of warp instructions: about two seconds of CPU time.
COMPLETE_WORK = 60_000_000
# The limit where a sample does not show all outputs: sums over all blocks, or later launches without complete input.
LONG_WORK = 4 * COMPLETE_WORK
CHECKED_BLOCKS = 2  # of a very large launch, for races
CHECKED_S = 5.0  # time limit of a launch that is only checked for races; it may wait for blocks that do not run
ZEROS = Poison({}, byte=0)
WRITTEN_SHARE = 0.75  # part of its share of an output that a sample must write
OTHER_INPUTS = "in a second run, on other inputs"
SHOWN_WORK = 0.8  # part of a limit that a sample, scaled up, must reach if all blocks exceed the limit

SAMPLED = FIRST._replace(options=replace(FIRST.options, sample_blocks=SAMPLE_BLOCKS))


class ReplayInput(NamedTuple):
    """The input of a replay."""

    device: Device
    build: Build
    plan: Plan
    inputs: Mapping[str, Array]


@dataclass(frozen=True)
class CostedRun:
    """A replay with counted launches."""

    plan: Plan  # the replayed plan
    inputs: Mapping[str, Array]  # its inputs
    run: Run  # its result, with the outputs
    is_complete: bool  # True if all blocks ran
    raced: tuple[Finding, ...] = ()  # findings of the race check of the blocks that were watched
    # the limit of warp instructions that all blocks exceed, but a sample, scaled up, does not; else 0
    hidden_work: int = 0


def run_costed(given: ReplayInput, seed: int) -> CostedRun:
    """Replay a plan and estimate its time; `seed` is that of the choice of counted blocks."""
    costed = _complete_or_sampled(given, seed, partial(_sample, seed, watch=True))
    if costed.is_complete and not all(profile.representative for profile in costed.run.profiles):
        return replace(costed, run=run_fresh(*given, _options(estimate=True)))
    return costed


def _complete_or_sampled(given: ReplayInput, seed: int, options: Callable[[int], LaunchOptions]) -> CostedRun:
    """Replay all blocks with the options for a limit of work, or a sample if they exceed all limits that apply."""
    is_shown = _is_shown(given.plan)
    for limit in (COMPLETE_WORK, LONG_WORK) if is_shown else (LONG_WORK,):
        run = run_fresh(*given, options(limit))
        if not isinstance(run.error, TooMuchWork):
            return CostedRun(given.plan, given.inputs, run, True, _races(run))
        sampled = run_sampled(given, seed, watch=options(limit).watch)
        if sampled.is_complete:
            break
        if max(profile.work for profile in sampled.run.profiles) < SHOWN_WORK * limit:
            sampled = replace(sampled, hidden_work=limit)
        elif is_shown and _wrote_its_share(sampled.run):
            break
    return sampled


def _is_shown(plan: Plan) -> bool:
    """Return True if a sample of blocks shows outputs: there is one launch, and blocks do not add to its outputs."""
    return len(plan.launches) == 1 and not adds_to_outputs(plan)


def adds_to_outputs(plan: Plan) -> bool:
    """Return True if blocks add to the outputs. Such counts may overflow on other inputs than the timed ones."""
    return any(buffer.role == "output" and buffer.zeroed for buffer in plan.buffers)


def _wrote_its_share(run: Run) -> bool:
    """Return True if the sampled blocks of a launch wrote as many elements as their share of the blocks."""
    share = run.profiles[0].counted_share
    return all(_written(actual) >= math.floor(share * actual.size) for actual in run.outputs.values())


def run_sampled(given: ReplayInput, seed: int, read_back: bool = True, watch: bool = False) -> CostedRun:
    """Replay a sample of each launch's blocks; all of them if the sample waits for other blocks."""
    run = run_fresh(*given, _sample(seed, watch=watch), read_back)
    is_complete = run.error is not None
    if is_complete:
        run = run_fresh(*given, _options(estimate=True, watch=watch, sample_seed=seed), read_back)
    return CostedRun(given.plan, given.inputs, run, is_complete, _races(run))


run_unread_sample = partial(run_sampled, read_back=False)
"""Replay a sample without a comparison of outputs: of a baseline, or of a kernel that is too slow for any point."""


def run_counted(given: ReplayInput, seed: int) -> CostedRun:
    """Replay a plan and count all blocks, or a sample if that takes too long."""
    return _complete_or_sampled(given, seed, lambda limit: _options(count=True, complete_within=limit))


def run_whole(given: ReplayInput) -> CostedRun:
    """Replay a plan without counts, as on a real GPU."""
    return CostedRun(given.plan, given.inputs, run_fresh(*given, _options()), True)


def run_again(device: Device, build: Build, plan: Plan, inputs: Mapping[str, Array]) -> CostedRun:
    """Replay a plan again with the contents that an earlier run left in the module's variables."""
    run = replay(device, build.module, plan, inputs, FIRST._replace(options=_options()), scene=build.scene)
    return CostedRun(plan, inputs, run, True)


def with_ranges_of(
    inputs: Mapping[str, Array], others: Sequence[Mapping[str, Array]], rng: np.random.Generator
) -> dict[str, Array]:
    """Return inputs in which one element in eight is from each of the others, at random positions.

    So a kernel that recognises the rest must still read all.
    """
    return {name: _with_ranges(values, [each[name] for each in others], rng) for name, values in inputs.items()}


def races(given: ReplayInput, seed: int) -> tuple[Finding, ...]:
    """Return the races and the errors at barriers in a wave of each of a plan's launches, or the access that ends it.

    Cases are small: a kernel may leave out its barriers in larger launches, where nothing else finds that. All blocks
    run if that takes not too long, because blocks may wait for each other, or count each other. Otherwise two of them
    do. Then a later launch reads zeros where the other blocks have not written; a fault of it is ignored.
    """
    options = replace(_sample(seed, COMPLETE_WORK, watch=True), time_limit_s=CHECKED_S)
    run = run_fresh(*given, options, read_back=False)
    if isinstance(run.error, KernelFault) and run.error.code in PROOF:
        return (*_races(run), of_error(run.error)[1])
    if run.error is None:
        return _races(run)
    options = replace(FIRST.options, sample_blocks=CHECKED_BLOCKS, sample_seed=seed, time_limit_s=CHECKED_S)
    few = run_fresh(*given, options, read_back=False, poison=ZEROS)
    return _races(run) or _races(few)


def _races(run: Run) -> tuple[Finding, ...]:
    """Return the races and the errors at barriers, then the accesses that the race check skipped."""
    skipped = dict.fromkeys(what for profile in run.profiles for what in profile.unchecked)
    return (*wrong_order(run.hazards), *map(skipping, skipped))


def _with_ranges(old: Array, others: Sequence[Array], rng: np.random.Generator) -> Array:
    """Return an array with a range of each of the others, one after the other; they may wrap around."""
    mixed: Array = np.array(old)
    if old.size:
        length, first = -(-old.size // 8), rng.integers(old.size)
        for which, new in enumerate(others):
            places = (np.arange(length) + first + which * length) % old.size
            mixed.reshape(-1)[places] = new.reshape(-1)[places]
    return mixed


def run_fresh(
    device: Device,
    build: Build,
    plan: Plan,
    inputs: Mapping[str, Array],
    options: LaunchOptions,
    read_back: bool = True,
    poison: Poison = FIRST.poison,
) -> Run:
    """Replay after a reset of the module's variables."""
    try:
        build.module.reset_variables()
    except DeviceError as error:
        return Run(error=error)
    repetition = FIRST._replace(options=options, poison=poison)
    return replay(device, build.module, plan, inputs, repetition, read_back, scene=build.scene)


def _sample(seed: int, complete_within: int | None = None, watch: bool = False) -> LaunchOptions:
    return _options(sample_blocks=SAMPLE_BLOCKS, sample_seed=seed, complete_within=complete_within, watch=watch)


def _options(**changes: Any) -> LaunchOptions:
    """Return options without hazard checks, which the cases already make."""
    return replace(FIRST.options, check=False, **changes)


def not_compared(costed: CostedRun) -> tuple[Finding, ...]:
    """Return a finding if the outputs of a replay that ended normally are unknown."""
    if costed.is_complete or _is_shown(costed.plan):
        return ()
    what = (
        f"the launches have too much work to run completely (more than {LONG_WORK:,} warp instructions). "
        "Their outputs cannot be compared, so their counts earn nothing."
    )
    return (finding("not-compared", what),)


def wrong_outputs(exercise: Exercise, problem: Problem, costed: CostedRun) -> tuple[Finding, ...]:
    """Return the findings of wrong outputs of a replay that ended normally.

    Raises InstructorsMistake if the exercise's own reference is wrong.
    """
    plan, run = costed.plan, costed.run
    if costed.hidden_work:
        what = (
            f"all blocks together have more than {costed.hidden_work:,} warp instructions, but a sample of the blocks "
            "has fewer. The outputs cannot be compared, so this run earns nothing."
        )
        return (finding("not-compared", what),)
    if not costed.is_complete and len(plan.launches) > 1:
        return overwritten(run)
    expected = expected_of(exercise, problem, plan, costed.inputs)
    prepared = Prepared(plan, costed.inputs, expected, problem.tunables)
    return wrong_with(run, prepared, FIRST) if costed.is_complete else _wrong_sample(prepared, run)


def _wrong_sample(prepared: Prepared, run: Run) -> tuple[Finding, ...]:
    """Compare the elements that a sample of a single launch's blocks wrote; sums of all blocks are left out."""
    plan, expected = prepared.plan, prepared.expected
    share = run.profiles[0].counted_share
    found = list(overwritten(run))
    for name, actual in run.outputs.items():
        if plan.buffer(name).zeroed:
            continue
        tolerance = expected.tolerance.get(name, 0)
        wrong = compare(name, actual, expected.values[name], tolerance, FIRST.poison, only_written=True)
        found += [finding for finding in (wrong or _too_few(name, actual, share),) if finding is not None]
    return tuple(found)


def _written(actual: Array) -> int:
    return actual.size - int(np.count_nonzero(FIRST.poison.remaining(actual)))


def _too_few(name: str, actual: Array, share: float) -> Finding | None:
    """Return a finding if a random sample of that many blocks has written much less than its share, or None."""
    written = _written(actual)
    wanted = math.floor(WRITTEN_SHARE * share * actual.size)
    if written >= wanted:
        return None
    what = f"`{name}`: a sample of the blocks wrote {written} elements; it should write {share * actual.size:.0f}."
    return finding("not-written", what)

"""How a submission and its baseline are timed: turns, places, sessions, rounds that count, warm and cold caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from clocked_device import QUIET, SIZE, TIERS, ClockedBench, sessions, tier
from doubling import right

from pytest_gpulab.devices.stopwatch import Conditions, Copies, KernelLaunch
from pytest_gpulab.exercise import Launch, Plan, SpeedTier
from pytest_gpulab.grading.speed.benchmark import (
    HELD_DOWN_ROUNDS,
    MIN_MS,
    ROUNDS_PER_PLACE,
    ROUNDS_PER_READING,
    WARM_UP_ROUNDS,
)
from pytest_gpulab.grading.speed.buffers import STEP_BYTES
from pytest_gpulab.grading.speed.statistics import FEWEST_ROUNDS, FIRST_ROUNDS, MAX_ROUNDS, SETTLED_OVER
from pytest_gpulab.grading.speed.targets import REPLICAS, BenchmarkTarget
from pytest_gpulab.grading.speed.validation import CANDIDATES_IF_SMALL, CHECKED_OF_A_SET, SETS, SMALL_BYTES

pytestmark = pytest.mark.unit


def test_the_sides_take_turns_at_going_first_and_share_their_arrays(clocked: ClockedBench) -> None:
    tier(clocked, right(1.0))
    samples = clocked.watch.cold[-2 * FIRST_ROUNDS :]
    naive = clocked.programs["naive"]
    firsts = [samples[index][0] is naive for index in range(0, len(samples), 2)]
    assert firsts == [True, False] * (FIRST_ROUNDS // 2)
    arrays = [samples[index][1:] for index in range(0, len(samples), 2)]
    others = [samples[index][1:] for index in range(1, len(samples), 2)]
    assert [inputs for inputs, _ in arrays] == [inputs for inputs, _ in others]
    kept = sum(array != other for array, other in zip(arrays, others, strict=True))
    assert kept <= CANDIDATES_IF_SMALL + SETS  # outputs that are set aside to be checked leave their place to another
    for first in range(0, FIRST_ROUNDS, ROUNDS_PER_PLACE):
        assert len({inputs for inputs, _ in arrays[first : first + ROUNDS_PER_PLACE]}) == REPLICAS


@pytest.mark.parametrize("costs_ms", [1.0, 2.8, 2.0])  # clear, in two sessions, in all rounds
def test_arrays_move_every_few_rounds_and_nothing_is_allocated_while_others_wait(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch, costs_ms: float
) -> None:
    places: list[int] = []
    allocated: list[Any] = []
    part, empty = clocked.device.part, clocked.device.empty

    def spying(whole: Any, offset_bytes: int, *more: Any) -> Any:
        places.extend([offset_bytes] if whole.nbytes > 2**24 else [])  # not a stretch that is compared
        return part(whole, offset_bytes, *more)

    def allocating(shape: Any, dtype: Any) -> Any:
        allocated.append(bool(clocked.device.held_at_start))
        return empty(shape, dtype)

    monkeypatch.setattr("pytest_gpulab.grading.speed.buffers.SLACK_BYTES", 2**24)
    clocked.device.part, clocked.device.empty = spying, allocating  # type: ignore[method-assign]
    tier(clocked, right(costs_ms))
    moved = [place for place in places if place]
    assert len(moved) >= FIRST_ROUNDS // ROUNDS_PER_PLACE * REPLICAS * 2
    assert len(set(moved)) > 0.9 * len(moved) and max(moved) > 2**23
    assert all(place % STEP_BYTES == 0 for place in moved)
    assert allocated and all(not begun for begun in allocated)
    assert clocked.device.held == []


def disturb(clocked: ClockedBench, factor: float, session: int) -> None:
    """Let something slow down the submission, and not its baseline, in one session."""
    run = clocked.watch.run

    def disturbed(module: Any, calls: Any, copies: Any) -> float:
        is_now = module.program is clocked.programs["submission"] and len(clocked.device.held_at_start) == session
        return run(module, calls, copies) * (factor if is_now else 1.0)

    clocked.watch.run = disturbed  # type: ignore[method-assign]


def test_interference_as_long_as_a_session_costs_no_point(clocked: ClockedBench) -> None:
    disturb(clocked, 1.2, session=1)
    result = tier(clocked, right(1.8))
    assert (result.verdict, sessions(clocked)) == ("passed", 2)
    assert result.measurement.speedup == pytest.approx(3 / 1.8, rel=0.005)


def test_a_near_miss_needs_two_sessions(clocked: ClockedBench) -> None:
    result = tier(clocked, right(2.8))
    assert (result.verdict, sessions(clocked), result.measurement.rounds) == ("failed", 2, 2 * FIRST_ROUNDS)
    assert clocked.watch.events.count("calibrates") == 2


def test_a_clear_miss_needs_one_session(clocked: ClockedBench) -> None:
    result = tier(clocked, right(3.2))
    assert (result.verdict, sessions(clocked), result.measurement.rounds) == ("failed", 1, FIRST_ROUNDS)


def test_a_near_miss_of_a_bonus_needs_two_sessions(clocked: ClockedBench) -> None:
    results = clocked.results(right(1.0), speed=(TIERS[0], SpeedTier(3.5, 20, SIZE)))
    assert (results["speedup[1.5x]"].verdict, results["speedup[3.5x]"].verdict) == ("passed", "missed")
    assert sessions(clocked) == 2


def test_a_disturbed_second_session_keeps_the_pass_of_the_first(clocked: ClockedBench) -> None:
    disturb(clocked, 1.2, session=2)
    results = clocked.results(right(1.8), speed=(TIERS[0], SpeedTier(1.75, 20, SIZE)))
    assert (results["speedup[1.5x]"].verdict, results["speedup[1.75x]"].verdict) == ("passed", "missed")
    measured = results["speedup[1.5x]"].measurement
    assert measured is not None and measured.speedup == pytest.approx(3 / 1.8, rel=0.005)
    assert (sessions(clocked), measured.rounds) == (2, FIRST_ROUNDS)
    assert not results["speedup[1.5x]"].findings


def test_the_gpu_lock_is_released_between_two_sessions(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    events, names = clocked.watch.events, iter(["a", "b"])
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.PAUSE_S", 1.5)
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.time.sleep", lambda s: events.append(f"sleeps {s}"))
    clocked.watch.others = lambda: (next(names),)  # type: ignore[method-assign]
    measured = tier(clocked, right(2.8)).measurement
    assert events[events.index("given back") + 1] == "sleeps 1.5" and events[-1] == "given back"
    assert measured.shared_with == ("a", "b")


def test_a_long_session_needs_no_second(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.LONG_S", 0.0)
    assert (tier(clocked, right(2.8)).verdict, sessions(clocked)) == ("failed", 1)


def test_there_is_no_second_session_without_rounds_left(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.statistics.MAX_ROUNDS", FIRST_ROUNDS)
    assert (tier(clocked, right(2.8)).verdict, sessions(clocked)) == ("failed", 1)


def test_both_sessions_time_in_the_same_way(clocked: ClockedBench) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    clocked.programs["naive"] = right(0.06)
    disturb(clocked, 1.25, session=1)  # it seems to take 56 us then, too long to be timed in batches
    result = tier(clocked, right(0.045))
    assert (sessions(clocked), result.measurement.caches, clocked.watch.batches) == (2, "cold", [])


def test_each_session_reads_the_gpus_conditions_again(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.MAX_WARM_UP_S", 0.0)  # so warming up takes no look
    tier(clocked, right(2.8))
    assert (sessions(clocked), clocked.watch.looks) == (2, 2 * (1 + FIRST_ROUNDS // ROUNDS_PER_READING))


def test_too_close_to_tell_takes_all_rounds_and_gives_the_points(clocked: ClockedBench) -> None:
    result = tier(clocked, right(2.0))
    (finding,) = result.findings
    assert (result.verdict, result.points, finding.code) == ("inconclusive", 40, "inconclusive")
    assert result.measurement.rounds == MAX_ROUNDS
    measured = result.measurement
    assert finding.what == (
        f"The speedup over naive.cu is between {measured.low:.3f}x and {measured.high:.3f}x. "
        "This interval contains the threshold 1.5x. The check earns its points."
    )
    assert "slightly faster kernel passes" in finding.hint


def test_rounds_end_when_the_time_is_up(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.BUDGET_S", 0.0)
    result = tier(clocked, right(2.0))
    assert (result.verdict, result.measurement.rounds) == ("inconclusive", FEWEST_ROUNDS)


def test_a_kernel_that_takes_seconds_is_judged_by_few_rounds(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All others wait for as long as it is timed."""
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.BUDGET_S", 0.0)
    result = tier(clocked, right(9000.0))
    assert (result.verdict, result.findings[0].code) == ("failed", "too-slow")
    assert result.measurement.rounds == FEWEST_ROUNDS
    assert len(clocked.watch.cold) == 2 * (WARM_UP_ROUNDS + FEWEST_ROUNDS)


def test_an_interval_allows_for_the_ticks_of_the_clock(clocked: ClockedBench) -> None:
    clocked.watch.tick_ms = 0.1
    measured = tier(clocked, right(1.0)).measurement
    assert measured.low == pytest.approx(3.0 * 2.9 / 3.0 / 1.1, rel=0.01)
    assert measured.high == pytest.approx(3.0 * 3.1 / 3.0 / 0.9, rel=0.01)


def test_disturbed_rounds_are_dropped_and_counted(clocked: ClockedBench) -> None:
    clocked.watch.noise = lambda sample: 3.0 if sample % 11 == 0 else 1.0  # type: ignore[method-assign]
    result = tier(clocked, right(2.2), threshold=2.2)
    assert 1 <= result.measurement.dropped <= 4
    assert (
        f"from 16 rounds, {result.measurement.dropped} of them discarded because of interference"
        in result.findings[0].evidence[1]
    )
    assert result.measurement.speedup == pytest.approx(3 / 2.2)


def test_rounds_under_a_slowdown_are_dropped_and_other_processes_named(clocked: ClockedBench) -> None:
    looks = iter([QUIET, QUIET, replace(QUIET, slowdowns=("power cap",))])
    clocked.watch.conditions = lambda: next(looks, QUIET)  # type: ignore[method-assign]
    clocked.watch.others = lambda: ("python (process 7)",)  # type: ignore[method-assign]
    result = tier(clocked, right(2.5))
    assert result.measurement.dropped == ROUNDS_PER_READING
    assert result.measurement.shared_with == ("python (process 7)",)
    assert result.findings[0].evidence[2] == "the GPU was shared with python (process 7)"


def test_rounds_are_added_while_a_slowdown_leaves_too_few(clocked: ClockedBench) -> None:
    """One look at a GPU that is slowed down makes the rounds before and after it suspect, all of the first ones."""
    looks = iter([QUIET, replace(QUIET, slowdowns=("power cap",))])
    clocked.watch.conditions = lambda: next(looks, QUIET)  # type: ignore[method-assign]
    measured = tier(clocked, right(1.0)).measurement
    assert (measured.rounds, measured.dropped, measured.held_down_by) == (2 * FIRST_ROUNDS, FIRST_ROUNDS, ())


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (replace(QUIET, sm_clock_mhz=600), "SM clock at 600 of 1980 MHz"),
        (replace(QUIET, slowdowns=("power cap", "too hot (hardware)")), "power cap, too hot (hardware)"),
    ],
)
def test_a_gpu_that_is_always_slowed_down_is_timed_for_longer_and_it_is_said(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch, conditions: Conditions, words: str
) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.MAX_WARM_UP_S", 0.0)  # the clock never comes up
    clocked.watch.conditions = lambda: conditions  # type: ignore[method-assign]
    result = tier(clocked, right(1.0))
    measured = result.measurement
    assert (result.verdict, measured.rounds, measured.dropped) == ("passed", HELD_DOWN_ROUNDS, 0)
    assert ", ".join(measured.held_down_by) == words
    assert measured.certainty.endswith(f", with cold caches, while the GPU was slowed down ({words})")


def test_other_processes_are_named_after_the_lock_is_released(clocked: ClockedBench) -> None:
    clocked.watch.others = lambda: clocked.watch.events.append("others") or ("a",)  # type: ignore[method-assign,func-returns-value]
    result = tier(clocked, right(1.0))
    assert clocked.watch.events[-2:] == ["given back", "others"]
    assert result.measurement.shared_with == ("a",)


def test_a_slow_clock_makes_a_round_suspect() -> None:
    assert replace(QUIET, sm_clock_mhz=1400).held_down_by
    assert not replace(QUIET, sm_clock_mhz=1500).held_down_by
    assert not replace(QUIET, max_sm_clock_mhz=None).held_down_by
    assert replace(QUIET, slowdowns=("power cap",)).held_down_by


def test_the_benchmark_starts_once_the_clock_is_up(clocked: ClockedBench) -> None:
    clocks = iter([400, 900, 1500])
    clocked.watch.conditions = lambda: replace(QUIET, sm_clock_mhz=next(clocks, 1980))  # type: ignore[method-assign]
    tier(clocked, right(1.0))
    assert len(clocked.watch.cold) == 2 * (5 + FIRST_ROUNDS)


def test_a_clock_that_never_comes_near_the_highest_is_up_once_times_have_settled(clocked: ClockedBench) -> None:
    clocked.watch.conditions = lambda: replace(QUIET, sm_clock_mhz=1600)  # type: ignore[method-assign]
    tier(clocked, right(1.0))
    assert len(clocked.watch.cold) == 2 * (2 * SETTLED_OVER + FIRST_ROUNDS)


def test_a_clock_that_is_down_is_waited_for_though_times_have_settled(clocked: ClockedBench) -> None:
    clocks = iter([600] * 30)
    clocked.watch.conditions = lambda: replace(QUIET, sm_clock_mhz=next(clocks, 1980))  # type: ignore[method-assign]
    tier(clocked, right(1.0))
    assert len(clocked.watch.cold) == 2 * (WARM_UP_ROUNDS + 30 + FIRST_ROUNDS)


def test_samples_are_calibrated_once_the_clock_is_up_and_learned_from_at_each_look(clocked: ClockedBench) -> None:
    tier(clocked, right(1.0))
    events = [event for event, _ in groupby(clocked.watch.events)]
    looks = ["sample", "learns on"] * (FIRST_ROUNDS // ROUNDS_PER_READING)
    assert events == ["sample", "calibrates", *looks, "given back"]


def surrounded(
    clocked: ClockedBench, known_ms: Callable[[], float], shown_ms: Callable[[], float] = lambda: 0.005
) -> None:
    """Let samples show 5 us too much, or more, and 1 us for each launch; say how much of the former is known."""
    clocked.watch.overhead_ms = lambda launches: known_ms() + 0.001 * launches  # type: ignore[method-assign]
    run = clocked.watch.run

    def running(module: Any, calls: Sequence[KernelLaunch], copies: Copies) -> float:
        return run(module, calls, copies) + shown_ms() + 0.001 * len(calls)

    clocked.watch.run = running  # type: ignore[method-assign]


def test_an_overhead_that_was_learned_in_a_bad_moment_spoils_no_sample(clocked: ClockedBench) -> None:
    """Others may disturb each sample that tells it, for a while; what is learned later counts for all samples."""
    surrounded(clocked, lambda: 0.005 if "learns on" in clocked.watch.events else 0.03)
    measured = tier(clocked, right(0.1)).measurement
    assert (measured.rounds, measured.caches) == (FIRST_ROUNDS, "cold")
    assert measured.elapsed_ms == pytest.approx(0.1, rel=0.002)


def test_a_sample_shorter_than_its_overhead_has_a_positive_time(clocked: ClockedBench) -> None:
    surrounded(clocked, lambda: 0.5)
    measured = tier(clocked, right(0.1)).measurement
    assert measured.elapsed_ms == pytest.approx(MIN_MS) and measured.baseline_ms > 2


def test_a_sides_overhead_is_that_of_its_launches() -> None:
    class HazardChecker:
        def overhead_ms(self, launches: int) -> float:
            return 0.005 + 0.001 * launches

    contender = BenchmarkTarget.__new__(BenchmarkTarget)
    contender.plan = Plan((), (Launch("f", (1,), (1,), ()),) * 3)
    watch: Any = HazardChecker()
    assert contender.overhead_ms(watch) == pytest.approx(0.008)
    assert contender.overhead_ms(watch, runs=4) == pytest.approx((0.005 + 0.012) / 4)


def test_each_session_has_its_own_overhead(clocked: ClockedBench) -> None:
    clocked.programs["naive"] = right(0.3)
    surrounded(
        clocked,
        known_ms=lambda: 0.02 * clocked.watch.events.count("calibrates"),
        shown_ms=lambda: 0.02 * sessions(clocked),
    )
    measured = tier(clocked, right(0.28)).measurement
    assert (sessions(clocked), measured.rounds) == (2, 2 * FIRST_ROUNDS)
    assert measured.elapsed_ms == pytest.approx(0.28, rel=0.002)


def test_the_overhead_of_a_batch_is_that_of_all_its_launches(clocked: ClockedBench) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    surrounded(clocked, lambda: 0.005)
    measured = tier(clocked, right(0.048)).measurement
    assert (measured.caches, set(clocked.watch.batches)) == ("warm", {10})
    assert measured.elapsed_ms == pytest.approx(0.048, rel=0.002)


def test_without_a_known_clock_the_benchmark_starts_once_times_stop_falling(clocked: ClockedBench) -> None:
    clocked.watch.conditions = lambda: Conditions()  # type: ignore[method-assign]
    clocked.watch.noise = lambda sample: 1 + 8 * 0.8**sample  # type: ignore[method-assign]
    measured = tier(clocked, right(1.0)).measurement
    assert 2 * (12 + FIRST_ROUNDS) <= len(clocked.watch.cold) <= 2 * (24 + FIRST_ROUNDS)
    assert measured.speedup == pytest.approx(3.0, rel=0.02)


def test_short_kernels_that_touch_little_are_timed_in_batches_with_warm_caches(clocked: ClockedBench) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    result = tier(clocked, right(0.04))
    assert (result.verdict, result.measurement.caches) == ("passed", "warm")
    assert result.measurement.elapsed_ms == pytest.approx(0.04, rel=0.01)
    assert set(clocked.watch.batches) == {10} and len(clocked.watch.batches) == 2 * FIRST_ROUNDS


def test_short_kernels_that_touch_more_than_the_cache_holds_are_timed_cold(clocked: ClockedBench) -> None:
    clocked.watch.l2_bytes = 4 * 2 * 8 * SIZE
    assert tier(clocked, right(0.04)).measurement.caches == "cold"
    assert clocked.watch.batches == []


@pytest.mark.parametrize(
    ("small_bytes", "checked"), [(SMALL_BYTES, CANDIDATES_IF_SMALL + SETS), (0, SETS * CHECKED_OF_A_SET)]
)
def test_few_outputs_are_read_however_many_rounds(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch, small_bytes: int, checked: int
) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.validation.SMALL_BYTES", small_bytes)
    read: list[Any] = []
    held = type(clocked.device.array(np.zeros(1)))
    get = held.get
    monkeypatch.setattr(held, "get", lambda memory: read.append(memory) or get(memory))
    assert tier(clocked, right(2.0)).measurement.rounds == MAX_ROUNDS
    assert [memory.shape for memory in read].count((SIZE,)) == checked

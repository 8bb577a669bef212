"""How a submission is timed on a GPU that other processes use at the same time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from clocked_device import QUIET, SIZE, ClockedBench, sessions, tier
from doubling import right

from pytest_gpulab.devices.stopwatch import Conditions, Copies, KernelLaunch
from pytest_gpulab.exercise import SpeedTier
from pytest_gpulab.grading.speed.benchmark import ROUNDS_PER_READING
from pytest_gpulab.grading.speed.interference import SLOWED_BY_OTHERS
from pytest_gpulab.grading.speed.statistics import FIRST_ROUNDS, LOST_PER_SEEN


def interrupted(ms: float) -> Conditions:
    return replace(QUIET, interruption_ms=ms)


def test_rounds_in_which_others_worked_on_the_gpu_are_dropped(clocked: ClockedBench) -> None:
    looks = iter([QUIET, QUIET, interrupted(0.3)])
    clocked.watch.conditions = lambda: next(looks, QUIET)  # type: ignore[method-assign]
    measured = tier(clocked, right(2.5)).measurement
    assert measured.dropped == ROUNDS_PER_READING
    assert measured.low > 0.95 * measured.speedup


@pytest.mark.parametrize(("threshold", "verdict"), [(2.2, "passed"), (2.6, "inconclusive"), (3.2, "failed")])
def test_beside_others_that_always_work_a_verdict_allows_for_what_they_took(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch, threshold: float, verdict: str
) -> None:
    """Of 3 ms of the baseline, two interruptions may be others' work; what takes 1 ms is not interrupted."""
    monkeypatch.setattr("pytest_gpulab.grading.speed.statistics.MAX_ROUNDS", FIRST_ROUNDS)
    clocked.watch.conditions = lambda: interrupted(0.3)  # type: ignore[method-assign]
    result = tier(clocked, right(1.0), threshold)
    assert (result.verdict, result.measurement.dropped) == (verdict, 0)
    assert result.measurement.low == pytest.approx(3.0 - 2 * LOST_PER_SEEN * 0.3, rel=0.01)
    assert result.measurement.high == pytest.approx(3.0, rel=0.01)


SLOW = 0.94  # what another one's power leaves of the clock


def slowed(clocked: ClockedBench, always: Conditions, first: Sequence[Conditions] = ()) -> None:
    """Let looks see some things first and then always the same, beside kernels that are too short to be interrupted.

    The baseline depends on the clock, its rival does not.
    """
    clocked.programs["naive"] = right(0.9)
    looks = iter(first)
    latest, run = [QUIET], clocked.watch.run

    def conditions() -> Conditions:
        latest[0] = next(looks, always)
        return latest[0]

    def running(module: Any, calls: Sequence[KernelLaunch], copies: Copies) -> float:
        is_baseline = module.program is clocked.programs["naive"]
        return run(module, calls, copies) / (latest[0].speed if is_baseline else 1)

    clocked.watch.conditions = conditions  # type: ignore[method-assign]
    clocked.watch.run = running  # type: ignore[method-assign]


@pytest.mark.parametrize(("threshold", "verdict"), [(2.1, "passed"), (2.6, "inconclusive"), (3.2, "failed")])
def test_a_verdict_on_batches_allows_for_what_others_took_of_a_batch(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch, threshold: float, verdict: str
) -> None:
    """Ten runs of the baseline take 1.2 ms, long enough to be interrupted once; ten of its rival do not."""
    monkeypatch.setattr("pytest_gpulab.grading.speed.statistics.MAX_ROUNDS", FIRST_ROUNDS)
    clocked.programs["naive"] = right(0.12)
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    clocked.watch.conditions = lambda: interrupted(0.3)  # type: ignore[method-assign]
    result = tier(clocked, right(0.04), threshold)
    assert (result.verdict, result.measurement.caches) == (verdict, "warm")
    assert result.measurement.low == pytest.approx(3.0 * (1 - LOST_PER_SEEN * 0.3 / 1.2), rel=0.01)
    assert result.measurement.high == pytest.approx(3.0, rel=0.01)


BETWEEN = 3.0 * (1 + 1 / SLOW) / 2  # a threshold that the slow clock's ratio reaches and the true one does not


def test_slowed_rounds_decide_no_verdict(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their power holds the clock down, which changes the ratio."""
    monkeypatch.setattr("pytest_gpulab.grading.speed.statistics.MAX_ROUNDS", FIRST_ROUNDS)
    slowed(clocked, replace(QUIET, speed=SLOW, interruption_ms=0.3))
    result = tier(clocked, right(0.3), BETWEEN)
    assert (result.verdict, result.measurement.dropped) == ("inconclusive", 0)
    assert result.measurement.low < 3.0 < 3.0 / SLOW < result.measurement.high
    assert result.measurement.held_down_by == (SLOWED_BY_OTHERS,)


def test_a_gpu_that_is_slow_by_itself_has_the_ratio_that_it_has(clocked: ClockedBench) -> None:
    slowed(clocked, replace(QUIET, speed=SLOW))
    result = tier(clocked, right(0.3), BETWEEN)
    assert (result.verdict, result.measurement.held_down_by) == ("passed", ())


def test_others_at_work_matter_only_where_the_clock_is_slow(clocked: ClockedBench) -> None:
    slowed(clocked, replace(QUIET, speed=0.995, interruption_ms=0.3))
    measured = tier(clocked, right(0.3), BETWEEN).measurement
    assert measured.speedup == pytest.approx(3.0 / 0.995, rel=0.005) and measured.low > 0.98 * measured.speedup


@pytest.mark.parametrize("seen_at", range(3))
def test_one_look_that_sees_others_makes_all_slow_rounds_suspect(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch, seen_at: int
) -> None:
    """They rest at times. The first look is before the first round."""
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_WAIT_S", 60.0)
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_PAUSE_S", 0.0)
    slowed(clocked, QUIET, [replace(QUIET, speed=SLOW, interruption_ms=0.3 * (nth == seen_at)) for nth in range(3)])
    result = tier(clocked, right(0.3), BETWEEN)
    assert result.verdict == "failed"
    assert result.measurement.dropped == FIRST_ROUNDS
    assert result.measurement.speedup == pytest.approx(3.0, rel=0.005)


def test_a_verdict_clear_at_any_clock_is_not_repeated(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_WAIT_S", 60.0)
    slowed(clocked, replace(QUIET, speed=SLOW, interruption_ms=0.3, slowdowns=("power cap",)))
    result = tier(clocked, right(0.3), 2.0)
    assert (result.verdict, sessions(clocked)) == ("passed", 1)
    assert result.measurement.held_down_by == ("power cap", SLOWED_BY_OTHERS)


READINGS_PER_SESSION = 1 + FIRST_ROUNDS // ROUNDS_PER_READING


@pytest.mark.parametrize(
    ("fastest", "every", "look_s", "verdict"),
    [
        (SLOW, READINGS_PER_SESSION, 1.0, "passed"),
        (1.0, READINGS_PER_SESSION, 1.0, "inconclusive"),  # it can do better
        (SLOW, 2, 1.0, "inconclusive"),  # others may well hold it down all that time
        (SLOW, READINGS_PER_SESSION, 1e-5, "inconclusive"),  # not known yet
    ],
)
def test_a_gpu_that_was_never_faster_is_not_distrusted_because_others_were_seen_now_and_then(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch, fastest: float, every: int, look_s: float, verdict: str
) -> None:
    """Such as a laptop's, whose desktop draws; every so many looks see others, and each takes some time."""
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_WAIT_S", 0.3)
    moments = itertools.count(1000.0, look_s)
    monkeypatch.setattr(
        "pytest_gpulab.grading.speed.interference.time", SimpleNamespace(monotonic=lambda: next(moments))
    )
    slow = [replace(QUIET, speed=SLOW, interruption_ms=0.3 * (nth % every == 0)) for nth in range(10_000)]
    slowed(clocked, slow[1], [replace(slow[0], speed=fastest), *slow[1:]])
    result = tier(clocked, right(0.3), BETWEEN)
    assert result.verdict == verdict
    assert (result.measurement.held_down_by == ()) == (verdict == "passed")


def test_a_clock_that_could_never_be_measured_is_not_known(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count(1000.0, 100.0)
    monkeypatch.setattr(
        "pytest_gpulab.grading.speed.interference.time", SimpleNamespace(monotonic=lambda: next(moments))
    )
    looks = [
        replace(QUIET, speed=0.0, interruption_ms=0.3 * (nth % READINGS_PER_SESSION == 0)) for nth in range(10_000)
    ]
    clocked.programs["naive"] = right(0.9)
    unknown = iter(looks)
    clocked.watch.conditions = lambda: next(unknown)  # type: ignore[method-assign]
    assert tier(clocked, right(0.3), 2.9).verdict == "inconclusive"


def test_the_measured_full_speed_applies_to_all_benchmarks_of_a_submission(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_WAIT_S", 60.0)
    moments = itertools.count(1000.0)
    monkeypatch.setattr(
        "pytest_gpulab.grading.speed.interference.time", SimpleNamespace(monotonic=lambda: next(moments))
    )
    slow = [
        replace(QUIET, speed=SLOW, interruption_ms=0.3 * (nth % READINGS_PER_SESSION == 0)) for nth in range(10_000)
    ]
    slowed(clocked, slow[1], slow)
    tiers = tuple(SpeedTier(BETWEEN + size / 1e6, 20, size, required=True) for size in (SIZE, 2 * SIZE))
    results = clocked.results(right(0.3), speed=tiers)
    assert [result.verdict for result in results.values() if result.kind == "speedup"] == ["passed"] * 2
    assert clocked.watch.drains.count(True) == clocked.watch.drains.index(False, 1) - 1 > 0


def test_a_disturbed_session_is_repeated_later(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a kernel that hangs, of another submission, until it is stopped."""
    events = clocked.watch.events
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_WAIT_S", 60.0)
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_PAUSE_S", 1.25)
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.time.sleep", lambda s: events.append(f"sleeps {s}"))
    looks = iter([interrupted(2.4)] * 2 * READINGS_PER_SESSION)
    clocked.watch.conditions = lambda: next(looks, QUIET)  # type: ignore[method-assign]
    result = tier(clocked, right(1.9))
    assert (result.verdict, sessions(clocked)) == ("passed", 3)
    assert (result.measurement.rounds, result.measurement.dropped) == (3 * FIRST_ROUNDS, 2 * FIRST_ROUNDS)
    assert result.measurement.low > 0.95 * result.measurement.speedup
    assert [events[nth - 1] for nth, event in enumerate(events) if event == "sleeps 1.25"] == ["given back"] * 2
    assert clocked.watch.drains == [False, True, True]


def test_a_clear_verdict_under_interference_is_not_repeated(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_WAIT_S", 60.0)
    clocked.watch.conditions = lambda: interrupted(0.3)  # type: ignore[method-assign]
    assert (tier(clocked, right(1.0)).verdict, sessions(clocked)) == ("passed", 1)


def test_others_that_never_end_are_not_waited_for_for_ever(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_WAIT_S", 0.5)
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_PAUSE_S", 0.2)
    clocked.watch.conditions = lambda: interrupted(2.4)  # type: ignore[method-assign]
    assert tier(clocked, right(1.9)).verdict == "inconclusive"
    assert 2 <= sessions(clocked) <= 4


def test_the_races_of_a_submission_share_the_time_to_wait_for_others(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_WAIT_S", 0.5)
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_PAUSE_S", 0.6)
    clocked.watch.conditions = lambda: interrupted(2.4)  # type: ignore[method-assign]
    tiers = tuple(SpeedTier(least, 20, size, required=True) for least, size in ((1.5, SIZE), (1.51, 2 * SIZE)))
    results = clocked.results(right(1.9), speed=tiers)
    assert [result.verdict for result in results.values() if result.kind == "speedup"] == ["inconclusive"] * 2
    assert sessions(clocked) == 2 + 1

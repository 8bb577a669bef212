"""What grading makes of a device with a clock: rounds, verdicts, and the checks on what was timed."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocked_device import QUIET, ClockedBench
from doubling import kernel, plan, program, right
from fake_device import Program

from pytest_gpulab.devices.occupancy import BlockNeeds, occupancy_by_rules
from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault
from pytest_gpulab.devices.stopwatch import Conditions
from pytest_gpulab.exercise import Buffer, Launch, Plan, Problem, SpeedTier
from pytest_gpulab.grading.contender import REPLICAS, STEP_BYTES, Pool
from pytest_gpulab.grading.race import MAX_CHECKED, ROUNDS_PER_LOOK, ROUNDS_PER_PLACE
from pytest_gpulab.grading.statistics import FIRST_ROUNDS, MAX_ROUNDS

SIZE = 2**10
TIERS = (SpeedTier(1.5, 20, SIZE, required=True), SpeedTier(5, 20, SIZE))


@pytest.fixture
def clocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClockedBench:
    monkeypatch.setattr("pytest_gpulab.grading.race.WARM_UP_S", 0.0)
    monkeypatch.setattr("pytest_gpulab.grading.contender.ROOM_BYTES", 2**12)
    return ClockedBench(tmp_path)


def tier(clocked: ClockedBench, submission: Program, threshold: float = 1.5, **changes: Any) -> Any:
    tiers = (SpeedTier(threshold, 40, SIZE, required=True),)
    return clocked.result(f"speedup[{threshold:g}x]", submission, speed=tiers, **changes)


def test_a_clear_case_takes_the_first_rounds_and_says_what_was_measured(clocked: ClockedBench) -> None:
    results = clocked.results(right(1.0, occupancy=0.5), speed=TIERS)
    assert (results["speedup[1.5x]"].verdict, results["speedup[1.5x]"].points) == ("passed", 20)
    assert (results["speedup[5x]"].verdict, results["speedup[5x]"].points) == ("missed", 0)
    measured = results["speedup[1.5x]"].measurement
    assert measured is not None and measured.low is not None and measured.high is not None
    assert measured.low <= measured.speedup <= measured.high < 1.02 * measured.low
    assert measured.speedup == pytest.approx(3.0, rel=0.005)
    assert (measured.rounds, measured.dropped, measured.caches, measured.estimated) == (FIRST_ROUNDS, 0, "cold", False)
    assert (measured.occupancy, measured.registers, measured.size) == (0.5, 16, "2^10")
    assert measured.bandwidth_gb_s == pytest.approx(8 * SIZE / (measured.elapsed_ms * 1e-3) / 1e9)


def test_the_memorys_peak_is_told_and_the_reference_timed_where_it_was_needed(clocked: ClockedBench) -> None:
    measured = tier(clocked, right(1.0)).measurement
    assert measured is not None and measured.reference_ms is not None
    assert (measured.peak_bandwidth_gb_s, measured.reference_ms > 0) == (1e9, True)
    too_slow = tier(clocked, right(3.0)).measurement
    assert too_slow is not None and too_slow.reference_ms is None


def test_kernels_tell_how_they_fill_the_gpu(clocked: ClockedBench) -> None:
    found = occupancy_by_rules("sm_90", "double", BlockNeeds(256, 16, 0))
    measured = tier(clocked, right(1.0, kernel_occupancy=found)).measurement
    assert measured is not None and measured.kernels == (found,)


def test_tiers_of_the_same_size_share_one_race_and_nothing_stays_in_memory(clocked: ClockedBench) -> None:
    clocked.results(right(1.0), speed=TIERS)
    assert len(clocked.device.held_at_start) == 1
    assert clocked.device.held == []


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
    assert kept <= MAX_CHECKED  # outputs that are set aside to be checked leave their place to another
    for first in range(0, FIRST_ROUNDS, ROUNDS_PER_PLACE):
        assert len({inputs for inputs, _ in arrays[first : first + ROUNDS_PER_PLACE]}) == REPLICAS


def test_arrays_move_every_few_rounds_and_nothing_is_allocated_while_others_wait(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[int] = []
    allocated: list[Any] = []
    part, empty = clocked.device.part, clocked.device.empty

    def spying(whole: Any, offset_bytes: int, *more: Any) -> Any:
        places.append(offset_bytes)
        return part(whole, offset_bytes, *more)

    def allocating(shape: Any, dtype: Any) -> Any:
        allocated.append(bool(clocked.device.held_at_start))
        return empty(shape, dtype)

    monkeypatch.setattr("pytest_gpulab.grading.contender.ROOM_BYTES", 2**24)
    clocked.device.part, clocked.device.empty = spying, allocating  # type: ignore[method-assign]
    tier(clocked, right(1.0))
    moved = [place for place in places if place]
    assert len(moved) >= FIRST_ROUNDS // ROUNDS_PER_PLACE * REPLICAS * 2
    assert len(set(moved)) > 0.9 * len(moved) and max(moved) > 2**23
    assert all(place % STEP_BYTES == 0 for place in moved)
    assert allocated and all(not begun for begun in allocated)
    assert clocked.device.held == []


def test_the_slower_tier_is_too_slow_and_the_finding_gives_the_interval(clocked: ClockedBench) -> None:
    result = tier(clocked, right(2.5))
    (finding,) = result.findings
    assert (result.verdict, finding.code) == ("failed", "too-slow")
    assert finding.what == "A speedup of 1.20x over naive.cu."
    measured = result.measurement
    interval = f"between {measured.low:.3f}x and {measured.high:.3f}x, from 32 rounds, with cold caches"
    assert finding.evidence[1] == interval


def disturb(clocked: ClockedBench, factor: float, sitting: int) -> None:
    """Let something slow down the submission, and not its baseline, in one sitting."""
    run = clocked.watch.run

    def disturbed(module: Any, calls: Any, copies: Any) -> float:
        is_now = module.program is clocked.programs["submission"] and len(clocked.device.held_at_start) == sitting
        return run(module, calls, copies) * (factor if is_now else 1.0)

    clocked.watch.run = disturbed  # type: ignore[method-assign]


def sittings(clocked: ClockedBench) -> int:
    return len(clocked.device.held_at_start)


def test_a_disturbance_as_long_as_a_sitting_costs_nobody_a_point(clocked: ClockedBench) -> None:
    disturb(clocked, 1.2, sitting=1)
    result = tier(clocked, right(1.8))
    assert (result.verdict, sittings(clocked)) == ("passed", 2)
    assert result.measurement.speedup == pytest.approx(3 / 1.8, rel=0.005)


def test_points_are_lost_by_little_only_in_two_sittings(clocked: ClockedBench) -> None:
    result = tier(clocked, right(2.8))
    assert (result.verdict, sittings(clocked), result.measurement.rounds) == ("failed", 2, 2 * FIRST_ROUNDS)
    assert clocked.watch.events.count("calibrates") == 2


def test_points_are_lost_by_far_in_one_sitting(clocked: ClockedBench) -> None:
    result = tier(clocked, right(3.2))
    assert (result.verdict, sittings(clocked), result.measurement.rounds) == ("failed", 1, FIRST_ROUNDS)


def test_a_bonus_that_is_missed_by_little_takes_two_sittings_too(clocked: ClockedBench) -> None:
    results = clocked.results(right(1.0), speed=(TIERS[0], SpeedTier(3.5, 20, SIZE)))
    assert (results["speedup[1.5x]"].verdict, results["speedup[3.5x]"].verdict) == ("passed", "missed")
    assert sittings(clocked) == 2


def test_both_sittings_time_in_the_same_way(clocked: ClockedBench) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    clocked.programs["naive"] = right(0.06)
    disturb(clocked, 100.0, sitting=2)  # so long that it would be timed in another way
    result = tier(clocked, right(0.045))
    assert (sittings(clocked), result.measurement.caches) == (2, "warm")
    assert clocked.watch.batches == [10] * len(clocked.watch.batches)


def test_too_close_to_tell_takes_all_rounds_and_gives_the_points(clocked: ClockedBench) -> None:
    result = tier(clocked, right(2.0))
    (finding,) = result.findings
    assert (result.verdict, result.points, finding.code) == ("inconclusive", 40, "inconclusive")
    assert result.measurement.rounds == MAX_ROUNDS
    measured = result.measurement
    assert finding.what == (
        f"The speedup over naive.cu lies between {measured.low:.3f}x and {measured.high:.3f}x, too close to 1.5x to "
        "tell. The points are given."
    )
    assert "on the safe side" in finding.hint


def test_rounds_end_when_the_time_is_up(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.race.BUDGET_S", 0.0)
    result = tier(clocked, right(2.0))
    assert (result.verdict, result.measurement.rounds) == ("inconclusive", FIRST_ROUNDS)


def test_disturbed_rounds_are_dropped_and_counted(clocked: ClockedBench) -> None:
    clocked.watch.noise = lambda sample: 3.0 if sample % 11 == 0 else 1.0  # type: ignore[method-assign]
    result = tier(clocked, right(2.2), threshold=2.2)
    assert 1 <= result.measurement.dropped <= 4
    assert (
        f"from 16 rounds, {result.measurement.dropped} of them disturbed and left out" in result.findings[0].evidence[1]
    )
    assert result.measurement.speedup == pytest.approx(3 / 2.2)


def test_rounds_under_a_slowdown_are_dropped_and_other_processes_named(clocked: ClockedBench) -> None:
    looks = iter([QUIET, QUIET, replace(QUIET, slowdowns=("power cap",))])
    clocked.watch.conditions = lambda: next(looks, QUIET)  # type: ignore[method-assign]
    clocked.watch.others = lambda: ("python (process 7)",)  # type: ignore[method-assign]
    result = tier(clocked, right(2.5))
    assert result.measurement.dropped == ROUNDS_PER_LOOK
    assert result.measurement.shared_with == ("python (process 7)",)
    assert result.findings[0].evidence[2] == "the GPU was shared with python (process 7)"


def test_whoever_waits_for_the_gpu_need_not_wait_until_other_processes_are_named(clocked: ClockedBench) -> None:
    clocked.watch.others = lambda: clocked.watch.events.append("others") or ("a",)  # type: ignore[method-assign,func-returns-value]
    result = tier(clocked, right(1.0))
    assert clocked.watch.events[-2:] == ["given back", "others"]
    assert result.measurement.shared_with == ("a",)


def test_a_slow_clock_makes_a_round_suspect() -> None:
    assert replace(QUIET, sm_clock_mhz=1400).held_down
    assert not replace(QUIET, sm_clock_mhz=1500).held_down
    assert not replace(QUIET, max_sm_clock_mhz=None).held_down
    assert replace(QUIET, slowdowns=("power cap",)).held_down


def test_the_race_starts_once_the_clock_is_up(clocked: ClockedBench) -> None:
    clocks = iter([400, 900, 1500])
    clocked.watch.conditions = lambda: replace(QUIET, sm_clock_mhz=next(clocks, 1980))  # type: ignore[method-assign]
    tier(clocked, right(1.0))
    assert len(clocked.watch.cold) == 2 * (5 + FIRST_ROUNDS)


def test_samples_are_calibrated_once_the_clock_is_up_and_learned_from_at_each_look(clocked: ClockedBench) -> None:
    tier(clocked, right(1.0))
    events = [event for event, _ in groupby(clocked.watch.events)]
    looks = ["sample", "learns on"] * (FIRST_ROUNDS // ROUNDS_PER_LOOK)
    assert events == ["sample", "calibrates", *looks, "given back"]


def test_where_the_clock_is_not_known_the_race_starts_once_times_fall_no_more(clocked: ClockedBench) -> None:
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


def test_a_time_that_the_memory_does_not_allow_is_impossible(clocked: ClockedBench) -> None:
    clocked.watch.peak_bandwidth_gb_s = 0.001
    result = tier(clocked, right(1.0))
    (finding,) = result.findings
    assert (result.verdict, result.points, finding.code) == ("failed", 0, "impossible-time")
    assert "ms is not possible: a right kernel moves 0.008192 MB, and the memory's 0 GB/s take 8.192 ms" in finding.what
    clocked.watch.l2_bytes = 8 * SIZE
    assert tier(clocked, right(1.0)).verdict == "passed"
    assert tier(clocked, right(1.0), min_bytes=None).verdict == "passed"


def cheating_after(launches: int) -> Program:
    """Work at the timed size at first, then not any more."""
    done = [0]

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        done[0] += n == SIZE
        if done[0] <= launches:
            out.values[...] = 2 * source.values
        return {"estimated_ms": 1.0}

    return program(twice)


def test_outputs_of_timed_runs_are_checked(clocked: ClockedBench) -> None:
    result = tier(clocked, cheating_after(2))  # the profiled run and one of the warm-up
    (finding,) = result.findings
    assert (result.verdict, finding.code) == ("failed", "not-written")
    assert finding.what == "At the timed size 2^10: in a timed run, `out`: all 1024 elements are never written."


def test_work_left_out_is_named_before_the_impossible_time_that_it_takes(clocked: ClockedBench) -> None:
    clocked.watch.peak_bandwidth_gb_s = 0.001
    findings = tier(clocked, cheating_after(2)).findings
    assert [finding.code for finding in findings] == ["not-written", "impossible-time"]


def replaying(costs_ms: float) -> Program:
    """Hand out the first result at the timed size for ever."""
    first: list[Any] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        right = 2 * source.values
        if n == SIZE:
            first.append(right)
            right = first[0]
        out.values[...] = right
        return {"estimated_ms": costs_ms}

    return program(twice)


@pytest.mark.parametrize("costs_ms", [1.0, 0.01])
def test_a_result_that_is_kept_and_replayed_is_wrong(clocked: ClockedBench, costs_ms: float) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    result = tier(clocked, replaying(costs_ms))
    (finding,) = result.findings
    assert (result.verdict, finding.code) == ("failed", "wrong-result")
    assert re.fullmatch(r"At the timed size 2\^10: in a timed run, `out`: .*1024 elements are wrong\.", finding.what)
    assert result.measurement.caches == ("cold" if costs_ms == 1.0 else "warm")


def test_a_result_replayed_where_an_address_repeats_is_wrong(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pool, "move_copies", lambda self, rng: None)  # as if each copy got its old place again
    remembered: dict[int, Any] = {}

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        right = 2 * source.values
        out.values[...] = remembered.setdefault(id(source), right) if n == SIZE else right
        return {"estimated_ms": 1.0}

    (finding,) = tier(clocked, program(twice)).findings
    assert finding.code == "wrong-result"


def recognising(costs_ms: float, looks_at: slice) -> Program:
    """Hand out a stored answer wherever a few elements of the input look like those of an earlier one."""
    answers: dict[bytes, Any] = {}

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        right = 2 * source.values
        out.values[...] = answers.setdefault(source.values[looks_at].tobytes(), right) if n == SIZE else right
        return {"estimated_ms": costs_ms}

    return program(twice)


@pytest.mark.parametrize("costs_ms", [1.0, 0.01])
def test_an_answer_that_was_stored_for_an_input_that_looks_alike_is_wrong(
    clocked: ClockedBench, costs_ms: float
) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    (finding,) = tier(clocked, recognising(costs_ms, slice(40, None, 100))).findings
    assert finding.code == "wrong-result"
    assert tier(clocked, recognising(costs_ms, slice(None))).verdict == "passed"  # who reads it all has gained nothing


@pytest.mark.parametrize("costs_ms", [1.0, 0.01])
def test_the_contents_that_are_checked_are_met_in_no_other_run(clocked: ClockedBench, costs_ms: float) -> None:
    met: list[bytes] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        met.extend([source.values.tobytes()] if n == SIZE else [])
        return kernel(costs_ms)(options, source, out, n)

    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    assert tier(clocked, program(twice)).verdict == "passed"
    times = sorted(met.count(contents) for contents in set(met))
    assert times[-1] == MAX_CHECKED and len(times) > 0.9 * (len(met) - MAX_CHECKED)


def test_inputs_that_make_sense_as_a_whole_only_are_not_mixed(clocked: ClockedBench) -> None:
    met: set[bytes] = set()

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        met.update([source.values.tobytes()] if n == SIZE else [])
        return kernel(1.0)(options, source, out, n)

    assert tier(clocked, program(twice), mixable=False).verdict == "passed"
    assert len(met) == 2
    assert tier(clocked, replaying(1.0), mixable=False).findings[0].code == "wrong-result"


def test_few_outputs_are_kept_however_many_rounds(clocked: ClockedBench) -> None:
    read = 0
    held = type(clocked.device.array(np.zeros(1)))
    get = held.get

    def counting(memory: Any) -> Any:
        nonlocal read
        read += memory.shape == (SIZE,)
        return get(memory)

    held.get = counting  # type: ignore[method-assign]
    try:
        assert tier(clocked, right(2.0)).measurement.rounds == MAX_ROUNDS
    finally:
        held.get = get  # type: ignore[method-assign]
    assert MAX_CHECKED <= read <= REPLICAS + 5  # one more for each doubling


def test_constants_and_zeroed_scratch_are_set_before_each_run(clocked: ClockedBench) -> None:
    def counted(options: Any, source: Any, out: Any, count: Any, n: Any) -> dict[str, Any]:
        assert count.values[0] == 0
        count.values[0] += 1
        out.values[...] = 2 * source.values
        return {"estimated_ms": 1.0}

    def with_scratch(problem: Problem) -> Plan:
        buffers = (
            *plan(problem).buffers,
            Buffer("count", "scratch", np.uint32, (1,), zeroed=True),
            Buffer("table", "input", np.float32, (4,)),
        )
        launch = Launch("twice", (1,), (32,), ("in", "out", "count", np.uint32(problem.size)))
        return Plan(buffers, (launch,), {"table": "table"})

    def made(problem: Problem, pattern: str, rng: np.random.Generator) -> dict[str, Any]:
        return {"in": rng.random(problem.size, np.float32), "table": rng.random(4, np.float32)}

    both = Program({"twice": counted}, (8, 8, 8, 4), {"table": bytes(16)})
    clocked.programs["naive"] = both
    result = tier(clocked, both, threshold=0.5, plan=with_scratch, inputs=made)
    assert result.verdict == "passed"


def test_a_fault_at_the_timed_size_is_the_submissions(clocked: ClockedBench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        if n == SIZE:
            raise KernelFault("trap", "__trap() was called")
        return kernel(1.0)(options, source, out, n)

    result = tier(clocked, program(twice))
    assert (result.verdict, result.findings[0].code, result.measurement) == ("failed", "trap", None)
    assert clocked.device.held == []


def test_a_fault_of_the_baseline_is_the_instructors(clocked: ClockedBench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        raise KernelFault("trap", "__trap() was called")

    clocked.programs["naive"] = program(twice)
    result = tier(clocked, right(1.0))
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")


def test_a_gpu_that_is_never_free_is_nobodys_fault(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy() -> Any:
        raise DeviceUnavailable("another process has been timing on the GPU for 600 s")

    monkeypatch.setattr(clocked.device, "stopwatch", busy)
    result = tier(clocked, right(1.0))
    assert (result.verdict, result.findings[0].code) == ("not gradable", "device-fault")
    assert "another process has been timing" in result.findings[0].what

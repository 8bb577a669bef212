"""What grading makes of a device with a clock: measurements, verdicts, and the checks on what was timed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from clocked_device import SIZE, TIERS, ClockedBench, tier
from doubling import EXERCISE, kernel, plan, program, right
from fake_device import Program

from pytest_gpulab.devices.occupancy import BlockNeeds, occupancy_by_rules
from pytest_gpulab.devices.protocol import KernelResources
from pytest_gpulab.exercise import Buffer, Case, Launch, Plan, Problem, SpeedTier, Variant
from pytest_gpulab.grading.checked_runs import CANDIDATES, SETS, SMALL_BYTES, CheckedRuns
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.contender import Pool
from pytest_gpulab.grading.race import Race
from pytest_gpulab.grading.statistics import FIRST_ROUNDS


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


def test_a_case_asks_for_the_gpu_once_whatever_it_runs(clocked: ClockedBench) -> None:
    patterns = ("random", "large", "random")
    result = clocked.result("correct[n=70]", right(1.0), cases=(Case("n=70", 70, 50, patterns),))
    n_decoys = 1
    assert result.verdict == "passed" and len(clocked.device.launches) == n_decoys + 2 * len(patterns)
    assert clocked.device.stays == 1


def test_for_a_race_each_side_asks_for_the_gpu_once_and_once_more_who_compares(clocked: ClockedBench) -> None:
    checks = {check.name: check for check in checks_of(replace(EXERCISE, speed=TIERS))}
    grader = clocked.grader(right(1.0), speed=TIERS)
    grader.run(checks["correct[n=4]"]), grader.run(checks["correct[n=70]"])
    before = clocked.device.stays
    assert grader.run(checks["speedup[5x]"]).measurement is not None
    assert clocked.device.stays == before + 3


@pytest.mark.parametrize(("count", "stays"), [(1, 0), (4, 1)])
def test_further_variants_are_loaded_in_one_go(clocked: ClockedBench, count: int, stays: int) -> None:
    variants = [Variant(f"v{number}", {"N": str(number)}) for number in range(count)]
    cases = tuple(Case(variant.name, 4, 90 / count, variant=variant) for variant in variants)
    assert clocked.result("compile", right(1.0), cases=cases, speed=()).verdict == "passed"
    assert clocked.device.stays == stays


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


def test_of_several_launches_the_one_with_the_most_threads_is_described_however_long_it_takes(
    clocked: ClockedBench,
) -> None:
    def after_a_small_one(problem: Problem) -> Plan:
        (wide,) = plan(problem).launches
        return Plan(plan(problem).buffers, (replace(wide, kernel="narrow", grid=(1,)), wide))

    few, many = KernelResources(registers=20, shared_bytes=0), KernelResources(registers=40, shared_bytes=0)
    slow, fast = kernel(5.0, occupancy=0.25, resources=few), kernel(1.0, occupancy=0.75, resources=many)
    both = Program({"narrow": slow, "twice": fast}, (8, 8, 4))
    clocked.programs["naive"] = both
    measured = tier(clocked, both, threshold=0.5, plan=after_a_small_one).measurement
    assert measured is not None and measured.elapsed_ms == pytest.approx(6.0, rel=0.01)
    assert (measured.occupancy, measured.registers) == (0.75, 40)


def test_tiers_of_the_same_size_share_one_race_and_nothing_stays_in_memory(clocked: ClockedBench) -> None:
    clocked.results(right(1.0), speed=TIERS)
    assert len(clocked.device.held_at_start) == 1
    assert clocked.device.held == []


def test_the_slower_tier_is_too_slow_and_the_finding_gives_the_interval(clocked: ClockedBench) -> None:
    result = tier(clocked, right(2.5))
    (finding,) = result.findings
    assert (result.verdict, finding.code) == ("failed", "too-slow")
    assert finding.what == "A speedup of 1.20x over naive.cu."
    measured = result.measurement
    interval = f"between {measured.low:.3f}x and {measured.high:.3f}x, from 32 rounds, with cold caches"
    assert finding.evidence[1] == interval


def test_a_time_that_the_memory_does_not_allow_is_impossible(clocked: ClockedBench) -> None:
    clocked.watch.peak_bandwidth_gb_s = 0.001
    result = tier(clocked, right(1.0))
    (finding,) = result.findings
    assert (result.verdict, result.points, finding.code) == ("failed", 0, "impossible-time")
    assert "ms is not possible: a right kernel moves 0.008192 MB, and the memory's 0 GB/s take 8.192 ms" in finding.what
    clocked.watch.l2_bytes = 8 * SIZE  # in which all that is written may stay, but nothing is that must be read
    (finding,) = tier(clocked, right(1.0)).findings
    assert finding.what.endswith("take 4.096 ms for what does not stay in the cache.")
    clocked.watch.l2_bytes = 2 * SIZE
    (finding,) = tier(clocked, right(1.0)).findings
    assert finding.what.endswith("take 6.144 ms for what does not stay in the cache.")
    assert tier(clocked, right(7.0), threshold=0.4).verdict == "passed"
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


@pytest.mark.parametrize("seed", range(12))
def test_an_output_is_checked_though_the_time_was_up_after_few_rounds(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.race.BUDGET_S", 0.0)
    results = clocked.grader(cheating_after(2), seed, speed=TIERS).grade().checks
    found = [result.findings[0].code for result in results if result.kind == "speedup" and result.points == 0]
    assert found[0] == "not-written"


def test_of_a_memory_whose_peak_is_not_known_no_time_is_impossible(clocked: ClockedBench) -> None:
    clocked.watch.peak_bandwidth_gb_s = 0.0
    result = tier(clocked, right(1e-5))
    assert (result.verdict, result.measurement.peak_bandwidth_gb_s) == ("passed", None)


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
def test_an_answer_that_was_stored_for_an_input_that_ends_alike_is_wrong_whatever_the_seed(
    clocked: ClockedBench, costs_ms: float
) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    found = []
    for seed in range(10):
        grader = clocked.grader(recognising(costs_ms, slice(-4, None)), seed, speed=TIERS)
        first, _ = (check for check in checks_of(grader._loaded.exercise) if check.kind == "speedup")
        found.append([finding.code for finding in grader.run(first).findings])
    assert found == [["wrong-result"]] * 10


@pytest.mark.parametrize("costs_ms", [1.0, 0.01])
def test_hardly_any_run_meets_the_contents_of_another(clocked: ClockedBench, costs_ms: float) -> None:
    met: list[bytes] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        met.extend([source.values.tobytes()] if n == SIZE else [])
        return kernel(costs_ms)(options, source, out, n)

    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    assert tier(clocked, program(twice)).verdict == "passed"
    assert len(set(met)) > 0.9 * len(met) / 2  # both sides meet each


def leaving_out(share: float, costs_ms: float, rng: np.random.Generator) -> Program:
    """Leave out half of the work in a random share of the launches at the timed size, which then take half as long."""

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        is_lazy = n == SIZE and rng.random() < share
        done = slice(n // 2 if is_lazy else None)
        out.values[done] = 2 * source.values[done]
        return {"estimated_ms": costs_ms / 2 if is_lazy else costs_ms}

    return program(twice)


@pytest.mark.parametrize(("costs_ms", "small_bytes"), [(2.0, SMALL_BYTES), (2.0, 0), (0.02, SMALL_BYTES)])
@pytest.mark.parametrize("share", [0.3, 0.4, 0.6, 0.8])
def test_work_left_out_at_random_gains_nothing(
    clocked: ClockedBench,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    costs_ms: float,
    small_bytes: int,
) -> None:
    """With all of its work done it would reach 1/1.2 of the threshold, without half of it twice as much."""
    threshold = 1.2 * 3 / costs_ms
    monkeypatch.setattr("pytest_gpulab.grading.checked_runs.SMALL_BYTES", small_bytes)
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    verdicts = []
    for seed in range(12):
        lazy = leaving_out(share, costs_ms, np.random.default_rng(seed))
        grader = clocked.grader(lazy, seed, speed=(SpeedTier(threshold, 40, SIZE, required=True),))
        (check,) = (check for check in checks_of(grader._loaded.exercise) if check.kind == "speedup")
        verdicts.append(grader.run(check).verdict)
    assert verdicts == ["failed"] * 12


def sparing(the_first: bool, costs_ms: float) -> Program:
    """Write nothing wherever the contents are based on the first run's, or on others: a few elements tell."""
    first: list[Any] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        if n == SIZE:
            is_known = bool(first)
            first.extend([] if is_known else [source.values[37::61].copy()])
            if is_known and (np.mean(source.values[37::61] == first[0]) > 0.5) == the_first:
                return {"estimated_ms": costs_ms / 20}
        out.values[...] = 2 * source.values
        return {"estimated_ms": costs_ms}

    return program(twice)


@pytest.mark.parametrize("is_mixable", [True, False])
@pytest.mark.parametrize(("costs_ms", "small_bytes"), [(2.0, SMALL_BYTES), (2.0, 0), (0.02, SMALL_BYTES)])
@pytest.mark.parametrize("the_first", [True, False])
def test_work_that_one_set_of_contents_is_spared_is_seen_whichever_it_is(
    clocked: ClockedBench,
    monkeypatch: pytest.MonkeyPatch,
    the_first: bool,
    costs_ms: float,
    small_bytes: int,
    is_mixable: bool,
) -> None:
    """What all runs on a set have in common can be recognised; half of a submission's runs are on each."""
    monkeypatch.setattr("pytest_gpulab.grading.checked_runs.SMALL_BYTES", small_bytes)
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    tiers = (SpeedTier(1.2 * 3 / costs_ms, 40, SIZE, required=True),)
    found = []
    for seed in range(8):
        grader = clocked.grader(sparing(the_first, costs_ms), seed, speed=tiers, mixable=is_mixable)
        (check,) = (check for check in checks_of(grader._loaded.exercise) if check.kind == "speedup")
        found.append([finding.code for finding in grader.run(check).findings])
    assert found == [["not-written"]] * 8


@pytest.mark.parametrize("costs_ms", [1.0, 0.02])
def test_an_input_that_is_overwritten_at_the_timed_size_only_is_seen(clocked: ClockedBench, costs_ms: float) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[...] = 2 * source.values
        if n == SIZE:
            source.values[7:10] = -1
        return {"estimated_ms": costs_ms}

    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    (finding,) = tier(clocked, program(twice)).findings
    assert finding.code == "input-changed"
    assert finding.what == (
        "At the timed size 2^10: in a timed run, `in`: 3 elements of this input are overwritten; it must stay as it is."
    )


def test_an_input_may_be_overwritten_where_the_plan_says_so(clocked: ClockedBench) -> None:
    def in_place(problem: Problem) -> Plan:
        source, out = plan(problem).buffers
        return replace(plan(problem), buffers=(replace(source, may_change=True), out))

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[...] = 2 * source.values
        source.values[...] = 0
        return {"estimated_ms": 1.0}

    assert tier(clocked, program(twice), plan=in_place).verdict == "passed"


def test_of_large_runs_the_fastest_of_those_that_were_chosen_is_checked(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.checked_runs.SMALL_BYTES", 0)
    costs_ms = iter(np.random.default_rng(1).permutation(np.linspace(1.0, 1.01, 100)))
    added: list[float] = []
    add = CheckedRuns.add

    def spying(runs: CheckedRuns, elapsed_ms: float, *args: Any) -> bool:
        added.append(elapsed_ms)
        return add(runs, elapsed_ms, *args)

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[...] = 2 * source.values
        return {"estimated_ms": next(costs_ms) if n == SIZE else 1.0}

    results: list[Any] = []
    run = Race.run
    monkeypatch.setattr(Race, "run", lambda race, *args: results.append(run(race, *args)) or results[0])
    monkeypatch.setattr(CheckedRuns, "add", spying)
    clocked.watch.noise = lambda sample: 1.0  # type: ignore[method-assign]
    assert tier(clocked, program(twice)).verdict == "passed"
    assert len(added) == CANDIDATES + SETS
    assert [checked.elapsed_ms for checked in results[0].checked] == [min(added)]


def test_inputs_that_make_sense_as_a_whole_only_are_not_mixed(clocked: ClockedBench) -> None:
    met: set[bytes] = set()

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        met.update([source.values.tobytes()] if n == SIZE else [])
        return kernel(1.0)(options, source, out, n)

    assert tier(clocked, program(twice), mixable=False).verdict == "passed"
    assert len(met) == 2
    assert tier(clocked, replaying(1.0), mixable=False).findings[0].code == "wrong-result"


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


def test_points_for_what_is_inconclusive_are_not_given_to_wrong_results_or_impossible_times(
    clocked: ClockedBench,
) -> None:
    clocked.programs["naive"] = right(1.5)  # as the threshold asks
    assert tier(clocked, right(1.0)).verdict == "inconclusive"
    wrong = tier(clocked, cheating_after(2))
    assert (wrong.verdict, wrong.points, wrong.findings[0].code) == ("failed", 0, "not-written")
    clocked.watch.peak_bandwidth_gb_s = 0.001
    impossible = tier(clocked, right(1.0))
    assert (impossible.verdict, impossible.points, impossible.findings[0].code) == ("failed", 0, "impossible-time")

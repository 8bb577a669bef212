"""Grading on a device with a clock: measurements, verdicts, and the checks of timed runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from clocked_device import SIZE, TIERS, ClockedBench, tier
from doubling import EXERCISE, kernel, plan, program, right
from fake_device import Program

from pytest_gpulab.devices.hardware.occupancy import BlockNeeds, occupancy_by_rules
from pytest_gpulab.devices.protocol import KernelResources
from pytest_gpulab.exercise import Buffer, Case, Launch, Plan, Problem, Variant
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.speed import contents
from pytest_gpulab.grading.speed.contents import Inputs
from pytest_gpulab.grading.speed.statistics import FIRST_ROUNDS
from pytest_gpulab.grading.speed.targets import BenchmarkTarget

pytestmark = pytest.mark.unit


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
    patterns = ("random", "large", "other")
    result = clocked.result("correct[n=70]", right(1.0), cases=(Case("n=70", 70, 50, patterns),))
    n_decoys = 1
    assert result.verdict == "passed" and len(clocked.device.launches) == n_decoys + 2 * len(patterns)
    assert clocked.device.stays == 1


def test_a_benchmark_locks_the_gpu_once_per_side_and_once_to_compare(clocked: ClockedBench) -> None:
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


def test_the_peak_bandwidth_is_in_the_measurement(clocked: ClockedBench) -> None:
    measured = tier(clocked, right(1.0)).measurement
    assert measured is not None and measured.peak_bandwidth_gb_s == 1e9


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


def test_tiers_of_the_same_size_share_one_benchmark_and_keep_no_memory(clocked: ClockedBench) -> None:
    clocked.results(right(1.0), speed=TIERS)
    assert len(clocked.device.held_at_start) == 1
    assert clocked.device.held == []


def test_processes_make_the_sets_of_contents_in_another_order_and_use_them_alike(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[str]] = []
    used: list[list[bytes]] = []

    def noting_made(*told: Any) -> Inputs:
        made[-1].append(told[-1][-1])
        return contents.timed_inputs(*told)

    def noting_used(side: BenchmarkTarget, *told: Any) -> None:
        used[-1].append(b"".join(inputs["in"].tobytes() for inputs in told[3]))
        made_ready(side, *told)

    made_ready = BenchmarkTarget.__init__
    monkeypatch.setattr("pytest_gpulab.grading.speed.measured.timed_inputs", noting_made)
    monkeypatch.setattr(BenchmarkTarget, "__init__", noting_used)
    for number in (4, 5):
        monkeypatch.setattr("os.getpid", lambda number=number: number)
        made.append([]), used.append([])
        assert tier(clocked, right(1.0)).verdict == "passed"
    assert made == [["0", "1"], ["1", "0"]]
    assert used[0] == used[1] and used[0]


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
    assert "ms is not possible: a correct kernel moves 0.008192 MB. " in finding.what
    assert "in the cache, that takes 8.192 ms at the memory's 0 GB/s." in finding.what
    clocked.watch.l2_bytes = 8 * SIZE  # in which all that is written may stay, but nothing is that must be read
    (finding,) = tier(clocked, right(1.0)).findings
    assert "Without what stays in the cache, that takes 4.096 ms" in finding.what
    clocked.watch.l2_bytes = 2 * SIZE
    (finding,) = tier(clocked, right(1.0)).findings
    assert "Without what stays in the cache, that takes 6.144 ms" in finding.what
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
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.BUDGET_S", 0.0)
    results = clocked.grader(cheating_after(2), seed, speed=TIERS).grade().checks
    found = [result.findings[0].code for result in results if result.kind == "speedup" and result.points == 0]
    assert found[0] == "not-written"


def test_without_a_known_peak_bandwidth_no_time_is_impossible(clocked: ClockedBench) -> None:
    clocked.watch.peak_bandwidth_gb_s = 0.0
    result = tier(clocked, right(1e-5))
    assert (result.verdict, result.measurement.peak_bandwidth_gb_s) == ("passed", None)


def test_work_left_out_is_named_before_the_impossible_time_that_it_takes(clocked: ClockedBench) -> None:
    clocked.watch.peak_bandwidth_gb_s = 0.001
    findings = tier(clocked, cheating_after(2)).findings
    assert [finding.code for finding in findings] == ["not-written", "impossible-time"]


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

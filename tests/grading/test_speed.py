"""Speed checks: what is estimated, what must be right for it, and what is not gradable."""

import math
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from doubling import EXERCISE, Bench, codes, faulting, kernel, plan, program, right
from fake_device import Program

from pytest_gpulab.devices.hardware.occupancy import BlockNeeds, occupancy_by_rules
from pytest_gpulab.devices.protocol import KernelFault, TooMuchWork
from pytest_gpulab.exercise import Case, Plan, Problem, SpeedTier, Variant
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.correctness import checked_launches
from pytest_gpulab.grading.correctness.blame import Blame
from pytest_gpulab.grading.grade import Finding

pytestmark = pytest.mark.unit


def test_reaching_the_threshold_passes_with_the_measurement(bench: Bench) -> None:
    results = bench.results(right(costs_ms=1.0, occupancy=0.5, bottleneck="issue slots"))
    result = results["speedup[1.5x]"]
    assert (result.verdict, result.points) == ("passed", 20)
    measured = result.measurement
    assert measured is not None
    assert (measured.size, measured.elapsed_ms, measured.baseline_ms, measured.speedup) == ("2^10", 1.0, 3.0, 3.0)
    assert (measured.threshold, measured.estimated, measured.baseline) == (1.5, True, "naive.cu")
    assert (measured.occupancy, measured.registers, measured.bottleneck) == (0.5, 16, "issue slots")
    assert measured.bandwidth_gb_s == pytest.approx(8 * 1024 / 1e-3 / 1e9)


def test_a_required_tier_fails_and_a_bonus_is_missed(bench: Bench) -> None:
    results = bench.results(right(costs_ms=2.5, bottleneck="memory sectors"))
    assert results["speedup[1.5x]"].verdict == "failed" and results["speedup[3x]"].verdict == "missed"
    assert results["speedup[1.5x]"].points == results["speedup[3x]"].points == 0
    (finding,) = results["speedup[1.5x]"].findings
    assert finding.code == "too-slow"
    assert finding.what == "An estimated speedup of ~1.20x over naive.cu."
    assert finding.evidence == ("~2.5 ms against ~3 ms at size 2^10",)
    assert finding.hint == "Limited by memory sectors."
    assert results["speedup[3x]"].findings == (finding,), "the threshold stands in the check's name alone"
    assert bench.results(right(costs_ms=9))["speedup[3x]"].findings[0].hint == ""


def test_without_minimal_bytes_there_is_no_bandwidth(bench: Bench) -> None:
    measured = bench.result("speedup[3x]", right(), min_bytes=None).measurement
    assert measured is not None and measured.bandwidth_gb_s is None


def test_each_different_launch_reports_its_occupancy_once(bench: Bench) -> None:
    def thrice(problem: Problem) -> Plan:
        return Plan(plan(problem).buffers, plan(problem).launches * 3)

    def launched(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        return {**kernel(1.0)(options, source, out, n), "kernel_occupancy": next(found)}

    wide, narrow = (occupancy_by_rules("sm_90", "double", BlockNeeds(threads, 16, 0)) for threads in (256, 32))
    found = cycle([narrow, wide, wide])
    measured = bench.result("speedup[1.5x]", program(launched), plan=thrice).measurement
    assert measured is not None
    assert set(measured.kernels) == {wide, narrow} and len(measured.kernels) == 2


def test_all_launches_are_summed_and_the_slowest_is_described(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        costs_ms.append(costs_ms.pop(0))
        return {**kernel(costs_ms[-1])(options, source, out, n), "bottleneck": f"costs {costs_ms[-1]:g}"}

    def thrice(problem: Problem) -> Plan:
        return Plan(plan(problem).buffers, plan(problem).launches * 3)

    costs_ms = [1.0, 5.0, 2.0]
    measured = bench.result("speedup[1.5x]", program(twice), plan=thrice).measurement
    assert measured is not None
    assert (measured.elapsed_ms, measured.bottleneck) == (8.0, "costs 5")
    assert measured.baseline_ms == 9.0


def too_large(kernel: Any, work: float = math.inf) -> Any:
    """A kernel with so much work at 2^20 elements; by default too much for all blocks to run."""

    def launched(options: Any, source: Any, out: Any, n: Any) -> Any:
        if n == 2**20 and options.complete_within is not None and options.complete_within < work:
            raise TooMuchWork("it takes long")
        return kernel(options, source, out, n)

    return launched


LARGE = (SpeedTier(1.5, 40, 2**20),)


def test_all_blocks_of_a_small_launch_run_and_some_are_counted(bench: Bench) -> None:
    assert bench.result("speedup[1.5x]", right()).verdict == "passed"
    options = [options for _, options in bench.device.launches]
    screened, compared, baseline, checked, again = options[-5:]
    assert compared.sample_blocks is None, "a wrong baseline is found before its time counts"
    assert again.sample_blocks is None, "it has variables that may keep something for a second run"
    assert {launch.sample_blocks for launch in (screened, baseline, checked)} == {checked_launches.SAMPLE_BLOCKS}
    assert checked.complete_within == checked_launches.COMPLETE_WORK
    assert screened.complete_within is None and baseline.complete_within is None
    assert not any(launch.check for launch in (screened, baseline, checked))
    assert [launch.watch for launch in options[-5:]] == [False, False, False, True, False]


def test_a_race_check_of_the_timed_size_that_was_cut_short_does_not_pass(bench: Bench) -> None:
    def cut_short(options: Any, *args: Any) -> Any:
        unchecked = ("some accesses",) if options.watch else ()
        return {**kernel(1.0)(options, *args), "unchecked": unchecked}

    result = bench.result("speedup[1.5x]", program(cut_short))
    (finding,) = result.findings
    assert (result.verdict, result.points, finding.code) == ("not gradable", 0, "not-checked")
    assert finding.what == "At size 2^10: the race check ran out of memory: it skipped some accesses."


def test_a_kernel_far_below_the_threshold_runs_only_as_a_sample(bench: Bench) -> None:
    assert bench.result("speedup[1.5x]", right(costs_ms=9.0)).verdict == "failed"
    assert all(options.complete_within is None for _, options in bench.device.launches)


def test_the_sample_depends_on_the_seed_and_the_submission(bench: Bench) -> None:
    def seeds(seed: int, source: str) -> set[int | None]:
        bench.device.launches.clear()
        bench.programs[source] = right()
        bench.grader(source, seed).grade()
        return {options.sample_seed for _, options in bench.device.launches if options.complete_within is not None}

    found = [seeds(1, "one"), seeds(1, "one"), seeds(2, "one"), seeds(1, "other")]
    assert found[0] == found[1] and len({tuple(each) for each in found}) == 3
    assert all(len(each) == 1 and None not in each for each in found)


def test_a_sample_that_hangs_is_replaced_by_a_complete_run(bench: Bench) -> None:
    def waits_for_the_block_before(options: Any, *args: Any) -> Any:
        if options.sample_blocks is not None:
            raise KernelFault("endless-loop", "spins")
        return kernel(1.0)(options, *args)

    result = bench.result("speedup[1.5x]", program(too_large(waits_for_the_block_before)), speed=LARGE)
    assert result.verdict == "passed"
    compared, _again = (options for _, options in bench.device.launches[-2:])
    assert compared.sample_blocks is None and compared.watch


def test_an_unrepresentative_sample_is_replaced_by_a_complete_run(bench: Bench) -> None:
    def uneven(options: Any, *args: Any) -> Any:
        is_whole = options.sample_blocks is None
        return kernel(4.0 if is_whole else 1.0)(options, *args) | {"representative": is_whole}

    result = bench.result("speedup[1.5x]", program(uneven))
    assert result.verdict == "failed"
    assert result.measurement is not None and result.measurement.elapsed_ms == 4.0


def test_a_kernel_that_ends_abnormally_at_the_timed_size_fails(bench: Bench) -> None:
    result = bench.result("speedup[3x]", faulting("out-of-bounds", above=70))
    assert (result.verdict, result.findings[0].code, result.measurement) == ("failed", "out-of-bounds", None)


def test_a_size_with_a_recorded_failure_is_not_run_again(bench: Bench) -> None:
    speeds = (SpeedTier(1.5, 30, 1000, required=True), SpeedTier(2, 5, 1000), SpeedTier(2.5, 5, 2000))
    launched: list[int] = []

    def noting(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        launched.append(int(n))
        out.values[...] = 2 * source.values
        return {"estimated_ms": 1.0}

    grader, found = bench.grader(program(noting), speed=speeds), Finding("endless-loop", "stopped")
    first, second, other = (check for check in checks_of(replace(EXERCISE, speed=speeds)) if check.kind == "speedup")
    grader.record_failure(first, found)
    assert [grader.run(check).findings for check in (first, second)] == [(found,)] * 2
    assert 1000 not in launched
    assert grader.run(other).verdict == "passed" and 2000 in launched


def test_a_fast_kernel_with_a_wrong_result_fails(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[...] = 2 * source.values * (n < 10)
        return {"estimated_ms": 0.001}

    result = bench.result("speedup[1.5x]", program(twice))
    assert (result.verdict, result.measurement) == ("failed", None)
    (finding,) = result.findings
    assert finding.code == "wrong-result"
    assert finding.what.startswith("Not graded, because `correct[n=70]` did not pass: `out`: all 70")
    assert all(options.sample_blocks is None for _, options in bench.device.launches)


def skipping_work_at(n_timed: int, costs_ms: float) -> Program:
    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        if n != n_timed:
            out.values[...] = 2 * source.values
        return {"estimated_ms": costs_ms}

    return program(twice)


def test_a_kernel_that_skips_work_at_the_timed_size_fails(bench: Bench) -> None:
    results = bench.results(skipping_work_at(2**10, costs_ms=1.0))
    assert codes(results) == {"speedup[1.5x]": "not-written", "speedup[3x]": "not-written"}
    assert {results[name].verdict for name in codes(results)} == {"failed"}
    (finding,) = results["speedup[1.5x]"].findings
    assert finding.what == "At the timed size 2^10: `out`: all 1024 elements are never written."
    assert results["speedup[1.5x]"].measurement is not None
    n_whole = sum(options.complete_within is not None for _, options in bench.device.launches)
    assert n_whole == 1 + 1  # for both tiers; the baseline's shows that the exercise is not at fault


@pytest.mark.parametrize(("share", "said"), [(1.0, None), (0.5, "touch 4.19 MB of memory"), (None, None)])
def test_a_correct_result_without_its_memory_traffic_fails(bench: Bench, share: float | None, said: str | None) -> None:
    n = 2**20
    counters = {} if share is None else {"gpulab__touched_sectors.sum": share * 8 * n / 32}
    tiers = (SpeedTier(1.5, 40, n),)
    result = bench.result("speedup[1.5x]", right(counters=counters), speed=tiers)
    if said is None:
        assert result.verdict == "passed"
    else:
        (finding,) = result.findings
        assert (result.verdict, finding.code) == ("failed", "wrong-result")
        assert finding.what.startswith("At the timed size 2^20: the kernels touch") and said in finding.what
        assert finding.what.endswith("a correct kernel needs at least 8.39 MB.")
        assert finding.hint
    unknown = bench.result("speedup[1.5x]", right(counters=counters), speed=tiers, min_bytes=None)
    assert unknown.verdict == "passed"


def sampled(write: Any, share: float = 1.0, work: float = math.inf) -> Program:
    """Write at the timed size only what a sample does that is so large a share of the blocks, with so much work."""

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        if n < 2**20:
            out.values[...] = 2 * source.values
        else:
            write(source.values, out.values)
        return {"estimated_ms": 1.0, "counted_share": share, "work": work}

    return program(too_large(twice))


@pytest.mark.parametrize("work", [2, 4])
@pytest.mark.parametrize(("is_missing", "is_added"), [(True, False), (False, True), (False, False)])
def test_outputs_that_a_sample_does_not_show_are_compared_if_that_takes_not_too_long(
    bench: Bench, is_missing: bool, is_added: bool, work: int
) -> None:
    """A kernel can have more work than the limit only to be sampled: then it may leave out what a sample hides."""

    def launched(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        written = n - n // 8 if is_missing and n == 2**20 else n
        out.values[:written] = 2 * source.values[:written]
        return {"estimated_ms": 1.0, "counted_share": 1.0}

    made = program(too_large(launched, work * checked_launches.COMPLETE_WORK))
    result = bench.result("speedup[1.5x]", made, speed=LARGE, plan=with_zeroed_output if is_added else plan)
    assert result.verdict == ("failed" if is_missing else "passed")
    limits = {options.complete_within for _, options in bench.device.launches if options.complete_within is not None}
    assert (checked_launches.LONG_WORK in limits) == (is_missing or is_added)


def zeros(source: Any, out: Any) -> None:
    out[:64] = 0


def half_of_its_share(source: Any, out: Any) -> None:
    out[: 2**15] = 2 * source[: 2**15]


def with_zeroed_output(problem: Problem) -> Plan:
    source, out = plan(problem).buffers
    return Plan((source, replace(out, zeroed=True)), plan(problem).launches)


def launched_twice(problem: Problem) -> Plan:
    return Plan(plan(problem).buffers, plan(problem).launches * 2)


@pytest.mark.parametrize(
    ("make_plan", "verdict"), [(plan, "failed"), (with_zeroed_output, "passed"), (launched_twice, "passed")]
)
def test_final_elements_written_by_a_sample_must_be_correct(bench: Bench, make_plan: Any, verdict: str) -> None:
    result = bench.result("speedup[1.5x]", sampled(zeros), speed=LARGE, plan=make_plan)
    assert result.verdict == verdict
    if verdict == "failed":
        assert result.findings[0].what == "At the timed size 2^20: `out`: 64 of 1048576 elements are wrong."


def test_the_baseline_of_wrong_submissions_runs_once_at_the_timed_size(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Any] = []
    compared = Blame._wrong_at
    monkeypatch.setattr(Blame, "_wrong_at", lambda self, *words: runs.append(words) or compared(self, *words))
    for _ in range(2):
        assert bench.result("speedup[1.5x]", sampled(zeros), speed=LARGE).verdict == "failed"
    assert len(runs) == 1
    bench.result("speedup[1.5x]", sampled(zeros), speed=LARGE, reference=lambda *words: EXERCISE.reference(*words))
    assert len(runs) == 2


@pytest.mark.parametrize(("share", "verdict"), [(1 / 16, "failed"), (1 / 32, "passed"), (1 / 25, "passed")])
def test_a_sample_must_write_its_share_of_an_output(bench: Bench, share: float, verdict: str) -> None:
    result = bench.result("speedup[1.5x]", sampled(half_of_its_share, share), speed=LARGE)
    assert result.verdict == verdict
    if verdict == "failed":
        assert [(found.code, found.what) for found in result.findings] == [
            (
                "not-written",
                "At the timed size 2^20: `out`: a sample of the blocks wrote 32768 elements; it should write 65536.",
            )
        ]


def all_elements(source: Any, out: Any) -> None:
    out[...] = 2 * source


@pytest.mark.parametrize(
    ("make_plan", "work", "verdict"),
    [(plan, 0.1, "failed"), (plan, 0.2, "passed"), (launched_twice, 0.7, "failed"), (launched_twice, 0.8, "passed")],
)
def test_a_sample_with_less_work_than_all_blocks_earns_nothing(
    bench: Bench, make_plan: Any, work: float, verdict: str
) -> None:
    """Blocks may count each other, and leave out work if they are few."""
    made = sampled(all_elements, work=work * checked_launches.LONG_WORK)
    result = bench.result("speedup[1.5x]", made, speed=LARGE, plan=make_plan)
    assert result.verdict == verdict
    if verdict == "failed":
        assert [(found.code, found.what) for found in result.findings] == [
            (
                "not-compared",
                "At the timed size 2^20: all blocks together have more than 240,000,000 warp instructions, but a "
                "sample of the blocks has fewer. The outputs cannot be compared, so this run earns nothing.",
            )
        ]


@pytest.mark.parametrize(("costs_ms", "verdict"), [(0.001, "failed"), (0.002, "passed")])
def test_an_estimate_below_the_time_of_the_memory_traffic_fails(bench: Bench, costs_ms: float, verdict: str) -> None:
    bench.device.info = bench.device.info._replace(peak_bandwidth_gb_s=5000.0)
    result = bench.result("speedup[1.5x]", right(costs_ms=costs_ms), speed=LARGE)
    assert result.verdict == verdict
    if verdict == "failed":
        assert [(found.code, found.what) for found in result.findings] == [
            (
                "impossible-time",
                "At the timed size 2^20: an estimate of 0.001 ms is not possible: a correct kernel moves 8.389 MB, "
                "which takes 0.001678 ms at the memory's 5000 GB/s.",
            )
        ]


def test_a_sample_that_overwrites_an_input_fails(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        done = kernel(1.0)(options, source, out, n)
        if n == 2**20:
            source.values[5:7] += 1
        return done

    result = bench.result("speedup[1.5x]", program(twice), speed=(SpeedTier(1.5, 40, 2**20),))
    assert [finding.what for finding in result.findings] == [
        "At the timed size 2^20: `in`: 2 elements were overwritten; an input must not change."
    ]


def test_outputs_of_a_too_slow_kernel_are_not_checked_at_the_timed_size(bench: Bench) -> None:
    results = bench.results(skipping_work_at(2**10, costs_ms=9.0))
    assert set(codes(results).values()) == {"too-slow"}


def test_a_fault_in_the_complete_timed_grid_fails(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        if n == 2**10 and options.complete_within is not None:
            raise KernelFault("trap", "__trap() was called")
        return kernel(1.0)(options, source, out, n)

    result = bench.result("speedup[1.5x]", program(twice))
    assert (result.verdict, result.findings[0].code) == ("failed", "trap")


def test_a_speedup_depends_only_on_the_cases_of_its_variant(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        out.values[...] = 2 * source.values * (n > 10)
        return {"estimated_ms": 1.0}

    floats = Variant("float", {"T": "float"})
    cases = (Case("n=4", 4, 25), Case("n=70", 70, 25, variant=floats))
    tiers = (SpeedTier(2, 20, 2**10, variant=floats), SpeedTier(3, 20, 2**10, variant=Variant("other")))
    results = bench.results(program(twice), cases=cases, speed=tiers)
    assert codes(results) == {"correct[n=4]": "wrong-result", "speedup[3x other]": "wrong-result"}

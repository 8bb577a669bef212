"""The findings of `correct[...]` for kernels that run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubling import EXERCISE, Bench, codes, kernel, program, right
from fake_device import Program

from pytest_gpulab.devices.protocol import KernelFault, KernelResources
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.findings import UNSET
from pytest_gpulab.grading.plans.replay import AGAIN, FIRST

pytestmark = pytest.mark.unit

CORRECT = ("correct[n=4]", "correct[n=70]")


def only_correct(bench: Bench, submission: Program, **changes: Any) -> dict[str, Any]:
    results = bench.results(submission, **changes)
    return {name: results[name] for name in results if name.startswith("correct")}


def is_first(options: Any) -> bool:
    return bool(options.fill == FIRST.options.fill)


def test_a_right_kernel_passes_and_is_launched_no_more_than_needed(bench: Bench) -> None:
    results = bench.results(right())
    assert {result.verdict for result in results.values()} == {"passed"}
    assert sum(result.points for result in results.values()) == 100
    assert codes(results) == {}
    n_decoys, n_patterns = 2, 1 + 2
    # both tiers have one size: the submission costed and watched for races, the baseline compared and costed, the
    # submission checked, and on other inputs
    n_speed = 5
    assert len(bench.device.launches) == n_decoys + 2 * n_patterns + n_speed
    assert bench.device.held == []


def test_a_wrong_result_names_the_input_pattern_and_no_other_is_tried(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        large = source.values.min() > 5
        out.values[...] = source.values * (3 if large else 2)

    results = only_correct(bench, program(twice))
    assert [results[name].verdict for name in CORRECT] == ["passed", "failed"]
    (finding,) = results["correct[n=70]"].findings
    assert (finding.code, finding.what) == ("wrong-result", "`out`: all 70 elements are wrong.")
    assert finding.evidence[-1] == "input pattern: large"
    assert not finding.by_luck
    n_decoys, n_right, n_wrong = 2, 2 + 2, 1 + 1  # once more, to see whether it is wrong by luck
    n_baseline = 1 + 2  # with its decoy, to see whether the exercise is at fault
    assert len(bench.device.launches) == n_decoys + n_right + n_wrong + n_baseline


@pytest.mark.parametrize(("otherwise", "seen"), [(2, "correct"), (9, "other wrong values")])
def test_a_wrong_result_that_varies_between_runs_is_marked_as_luck(bench: Bench, otherwise: int, seen: str) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        out.values[...] = source.values * (3 if is_first(options) else otherwise)

    (finding,) = only_correct(bench, program(twice))["correct[n=4]"].findings
    assert finding.code == "wrong-result" and finding.by_luck
    assert finding.evidence[-2:] == (
        f"the result depends on luck: {seen} when the last warp runs first and memory holds other garbage",
        "input pattern: random",
    )
    assert finding.hint == UNSET


@pytest.mark.parametrize("error", [0.0, 1e-6])
def test_a_wrong_result_that_varies_within_the_tolerance_is_not_luck(bench: Bench, error: float) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        out.values[...] = source.values * 3 + (0.0 if is_first(options) else error)

    (finding,) = only_correct(bench, program(twice))["correct[n=4]"].findings
    assert finding.code == "wrong-result" and not finding.by_luck


def test_a_fault_in_a_repetition_does_not_replace_the_first_finding(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        if not is_first(options):
            raise KernelFault("out-of-bounds", "invalid read")
        out.values[...] = 0

    (finding,) = only_correct(bench, program(twice))["correct[n=4]"].findings
    assert finding.code == "wrong-result" and not finding.by_luck


def test_unwritten_elements_of_an_output_are_counted_and_located(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        out.values[:64] = 2 * source.values[:64]

    results = only_correct(bench, program(twice))
    assert codes(results) == {"correct[n=70]": "not-written"}
    (finding,) = results["correct[n=70]"].findings
    assert (
        finding.what == "`out`: 6 of 70 elements are never written: only the last block (block 2, elements 64 to 69)."
    )


def test_an_input_that_is_overwritten_is_named_before_the_result(bench: Bench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        source.values[1:] = 0
        out.values[...] = 2 * source.values

    findings = only_correct(bench, program(twice))["correct[n=4]"].findings
    assert [finding.code for finding in findings] == ["input-changed", "wrong-result"]
    assert findings[0].what == "`in`: 3 elements were overwritten; an input must not change."
    assert findings[0].hint


@pytest.mark.parametrize("schedule", ["warps-reversed", "warps"])
def test_a_result_that_depends_on_the_order_of_warps_is_wrong(bench: Bench, schedule: str) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        out.values[...] = 2 * source.values if options.schedule != schedule else 0
        return {"resources": KernelResources(shared_bytes=128)}

    (finding,) = only_correct(bench, program(twice))["correct[n=4]"].findings
    assert finding.code == "not-repeatable"
    warp = {"warps-reversed": "last", "warps": "first"}[schedule]
    assert (
        finding.what == f"The result depends on luck: correct in the first run, wrong when the {warp} warp runs first."
    )
    assert finding.evidence[0] == "`out`: all 4 elements are wrong."
    assert finding.hint == UNSET


@pytest.mark.parametrize(
    ("shared_bytes", "may_wait", "orders"),
    [
        (0, False, ["warps"]),
        (128, False, ["warps-reversed", "warps"]),
        (None, False, ["warps-reversed", "warps"]),
        (0, True, ["blocks-reversed", "warps"]),
        (128, True, ["warps-reversed", "blocks-reversed", "warps"]),
    ],
)
def test_orders_are_tried_on_one_pattern_as_far_as_warps_may_share_memory_and_blocks_may_wait(
    bench: Bench, shared_bytes: int | None, may_wait: bool, orders: list[str]
) -> None:
    only_correct(bench, right(resources=KernelResources(shared_bytes=shared_bytes), may_wait=may_wait))
    schedules = [options.schedule for _, options in bench.device.launches]
    one_case = ["lockstep", "lockstep", *orders]  # the decoy first
    assert schedules[: 2 * len(one_case) + 2] == [*one_case, *one_case, "lockstep", "lockstep"]


def test_no_other_order_of_warps_is_tried_if_none_can_matter(bench: Bench) -> None:
    only_correct(bench, right(order_free=True))
    assert {options.schedule for _, options in bench.device.launches} == {"lockstep"}
    assert [options.fill for _, options in bench.device.launches[:3]] == [0xFF, 0xFF, 0xA5], "decoy, first, again"


@pytest.mark.parametrize("has_state", [False, True])
def test_one_run_per_pattern_if_neither_order_nor_garbage_can_matter(bench: Bench, has_state: bool) -> None:
    only_correct(bench, program(kernel(order_free=True, garbage_free=True), has_state=has_state))
    fills = [options.fill for _, options in bench.device.launches]
    assert fills.count(AGAIN.options.fill) == (3 if has_state else 0), "variables may keep something of the first run"


@pytest.mark.parametrize("has_state", [False, True])
def test_a_wrong_result_is_run_once_if_neither_order_nor_garbage_can_matter(bench: Bench, has_state: bool) -> None:
    def wrong(options: Any, source: Any, out: Any, n: Any) -> dict[str, bool]:
        out.values[...] = 3 * source.values
        return {"order_free": True, "garbage_free": True}

    only_correct(bench, program(wrong, has_state=has_state))
    schedules = [options.schedule for _, options in bench.device.launches]
    assert ("warps-reversed" in schedules) is has_state


def test_no_order_of_warps_is_requested_from_a_real_gpu(tmp_path: Path) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        out.values[...] = 2 * source.values if is_first(options) else 0

    bench = Bench(tmp_path, estimates=False)
    (finding,) = only_correct(bench, program(twice))["correct[n=4]"].findings
    assert finding.what == "The result depends on luck: correct in the first run, wrong in the second."
    assert "__syncthreads()" in finding.hint  # hazards are not seen there
    assert {options.schedule for _, options in bench.device.launches} == {"lockstep"}


def differing_in_the_last_bit(options: Any, source: Any, out: Any, n: Any) -> None:
    out.values[...] = 2 * source.values
    if not is_first(options):
        out.values[0] = np.nextafter(out.values[0], np.float32(9))


def test_two_correct_results_that_differ_in_a_bit_are_not_repeatable(bench: Bench) -> None:
    (finding,) = only_correct(bench, program(differing_in_the_last_bit))["correct[n=4]"].findings
    assert finding.code == "not-repeatable"
    assert finding.what == "Two runs on the same input gave different results, each within the tolerance."
    assert finding.evidence == ("they differ in `out`", "input pattern: random")


def test_an_exercise_may_allow_results_that_are_not_repeatable(bench: Bench) -> None:
    assert codes(only_correct(bench, program(differing_in_the_last_bit), deterministic=False)) == {}


def test_a_result_kept_from_an_earlier_launch_is_wrong_in_every_case_in_any_order(bench: Bench) -> None:
    kept: list[Any] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        if not kept:
            kept.append(2 * source.values)
        out.values[...] = np.resize(kept[0], int(n))

    submission = program(twice)
    for name in CORRECT:
        kept.clear()
        assert bench.result(name, submission).findings[0].code == "wrong-result"


def test_a_result_kept_for_inputs_that_begin_and_end_alike_is_wrong(bench: Bench) -> None:
    kept: dict[Any, Any] = {}

    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        out.values[...] = kept.setdefault((n, source.values[0], source.values[-1]), 2 * source.values)

    results = only_correct(bench, program(twice))
    assert codes(results) == {"correct[n=4]": "wrong-result", "correct[n=70]": "wrong-result"}
    assert results["correct[n=70]"].findings[0].what == "`out`: 4 of 70 elements are wrong."


def test_a_kernel_that_skips_work_for_known_addresses_is_wrong(bench: Bench) -> None:
    seen: list[Any] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> None:
        if not any(before is source for before in seen):
            out.values[...] = 2 * source.values
        seen.append(source)

    assert set(codes(only_correct(bench, program(twice))).values()) == {"not-written"}


def test_a_fault_of_the_decoy_alone_is_ignored_on_the_simulated_gpu(bench: Bench) -> None:
    calls: list[Any] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        calls.append(n)
        if len(calls) == 1:
            raise KernelFault("out-of-bounds", "invalid read")
        return kernel()(options, source, out, n)

    assert codes(only_correct(bench, program(twice))) == {}


def test_a_module_without_state_gets_no_decoy(bench: Bench) -> None:
    only_correct(bench, program(kernel(), has_state=False))
    first, second, *_ = (options for _, options in bench.device.launches)
    assert first.check and second.schedule == "warps", "the first run comes first, and orders are tried as ever"


def seen_inputs(bench: Bench, wanted: str, seed: int) -> list[bytes]:
    seen: list[bytes] = []

    def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
        seen.append(source.values.tobytes())
        return kernel()(options, source, out, n)  # type: ignore[no-any-return]

    grader = bench.grader(program(twice), seed=seed)
    for check in checks_of(EXERCISE):
        if wanted in check.name:
            grader.run(check)
    return seen


def test_inputs_depend_only_on_the_seed_and_the_case(bench: Bench) -> None:
    everything, alone = seen_inputs(bench, "", 1), seen_inputs(bench, "correct[n=70]", 1)
    assert alone == everything[3:8]  # the decoy, then two patterns twice
    assert everything[0] != everything[1] == everything[2]
    assert everything[3] != everything[4] == everything[5] != everything[6] == everything[7]
    assert seen_inputs(bench, "", 1) == everything
    assert not set(seen_inputs(bench, "", 2)) & set(everything)

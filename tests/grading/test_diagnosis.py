"""The diagnosis of wrong kernels on the simulated GPU: the pattern in the results and the usual cause."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pytest_gpulab.devices.protocol import Device
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.diagnosis import (
    arithmetic_patterns,
    causes,
    counter_patterns,
    missing_terms,
    scan_patterns,
    value_patterns,
    wrong_output,
)
from pytest_gpulab.grading.findings import hint_of
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.time_limits import CaseLimits

ROOT = Path(__file__).resolve().parents[2]
SEED = 20


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    from pytest_gpulab.devices.simulated import SimulatedDevice

    device = SimulatedDevice()
    yield device
    device.close()


@cache
def catalogue() -> Catalogue:
    return Catalogue(ROOT / "exercises")


def found(gpu: Device, kernel: str, case: str) -> Finding:
    """Return the first finding about a kernel of tests/wrong in one of its exercise's cases."""
    name, _, _ = kernel.partition("/")
    loaded = catalogue().load(name)
    grader = Grader(loaded, ROOT / "tests" / "wrong" / f"{kernel}.cu", gpu, SEED, limits=CaseLimits(smallest="none"))
    grader._has_failed = True  # what this case tells, not what others do
    (check,) = [check for check in checks_of(loaded.exercise) if check.name == f"correct[{case}]"]
    return grader.run(check).findings[0]


PLACES = [
    (
        "scan/last_block_left_alone",
        "n=1023",
        "only the last block (block 3, elements 768 to 1022).",
        scan_patterns.CARRY.format("block"),
    ),
    ("scan/dropped_tail", "n=block-1", "the last 31 elements, from element 224 on.", causes.TAIL),
    (
        "scan/missing_block_sums",
        "n=1024",
        "everything after the first block (elements 256 to 1023; 256 per block).",
        hint_of("uninitialised", "__global__, its `in` is `block_sums` of launch 1"),
    ),
    ("scan/first_lane_keeps_its_own", "n=block", "every 32nd element, from element 0 on.", scan_patterns.SCAN_SHIFT),
    (
        "scan/adds_a_place_that_changes",
        "n=1024",
        "everything from block 2 on (elements 128 to 1023; 64 per block).",
        hint_of("race", "by different blocks"),
    ),
    ("divergence/written_backwards", "two-way n=31", "30 of 31 elements are wrong.", value_patterns.MIRRORED),
    (
        "divergence/reads_first_block",
        "two-way n=2053",
        "everything after the first block (elements 256 to 2052; 256 per block).",
        value_patterns.REPEATED,
    ),
    (
        "divergence/second_item_forgotten",
        "two-way n=2053",
        "never written: the second half of every block (512 elements per block).",
        causes.IN_EACH_BLOCK,
    ),
    (
        "transpose/pitch_of_width",
        "61x97",
        "2160 of 5917 elements are never written: just the rest if rows begin every 61 elements, not every 97.",
        causes.PITCH,
    ),
    (
        "divergence/whole_groups_only",
        "two-way n=33",
        "all 33 elements are never written.",
        wrong_output.NOTHING_WRITTEN,
    ),
    (
        "divergence/whole_groups_only",
        "two-way n=2053",
        "only the last block (block 8, elements 2048 to 2052).",
        causes.LAST_BLOCK,
    ),
    ("scan/guard_off_by_one", "n=33", "is never written: only the last element, element 32.", causes.LAST_ONE),
    ("scan/first_not_written", "n=33", "is never written: only the first element.", causes.FIRST_ONE),
    (
        "constant_memory/guard_one_too_early",
        "97x61, 2 vectors",
        "only the last column, column 96.",
        wrong_output.UNREACHED.format("right", "x"),
    ),
    (
        "stencil/edges_repeated",
        "97x61",
        "the first 5 columns and the last 5 columns, and the first 5 rows and the last 5 rows.",
        causes.BOTH_ENDS,
    ),
]


@pytest.mark.parametrize(
    ("kernel", "case", "where", "hint"), PLACES, ids=[f"{name} {case}" for name, case, *_ in PLACES]
)
def test_a_wrong_kernel_gets_the_error_location(gpu: Device, kernel: str, case: str, where: str, hint: str) -> None:
    finding = found(gpu, kernel, case)
    assert finding.what.endswith(where)
    assert finding.hint == hint


SWAPPED = "rows and columns are swapped: the value at (y, x) is that of (x, y)"

VALUES = [
    (
        "scan/inclusive_declared_exclusive",
        "n=33",
        "each of them but the last holds the expected value of its right neighbour",
        scan_patterns.SCAN_SHIFT,
    ),
    (
        "scan/last_block_left_alone",
        "n=1023",
        "each of them lacks all elements of `in` in the blocks before its own",
        scan_patterns.CARRY.format("block"),
    ),
    (
        "scan/offset_of_own_block",
        "n=1025",
        "each of them is the expected value plus the sum of its own block's part of `in`",
        scan_patterns.OWN_UNIT.format("block"),
    ),
    (
        "scan/missing_block_sums",
        "n=block+1",
        "it is NaN (not a number)",
        hint_of("uninitialised", "__global__, its `in` is `block_sums` of launch 1"),
    ),
    (
        "divergence/reads_first_block",
        "two-way n=1024",
        "each block repeats the expected values of the first block",
        value_patterns.REPEATED,
    ),
    ("divergence/written_backwards", "two-way n=1024", "the order is reversed", value_patterns.MIRRORED),
    (
        "divergence/input_unchanged",
        "two-way n=33",
        "each of them is its own element of `in`, unchanged",
        value_patterns.UNCHANGED,
    ),
    (
        "divergence/half_precision",
        "two-way n=2053",
        "each of them is a number that a 16-bit float can hold",
        value_patterns.FEWER_BITS,
    ),
    ("constant_memory/transposed", "256x256", SWAPPED, value_patterns.TRANSPOSED),
    (
        "histogram/items_of_neighbours",
        "n=1025",
        "the counters are those of `in` if item k of a thread is element 1024 * blockIdx.x + threadIdx.x + k",
        missing_terms.FACTORS,
    ),
    (
        "histogram/one_per_block",
        "n=100003",
        "each counter is the number of blocks with that value in `in`, not of elements",
        counter_patterns.ONCE_PER_BLOCK,
    ),
    (
        "scan/warp_adds_its_own_sum",
        "n=block-1",
        "each of them is the expected value plus the sum of its own warp's part of `in`",
        scan_patterns.OWN_UNIT.format("warp"),
    ),
]


@pytest.mark.parametrize(
    ("kernel", "case", "what", "hint"), VALUES, ids=[f"{name} {case}" for name, case, *_ in VALUES]
)
def test_a_wrong_kernel_gets_the_pattern_of_its_values(
    gpu: Device, kernel: str, case: str, what: str, hint: str
) -> None:
    finding = found(gpu, kernel, case)
    assert what in finding.evidence
    assert finding.hint == hint


OMISSIONS = [
    (
        "reduction/first_warp_only",
        "n=block",
        "it is the result for `in` without the elements of each block after its first warp",
        causes.OTHER_WARPS,
    ),
    (
        "reduction/vector_tail_dropped",
        "n=33",
        "it is the result for `in` without the last element (index 32)",
        causes.LAST_ALONE,
    ),
    (
        "reduction/vector_tail_dropped",
        "n=1023",
        "it is the result for `in` without the last 3 elements (from index 1020 on)",
        causes.TAIL,
    ),
    (
        "reduction/vector_tail_dropped",
        "n=4099",
        "it is the result for `in` without the last block's elements (block 4, 4096 to 4098)",
        missing_terms.LAST_BLOCK_LOST,
    ),
    (
        "reduction/int_temporary",
        "float32-max",
        "it is -2.14748365e+09, which is no element of `in`",
        value_patterns.FRACTION,
    ),
    ("reduction/one_round_too_many", "n=block-1", "it is twice the expected value", arithmetic_patterns.FACTOR),
]


@pytest.mark.parametrize(
    ("kernel", "case", "what", "hint"), OMISSIONS, ids=[f"{name} {case}" for name, case, *_ in OMISSIONS]
)
def test_a_wrong_reduction_gets_its_missing_elements(gpu: Device, kernel: str, case: str, what: str, hint: str) -> None:
    finding = found(gpu, kernel, case)
    assert what in finding.evidence
    assert finding.hint == hint


def test_a_result_that_differs_between_runs_is_reported_with_its_pattern(gpu: Device) -> None:
    finding = found(gpu, "scan/missing_block_sums", "n=1024")
    assert "everything after the first block" in finding.what
    assert any(line.startswith("the result depends on luck: other wrong values") for line in finding.evidence)


@pytest.mark.parametrize(
    "kernel", ["reduction/scaled_partial_sum", "scan/cached_result", "reduction/hard_coded_answer"]
)
def test_wrong_results_without_anything_in_common_have_no_diagnosis(gpu: Device, kernel: str) -> None:
    finding = found(gpu, kernel, "n=1024")
    assert finding.code == "wrong-result"
    assert all(line.startswith(("out[", "input pattern")) for line in finding.evidence)

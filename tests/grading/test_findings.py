"""Findings of learners' mistakes: the sentence, the evidence and the hint for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gpulab.devices.protocol import CompileError, Device
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.diagnosis import arithmetic_patterns, causes, missing_terms, value_patterns
from pytest_gpulab.grading.diagnosis.explain import with_best_explanation
from pytest_gpulab.grading.findings import HINTS, NO_VALUE, finding, of_error
from pytest_gpulab.grading.grade import COMPILER_WARNING, CheckResult
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.time_limits import CaseLimits

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    from pytest_gpulab.devices.simulated import SimulatedDevice

    device = SimulatedDevice()
    yield device
    device.close()


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue(ROOT / "exercises")


def graded(gpu: Device, catalogue: Catalogue, kernel: str, name: str, first: bool = False) -> CheckResult:
    """Return one check's result of a kernel of tests/wrong; `first` if nothing has failed before, as under -x."""
    exercise = catalogue.load(kernel.partition("/")[0])
    grader = Grader(exercise, ROOT / "tests" / "wrong" / f"{kernel}.cu", gpu, 20, limits=CaseLimits(smallest="none"))
    grader._has_failed = not first
    return next(grader.run(check) for check in checks_of(exercise.exercise) if check.name == name)


TAKEN = "chooses the path"

TOLD = [
    (
        "constant_memory/vectors_of_four",
        "correct[300x1]",
        "`out`: all 300 elements are wrong",
        "`vectors` is an array of `float4`, but the grader copies values of type `float2` into it.",
        "`__constant__ float2 vectors[...];`",
    ),
    *(
        (
            "reduction/items_left_to_the_launch",
            f"correct[n={n}]",
            "`out`: the only element is wrong",
            told,
            hint,
        )
        for n, told, hint in [
            ("block+1", "(index 128)", "one element is left over"),  # as where whole vectors are taken
            ("1025", "ITEMS_PER_THREAD is declared as 2, but nothing reads it.", "fewer blocks"),
        ]
    ),
    (
        "matrix_sum/first_term_as_int",
        "correct[300x1]",
        "`out`: all 300 elements are wrong",
        "each of them is the result for `a` without the fractions",
        "an intermediate `int`",
    ),
    (
        "stencil/adds_magnitudes",
        "correct[300x1]",
        "elements are wrong",
        "each of them is the result for `in` without the signs",
        "an absolute value",
    ),
    (
        "reduction/same_element_for_each_item",
        "correct[n=1023]",
        "`out`: the only element is wrong",
        "it is the result if element 256 and so on are 0 to 255 again",
        "the number of the thread's item",
    ),
    (
        "reduction/rows_of_two_warps",
        "correct[n=33]",
        "`out`: the only element is wrong",
        "it is the result for `in` without the last element (index 32)",
        "one element is left over",
    ),
    (
        "scan/offset_of_each_thread",
        "correct[n=block+1]",
        "`S[2]` read, `S` has 2 elements",
        "const float before = S[threadIdx.x];",
        "the thread's number in its block",
    ),
    (
        "scan/down_sweep_begins_too_low",
        "correct[n=block-1]",
        "the last 64 elements, from element 191 on",
        "each of them is the expected value minus the sum of the first 128 elements of `in`",
        "a step that adds the sum of the first elements",
    ),
    (
        "reduction/shared_size_left_to_the_launch",
        "correct[n=33]",
        "`part[0]` written, but the kernel is launched without dynamic shared memory",
        "11 | part[t] = i < n ? in[i] : GPULAB_IDENTITY;",
        "Declare a fixed size",
    ),
    (
        "reduction/writes_where_it_reads",
        "correct[n=block+1]",
        "`out[128]` written, `out` has 2 elements",
        "in launch 1 of 2 (`reduce`): its `out` becomes `in` of launch 2 (`reduce`)",
        "Compare the index",
    ),
    (
        "reduction/array_of_each_thread",
        "safe[uninitialised]",
        "Uninitialized __local__ memory read",
        "first by block 0 thread 0",
        "without `__shared__` is private to each thread",
    ),
    (
        "reduction/atomics_on_garbage",
        "correct[n=33]",
        "",
        "uninitialized __global__ memory read of size 4 bytes: `out[0]` was never written",
        "holds garbage before the launch",
    ),
    (
        "reduction/warp_reads_and_writes_at_once",
        "safe[race]",
        "in one warp, no __syncwarp() between",
        "against the read of 4 bytes by block 0 thread 0",
        "read into a register, call __syncwarp(), then write",
    ),
    (
        "histogram/no_atomics",
        "safe[race]",
        "in one warp, no __syncwarp() between",
        "against the read of 4 bytes",
        "If both update it, use an atomic function such as atomicAdd()",
    ),
    ("reduction/stops_at_two", "correct[n=2]", "the only element is wrong.", "out[0] is", HINTS["wrong-result"]),
    (
        "reduction/stops_at_two",
        "correct[n=33]",
        "",
        "it is the result for `in` without the elements with an odd index",
        causes.ROUND,
    ),
    (
        "reduction/adds_in_double",
        "correct[n=1025]",
        "",
        "intermediate sums exceed the range of int32 and must wrap around",
        missing_terms.WRAPS,
    ),
    (
        "reduction/adds_in_double",
        "correct[n=1025]",
        "",
        "correct with other inputs of this size: random, equal, alternating, needle",
        missing_terms.WRAPS,
    ),
    ("reduction/adds_in_double", "correct[int32-product]", "", "out[0] is 0, expected ", HINTS["wrong-result"]),
    (
        "scan/first_block_reads_before_offsets",
        "correct[n=1023]",
        "`offsets[-1]` read, `offsets` has 8 elements",
        "in launch 3 of 3 (`add_offsets`): its `offsets` is `out` of launch 2 (`scan_block`)",
        "0 - 1 wraps around",
    ),
    (
        "scan/only_the_last_sum_is_written",
        "safe[uninitialised]",
        "`in[0]` was never written",
        "in launch 2 of 3 (`scan_block`): its `in` is `block_sums` of launch 1 (`scan_block`)",
        "The earlier launch leaves this element out",
    ),
    (
        "scan/never_below_zero",
        "correct[n=33]",
        "`sums[-1]` read, `sums` has 128 elements",
        "15 | const float before = t - step >= 0",
        "0 - 1 wraps around",
    ),
    (
        "constant_memory/accumulates_in_garbage",
        "correct[300x1]",
        "",
        "`out[0]` was never written",
        "holds garbage before the launch",
    ),
    (
        "constant_memory/sum_without_a_start",
        "correct[300x1]",
        "all 300 elements are wrong.",
        "sum_without_a_start.cu:18: `sum` may be read before it has a value",
        NO_VALUE,
    ),
    (
        "constant_memory/distances_of_swapped_axes",
        "correct[97x61]",
        "all but the diagonal.",
        "rows and columns are swapped: the value at (y, x) is that of (x, y)",
        value_patterns.TRANSPOSED,
    ),
    (
        "constant_memory/distances_of_swapped_axes",
        "correct[300x1]",
        "all but the first column.",
        "each of them differs from the expected value by ",
        arithmetic_patterns.TERM,
    ),
    (
        "constant_memory/rows_from_columns",
        "correct[97x61]",
        "never written: all but the diagonal of every block (8 x 8 elements).",
        "at index (y=0, x=1)",
        causes.SAME_INDEX,
    ),
    (
        "divergence/paths_swapped",
        "correct[two-way n=31]",
        "",
        "16 of them are the result of path 1",
        TAKEN,
    ),
    (
        "divergence/path_by_half_of_the_block",
        "correct[two-way n=31]",
        "",
        "is the result of path 0",
        TAKEN,
    ),
    (
        "divergence/input_as_int",
        "correct[two-way n=1024]",
        "",
        "the result for `in` without the fractions",
        "an intermediate `int`",
    ),
    (
        "divergence/assigns_in_a_condition",
        "correct[two-way n=1024]",
        "never written: all but the first element.",
        "at index 1",
        "all threads write the same element",
    ),
    (
        "constant_memory/one_vector_too_many",
        "correct[61x97, 64 vectors]",
        "Invalid __constant__ read of size 8 bytes: `vectors[64]` read, `vectors` has 64 elements",
        "float dx = x - vectors[k].x;",
        "Compare the index",
    ),
    *(
        (f"constant_memory/{kernel}", check, "elements are wrong", f"each of them is the {told}", cause)
        for kernel, check, told, cause in [
            ("one_vector_too_many", "correct[300x1]", "sum over one vector too many", "the loop over the vectors"),
            ("one_vector_too_many", "correct[97x61]", "sum over one vector too many", "the loop over the vectors"),
            ("all_of_the_array", "correct[whole tiles]", "sum over the whole array", "the loop over the vectors"),
            ("last_vector_dropped", "correct[1x300]", "sum without the last vector", "the loop over the vectors"),
            ("only_the_first_vector", "correct[1x300]", "first vector's term for every", "stays the same"),
            ("only_the_last_term", "correct[97x61]", "term of the last vector alone", "is replaced, in each round"),
            ("vector_of_each_thread", "correct[5x3, 1 vector]", "result of vectors that are (0, 0)", "below `count`"),
            ("roots_of_squares", "correct[256x256]", "sum of distances", "other than the README's"),
            ("int_distance", "correct[1x300]", "sum of the squares of whole numbers", "drops the fraction"),
            (
                "int_difference_along_x",
                "correct[300x1]",
                "sum of the squares of whole numbers along x",
                "drops the fraction",
            ),
            (
                "distances_along_the_axes",
                "correct[300x1]",
                "sum of distances along the axes",
                "other than the README's",
            ),
            ("always_twenty_vectors", "correct[97x61, 2 vectors]", "sum over 20 vectors", "the loop over the vectors"),
            ("always_twenty_vectors", "correct[61x97, 64 vectors]", "sum over 20 vectors", "the loop over the vectors"),
        ]
    ),
    *(
        (f"scan/{kernel}", check, "elements are wrong", f"each of them is the result of a down-sweep {told}", cause)
        for check in ("correct[n=31]", "correct[n=1025]")
        for kernel, told, cause in [
            ("down_sweep_exchanges_halves", "with exchanged halves", "Which of them has elements to its left?"),
            ("down_sweep_drops_the_parent", "without the parent's value", "added or assigned"),
            ("root_not_cleared", "that begins with the block's sum", "What is to the left of the root?"),
        ]
    ),
    (
        "reduction/index_in_sixteen_bits",
        "correct[n=partial-at-every-level]",
        "the only element is wrong",
        "it is the result for an index of 16 bits, which ends at 65535",
        "an index of a smaller type",
    ),
    (
        "reduction/items_far_apart",
        "correct[n=block-1]",
        "the only element is wrong",
        "it is the result if item k of a thread is element 256 * threadIdx.x + k",
        "How far apart are neighbouring threads",
    ),
]


@pytest.mark.parametrize(
    ("kernel", "check", "what", "evidence", "hint"), TOLD, ids=[f"{kernel} {check}" for kernel, check, *_ in TOLD]
)
def test_a_mistake_has_a_code_evidence_and_a_matching_hint(
    gpu: Device, catalogue: Catalogue, kernel: str, check: str, what: str, evidence: str, hint: str
) -> None:
    found = graded(gpu, catalogue, kernel, check).findings[0]
    assert what in found.what
    assert any(evidence in line for line in (found.quote, *found.evidence)), found.evidence
    assert hint in found.hint


def test_warnings_that_follow_from_a_compile_error_are_left_out() -> None:
    error = 'a.cu(10): error: expected a ";"\n      out[i] = 0;\n      ^'
    unused = 'a.cu(8): warning #177-D: variable "x" was declared but never referenced\n      int x = 1;\n          ^'
    other = 'a.cu(9): warning #187-D: use of "=" where "==" may have been intended\n      if (x = 1)\n          ^'
    remark = 'Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"'
    end = '1 error detected in the compilation of "a.cu".'
    evidence = of_error(CompileError("\n\n".join([error, unused, remark, other, end])))[1].evidence
    assert [line for line in evidence if line] == [*error.split("\n"), *other.split("\n"), end]


WARNED = [
    ("divergence/assigns_in_a_condition", "correct[two-way n=33]", "(#187-D)", "if (i = 0)"),
    ("scan/never_below_zero", "correct[n=33]", "(#186-D)", "const float before = t - step >= 0"),
]


@pytest.mark.parametrize(("kernel", "check", "number", "line"), WARNED, ids=[kernel for kernel, *_ in WARNED])
def test_the_compilers_warning_stands_beside_the_finding(
    gpu: Device, catalogue: Catalogue, kernel: str, check: str, number: str, line: str
) -> None:
    warning = graded(gpu, catalogue, kernel, check).findings[1]
    assert warning.code == COMPILER_WARNING and number in warning.what and warning.line.startswith(line)


FIRST = [
    ("reduction/stops_at_two", "correct[n=2]", "without the elements with an odd index", causes.ROUND),
    (
        "divergence/assigns_in_a_condition",
        "correct[two-way n=1]",
        "at index 1, 2",
        "all threads write the same element",
    ),
    ("divergence/paths_swapped", "correct[two-way n=1]", "the result of path 0", TAKEN),
]


@pytest.mark.parametrize(("kernel", "check", "told", "hint"), FIRST, ids=[kernel for kernel, *_ in FIRST])
def test_the_first_failure_shows_the_case_that_tells_most_if_it_tells_nothing_itself(
    gpu: Device, catalogue: Catalogue, kernel: str, check: str, told: str, hint: str
) -> None:
    alone = graded(gpu, catalogue, kernel, check).findings[0]
    assert alone.hint == HINTS["wrong-result"] and alone.bits == 0
    found = graded(gpu, catalogue, kernel, check, first=True).findings[0]
    at = next(i for i, line in enumerate(found.evidence) if " shows more: `out`: " in line)
    assert any(told in line for line in found.evidence[at:]) and hint in found.hint


@pytest.mark.unit
def test_no_further_case_runs_after_one_that_is_certain() -> None:
    first = finding("wrong-result", "wrong")
    weights = {"a": 20, "b": 64, "c": 64}
    others = iter([(name, (replace(first, what=name, bits=bits),)) for name, bits in weights.items()])
    assert with_best_explanation((first,), others)[0].evidence == ("b shows more: b",)
    assert [name for name, _ in others] == ["c"]


def test_a_passing_kernel_gets_no_finding(gpu: Device, catalogue: Catalogue) -> None:
    exercise = catalogue.load("scan")
    grader = Grader(exercise, ROOT / "solutions" / "scan" / "05_warp_shuffle.cu", gpu, seed=20)
    results = [grader.run(check) for check in checks_of(exercise.exercise) if check.kind in ("correct", "safe")]
    assert {result.verdict for result in results} == {"passed"}
    assert not any(result.findings for result in results)

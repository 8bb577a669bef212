"""Patterns in made-up counters of a histogram, and in sums by an index with wrong factors."""

from typing import Any

import numpy as np
import pytest
from wrong_values import F, X, mistake, plan

from pytest_gpulab.exercise import Buffer, Launch, Plan
from pytest_gpulab.grading.diagnosis import counter_patterns, missing_terms, value_patterns
from pytest_gpulab.grading.diagnosis.missing_terms import FACTORS, missing_terms_of
from pytest_gpulab.grading.diagnosis.patterns import Pattern
from pytest_gpulab.grading.diagnosis.wrong_output import wrong_output

pytestmark = pytest.mark.unit

THREADS, ITEMS, BLOCKS, LENGTH = 128, 4, 5, 2400
BYTES = np.random.default_rng(8).integers(0, 256, LENGTH).astype(np.uint8)
INDEX = np.arange(LENGTH)
FOUR = {"BLOCK_SIZE": THREADS, "ITEMS_PER_THREAD": ITEMS}


def counts(values: Any) -> Any:
    return np.bincount(values, minlength=256).astype(np.uint32)


def counters(got: Any, values: Any = BYTES) -> Any:
    buffers = Buffer("in", "input", np.uint8, values.shape), Buffer("out", "output", np.uint32, (256,))
    launch = Launch("histogram", (-(-values.size // (THREADS * ITEMS)),), (THREADS,), ("in", "out"))
    known = {"plan": Plan(buffers, (launch,)), "inputs": {"in": values}, "tunables": FOUR}
    return mistake(got, counts(values), **known)


def pattern(got: Any, values: Any = BYTES) -> Pattern:
    found = counter_patterns.counters_of(counters(got, values))
    return found or Pattern("")


def taken(block: int, thread: int, item: int, items: int = ITEMS, length: int = LENGTH) -> Any:
    index = np.add.outer(np.add.outer(block * np.arange(BLOCKS), thread * np.arange(THREADS)), item * np.arange(items))
    return index[index < length]


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((512, 1, 1), "item k of a thread is element 512 * blockIdx.x + threadIdx.x + k"),
        ((128, 1, 128), "item k of a thread is element 128 * k + 128 * blockIdx.x + threadIdx.x"),
        ((512, 4, 128), "item k of a thread is element 512 * blockIdx.x + 128 * k + 4 * threadIdx.x"),
        ((0, 1, 128), "item k of a thread is element 128 * k + threadIdx.x"),
        ((BLOCKS, 1, 128), "item k of a thread is element 128 * k + threadIdx.x + gridDim.x * blockIdx.x"),
        ((128, 1, 128, 19), "item k of a thread is element 128 * k + 128 * blockIdx.x + threadIdx.x"),
    ],
)
def test_wrong_factors_in_an_index_are_named(factors: Any, words: str) -> None:
    index = taken(*factors)
    found = pattern(counts(BYTES[index]))
    assert (found.what, found.cause) == (f"the counters are those of `in` if {words}", FACTORS)
    x = np.random.default_rng(9).integers(-(10**6), 10**6, LENGTH).astype(np.int32)
    around = {"plan": plan(LENGTH, BLOCKS, THREADS, size=1), "inputs": {"in": x}, "tunables": FOUR}
    summed = missing_terms_of(mistake(np.array([x[index].sum()]), np.array([x.sum()]), 0, **around))
    assert summed is not None and (summed.what, summed.cause) == (f"it is the result if {words}", FACTORS)


def test_an_index_with_exchanged_factors_is_named_in_each_launch() -> None:
    x = np.random.default_rng(9).integers(-(10**6), 10**6, 700).astype(np.int32)
    index = taken(1, 128, 1, 1, 700).reshape(-1)
    partials = [x[b::128][:128].sum() for b in range(6)]
    names = Buffer("in", "input", np.int32, (700,)), Buffer("p", "scratch", np.int32, (6,))
    launches = Launch("reduce", (6,), (128,), ("in", "p")), Launch("reduce", (1,), (128,), ("p", "out"))
    steps = Plan((*names, Buffer("out", "output", np.int32, (1,))), launches)
    wrong = mistake(np.array([partials[0]], np.int32), np.array([x.sum()]), 0, plan=steps, inputs={"in": x})
    found = missing_terms_of(wrong)
    assert index.size and found is not None
    assert found.what == "it is the result if a thread takes element 128 * threadIdx.x + blockIdx.x"


def test_counters_without_some_elements_or_with_some_twice_are_named() -> None:
    found = pattern(counts(BYTES[:-1]))
    assert found.what == "the counters are those of `in` without the last element (index 2399)"
    found = pattern(counts(BYTES[INDEX % 2 == 0]))
    assert found.what == "the counters are those of `in` without the elements with an odd index"
    twice = pattern(counts(np.append(BYTES, BYTES[2048:])))
    assert twice.what.endswith("the last block's elements (block 4, 2048 to 2399) counted twice")
    assert twice.cause == missing_terms.COUNTED_TWICE


@pytest.mark.parametrize(("first", "cause"), [(128, counter_patterns.SIGNED), (64, counter_patterns.TOO_FEW_COUNTERS)])
def test_counters_that_are_wrong_from_one_on_are_named(first: int, cause: str) -> None:
    few = BYTES[:40]
    found = pattern(np.where(np.arange(256) < first, counts(few), 0), few)
    what = f"each counter from {first} on that should not be 0 is wrong, and none before it"
    assert (found.what, found.cause) == (what, cause)
    assert pattern(np.where(np.arange(256) < 75, counts(few), 0), few).what != what


def test_one_missing_element_of_few_values_may_be_any() -> None:
    few = BYTES % 4
    assert pattern(counts(few[:-1]), few) == Pattern("")
    found = value_patterns.pattern_of(counters(counts(few[:-1]), few))
    assert found is not None
    assert found.what == "all elements of `out` together add up to 2399, not 2400"
    assert found.cause == value_patterns.TOO_FEW


def test_counters_of_blocks_in_place_of_elements_are_named() -> None:
    blocks = np.concatenate([np.unique(BYTES[begin : begin + 512]) for begin in range(0, LENGTH, 512)])
    assert pattern(counts(blocks)).cause == counter_patterns.ONCE_PER_BLOCK


@pytest.mark.parametrize("seed", range(20))
def test_counters_of_other_elements_have_no_such_pattern(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    assert pattern(counts(rng.integers(0, 256, LENGTH))) == Pattern("")
    inner = rng.choice(np.flatnonzero((BYTES[0] != BYTES) & (BYTES[-1] != BYTES)))
    assert pattern(counts(np.delete(BYTES, inner))) == Pattern("")


def test_a_zero_is_said_once() -> None:
    found = wrong_output(counters(counts(BYTES) * (np.arange(256) != 17).astype(np.uint32)), True)
    assert found.evidence[0] == f"out[17] is 0, expected {counts(BYTES)[17]}"
    assert "it is 0" not in found.evidence


def test_the_places_of_the_only_elements_that_are_not_0_mean_nothing() -> None:
    one_value = np.full(4099, 255, np.uint8)
    cut = wrong_output(counters(counts(one_value).astype(np.uint8).astype(np.uint32), one_value), True)
    assert "only the last element" not in cut.what and cut.hint == value_patterns.FEWER_BITS


def test_values_elsewhere_are_no_zeros_elsewhere() -> None:
    """Most elements are 0 in other places, too."""
    got = np.zeros(256, np.uint32)
    got[70] = 1
    wanted = np.where((np.arange(256) > 120) & (np.arange(256) < 180), 5 + np.arange(256) % 7, 0)
    found = value_patterns.pattern_of(mistake(got, wanted))
    assert found is None or "another element" not in found.what


def test_unsigned_numbers_below_the_expected_ones_are_too_small() -> None:
    wanted = np.arange(5, 45, dtype=np.uint32)
    found = value_patterns.pattern_of(mistake(wanted - np.uint32(3), wanted))
    assert found is not None and found.what == "each of them is too small by 3"


SUMS = np.cumsum(X)
OF_WARP = np.add.reduceat(X, np.arange(0, X.size, 32))
OWN = np.arange(X.size) // 32


@pytest.mark.parametrize(
    ("got", "words", "cause"),
    [
        (
            SUMS - (np.cumsum(OF_WARP) - OF_WARP)[OWN] + (np.cumsum(OF_WARP) - OF_WARP)[OWN // 4 * 4],
            "each of them lacks all elements of `in` in the warps before its own in its block",
            "the sum of the earlier warps is never added",
        ),
        (
            SUMS + OF_WARP[OWN] * (OWN % 4 > 0),
            "each of them is the expected value plus the sum of its own warp's part of `in`",
            "the sum that a warp adds already contains its own elements",
        ),
        (
            SUMS + (OWN % 4 > 1) * (OWN + 7),
            "within a warp each is off by the same amount",
            "each warp is correct in itself",
        ),
    ],
)
def test_a_wrong_carry_between_warps_is_named(got: Any, words: str, cause: str) -> None:
    around = {"plan": plan(X.size, 8, 128), "inputs": {"in": X}}
    found = value_patterns.pattern_of(mistake(got.astype(np.int32), SUMS, **around))
    assert found is not None and (found.what, cause in found.cause) == (words, True)


FOUR_BEFORE = np.concatenate(([0], np.cumsum(X)[3:-1:4]))
"""The sums up to each thread that takes 4 neighbours."""
OF_THREAD = np.arange(X.size) // 4
IN_BLOCK = FOUR_BEFORE[OF_THREAD] - np.concatenate(([0], np.cumsum(X)))[np.arange(X.size) // 512 * 512]


@pytest.mark.parametrize(
    ("got", "words", "cause"),
    [
        (SUMS - IN_BLOCK, "lacks all elements of `in` in the threads before its own in its block", "earlier threads"),
        (
            SUMS + np.add.reduceat(X, np.arange(0, X.size, 4))[OF_THREAD] * (OF_THREAD % 128 > 0),
            "is the expected value plus the sum of its own thread's part of `in`",
            "the sum that a thread adds already contains its own elements",
        ),
    ],
)
def test_a_wrong_carry_between_threads_of_several_items_is_named(got: Any, words: str, cause: str) -> None:
    around = {"plan": plan(X.size, 2, 128), "inputs": {"in": X}, "tunables": FOUR}
    found = value_patterns.pattern_of(mistake(got.astype(np.int32), SUMS, **around))
    assert found is not None and (found.what, cause in found.cause) == (f"each of them {words}", True)


def test_a_first_element_that_a_sum_lacks_is_no_addend() -> None:
    terms = np.concatenate(([-3.5], F)).astype(np.float32)
    sums = np.cumsum(terms, dtype=np.float64)
    found = value_patterns.pattern_of(mistake(sums - terms[0], sums, 1e-6, inputs={"in": terms}))
    assert found is not None and found.what.endswith("is the expected value minus the first element of `in`")

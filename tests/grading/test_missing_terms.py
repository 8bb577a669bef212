"""Patterns in made-up results: terms that a sum lacks or counts twice, and blocks that hold part of an array."""

from typing import Any

import numpy as np
import pytest
from wrong_values import INDEX, SUMS, WITHOUT, F, N, X, mistake, omission, omitted, plan, said

from pytest_gpulab.exercise import Buffer, KnownMistake, Launch, Plan
from pytest_gpulab.grading.diagnosis import causes, missing_terms, patterns, value_patterns
from pytest_gpulab.grading.diagnosis.missing_terms import missing_terms_of
from pytest_gpulab.grading.diagnosis.patterns import tiling_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (INDEX < 999, "the last element (index 999)"),
        (INDEX > 0, "the first element"),
        (INDEX < 896, "the last block's elements (block 7, 896 to 999)"),
        (INDEX >= 128, "the first block's elements (0 to 127)"),
        (INDEX < 128, "the elements after the first block (128 to 999)"),
        (INDEX < 992, "the last 8 elements (from index 992 on)"),
        (INDEX % 128 < 32, "the elements of each block after its first warp"),
        (INDEX % 128 < 64, "the second half of every block's elements"),
        (INDEX % 2 == 0, "the elements with an odd index"),
        (INDEX % 2 == 1, "the elements with an even index"),
    ],
)
def test_missing_terms_of_a_sum_or_product_are_named(counted: Any, words: str) -> None:
    assert omitted(X[counted].sum(), X.sum()) == WITHOUT + words
    odd = 2 * X + 1
    product, whole = (np.multiply.reduce(x, dtype=np.int32) for x in (odd[counted], odd))
    assert omitted(product, whole, odd) == WITHOUT + words
    assert omitted(F[counted].sum(), SUMS[-1], F, 0.01) == WITHOUT + words


@pytest.mark.parametrize("first", [2, 8])
def test_the_first_few_terms_of_each_block_are_as_many_as_a_pointer_has_bytes(first: int) -> None:
    taken = X[first > INDEX % 64].sum()
    words = f"{WITHOUT}the elements after the first {first} of each block"
    assert omitted(taken, X.sum(), threads=64, blocks=16) == words


def test_terms_after_the_first_of_each_thread_are_recognised() -> None:
    taken = X[INDEX % 256 < 128].sum()
    around = {"plan": plan(N, 4, 128, size=1), "inputs": {"in": X}, "tunables": {"ITEMS_PER_THREAD": 2}}
    pattern = missing_terms_of(mistake(np.array([taken]), np.array([X.sum()]), 0, **around))
    assert pattern is not None and pattern.what == WITHOUT + "the elements of each thread after its first"


@pytest.mark.parametrize(("blocks", "last"), [(2, INDEX >= N - 256), (4, (INDEX % 256 >= 128) | (INDEX >= N - 128))])
def test_terms_before_the_last_of_each_thread_are_recognised(blocks: int, last: Any) -> None:
    """Two blocks loop over the input; four take two elements per thread."""
    around = {"plan": plan(N, blocks, 128, size=1), "inputs": {"in": X}, "tunables": {"ITEMS_PER_THREAD": 2}}
    pattern = missing_terms_of(mistake(np.array([X[last].sum()]), np.array([X.sum()]), 0, **around))
    assert pattern is not None and pattern.cause == missing_terms.REPLACED
    assert pattern.what == WITHOUT + "the elements of each thread before its last"


@pytest.mark.parametrize(("kind", "last"), [(np.int16, 32767), (np.uint16, 65535), (np.int8, 127), (np.uint8, 255)])
def test_a_sum_by_an_index_of_a_smaller_type_is_named(kind: type, last: int) -> None:
    x = np.random.default_rng(3).integers(-(10**6), 10**6, 70_000).astype(np.int32)
    index = np.arange(1094 * 64).astype(kind)  # the threads beyond the end begin anew, too
    words = f"it is the result for an index of {8 * np.dtype(kind).itemsize} bits, which ends at {last}"
    assert omitted(x[index[index >= 0]].sum(dtype=np.int32), x.sum(dtype=np.int32), x, threads=64, blocks=1094) == words


def test_an_index_that_begins_anew_with_the_threads_of_a_block_is_no_small_type() -> None:
    x = np.random.default_rng(3).integers(-(10**6), 10**6, 1023).astype(np.int32)
    found = omission(x[np.arange(1023) % 256].sum(dtype=np.int32), x.sum(dtype=np.int32), x, threads=256, blocks=1)
    assert found is not None and found.what == "it is the result if element 256 and so on are 0 to 255 again"
    assert found.cause == missing_terms.SAME_ITEM


def test_a_last_element_alone_in_its_warp_may_be_lost_with_the_warp() -> None:
    for n, cause in ((33, causes.LAST_ALONE), (31, causes.LAST_ONE)):
        x = X[:n]
        found = omission(x[:-1].sum(), x.sum(), x, threads=64, blocks=1)
        assert found is not None and (found.what, found.cause) == (f"{WITHOUT}the last element (index {n - 1})", cause)


def test_a_small_product_is_no_result_of_other_factors_within_the_tolerance_of_a_large_one() -> None:
    factors = np.exp2(np.random.default_rng(7).uniform(-0.2, 0.24, N)).astype(np.float32)
    whole = float(np.multiply.reduce(factors, dtype=np.float64))
    assert whole > 1e4
    assert omitted(3.1, whole, factors, whole * 1.7e-5) == ""
    cut = KnownMistake("the result without fractions", {"out": np.zeros(1)}, "int")
    assert said(np.array([3.1]), np.array([whole]), whole * 1.7e-5, known=lambda: [cut], inputs={"in": factors}) == ""


def test_a_term_counted_twice_is_named() -> None:
    assert (
        omitted(X.sum() + X[-1], X.sum()) == "it is the result for `in` with the last element (index 999) counted twice"
    )


def test_the_result_of_another_operation_or_of_one_element() -> None:
    assert omitted(X.min(), X.max()) == "it is the smallest element of `in`"
    assert omitted(X.sum(), X.max()) == "it is the sum of `in`"
    zeros = np.where(INDEX % 3, X, 0)
    assert omitted(np.count_nonzero(zeros), zeros.sum(), zeros) == "it is the number of elements of `in` that are not 0"
    assert omitted(N, X.sum()) == "it is the number of elements of `in`"
    assert omitted(128 * X[0], X.sum()) == "it is 128 times the first element of `in`"
    assert omitted(0, 2.0**20, np.full(20, 2, np.float32)) == "it is 0, but no element of `in` is"
    assert omitted(0, 3**19, np.full(19, 3, np.int32)) == ""
    few = np.arange(2**31 - 40, 2**31, dtype=np.int32)  # few elements make a coincidence likely for an element only
    assert omitted(few.sum(dtype=np.int32), few.max(), few, blocks=1) == "it is the sum of `in`"
    x = np.array([5003, -3211, 8777, 1021], np.int32)
    assert omitted(5003, 11590, x, blocks=1) == "it is the first element of `in`"
    assert omitted(1, 17, np.array([5, 3, 8, 1, 0], np.int32), blocks=1) == ""
    both = omission(9003, 15590, np.array([9003, -3211, 8777, 1021], np.int32), blocks=1)
    assert both is not None
    assert (both.what, both.cause) == ("it is the first element of `in`, which is the largest", "")


@pytest.mark.parametrize(
    ("got", "kind", "cause"),
    [
        (0, np.int32, missing_terms.FOREIGN),
        (-0x5A5A5A5B, np.int32, missing_terms.FOREIGN),
        (-21, np.int32, missing_terms.FOREIGN_OPERATION),
        (np.inf, np.float32, missing_terms.INFINITE),
        (-(2**31), np.float32, value_patterns.FRACTION),
    ],
)
def test_a_maximum_that_is_no_element(got: Any, kind: Any, cause: str) -> None:
    pattern = omission(got, -5, np.array([-7, -5, -9], kind), blocks=1)
    assert pattern is not None and pattern.cause == cause
    assert pattern.what == f"it is {patterns.number(kind(got))}, which is no element of `in`"


def test_the_start_value_of_a_maximum_and_a_sum_that_may_be_one_say_nothing() -> None:
    assert omitted(-(2**31), -5, np.array([-7, -5, -9], np.int32), blocks=1) == ""
    assert omitted(40, 41, np.array([0, 41, 0, 0], np.int32), blocks=1) == ""


def test_an_element_is_not_named_if_others_are_as_near() -> None:
    factors = np.float32(1) + np.arange(40, dtype=np.float32) * np.float32(1e-6)
    assert omitted(1, 1.00078, factors, 1e-5, blocks=1) == ""


def test_equal_elements_are_counted_and_a_single_one_is_named() -> None:
    equal, needle = np.full(N, -7, np.int32), np.where(INDEX == 997, 2049, 0).astype(np.int32)
    assert (
        omitted(-7 * 992, -7 * N, equal) == "all elements of `in` are equal, and it is the sum of 992 of them, not 1000"
    )
    assert omitted(0, 2049, needle) == "it misses the only element of `in` that is not 0, at index 997"


def test_an_input_with_rows_has_missing_terms_as_well() -> None:
    needle = np.where(INDEX == 997, 2049, 0).astype(np.int32)
    buffers = Buffer("in", "input", np.int32, (500, 2)), Buffer("out", "output", np.int32, (1,))
    by_rows = Plan(buffers, (Launch("kernel", (1, 4), (2, 128), ("in", "out")),))

    def found(x: Any, got: int) -> Any:
        around = {"plan": by_rows, "inputs": {"in": x.reshape(500, 2)}}
        return missing_terms_of(mistake(np.array([got]), np.array([x.sum()]), 0, **around))

    assert found(needle, 0).what == "it misses the only element of `in` that is not 0, at index 997"
    assert found(X, X[:-1].sum()).what == WITHOUT + "the last element (index 999)"
    assert found(X, X[:896].sum()) is None, "the blocks take rows, so 896 is no end of one"


def test_no_part_is_named_if_two_parts_explain_a_sum() -> None:
    x = X.copy()
    x[-1] = x[0] = 77
    assert omitted(x.sum() - 77, x.sum(), x) == ""


@pytest.mark.parametrize("seed", range(20))
def test_an_unrelated_sum_has_no_pattern(seed: int) -> None:
    assert omitted(X.sum() + 12345 + 1777 * seed, X.sum()) == ""


@pytest.mark.parametrize(
    ("n", "blocks", "threads", "tunables", "tile"),
    [
        (1000, 8, 128, {}, 128),
        (1000, 4, 128, {"ITEMS_PER_THREAD": 2}, 256),
        (1000, 1, 128, {}, None),
        (100, 1, 128, {}, 100),
        (1000, 4, 128, {}, None),  # nobody knows who takes what
        (300, 2, 64, {"A": 3, "B": 4}, None),  # 192 and 256 elements a block would both do
    ],
)
def test_elements_per_block_of_an_array(
    n: int, blocks: int, threads: int, tunables: dict[str, int], tile: int | None
) -> None:
    assert tiling_of(plan(n, blocks, threads), "out", tunables) == (tile,)


def test_tile_per_block_of_a_plane() -> None:
    out = Buffer("out", "output", np.float32, (30, 70))
    assert tiling_of(Plan((out,), (Launch("field", (5, 4), (16, 8), ("out",)),)), "out", {}) == (8, 16)
    assert tiling_of(Plan((out,), (Launch("field", (9,), (256,), ("out",)),)), "out", {}) == (None, None)
    assert tiling_of(Plan((out,), ()), "out", {}) == (None, None)

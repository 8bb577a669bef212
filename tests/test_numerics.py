"""The input patterns are what they say; the tolerances let every honest answer pass and no dishonest one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpulab import numerics

SIZES = (2, 3, 31, 32, 33, 255, 256, 1023, 1025, 4099)
F4 = np.float32

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 3000)
patterns = st.sampled_from(numerics.PATTERNS)


def one_by_one(values: np.ndarray, dtype: np.dtype | type = F4) -> np.generic:
    return np.cumsum(values.astype(dtype), dtype=dtype)[-1]  # cumsum adds in order, unlike sum


def in_pairs(values: np.ndarray) -> np.generic:
    while values.size > 1:
        values = np.append(values, np.zeros(values.size % 2, values.dtype))
        values = values[0::2] + values[1::2]
    return values[0]


@given(patterns, sizes, st.sampled_from([np.float32, np.float64, np.int32]), seeds)
def test_a_pattern_is_a_function_of_the_seed_with_the_asked_shape_and_type(pattern, n, dtype, seed):
    values = numerics.fill(pattern, n, dtype, np.random.default_rng(seed))
    again = numerics.fill(pattern, n, dtype, np.random.default_rng(seed))
    assert values.shape == (n,)
    assert values.dtype == dtype
    assert np.array_equal(values, again)
    assert np.all(np.isfinite(values))


def test_an_unknown_pattern_names_the_ones_there_are():
    with pytest.raises(
        ValueError, match=r"no input pattern is called 'randon'; there are random, equal, .*, fractions, bits"
    ):
        numerics.fill("randon", 4, F4, np.random.default_rng(0))


@given(st.integers(2, 3000), seeds)
def test_each_pattern_has_the_property_it_is_named_for(n, seed):
    made = {p: numerics.fill(p, n, F4, np.random.default_rng(seed)).astype(np.float64) for p in numerics.PATTERNS}
    assert np.ptp(made["equal"]) == 0
    assert made["equal"][0] < 0
    assert np.all(np.sign(made["alternating"]) == np.where(np.arange(n) % 2, -1, 1))
    assert np.count_nonzero(made["needle"]) == 1
    assert np.float16(made["needle"].sum()) != made["needle"].sum()
    assert abs(made["cancellation"].sum()) <= 2e-5 * np.abs(made["cancellation"]).sum()
    assert np.all(made["integers"] == np.rint(made["integers"]))
    assert np.all(made["fractions"] != np.rint(made["fractions"]))
    assert np.any(made["fractions"] != made["fractions"].astype(np.float16))


@given(st.integers(1, 3000), st.sampled_from([1, 2, 33, 100]), st.sampled_from([np.float32, np.float64]), seeds)
def test_fractions_add_up_exactly_in_any_order_however_often_they_are_repeated(n, repeats, dtype, seed):
    rng = np.random.default_rng(seed)
    values = np.tile(numerics.fill("fractions", n, dtype, rng, repeats), repeats)
    assert numerics.sums_exactly(values, dtype)
    shuffled = rng.permutation(values)
    assert float(one_by_one(shuffled, dtype)) == math.fsum(values.tolist()) == float(in_pairs(values))
    assert float(np.cumsum(np.sort(values), dtype=dtype)[-1]) == math.fsum(values.tolist())


def test_fractions_of_more_terms_than_fit_are_zeros_in_part():
    values = numerics.fill("fractions", 2**20, F4, np.random.default_rng(1), repeats=16)
    assert 2**18 < np.count_nonzero(values) < 2**20
    assert numerics.sums_exactly(np.tile(values, 16), F4)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64, np.uint32])
def test_bits_of_an_integer_type_are_all_there(dtype):
    values = numerics.fill("bits", 1000, dtype, np.random.default_rng(1))
    assert values.dtype == dtype
    assert np.bitwise_or.reduce(values) == np.bitwise_not(dtype(0)) and np.bitwise_and.reduce(values) == 0


def test_fractions_of_an_integer_type_are_odd():
    values = numerics.fill("fractions", 1000, np.int32, np.random.default_rng(1))
    assert np.all(values % 2 == 1)
    assert values.min() < -(2**14) and values.max() > 2**14


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=3), st.booleans(), seeds)
def test_products_of_powers_of_two_and_one_other_number_are_exact(exponents, is_negative, seed):
    other = np.random.default_rng(seed).uniform(1, 2, 1).astype(F4)
    factors = np.append(other, (-1 if is_negative else 1) * 2.0 ** np.array(exponents)).astype(F4)
    assert numerics.product_tolerance(factors, F4) == 0
    for order in (factors, factors[::-1], np.sort(factors)):
        assert float(np.multiply.accumulate(order)[-1]) == np.prod(factors, dtype=np.float64)


@pytest.mark.parametrize(
    "factors", [[1.5, 1.25], [2.0**100, 2.0**100, 2.0**-100], [2.0**-100, 2.0**-100, 2.0**100], [1.5, 2.0**-126, 0.5]]
)
def test_other_products_are_not_taken_for_exact(factors):
    assert not numerics.multiplies_exactly(np.array(factors, F4), F4)


def test_a_sum_that_may_lose_every_digit_has_no_tolerance():
    values = numerics.fill("random", 3000, np.float16, np.random.default_rng(1))
    asked = "2999 float16 operations in a row may lose every digit.*give the `depth`.*wider type"
    for refused in (
        lambda: numerics.sum_tolerance(values, np.float16),
        lambda: numerics.scan_tolerance(values, np.float16),
        lambda: numerics.scan_tolerance_at(values, np.array([1]), np.float16),
        lambda: numerics.product_tolerance(values, np.float16),
    ):
        with pytest.raises(ValueError, match=asked):
            refused()
    depth = numerics.pairwise_depth(3000)
    tolerance = numerics.sum_tolerance(values, np.float16, depth)
    assert abs(float(in_pairs(values)) - math.fsum(values.tolist())) <= tolerance < 0.01 * 3000


@pytest.mark.parametrize("n", [2, 100, 5000])
def test_numbers_that_cancel_stay_in_the_range_of_a_narrow_type(n):
    values = numerics.fill("cancellation", n, np.float16, np.random.default_rng(n))
    assert np.all(np.isfinite(values))
    assert np.isfinite(np.cumsum(np.sort(values), dtype=np.float16)).all()


@given(patterns, sizes, seeds)
def test_honest_float_sums_are_within_the_bound(pattern, n, seed):
    values = numerics.fill(pattern, n, F4, np.random.default_rng(seed))
    exact = math.fsum(values.tolist())
    assert abs(float(one_by_one(values)) - exact) <= numerics.sum_tolerance(values, F4)
    assert abs(float(in_pairs(values)) - exact) <= numerics.sum_tolerance(values, F4, numerics.pairwise_depth(n))


@given(patterns, sizes, seeds)
def test_honest_float_scans_are_within_the_bound_everywhere(pattern, n, seed):
    values = numerics.fill(pattern, n, F4, np.random.default_rng(seed))
    error = np.abs(np.cumsum(values, dtype=F4) - np.cumsum(values, dtype=np.float64))
    assert np.all(error <= numerics.scan_tolerance(values, F4))
    assert numerics.scan_tolerance(values, F4)[-1] == pytest.approx(numerics.sum_tolerance(values, F4), rel=1e-12)


@given(sizes, seeds)
def test_honest_float_products_are_within_the_bound(n, seed):
    factors = np.exp(np.random.default_rng(seed).uniform(-20, 20, n) / n).astype(F4)
    product = np.multiply.accumulate(factors)[-1]
    assert abs(float(product) - np.prod(factors, dtype=np.float64)) <= numerics.product_tolerance(factors, F4)


@pytest.mark.parametrize("n", SIZES)
def test_dishonest_sums_fail_on_the_random_pattern(n):
    values = numerics.fill("random", n, F4, np.random.default_rng(n))
    exact = math.fsum(values.tolist())
    allowed = numerics.sum_tolerance(values, F4)
    dishonest = {
        "added in half precision": float(one_by_one(values, np.float16)),
        "all zeros": 0.0,
        "the unchanged input": float(values[0]),
        "99 % of the sum": 0.99 * exact,
        "a term dropped": exact - float(values[n // 2]),
        "not a number": math.nan,
    }
    assert [what for what, answer in dishonest.items() if abs(answer - exact) <= allowed] == []


@pytest.mark.parametrize("n", SIZES)
def test_an_answer_rounded_to_half_precision_fails_the_bound_of_a_tree(n):
    values = numerics.fill("random", n, F4, np.random.default_rng(n))
    exact = math.fsum(values.tolist())
    assert abs(float(np.float16(exact)) - exact) > numerics.sum_tolerance(values, F4, numerics.pairwise_depth(n))


@pytest.mark.parametrize("n", SIZES)
def test_dishonest_scans_and_products_fail_on_the_random_pattern(n):
    values = numerics.fill("random", n, F4, np.random.default_rng(n))
    sums = np.cumsum(values, dtype=np.float64)
    for answer in (np.cumsum(values, dtype=np.float16), np.zeros(n), values, 0.99 * sums):
        assert np.any(np.abs(answer - sums) > numerics.scan_tolerance(values, F4))
    factors = np.exp(np.random.default_rng(n).uniform(-20, 20, n) / n).astype(F4)
    product = float(np.prod(factors, dtype=np.float64))
    halved = float(np.multiply.accumulate(factors.astype(np.float16))[-1])
    for answer in (halved, 0.0, float(factors[0]), 0.99 * product):
        assert abs(answer - product) > numerics.product_tolerance(factors, F4)


def test_integers_that_fit_must_be_exact_and_others_need_not():
    assert numerics.sum_tolerance(np.full(10, 3, F4), F4) == 0
    assert numerics.sum_tolerance(np.full(10, 3.5, F4), F4) == 0
    assert numerics.sum_tolerance(np.full(10, 0.1, F4), F4) > 0
    assert numerics.sum_tolerance(np.append(np.full(5000, 3, F4), F4(0.1)), F4) > 0
    assert numerics.sum_tolerance(np.full(2, 2.0**23, F4), F4) == 0
    assert numerics.sum_tolerance(np.array([2.0**23] * 2 + [1]), F4) > 0
    assert numerics.sum_tolerance(np.zeros(3, F4), F4) == 0
    assert not numerics.sums_exactly(np.array([1, math.inf]), F4)
    assert not numerics.sums_exactly(np.array([1, math.nan]), F4)
    assert numerics.sum_tolerance(np.full(3, 2**30, np.int32), np.int32) == 0
    assert numerics.product_tolerance(np.full(3, 2**30, np.int32), np.int32) == 0


def test_bounds_have_the_books_values():
    assert numerics.unit_roundoff(np.float32) == 2.0**-24
    assert numerics.unit_roundoff(np.float64) == 2.0**-53
    assert numerics.gamma(1000, np.float32) == 1000 * 2.0**-24 / (1 - 1000 * 2.0**-24)
    assert numerics.gamma(2**24, np.float32) == math.inf
    assert [numerics.pairwise_depth(n) for n in (1, 2, 3, 4, 5, 1024, 1025)] == [0, 1, 2, 2, 3, 10, 11]
    assert [numerics.recursive_depth(n) for n in (0, 1, 2, 100)] == [0, 0, 1, 99]


@given(seeds, sizes, patterns)
def test_some_prefix_sums_are_those_of_all(seed: int, n: int, pattern: str) -> None:
    rng = np.random.default_rng(seed)
    values = numerics.fill(pattern, n, F4, rng)
    counts = np.sort(rng.integers(0, n + 1, 50))
    everywhere = np.concatenate((np.zeros(1), np.cumsum(values.astype(np.float64))))
    magnitude = float(np.sum(np.abs(values), dtype=np.float64))
    assert np.allclose(numerics.prefix_sums_at(values, counts), everywhere[counts], rtol=0, atol=1e-12 * magnitude)
    bounds = np.concatenate((np.zeros(1), numerics.scan_tolerance(values, F4, 20)))
    assert np.allclose(numerics.scan_tolerance_at(values, counts, F4, 20), bounds[counts], rtol=1e-9, atol=0)
    unlimited = numerics.scan_tolerance_at(values, np.array([n]), F4)
    assert unlimited == pytest.approx(numerics.scan_tolerance(values, F4)[-1:], rel=1e-9)


@pytest.mark.parametrize("n", [1, 6, 7, 8, 13, 14, 15, 100])
def test_prefix_sums_do_not_depend_on_how_many_terms_are_added_at_a_time(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    monkeypatch.setattr(numerics, "_PIECE", 7)
    values = np.arange(1, n + 1) * np.where(np.arange(n) % 3, 1, -1)
    counts = np.random.default_rng(n).permutation(np.repeat(np.arange(n + 1), 2))
    assert (numerics.prefix_sums_at(values, counts) == np.append(0, np.cumsum(values))[counts]).all()
    assert (numerics.prefix_sums_at(values, counts[:3]) == np.append(0, np.cumsum(values))[counts[:3]]).all()
    bounds = numerics.scan_tolerance_at(values + 0.5, counts, F4, 20)
    everywhere = np.append(0, numerics.scan_tolerance(values + 0.5, F4, 20))
    assert np.allclose(bounds, everywhere[counts], rtol=1e-12, atol=0)


def test_no_terms_have_no_sum() -> None:
    assert numerics.prefix_sums_at(np.zeros(1, F4)[:0], np.zeros(3, np.int64)).tolist() == [0, 0, 0]


@given(st.integers(6000, 9000), seeds)
def test_values_that_repeat_stay_the_same_as_a_whole_but_no_stretch_of_them_does(n, seed):
    rng = np.random.default_rng(seed)
    values = np.arange(n)
    found = numerics.repeated(values, 8 * n + 5, rng)
    assert (np.sort(found) == np.sort(np.resize(values, 8 * n + 5))).all()
    first, *others = found[: 8 * n].reshape(8, n)
    assert all((first != other).any() for other in others)


def test_values_that_do_not_repeat_stay_where_they_are():
    values = np.arange(100_000)
    assert (numerics.repeated(values, 100_000, np.random.default_rng(1)) == values).all()


def test_one_of_a_fixed_number_of_repeated_values_is_moved():
    rng, values = np.random.default_rng(1), np.arange(2**20 - 3, dtype=np.float32)
    moved = np.count_nonzero(numerics.repeated(values, 2**22, rng) != np.resize(values, 2**22))
    assert 0.5 < moved / (2**22 / numerics.MOVED) <= 1

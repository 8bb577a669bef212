"""Patterns in made-up results: what is said of them, and that nothing is said that does not hold."""

from typing import Any

import numpy as np
import pytest
from wrong_values import BEFORE, INDEX, SUMS, WITHOUT, F, N, X, mistake, omitted, plan, said

from pytest_gpulab.exercise import KnownMistake
from pytest_gpulab.grading.diagnosis import arithmetic_patterns
from pytest_gpulab.grading.diagnosis import value_patterns as values
from pytest_gpulab.grading.diagnosis.arithmetic_patterns import ALONG_COLUMN, ALONG_ROW
from pytest_gpulab.grading.diagnosis.missing_terms import missing_terms_of
from pytest_gpulab.grading.diagnosis.scan_patterns import SCAN_SHIFT

pytestmark = pytest.mark.unit


TABLE = np.arange(24.0).reshape(4, 6) ** 2
SQUARE = X[:400].reshape(20, 20).astype(float)
EDGE = np.add.outer(np.arange(20) < 1, np.arange(20) >= 18) * 0.5
INDEXES = np.indices(TABLE.shape)


DOWN, ACROSS = np.array([3.0, 100, 41, 56]), np.array([1.0, 20, 333, 4000, 5, 6])


COUNTS = np.arange(5, 5 + N, dtype=np.uint32)
IN_BLOCK = np.arange(N) % 128
PAST = {
    back: np.where(back > IN_BLOCK, 0, SUMS[INDEX - np.minimum(back, IN_BLOCK)] - BEFORE[INDEX - IN_BLOCK])
    for back in (15, 16, 64, 65)
}
"""For each element, the sum of those of its block of 128 elements that lie this number of elements back, or more."""
LACKS = "each of them lacks the elements of `in` that are {} or more before it in its block"


WARPS_BACK = np.append(SUMS[31::32], SUMS[-1])[INDEX // 32] - BEFORE + INDEX // 32
"""The sum of the elements to the right in each warp, and a value of the warp."""
BACK = "each of them is its left neighbour minus an element of `in`, within 32 at least"
SWAPPED = "rows and columns are swapped: the value at (y, x) is that of (x, y)"


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        (np.full(8, np.nan), np.arange(8.0), "each of them is NaN (not a number)"),
        (np.full(8, np.inf), np.arange(8.0), "each of them is infinite"),
        (np.zeros(8), np.arange(1.0, 9.0), "each of them is 0"),
        (np.full(8, 2.5), np.arange(8.0), "each of them is 2.5"),
        (np.zeros(8, np.uint32), np.arange(1, 9), "each of them is 0"),
        (np.full(8, 2**31 - 1, np.int32), np.arange(8), "each of them is the highest int32 number"),
        (-F, F, "each of them has the wrong sign, but the correct magnitude"),
        (2 * X, X, "each of them is twice the expected value"),
        (X, 4 * X, "each of them is a quarter of the expected value"),
        (32 * F, F, "each of them is 32 times the expected value"),
        (F / 121, F, "each of them is 0.00826446 times the expected value"),
        (7 * X, X, "each of them is 7 times the expected value"),
        (np.trunc(X / 9).astype(np.int32)[X != 0], X[X != 0], "each of them is the expected value divided by 9"),
        (np.minimum(np.abs(X) // 300, 2), np.abs(X) + 1, ""),
        (
            TABLE + 3 * INDEXES[0] - 2.5 * INDEXES[1],
            TABLE,
            "each of them differs from the expected value by -2.5 * x +3 * y",
        ),
        (
            TABLE.reshape(1, 24) + 3 * np.arange(24),
            TABLE.reshape(1, 24),
            "each of them differs from the expected value by +3 * x",
        ),
        (
            SQUARE - 2 * np.arange(20.0)[:, None] ** 2,
            SQUARE,
            "each of them differs from the expected value by -2 * y * y",
        ),
        (SQUARE + np.arange(20.0)[:, None] ** 3, SQUARE, ""),
        (X + 7, X, "each of them is too large by 7"),
        (F - 3, F, "each of them is too small by 3"),
        (3 * (F - 2.0**32) ** 2, F, "each of them is almost 2**64, or that times a small whole number"),
        (2.0**32 - F[:1], F[:1], "it is almost 2**32, or that times a small whole number"),
        (F * 2.0**32, F, "each of them is 4.29497e+09 times the expected value"),
        (X[::-1], X, "the order is reversed"),
        (np.roll(X, 100), X, "the correct values are there, but at other positions"),
        (np.trunc(SUMS).astype(np.float32), SUMS, "each of them is a whole number"),
        (F.astype(np.float16).astype(np.float32), F, "each of them is a number that a 16-bit float can hold"),
        (
            (X * 99).astype(np.int16).astype(np.int32),
            X * 99,
            "each of them is the expected number cut to 16 bits",
        ),
        (X.astype(np.int8).astype(np.int32), X, "each of them is the expected number cut to 8 bits"),
        (np.arange(35, 42, dtype=np.uint32), np.arange(291, 298), "each of them is the expected number cut to 8 bits"),
        (
            (X * 7919).astype(np.int16).astype(np.int32) * 3 + 1,
            X * 7919 * 3 + 1,
            "each of them differs from the expected number by a multiple of 65536",
        ),
        (
            F * np.linspace(0.997, 0.999, N, dtype=np.float32),
            F,
            "each of them is nearly correct: the largest error is 0.3 %",
        ),
        (COUNTS + (INDEX > 990) * INDEX.astype(np.uint32), COUNTS, "each of them is too large, by 8955 in all"),
        (COUNTS - (INDEX % 4 + 1).astype(np.uint32), COUNTS, "each of them is too small, by 2500 in all"),
        (np.where(INDEX > 900, np.uint32(1 << 31), COUNTS), COUNTS, "each of them is 2147483648"),
        (
            np.where(INDEX < 970, X[INDEX - 970], 5),
            X,
            "each of them holds the expected value of another element: index +30",
        ),
        (
            np.roll(SQUARE, (1, -2), (0, 1)) + EDGE,
            SQUARE,
            "each of them holds the expected value of another element: y -1, x +2",
        ),
        (SQUARE[::-1] + SQUARE, SQUARE, ""),
        (np.uint8([9, 28, 7, 61, 50]), np.uint8([3, 11, 6, 40, 2]), "each of them is too large, by 93 in all"),
        (TABLE.T.reshape(TABLE.shape), TABLE, "rows and columns are swapped"),
        (np.add.outer(DOWN, ACROSS), np.add.outer(ACROSS[:4], np.append(DOWN, [7, 9])), SWAPPED),
    ],
)
def test_patterns_of_wrong_values(actual: Any, expected: Any, words: str) -> None:
    assert said(actual, expected, 1e-6 * np.abs(expected) if actual.dtype.kind == "f" else 0) == words


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        (SUMS, BEFORE, "each of them but the last holds the expected value of its right neighbour"),
        (BEFORE, SUMS, "each of them but the first holds the expected value of its left neighbour"),
        (
            BEFORE[:3] + np.array([5, 0, 9]),
            SUMS[:3] + np.array([5, 0, 9]),
            "each of them is the expected value minus its own element of `in`",
        ),
        (F, SUMS, "each of them is its own element of `in`, unchanged"),
        (SUMS[-1] - BEFORE, SUMS, BACK),
        (WARPS_BACK, SUMS, BACK),
        (np.where(INDEX == 600, 7, WARPS_BACK), SUMS, ""),
        (SUMS - F[0], SUMS, "each of them is the expected value minus the first element of `in`"),
        (
            SUMS - SUMS[63] * (INDEX >= 127),
            SUMS,
            "each of them is the expected value minus the sum of the first 64 elements of `in`",
        ),
        (
            SUMS + SUMS[9] * (INDEX > 9),
            SUMS,
            "each of them is the expected value plus the sum of the first 10 elements of `in`",
        ),
        (
            SUMS - (SUMS - F)[INDEX // 128 * 128],
            SUMS,
            "each of them lacks all elements of `in` in the blocks before its own",
        ),
        (
            np.where(INDEX < 128, SUMS, SUMS[INDEX // 128 * 128 - 1]),
            SUMS,
            "within a block all of them are the same number",
        ),
        (SUMS + (INDEX // 128) ** 2 * 7.0, SUMS, "within a block each is off by the same amount"),
        (SUMS[INDEX % 128], SUMS, "each block repeats the expected values of the first block"),
        (SUMS - PAST[64], SUMS, LACKS.format(64)),
        (BEFORE - PAST[65], BEFORE, LACKS.format(64)),
        (SUMS[:99] - PAST[16][:99], SUMS[:99], LACKS.format(16)),
        (SUMS[:99] - PAST[15][:99], SUMS[:99], ""),
    ],
)
def test_wrong_values_copied_from_an_input(actual: Any, expected: Any, words: str) -> None:
    n = actual.size
    around = {"plan": plan(n, -(-n // 128), 128, np.float32), "inputs": {"in": F[:n]}}
    assert said(actual.astype(np.float32), expected, 1e-6 * np.maximum(SUMS[:n], 1), **around) == words


@pytest.mark.parametrize(("size", "is_cause"), [(10, True), (3, False)])
def test_if_all_elements_are_0_their_places_mean_nothing(size: int, is_cause: bool) -> None:
    pattern = values.pattern_of(mistake(np.zeros(size), np.arange(size) * 7.0))
    assert pattern is not None and pattern.what == "each of them is 0" and pattern.shows_cause == is_cause
    assert (pattern.bits > 0) == is_cause


def test_an_offset_of_the_last_block_alone_is_what_it_takes_from_others() -> None:
    around = {"plan": plan(N, 8, 128, np.float32), "inputs": {"in": F}}
    actual = (SUMS + 3 * (INDEX >= 896)).astype(np.float32)
    pattern = values.pattern_of(mistake(actual, SUMS, 1e-6 * SUMS, **around))
    assert pattern is not None and pattern.what.startswith("each of them is too large by ")
    assert pattern.cause == arithmetic_patterns.PER_BLOCK


@pytest.mark.parametrize("is_inclusive", [True, False])
def test_a_scan_of_elements_that_are_no_neighbours_is_recognised(is_inclusive: bool) -> None:
    order = np.argsort(INDEX // 512 * 512 + INDEX % 128 * 4 + INDEX % 512 // 128, kind="stable")
    actual, expected = np.empty(N), SUMS if is_inclusive else BEFORE
    actual[order] = np.cumsum(F[order], dtype=np.float64) - (0 if is_inclusive else F[order])
    around = {"plan": plan(N, 2, 128, np.float32), "inputs": {"in": F}, "tunables": {"ITEMS": 4}}
    words = said(actual.astype(np.float32), expected, 1e-6 * np.maximum(SUMS, 1), **around)
    assert words.endswith("in another order: thread by thread, each with elements of `in` that are 128 apart")


@pytest.mark.parametrize(
    ("actual", "expected", "cause"),
    [
        (SUMS, BEFORE, SCAN_SHIFT),
        (BEFORE, SUMS, SCAN_SHIFT),
        (SUMS + F, SUMS, SCAN_SHIFT),
        (X[INDEX - 1], X, values.SHIFT),
        (3 * F, 2 * F, values.OWN_ELEMENT),
    ],
)
def test_only_sums_of_a_scan_have_the_hint_of_a_scan(actual: Any, expected: Any, cause: str) -> None:
    kind = F.dtype if expected.dtype.kind == "f" else X.dtype
    around = {"plan": plan(actual.size, 1, 128, kind), "inputs": {"in": F[: actual.size].astype(kind)}}
    allowed = 1e-6 * np.abs(SUMS[: actual.size]) if kind == F.dtype else 0
    pattern = values.pattern_of(mistake(actual.astype(kind), expected, allowed, **around))
    assert pattern is not None and pattern.cause == cause


@pytest.mark.parametrize(
    ("actual", "cause"), [(np.trunc(9 * F), values.FRACTION), (INDEX % 64, "")], ids=["truncated", "indices"]
)
def test_whole_numbers_that_do_not_follow_the_expected_ones_come_from_no_int(actual: Any, cause: str) -> None:
    pattern = values.pattern_of(mistake(actual.astype(np.float32), 9 * F, 1e-6))
    assert pattern is not None and (pattern.what, pattern.cause) == ("each of them is a whole number", cause)


@pytest.mark.parametrize(
    ("expected", "actual", "cause"),
    [
        ([-2748.99512, 1320.40527, 1871.5], [-2748, 1320, 1872], values.INT_OR_HALF),
        ([-2748.99512, 1320.40527, 5001.5], [-2748, 1320, 5001], values.FRACTION),
        ([8.25, 3.5, 1.75], [8, 3, 1], values.FRACTION),
    ],
    ids=["halves", "odd", "small"],
)
def test_few_large_whole_numbers_may_come_from_halves(expected: Any, actual: Any, cause: str) -> None:
    pattern = values.pattern_of(mistake(np.array(actual, np.float32), expected))
    assert pattern is not None and (pattern.what, pattern.cause) == ("each of them is a whole number", cause)


@pytest.mark.parametrize("seed", range(10))
def test_unrelated_values_have_no_pattern(seed: int) -> None:
    rng = np.random.default_rng(seed)
    expected = rng.uniform(0.5, 1.5, N)
    assert said(rng.uniform(0.5, 1.5, N).astype(np.float32), expected, 1e-3) == ""
    assert said(rng.integers(-1000, 1001, N), rng.integers(-1000, 1001, N)) == ""


def test_a_pattern_must_hold_for_every_wrong_element() -> None:
    actual = 2 * X
    actual[500] += 1
    assert said(actual, X) == ""


def test_a_pattern_within_a_generous_tolerance_is_left_out() -> None:
    expected = np.linspace(10, 20, N)
    noisy = expected + 0.6 + 0.2 * np.sin(np.arange(N))
    assert said(noisy.astype(np.float32), expected, 0.3) == ""


@pytest.mark.parametrize(
    ("values", "wanted", "got"),
    [
        (np.array([2**30, 2**30 - 1], np.int32), np.array([-(2**31) + 5], np.int32), np.array([7], np.int32)),
        (np.array([1e308, 1e308, 3e307]), np.array([5.0]), np.array([2.0])),
    ],
)
def test_overflowing_sums_match_no_pattern(values: Any, wanted: Any, got: Any) -> None:
    around = {"plan": plan(values.size, 1, 32, values.dtype, size=1), "inputs": {"in": values}}
    assert missing_terms_of(mistake(got, wanted, **around)) is None


@pytest.mark.parametrize("n", [1, 2])
def test_very_short_inputs_have_no_pattern(n: int) -> None:
    x = X[:n] + 5000
    assert omitted(x.max(), x.sum() + 1, x, blocks=1) == omitted(x[0], x[-1] + 3, x, blocks=1) == ""
    assert said(2 * x, x, inputs={"in": x}) == ""
    assert said(np.full(n, np.nan), np.ones(n), 1e-6, inputs={"in": x}).endswith(
        "NaN (not a number)"
    )  # this is no guess


@pytest.mark.parametrize("seed", range(5))
def test_a_pattern_that_chance_may_produce_is_left_out(seed: int) -> None:
    signs = np.random.default_rng(seed).choice([-1, 1], 40).astype(np.int32)
    assert omitted(signs[:-1].sum(), signs.sum(), signs, blocks=1) == ""
    big = signs * np.arange(1000, 1040, dtype=np.int32)
    assert omitted(big[:-1].sum(), big.sum(), big, blocks=1).startswith(WITHOUT)


def test_two_doubled_small_numbers_are_chance_and_many_are_a_pattern() -> None:
    small = np.array([1, 2, 3, 1, 2], np.int32)
    wrong = np.where(np.arange(5) == 1, 2 * small, small)
    assert said(wrong, small) == ""
    assert said(2 * X, X) == "each of them is twice the expected value"


def test_a_special_pattern_outweighs_a_general_one() -> None:
    shifted = values.pattern_of(mistake(SUMS.astype(np.float32), BEFORE, 1e-6 * SUMS))
    moved = values.pattern_of(mistake(np.roll(X, 100), X))
    assert shifted is not None and moved is not None
    assert shifted.bits > moved.bits > 0


KNOWN = (
    KnownMistake("the result of path 0", {"out": F * 3}, "Which path?"),
    KnownMistake("the result of path 1", {"out": F + 9}),
    KnownMistake("of another output", {"other": F}),
)


@pytest.mark.parametrize(
    ("actual", "words", "cause"),
    [
        (np.where(INDEX % 2, F * 3, F), "each of them is the result of path 0", "Which path?"),
        (np.where(INDEX % 4, F * 3, F + 9),
         "750 of them are the result of path 0, 250 of them are the result of path 1",
         "Which path?"),
        (np.where(INDEX == 5, 77, F * 3), "", ""),
        (np.sin(F), "", ""),
    ],
)  # fmt: skip
def test_known_mistakes_of_the_exercise_are_named_in_its_words(actual: Any, words: str, cause: str) -> None:
    pattern = values.pattern_of(mistake(actual.astype(np.float32), F, 1e-6, known=lambda: KNOWN))
    assert (pattern.what, pattern.cause) == (words, cause) if pattern else words == ""


@pytest.mark.parametrize(
    ("got", "wanted", "is_recognised"),
    [
        ([1, 0, 0], [0, 0, 1], True),
        ([3, 0, 0, 2], [1, 2, 1, 1], True),
        ([3, 0], [1, 3], False),
        ([2, 0], [0, 2], False),
    ],
)
def test_counters_of_the_right_sum_count_elements_elsewhere(got: Any, wanted: Any, is_recognised: bool) -> None:
    counters = np.array(got, np.uint32)
    elements = np.zeros(min(sum(got), sum(wanted)) + (got == [2, 0]), np.uint8)
    pattern = values.pattern_of(mistake(counters, np.array(wanted), inputs={"in": elements}))
    assert (pattern is not None and pattern.cause == values.OTHER_COUNTER) == is_recognised


def test_wrap_around_is_named_only_if_intermediate_sums_overflow() -> None:
    large = np.array([2**30, 2**30, 2**30, -(2**30), -(2**30), 5], np.int32)
    assert (
        omitted(12345, large.sum(), large, blocks=1)
        == "intermediate sums exceed the range of int32 and must wrap around"
    )
    assert omitted(12345, 2**30 + 5, np.array([2**30, 2, 3], np.int32), blocks=1) == ""


def test_another_operation_on_two_inputs_is_named() -> None:
    inputs = {"inputs": {"a": F, "b": F[::-1].copy()}}
    a, b = inputs["inputs"].values()
    assert said(a - b, a + b, 1e-6, **inputs) == "each of them is a - b"
    assert said(b - a, a + b, 1e-6, **inputs) == "each of them is b - a"
    assert said(a * b, a + b, 1e-6, **inputs) == "each of them is a * b"
    assert said(a + 2 * b, a + b, 1e-6, **inputs) == "each of them is the expected value plus its own element of `b`"
    assert said(a / b, a + b, 1e-6, **inputs) == ""


@pytest.mark.parametrize(("shape", "cause"), [((1, 40), ALONG_ROW), ((40, 1), ALONG_COLUMN)])
def test_an_offset_of_a_single_row_may_be_a_term_without_x(shape: tuple[int, int], cause: str) -> None:
    wanted = (np.arange(40.0) ** 2).reshape(shape)
    pattern = values.pattern_of(mistake(wanted + 7.5, wanted))
    assert pattern is not None and (pattern.what, pattern.cause) == ("each of them is too large by 7.5", cause)


def test_a_known_mistake_that_gives_one_of_few_elements_may_be_chance() -> None:
    """A wrong maximum is likely to be that of some part, whatever the mistake is."""
    x = np.array([5, 9, 7, 3, 8], np.int32)

    def words(total: int, expected: int) -> str:
        known = [KnownMistake("that of the first block", {"out": np.array([total])}, "An index.")]
        around = {"inputs": {"in": x}, "known": lambda: known}
        return said(np.array([total], np.int32), np.array([expected], np.int32), **around)

    assert words(7, 9) == ""
    assert words(99_991, 123_456) == "it is that of the first block"


def test_a_single_large_whole_number_is_chance() -> None:
    """A float32 near 2**21 has two binary places: every fourth is a whole number."""
    assert said(np.array([3181614.0], np.float32), np.array([4098.446]), 0.07) == ""


def test_a_difference_is_named_as_the_sum_of_the_first_elements_unless_that_may_be_chance() -> None:
    for inputs, extra, words in (
        (1000 * X, 1000 * X[:64].sum(), "the expected value plus the sum of the first 64 elements of `in`"),
        (X, X[:64].sum(), "too small by 1946"),
        (1000 * X, 500, "too large by 500"),
    ):
        sums = np.cumsum(inputs, dtype=np.int32)
        assert said(sums + extra * (INDEX >= 127), sums, inputs={"in": inputs}) == f"each of them is {words}"

"""Patterns in made-up results: what is said of them, and that nothing is said that does not hold."""

from typing import Any

import numpy as np
import pytest

from pytest_gpulab.exercise import Buffer, KnownMistake, Launch, Plan
from pytest_gpulab.grading.diagnosis import error_location
from pytest_gpulab.grading.diagnosis import value_patterns as values
from pytest_gpulab.grading.diagnosis.compare import mismatches
from pytest_gpulab.grading.diagnosis.error_location import ordinal, place_of
from pytest_gpulab.grading.diagnosis.missing_terms import missing_terms_of
from pytest_gpulab.grading.diagnosis.patterns import RunContext, WrongValue

pytestmark = pytest.mark.unit

N = 1000
INDEX = np.arange(N)
X = np.random.default_rng(5).integers(-1000, 1001, N).astype(np.int32)


def plan(n: int, blocks: int, threads: int, dtype: Any = np.int32, size: int | None = None) -> Plan:
    buffers = Buffer("in", "input", dtype, (n,)), Buffer("out", "output", dtype, (n if size is None else size,))
    return Plan(buffers, (Launch("kernel", (blocks,), (threads,), ("in", "out")),))


def mistake(actual: Any, expected: Any, tolerance: Any = 0, **around: Any) -> WrongValue:
    actual, expected = np.asarray(actual), np.asarray(expected)
    wrong = mismatches(actual, expected, tolerance)
    assert wrong.any()
    known = RunContext(**around)
    return WrongValue("out", actual, expected, np.broadcast_to(tolerance, actual.shape), wrong, known)


def said(*args: Any, **around: Any) -> str:
    pattern = values.pattern_of(mistake(*args, **around))
    return pattern.what if pattern else ""


@pytest.mark.parametrize(
    ("wrong", "words", "cause"),
    [
        (INDEX == 0, "only the first element", error_location.FIRST_ONE),
        (INDEX > 0, "all but the first element", error_location.ALL_BUT_FIRST),
        (INDEX == 999, "only the last element, element 999", error_location.LAST_ONE),
        (INDEX == 256, "only the first element of block 2", error_location.FIRST_OF_BLOCK),
        (INDEX == 255, "only the last element of block 1", error_location.LAST_OF_BLOCK),
        (INDEX >= 896, "only the last block (block 7, elements 896 to 999)", error_location.LAST_BLOCK),
        (INDEX >= 990, "elements 990 to 999, the end of the last block", error_location.TAIL),
        (
            INDEX >= 128,
            "everything after the first block (elements 128 to 999; 128 per block)",
            error_location.AFTER_FIRST_BLOCK,
        ),
        (INDEX >= 640, "everything from block 5 on (elements 640 to 999; 128 per block)", error_location.FROM_BLOCK_ON),
        (INDEX < 128, "only the first block (block 0, elements 0 to 127)", error_location.FIRST_BLOCK),
        (INDEX // 128 == 3, "only one block (block 3, elements 384 to 511)", error_location.WHOLE_BLOCKS),
        (INDEX // 128 % 2 == 1, "4 of 8 blocks, these altogether: 1, 3, 5 and more", error_location.WHOLE_BLOCKS),
        (INDEX // 128 != 3, "all blocks but 3, these altogether", error_location.WHOLE_BLOCKS),
        (
            (INDEX >= 256) & (INDEX < 640),
            "only elements 256 to 639, 3 whole blocks of 128",
            error_location.WHOLE_BLOCKS,
        ),
        (INDEX >= 32, "everything after the first 32 elements", error_location.OTHER_WARPS),
        (INDEX >= 500, "the last 500 elements, from element 500 on", error_location.FROM_INDEX_ON),
        (INDEX < 100, "the first 100 elements, elements 0 to 99", error_location.START),
        ((INDEX >= 400) & (INDEX < 450), "only elements 400 to 449", ""),
        (INDEX % 128 == 0, "the first element of every block (128 elements per block)", error_location.FIRST_OF_BLOCK),
        (INDEX % 128 == 127, "the last element of every block (128 elements per block)", error_location.LAST_OF_BLOCK),
        (
            INDEX % 128 > 0,
            "all but the first element of every block (128 elements per block)",
            error_location.FIRST_OF_BLOCK,
        ),
        (INDEX % 128 == 5, "element 5 of every block (128 elements per block)", error_location.IN_EACH_BLOCK),
        (INDEX % 128 >= 64, "the second half of every block (128 elements per block)", error_location.IN_EACH_BLOCK),
        (INDEX % 128 < 64, "the first half of every block (128 elements per block)", error_location.IN_EACH_BLOCK),
        (
            INDEX % 128 >= 32,
            "all but the first 32 elements of every block (128 elements per block)",
            error_location.OTHER_WARPS,
        ),
        (
            INDEX % 128 >= 100,
            "elements 100 to 127 of every block (128 elements per block)",
            error_location.IN_EACH_BLOCK,
        ),
        (INDEX % 32 == 31, "every 32nd element, from element 31 on", error_location.LANE),
        (INDEX % 2 == 1, "every 2nd element, from element 1 on", error_location.STRIDED),
        (INDEX % 11 == 3, "every 11th element, from element 3 on", error_location.STRIDED),
        (INDEX % 8 != 2, "all but every 8th element (index % 8 == 2)", error_location.STRIDED),
        (INDEX % 8 >= 4, "of every 8 elements those from number 4 to 7", error_location.STRIDED),
        (np.isin(INDEX % 8, (1, 3, 6)), "elements with index % 8 == 1, 3 or 6", error_location.STRIDED),
        (
            np.isin(INDEX, (900, 931, 950, 951, 997)),
            "all of them in the last block (block 7)",
            error_location.LAST_BLOCK,
        ),
        (
            np.isin(INDEX, (390, 401, 402, 451, 477)),
            "all of them in the same block (block 3)",
            error_location.IN_EACH_BLOCK,
        ),
        (
            (INDEX > 128) & (INDEX % 9 > 0),
            "all of them after the first block (128 elements per block)",
            error_location.AFTER_FIRST_BLOCK,
        ),
    ],
)
def test_places(wrong: Any, words: str, cause: str) -> None:
    pattern = place_of(wrong, (128,))
    assert pattern is not None
    assert (pattern.what, pattern.cause) == (words, cause)


def test_a_full_last_block_and_the_second_of_two_have_causes_of_their_own() -> None:
    full, second = place_of(np.arange(512) >= 384, (128,)), place_of(np.arange(200) >= 128, (128,))
    assert full is not None and full.cause == error_location.LAST_FULL_BLOCK
    assert second is not None and second.cause == error_location.SECOND_BLOCK


def test_where_blocks_are_not_known_none_is_named() -> None:
    pattern = place_of(INDEX >= 896, (None,))
    assert pattern is not None and pattern.what == "the last 104 elements, from element 896 on"


@pytest.mark.parametrize("at", [(390, 451), (390, 451, 900), (130, 260, 390, 500, 600, 700, 800, 900)])
def test_a_few_elements_in_few_blocks_are_chance(at: tuple[int, ...]) -> None:
    assert place_of(np.isin(INDEX, at), (128,)) is None


def test_two_elements_have_no_distance_but_that_of_lanes() -> None:
    assert place_of(np.isin(np.arange(10), (2, 6)), (None,)) is None
    assert place_of(np.isin(np.arange(4), (0, 2)), (None,)) is None
    lanes = place_of(np.isin(np.arange(40), (0, 32)), (None,))
    assert lanes is not None and lanes.what == "every 32nd element, from element 0 on"


def test_one_block_says_nothing_of_the_others() -> None:
    assert place_of(np.arange(176) == 55, (128,)) is None


@pytest.mark.parametrize("seed", range(20))
def test_scattered_elements_have_no_place(seed: int) -> None:
    assert place_of(np.random.default_rng(seed).random(N) < 0.3, (128,)) is None


X_AXIS, Y_AXIS = np.meshgrid(np.arange(20), np.arange(16))


@pytest.mark.parametrize(
    ("wrong", "words", "cause"),
    [
        (X_AXIS == 19, "only the last column, column 19", error_location.LAST_COLUMNS),
        (X_AXIS >= 16, "only the last column of blocks (columns 16 to 19)", error_location.LAST_COLUMNS),
        (Y_AXIS == 15, "only the last row, row 15", error_location.LAST_ROWS),
        (X_AXIS % 2 == 1, "every 2nd column, from column 1 on", error_location.IN_X),
        (Y_AXIS == 0, "only the first row", error_location.IN_Y),
        (
            (X_AXIS >= 16) | (Y_AXIS >= 12),
            "the last 4 columns, from column 16 on, and the last 4 rows, from row 12 on",
            error_location.LAST_COLUMNS,
        ),
    ],
)
def test_places_in_a_plane(wrong: Any, words: str, cause: str) -> None:
    pattern = place_of(wrong, (8, 8))
    assert pattern is not None
    assert (pattern.what, pattern.cause) == (words, cause)


def test_all_but_the_diagonal() -> None:
    pattern = place_of(~np.eye(9, dtype=bool), (None, None))
    assert pattern is not None and pattern.cause == error_location.OFF_DIAGONAL


def test_all_elements_or_scattered_ones_have_no_place_in_a_plane() -> None:
    assert place_of(np.ones((4, 4), bool), (2, 2)) is None
    assert place_of(np.random.default_rng(1).random((16, 20)) < 0.5, (8, 8)) is None


def test_ordinals() -> None:
    assert [ordinal(k) for k in (2, 3, 4, 11, 21, 32, 113)] == ["2nd", "3rd", "4th", "11th", "21st", "32nd", "113th"]


F = np.random.default_rng(6).uniform(0.5, 1.5, N).astype(np.float32)
SUMS = np.cumsum(F, dtype=np.float64)
BEFORE = SUMS - F
TABLE = np.arange(24.0).reshape(4, 6) ** 2


DOWN, ACROSS = np.array([3.0, 100, 41, 56]), np.array([1.0, 20, 333, 4000, 5, 6])
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
        (X + 7, X, "each of them is too large by 7"),
        (F - 3, F, "each of them is too small by 3"),
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
        (
            F * np.linspace(0.997, 0.999, N, dtype=np.float32),
            F,
            "each of them is nearly correct: the largest error is 0.3 %",
        ),
        (TABLE.T.reshape(TABLE.shape), TABLE, "rows and columns are swapped"),
        (np.add.outer(DOWN, ACROSS), np.add.outer(ACROSS[:4], np.append(DOWN, [7, 9])), SWAPPED),
    ],
)
def test_values(actual: Any, expected: Any, words: str) -> None:
    assert said(actual, expected, 1e-6 * np.abs(expected) if actual.dtype.kind == "f" else 0) == words


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        (SUMS, BEFORE, "each of them but the last holds the expected value of its right neighbour"),
        (BEFORE, SUMS, "each of them but the first holds the expected value of its left neighbour"),
        (
            BEFORE[:3] + np.array([5, 0, 9]),
            SUMS[:3] + np.array([5, 0, 9]),
            "each of them is too small by its own element of `in`",
        ),
        (F, SUMS, "each of them is its own element of `in`, unchanged"),
        (SUMS - F[0], SUMS, "each of them is too small by the first element of `in`"),
        (
            SUMS - (SUMS - F)[INDEX // 128 * 128],
            SUMS,
            "each of them lacks all of `in` that lies in the blocks before its own",
        ),
        (SUMS + (INDEX // 128) ** 2 * 7.0, SUMS, "within a block each is off by the same amount"),
        (SUMS[INDEX % 128], SUMS, "each block repeats the expected values of the first block"),
    ],
)
def test_values_that_come_from_an_input(actual: Any, expected: Any, words: str) -> None:
    n = actual.size
    around = {"plan": plan(n, -(-n // 128), 128, np.float32), "inputs": {"in": F[:n]}}
    assert said(actual.astype(np.float32), expected, 1e-6 * np.maximum(SUMS[:n], 1), **around) == words


@pytest.mark.parametrize("seed", range(10))
def test_of_unrelated_values_nothing_is_said(seed: int) -> None:
    rng = np.random.default_rng(seed)
    expected = rng.uniform(0.5, 1.5, N)
    assert said(rng.uniform(0.5, 1.5, N).astype(np.float32), expected, 1e-3) == ""
    assert said(rng.integers(-1000, 1001, N), rng.integers(-1000, 1001, N)) == ""


def test_what_holds_of_all_but_one_wrong_element_is_not_said() -> None:
    actual = 2 * X
    actual[500] += 1
    assert said(actual, X) == ""


def test_what_a_generous_tolerance_would_explain_is_not_said() -> None:
    expected = np.linspace(10, 20, N)
    noisy = expected + 0.6 + 0.2 * np.sin(np.arange(N))
    assert said(noisy.astype(np.float32), expected, 0.3) == ""


def omitted(actual: Any, expected: Any, x: Any = X, tolerance: float = 0, threads: int = 128, blocks: int = 8) -> str:
    around = {"plan": plan(x.size, blocks, threads, x.dtype, size=1), "inputs": {"in": x}}
    pattern = missing_terms_of(mistake(np.array([actual], x.dtype), np.array([expected]), tolerance, **around))
    return pattern.what if pattern else ""


WITHOUT = "it is the result for `in` without "


@pytest.mark.parametrize(
    ("values", "wanted", "got"),
    [
        (np.array([2**30, 2**30 - 1], np.int32), np.array([-(2**31) + 5], np.int32), np.array([7], np.int32)),
        (np.array([1e308, 1e308, 3e307]), np.array([5.0]), np.array([2.0])),
    ],
)
def test_sums_and_differences_that_overflow_are_not_what_was_expected(values: Any, wanted: Any, got: Any) -> None:
    around = {"plan": plan(values.size, 1, 32, values.dtype, size=1), "inputs": {"in": values}}
    assert missing_terms_of(mistake(got, wanted, **around)) is None


@pytest.mark.parametrize("n", [1, 2])
def test_nothing_is_said_of_inputs_so_short_that_anything_would_hold(n: int) -> None:
    x = X[:n] + 5000
    assert omitted(x.max(), x.sum() + 1, x, blocks=1) == omitted(x[0], x[-1] + 3, x, blocks=1) == ""
    assert said(2 * x, x, inputs={"in": x}) == ""
    assert said(np.full(n, np.nan), np.ones(n), 1e-6, inputs={"in": x}).endswith(
        "NaN (not a number)"
    )  # this is no guess


@pytest.mark.parametrize("seed", range(5))
def test_a_prediction_that_chance_would_fulfil_is_not_told(seed: int) -> None:
    signs = np.random.default_rng(seed).choice([-1, 1], 40).astype(np.int32)
    assert omitted(signs[:-1].sum(), signs.sum(), signs, blocks=1) == ""
    big = signs * np.arange(1000, 1040, dtype=np.int32)
    assert omitted(big[:-1].sum(), big.sum(), big, blocks=1).startswith(WITHOUT)


def test_two_wrong_small_numbers_that_are_double_may_be_chance_and_many_are_not() -> None:
    small = np.array([1, 2, 3, 1, 2], np.int32)
    wrong = np.where(np.arange(5) == 1, 2 * small, small)
    assert said(wrong, small) == ""
    assert said(2 * X, X) == "each of them is twice the expected value"


def test_places_of_few_elements_are_no_pattern() -> None:
    assert place_of(np.array([True, False]), (2,)) is None
    assert place_of(np.arange(9) == 0, (9,)) is None
    assert place_of(np.arange(33) == 32, (33,)) is not None


def test_what_is_told_says_how_much_it_is_worth_and_the_special_outweighs_the_general() -> None:
    shifted = values.pattern_of(mistake(SUMS.astype(np.float32), BEFORE, 1e-6 * SUMS))
    moved = values.pattern_of(mistake(np.roll(X, 100), X))
    assert shifted is not None and moved is not None
    assert shifted.bits > moved.bits > 0


@pytest.mark.parametrize(
    ("shape", "right", "words", "cause"),
    [
        (
            (1, 37),
            (0, slice(0, None, 16)),
            "all but the first column of every block (16 columns per block)",
            error_location.IN_X,
        ),
        (
            (37, 1),
            (slice(0, None, 16), 0),
            "all but the first row of every block (16 rows per block)",
            error_location.IN_Y,
        ),
        ((1, 37), (0, 0), "all but the first column", error_location.IN_X),
        ((61, 97), (0, 0), "all but the element (0, 0)", ""),
        ((61, 97), "diagonals", "all but the diagonal of every block (16 x 16 elements)", error_location.SAME_INDEX),
        ((61, 97), "diagonal", "all but the diagonal", error_location.OFF_DIAGONAL),
    ],
)
def test_in_a_plane_the_words_and_the_causes_are_those_of_x_and_y(
    shape: tuple[int, int], right: Any, words: str, cause: str
) -> None:
    wrong = np.ones(shape, bool)
    y, x = np.indices(shape)
    if isinstance(right, str):
        wrong[(y % 16 == x % 16) if right == "diagonals" else (y == x)] = False
    else:
        wrong[right] = False
    pattern = place_of(wrong, (16, 16))
    assert pattern is not None and (pattern.what, pattern.cause) == (words, cause)


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
        (F * 5, "", ""),
    ],
)  # fmt: skip
def test_results_that_the_exercise_knows_are_told_by_its_words(actual: Any, words: str, cause: str) -> None:
    pattern = values.pattern_of(mistake(actual.astype(np.float32), F, 1e-6, known=lambda: KNOWN))
    assert (pattern.what, pattern.cause) == (words, cause) if pattern else words == ""


def test_that_sums_must_wrap_around_is_told_only_where_they_do() -> None:
    large = np.array([2**30, 2**30, 2**30, -(2**30), -(2**30), 5], np.int32)
    assert (
        omitted(12345, large.sum(), large, blocks=1)
        == "intermediate sums exceed the range of int32 and must wrap around"
    )
    assert omitted(12345, 2**30 + 5, np.array([2**30, 2, 3], np.int32), blocks=1) == ""

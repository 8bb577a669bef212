"""The location of wrong elements in words."""

from typing import Any

import numpy as np
import pytest
from wrong_values import INDEX, X_AXIS, Y_AXIS, N, X, mistake, plan

from pytest_gpulab.grading.diagnosis import causes, error_location
from pytest_gpulab.grading.diagnosis.error_location import ordinal, place_of
from pytest_gpulab.grading.diagnosis.wrong_output import LEFT_OUT, never_written

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("wrong", "words", "cause"),
    [
        (INDEX == 0, "only the first element", causes.FIRST_ONE),
        (INDEX > 0, "all but the first element", causes.ALL_BUT_FIRST),
        (INDEX == 999, "only the last element, element 999", causes.LAST_ONE),
        (INDEX == 256, "only the first element of block 2", causes.FIRST_OF_BLOCK),
        (INDEX == 255, "only the last element of block 1", causes.LAST_OF_BLOCK),
        (INDEX >= 896, "only the last block (block 7, elements 896 to 999)", causes.LAST_BLOCK),
        (INDEX >= 990, "elements 990 to 999, the end of the last block", causes.TAIL),
        (
            INDEX >= 128,
            "everything after the first block (elements 128 to 999; 128 per block)",
            causes.AFTER_FIRST_BLOCK,
        ),
        (INDEX >= 640, "everything from block 5 on (elements 640 to 999; 128 per block)", causes.FROM_BLOCK_ON),
        (INDEX < 128, "only the first block (block 0, elements 0 to 127)", causes.FIRST_BLOCK),
        (INDEX // 128 == 3, "only one block (block 3, elements 384 to 511)", causes.WHOLE_BLOCKS),
        (INDEX // 128 % 2 == 1, "4 of 8 blocks, these altogether: 1, 3, 5 and more", causes.WHOLE_BLOCKS),
        (INDEX // 128 != 3, "all blocks but 3, these altogether", causes.WHOLE_BLOCKS),
        (
            (INDEX >= 256) & (INDEX < 640),
            "only elements 256 to 639, 3 whole blocks of 128",
            causes.WHOLE_BLOCKS,
        ),
        (INDEX >= 32, "everything after the first 32 elements", causes.OTHER_WARPS),
        (INDEX >= 500, "the last 500 elements, from element 500 on", causes.FROM_INDEX_ON),
        (INDEX < 100, "the first 100 elements, elements 0 to 99", causes.START),
        ((INDEX >= 400) & (INDEX < 450), "only elements 400 to 449", ""),
        (INDEX % 128 == 0, "the first element of every block (128 elements per block)", causes.FIRST_OF_BLOCK),
        (INDEX % 128 == 127, "the last element of every block (128 elements per block)", causes.LAST_OF_BLOCK),
        (
            INDEX % 128 > 0,
            "all but the first element of every block (128 elements per block)",
            causes.FIRST_OF_BLOCK,
        ),
        (INDEX % 128 == 5, "element 5 of every block (128 elements per block)", causes.IN_EACH_BLOCK),
        (
            np.isin(INDEX, (255, 511, 639)),
            "the last element in 3 of 8 blocks (128 elements per block)",
            causes.LAST_OF_BLOCK,
        ),
        (
            np.isin(INDEX, (0, 256)),
            "the first element in 2 of 8 blocks (128 elements per block)",
            causes.FIRST_OF_BLOCK,
        ),
        (INDEX % 128 >= 64, "the second half of every block (128 elements per block)", causes.IN_EACH_BLOCK),
        (INDEX % 128 < 64, "the first half of every block (128 elements per block)", causes.IN_EACH_BLOCK),
        (
            INDEX % 128 >= 32,
            "all but the first 32 elements of every block (128 elements per block)",
            causes.OTHER_WARPS,
        ),
        (
            INDEX % 128 >= 100,
            "elements 100 to 127 of every block (128 elements per block)",
            causes.IN_EACH_BLOCK,
        ),
        (INDEX % 32 == 31, "every 32nd element, from element 31 on", causes.LANE),
        (INDEX % 32 != 31, "all but every 32nd element (index % 32 == 31)", causes.LANE),
        (INDEX % 32 < 16, "elements 0 to 15 of every 32", causes.LANE),
        (abs(INDEX - 500) > 494, "the first 6 elements and the last 5 elements", causes.BOTH_ENDS),
        (INDEX % 2 == 1, "every 2nd element, from element 1 on", causes.STRIDED),
        (INDEX % 11 == 3, "every 11th element, from element 3 on", causes.STRIDED),
        (INDEX % 8 != 2, "all but every 8th element (index % 8 == 2)", causes.STRIDED),
        (INDEX % 8 >= 4, "elements 4 to 7 of every 8", causes.STRIDED),
        (np.isin(INDEX % 8, (1, 3, 6)), "elements with index % 8 == 1, 3 or 6", causes.STRIDED),
        (
            np.isin(INDEX, (900, 931, 950, 951, 997)),
            "all of them in the last block (block 7)",
            causes.LAST_BLOCK,
        ),
        (
            np.isin(INDEX, (390, 401, 402, 451, 477)),
            "all of them in the same block (block 3)",
            causes.IN_EACH_BLOCK,
        ),
        (
            (INDEX > 128) & (INDEX % 9 > 0),
            "all of them after the first block (128 elements per block)",
            causes.AFTER_FIRST_BLOCK,
        ),
    ],
)
def test_wrong_elements_are_located_in_an_array(wrong: Any, words: str, cause: str) -> None:
    pattern = place_of(wrong, (128,))
    assert pattern is not None
    assert (pattern.what, pattern.cause) == (words, cause)


def test_a_full_last_block_and_a_second_block_have_different_causes() -> None:
    full, second = place_of(np.arange(512) >= 384, (128,)), place_of(np.arange(200) >= 128, (128,))
    assert full is not None and full.cause == causes.LAST_FULL_BLOCK
    assert second is not None and second.cause == causes.SECOND_BLOCK


def test_no_block_is_named_if_the_blocks_are_unknown() -> None:
    pattern = place_of(INDEX >= 896, (None,))
    assert pattern is not None and pattern.what == "the last 104 elements, from element 896 on"


@pytest.mark.parametrize("tile", [32, 64])
def test_a_repetition_in_one_further_element_is_chance(tile: int) -> None:
    assert place_of(np.arange(tile + 1) != tile - 1, (tile,)) is None
    assert place_of(np.arange(2 * tile) % tile != tile - 1, (tile,)) is not None


def test_two_neighbours_of_few_elements_are_chance() -> None:
    assert place_of(np.arange(17) // 2 == 4, (16,)) is None
    found = place_of(np.arange(200) // 2 == 4, (16,))
    assert found is not None and found.what == "only elements 8 to 9"


def test_two_correct_elements_at_the_same_distance_are_a_repetition_if_there_are_many_elements() -> None:
    assert place_of(np.arange(17) % 8 != 3, (16,)) is None
    found = place_of(np.arange(128) % 64 != 3, (64,))
    assert found is not None and found.what == "all but every 64th element (index % 64 == 3)"


def test_both_ends_are_named_only_if_that_is_hardly_chance() -> None:
    assert place_of(np.isin(np.arange(333), 166, invert=True), (None,)) is None
    assert place_of(np.isin(np.arange(33), (15, 16, 20), invert=True), (None,)) is None
    assert place_of(np.isin(np.arange(12), (0, 11)), (None,)) is None
    lanes = place_of(np.isin(np.arange(33), (0, 32)), (None,))
    assert lanes is not None and lanes.cause == causes.LANE
    ends = place_of(np.isin(np.arange(37), (0, 36)), (None,))
    assert ends is not None and ends.what == "the first element and the last element"


@pytest.mark.parametrize("at", [(390, 451), (390, 451, 900), (130, 260, 390, 500, 600, 700, 800, 900)])
def test_a_few_elements_in_few_blocks_have_no_pattern(at: tuple[int, ...]) -> None:
    assert place_of(np.isin(INDEX, at), (128,)) is None


def test_a_distance_of_two_elements_counts_only_for_lanes() -> None:
    assert place_of(np.isin(np.arange(10), (2, 6)), (None,)) is None
    assert place_of(np.isin(np.arange(4), (0, 2)), (None,)) is None
    lanes = place_of(np.isin(np.arange(40), (0, 32)), (None,))
    assert lanes is not None and lanes.what == "every 32nd element, from element 0 on"


def test_a_single_block_has_no_pattern_of_blocks() -> None:
    assert place_of(np.arange(176) == 55, (128,)) is None


@pytest.mark.parametrize("seed", range(20))
def test_scattered_elements_have_no_pattern(seed: int) -> None:
    assert place_of(np.random.default_rng(seed).random(N) < 0.3, (128,)) is None


@pytest.mark.parametrize(
    ("wrong", "words", "cause"),
    [
        (X_AXIS == 19, "only the last column, column 19", causes.LAST_COLUMNS),
        (X_AXIS >= 16, "only the last column of blocks (columns 16 to 19)", causes.LAST_COLUMNS),
        (Y_AXIS == 15, "only the last row, row 15", causes.LAST_ROWS),
        (Y_AXIS >= 10, "rows 10 to 15, the end of the last row of blocks", causes.LAST_ROWS),
        (X_AXIS >= 12, "the last 8 columns, from column 12 on", causes.IN_X),
        (X_AXIS >= 14, "the last 6 columns, from column 14 on", causes.IN_X),
        (X_AXIS >= 18, "columns 18 to 19, the end of the last column of blocks", causes.LAST_COLUMNS),
        (X_AXIS < 16, "only columns 0 to 15, 2 whole blocks of 8", causes.IN_X),
        (X_AXIS % 2 == 1, "every 2nd column, from column 1 on", causes.IN_X),
        (Y_AXIS == 0, "only the first row", causes.IN_Y),
        (
            (X_AXIS < 3) | (Y_AXIS < 3),
            "the first 3 columns, columns 0 to 2, and the first 3 rows, rows 0 to 2",
            causes.FIRST_EDGES,
        ),
        (
            (abs(X_AXIS - 9.5) > 7) | (abs(Y_AXIS - 7.5) > 5),
            "the first 3 columns and the last 3 columns, and the first 3 rows and the last 3 rows",
            causes.BOTH_ENDS,
        ),
        (abs(X_AXIS - 9) > 7, "the first 2 columns and the last 3 columns", causes.BOTH_ENDS),
        ((X_AXIS < 3) | (Y_AXIS >= 12), "the first 3 columns, columns 0 to 2, and the last 4 rows, from row 12 on", ""),
        (
            (X_AXIS >= 8) | (Y_AXIS >= 8),
            "everything beyond the first block (8 x 8 elements)",
            causes.BLOCK_LEFT_OUT,
        ),
        (
            (X_AXIS >= 16) | (Y_AXIS >= 12),
            "the last 4 columns, from column 16 on, and the last 4 rows, from row 12 on",
            causes.LAST_COLUMNS,
        ),
        (X_AXIS < 17, "all but the last 3 columns", causes.NO_NEIGHBOURS),
        (Y_AXIS > 2, "all but the first 3 rows", causes.NO_NEIGHBOURS),
        ((X_AXIS < 17) | (Y_AXIS < 13), "all but the last 3 columns of the last 3 rows", causes.CORNER),
        ((X_AXIS > 0) | (Y_AXIS > 1), "all but the first column of the first 2 rows", causes.CORNER),
    ],
)
def test_wrong_elements_are_located_in_a_plane(wrong: Any, words: str, cause: str) -> None:
    pattern = place_of(wrong, (8, 8))
    assert pattern is not None
    assert (pattern.what, pattern.cause) == (words, cause)


def test_the_rest_behind_rows_with_the_pitch_of_the_transposed_plane_is_recognised() -> None:
    written = np.zeros(5 * 8, bool)
    for row in range(5):
        written[row * 5 : row * 5 + 8] = True
    pattern = error_location.pitch_of(~written.reshape(5, 8))
    assert pattern is not None
    assert (pattern.what, pattern.cause) == (
        "just the rest if rows begin every 5 elements, not every 8", causes.PITCH
    )  # fmt: skip
    written[-1] = True
    assert error_location.pitch_of(~written.reshape(5, 8)) is None
    last_row = np.arange(4 * 6).reshape(4, 6) >= 3 * 6  # where rows of 4 elements end, too
    assert error_location.pitch_of(last_row) is None


@pytest.mark.parametrize(("first", "cause"), [(32, causes.IN_X), (44, causes.LAST_COLUMNS)])
def test_many_columns_are_no_edge_where_the_blocks_are_unknown(first: int, cause: str) -> None:
    pattern = place_of(np.indices((32, 48))[1] >= first, (None, None))
    assert pattern is not None and pattern.cause == cause


def test_all_elements_but_the_diagonal_are_recognised() -> None:
    pattern = place_of(~np.eye(9, dtype=bool), (None, None))
    assert pattern is not None and pattern.cause == causes.OFF_DIAGONAL


def test_all_or_scattered_elements_of_a_plane_have_no_pattern() -> None:
    assert place_of(np.ones((4, 4), bool), (2, 2)) is None
    assert place_of(np.random.default_rng(1).random((16, 20)) < 0.5, (8, 8)) is None


def test_ordinal_numbers_in_words() -> None:
    assert [ordinal(k) for k in (2, 3, 4, 11, 21, 32, 113)] == ["2nd", "3rd", "4th", "11th", "21st", "32nd", "113th"]


def test_positions_in_a_tiny_array_are_no_pattern() -> None:
    assert place_of(np.array([True, False]), (2,)) is None
    assert place_of(np.arange(9) == 0, (9,)) is None
    assert place_of(np.arange(33) == 32, (33,)) is not None


@pytest.mark.parametrize(
    ("shape", "right", "words", "cause"),
    [
        (
            (1, 37),
            (0, slice(0, None, 16)),
            "all but the first column of every block (16 columns per block)",
            causes.IN_X,
        ),
        (
            (37, 1),
            (slice(0, None, 16), 0),
            "all but the first row of every block (16 rows per block)",
            causes.IN_Y,
        ),
        ((1, 37), (0, 0), "all but the first column", causes.IN_X),
        ((61, 97), (0, 0), "all but the element (y=0, x=0)", ""),
        ((61, 97), "diagonals", "all but the diagonal of every block (16 x 16 elements)", causes.SAME_INDEX),
        ((61, 97), "diagonal", "all but the diagonal", causes.OFF_DIAGONAL),
    ],
)
def test_patterns_in_a_plane_are_worded_with_x_and_y(
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


@pytest.mark.parametrize(
    ("unwritten", "hint"),
    [(INDEX % 32 >= 8, LEFT_OUT), (INDEX % 2 == 1, LEFT_OUT), (INDEX % 128 >= 32, causes.IN_EACH_BLOCK)],
)
def test_elements_that_no_thread_writes_need_no_shuffle_and_no_other_warp(unwritten: Any, hint: str) -> None:
    output = mistake(np.where(unwritten, -1, X), X, plan=plan(N, 8, 128))
    assert never_written(output, is_certain=True).hint == hint

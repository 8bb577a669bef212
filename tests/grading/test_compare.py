from typing import Any

import numpy as np
import pytest

from pytest_gpulab.grading.compare import compare, mismatches
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.replay import FIRST

POISON = FIRST.poison
NAN, INF = np.nan, np.inf


def found(actual: Any, expected: Any, tolerance: Any = 0.0) -> Finding:
    finding = compare("out", np.asarray(actual), np.asarray(expected), tolerance, POISON)
    assert finding is not None
    return finding


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def test_what_is_within_the_tolerance_is_right() -> None:
    assert compare("out", floats(1, 2), np.array([1, 2.5]), 0.5, POISON) is None
    assert compare("out", floats(1, 2), np.array([1, 2.5]), np.array([0, 0.6]), POISON) is None
    assert compare("out", np.array([1, 2], np.int32), np.array([1, 2]), 0, POISON) is None
    assert compare("out", np.array([1, 2], np.int32), np.array([1, 3]), 1, POISON) is None


@pytest.mark.parametrize(
    ("actual", "expected", "wrong"),
    [
        (NAN, NAN, True),
        (NAN, 1.0, True),
        (1.0, NAN, True),
        (INF, INF, False),
        (-INF, INF, True),
        (INF, 1.0, True),
        (1.0, INF, True),
        (0.0, -0.0, False),
        (1.0, 1.1, False),
        (1.0, 1.3, True),
    ],
)
def test_special_floats(actual: float, expected: float, wrong: bool) -> None:
    assert mismatches(floats(actual), np.array([expected]), 0.2).tolist() == [wrong]


def test_integers_are_compared_exactly_where_float64_could_not_tell_them_apart() -> None:
    big = 2**53
    assert mismatches(np.array([big + 1]), np.array([big]), 0).all()
    assert mismatches(np.array([big + 1], np.uint64), np.array([big + 1], np.int64), 0).tolist() == [False]


def test_a_bool_that_is_neither_0_nor_1_is_wrong() -> None:
    poisoned = POISON.filled((2,), np.bool_)
    assert compare("out", np.array([True, False]), np.array([True, False]), 0, POISON) is None
    assert found(poisoned, [True, False]).code == "not-written"


def test_wrong_elements_are_counted_and_the_first_ones_shown() -> None:
    finding = found(floats(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), [9, 1, 2, 9, 9, 9, 9, 7, 9, 0], 0.25)
    assert (finding.code, finding.what) == ("wrong-result", "`out`: 7 of 10 elements are wrong.")
    assert len(finding.evidence) == 5
    assert finding.evidence[0] == "out[0] is 0, expected 9 (allowed error 0.25)"
    assert "by hand" in finding.hint


@pytest.mark.parametrize(
    ("actual", "expected", "what", "element"),
    [
        (np.array([3], np.int32), [4], "the only element is wrong", "out[0] is 3, expected 4"),
        (np.array([3, 4], np.int32), [4, 5], "all 2 elements are wrong", "out[0] is 3, expected 4"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [9, 4]], "1 of 4 elements is wrong", "out[(1, 0)] is 3, expected 9"),
        (floats(NAN, 0.1), [1, 0.1], "1 of 2 elements is wrong", "out[0] is nan, expected 1 (allowed error 1e-07)"),
    ],
)
def test_the_words_for_counts_and_indices(actual: Any, expected: Any, what: str, element: str) -> None:
    finding = found(actual, expected, 1e-7 if actual.dtype.kind == "f" else 0)
    assert finding.what == f"`out`: {what}."
    assert finding.evidence[0] == element


@pytest.mark.parametrize(
    ("actual", "words"),
    [
        (np.zeros(8), "every element is 0"),
        (np.full(8, 2.5), "every element is 2.5"),
        (np.array([3] * 8), "every element is 3"),
        (np.full(8, NAN), "every element is NaN"),
        (np.array([0.0, 1, 2, 3, 4, 5, 6, 7]), "it would be right if every element stood one place earlier"),
        (np.array([2.0, 3, 4, 5, 6, 7, 8, 9]), "it would be right if every element stood one place later"),
        (np.array([1.0, 2, 3, 4, 5, 0, 0, 0]), "these are the last 3 elements, from index 5 on"),
        (np.array([0.0, 0, 3, 4, 5, 6, 7, 8]), "these are the first 2 elements, up to index 1"),
        (np.array([1.0, 2, 0, 0, 0, 6, 7, 8]), "these are the elements 2 to 4"),
        (np.array([1.0, 0, 3, 0, 5, 0, 7, 0]), "these lie 2 elements apart, from index 1 on"),
    ],
)
def test_a_pattern_is_said_in_words(actual: Any, words: str) -> None:
    assert found(actual, np.arange(1.0, 9.0)).evidence[-1] == words


@pytest.mark.parametrize("actual", [[0, 2, 3, 0, 5, 6, 7, 8], [0, 2, 0, 0, 5, 6, 7, 8], [1, 2, 0, 4, 5, 6, 7, 8]])
def test_no_pattern_is_invented(actual: list[int]) -> None:
    evidence = found(np.array(actual), np.arange(1, 9)).evidence
    assert all(line.startswith("out[") for line in evidence)


def test_what_is_still_poisoned_was_not_written() -> None:
    actual = POISON.filled((3, 4), np.float32)
    expected = np.arange(12.0).reshape(3, 4)
    everything = found(actual, expected)
    assert (everything.code, everything.what) == ("not-written", "`out`: all 12 elements are never written.")
    assert everything.evidence == ("at index (0, 0), (0, 1), (0, 2), (0, 3), (1, 0), ...",)
    actual[:2] = expected[:2]
    tail = found(actual, expected)
    assert tail.evidence == (
        "at index (2, 0), (2, 1), (2, 2), (2, 3)",
        "these are the last 4 elements, from index 8 on",
    )
    assert "last block" in tail.hint


def test_where_only_a_part_ran_only_what_was_written_counts() -> None:
    actual, expected = POISON.filled((6,), np.float32), np.arange(6.0)
    assert compare("out", actual, expected, 0, POISON, only_written=True) is None
    actual[2:4] = 2, 9
    finding = compare("out", actual, expected, 0, POISON, only_written=True)
    assert finding is not None
    assert (finding.code, finding.what) == ("wrong-result", "`out`: 1 of 6 elements is wrong.")
    assert finding.evidence == ("out[3] is 9, expected 3",)


def test_a_value_that_happens_to_look_like_poison_is_right_where_it_is_expected() -> None:
    poison = POISON.filled((2,), np.int32)
    assert compare("out", poison, poison.copy(), 0, POISON) is None

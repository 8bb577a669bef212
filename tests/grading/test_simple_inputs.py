"""Sizes and values to try for the smallest failing input, and their notations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytest_gpulab.grading.correctness.sizes import axes_of, rule
from pytest_gpulab.grading.diagnosis.simple_inputs import (
    as_option,
    bounds_of,
    parsed,
    shown,
    simple_inputs,
    simplified,
)

pytestmark = pytest.mark.unit

TRIED = (1, 2, 3, 4, 31, 32, 33, 63, 64, 65, 255, 256, 257, 512, 513, 768)


def ruled(fails: Callable[[int], bool], tried: tuple[int, ...] = TRIED) -> str:
    return rule({(n,): fails(n) for n in tried}, ("n",), (256,))


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda n: n % 256 != 0, "every n that is no multiple of 256"),
        (lambda n: n % 2 == 0, "every n that is a multiple of 2"),
        (lambda n: n > 256, "every n that is at least 257"),
        (lambda n: n <= 32, "every n that is at most 32"),
        (lambda n: n & (n - 1) != 0, "every n that is no power of two"),
        (lambda n: True, "every n tried"),
        (lambda n: n != 256, "every n tried but n = 256"),
        (lambda n: n == 64, "n = 64"),
        (lambda n: n in (3, 33, 65, 257), ""),
    ],
)
def test_the_rule_of_the_sizes_that_fail(fails: Any, words: str) -> None:
    assert ruled(fails) == words


def test_a_rule_is_true_of_all_that_was_tried() -> None:
    """One more size that contradicts a rule removes it."""
    assert ruled(lambda n: n % 256 != 0 or n == 768) != "every n that is no multiple of 256"
    assert ruled(lambda n: n > 256, (*TRIED, 100)) == "every n that is at least 257"
    assert ruled(lambda n: n > 256 or n == 100, (*TRIED, 100)) == ""


def test_no_rule_rests_on_one_or_two_sizes() -> None:
    assert ruled(lambda n: n == 2, (1, 2)) == ""
    assert ruled(lambda n: n % 2 == 0, (1, 2, 4)) == "every n that is at least 2"


def test_rules_of_several_extents() -> None:
    sizes = [(w, h) for w in (1, 2, 16, 17, 32) for h in (1, 2, 16, 17, 32)]
    names = ("width", "height")
    assert rule({s: s[0] != s[1] for s in sizes}, names, (16,)) == "every size where width and height differ"
    assert rule({s: s[1] % 16 != 0 for s in sizes}, names, (16,)) == "every size where height is no multiple of 16"
    assert rule({s: s[0] > s[1] for s in sizes}, names, (16,)) == "every size where width is larger than height"
    assert rule({s: s[0] < s[1] for s in sizes}, names, (16,)) == "every size where width is smaller than height"
    assert rule({s: s == (1, 1) for s in sizes}, names, (16,)) == "width = 1, height = 1"
    assert rule({s: s[0] > 2 or s[1] == 17 for s in sizes}, names, (16,)) == ""
    assert rule({(*s, k): s != (1, 1) for s in sizes for k in (1, 2, 3)}, (*names, "count"), (16,)) == (
        "every size tried but width = 1, height = 1"
    )
    assert rule({(w, n): n % 2 == 0 for w in (1, 2, 3) for n in (1, 2, 4)}, ("width", "n"), ()) == (
        "every size where n is at least 2"
    )


def test_only_sizes_like_those_of_the_cases_are_tried() -> None:
    (any_size,) = axes_of([1, 33, 1000], [256])
    assert {1, 2, 33, 255, 256, 257, 512} <= set(any_size.candidates()) and max(any_size.candidates()) == 1000
    (tiles,) = axes_of([32, 48, 160], [16])
    assert tiles.candidates() == [32, 48, 64, 96, 160]
    (powers,) = axes_of([64, 256, 1024], [128])
    assert powers.candidates() == [64, 128, 256, 1024]
    assert (tiles.between(48, 160), tiles.between(48, 64)) == (96, None)
    assert (powers.between(64, 1024), powers.between(256, 512), any_size.between(1, 4)) == (512, None, 2)


OWN = np.array([3, -5, 7, 1], np.int32)


def tries(own: Any, *samples: Any) -> list[str]:
    return [shown(i["in"]) for i in simple_inputs({"in": own}, bounds_of([{"in": s} for s in samples or (own,)]))]


def test_simple_values_begin_with_zeros() -> None:
    assert tries(OWN) == ["[0 0 0 0]", "[0 0 0 1]", "[1 0 0 0]", "[1 1 1 1]", "[-1 -1 -1 -1]", "[1 2 3 4]"]
    assert "[0.5 0.5 0.5 0.5]" in tries(OWN.astype(np.float32))
    assert tries(OWN > 0) == []


def test_values_of_one_sign_stay_within_those_of_the_exercise() -> None:
    """Indices, and starts of a formula, may be invalid outside of them."""
    starts = np.array([0.25, 2.0, 4.0], np.float32)
    assert tries(starts) == ["[1 1 1]", "[0.5 0.5 0.5]", "[1 2 3]"]
    assert tries(np.array([3, 0, 1], np.int32)) == ["[0 0 0]", "[0 0 1]", "[1 0 0]", "[1 1 1]", "[1 2 3]"]
    assert tries(starts[:1], starts[:1]) == []


def test_a_failing_input_is_reduced_to_the_elements_that_matter() -> None:
    tried = 0

    def fails(inputs: Any) -> bool:
        nonlocal tried
        tried += 1
        return bool(inputs["in"][700] != 0 and inputs["in"][3] > 4)

    own = {"in": np.arange(5, 1029, dtype=np.int32)}
    found = simplified(own, {"in": (-10, 2000)}, fails)["in"]
    assert np.flatnonzero(found).tolist() == [3, 700]
    assert (found[3], found[700]) == (8, 1)
    assert tried < 120


def test_nothing_outside_of_the_bounds_is_tried() -> None:
    own = {"in": np.array([2.0, 3.0], np.float32)}
    assert simplified(own, {"in": (0.25, 4.0)}, lambda inputs: True)["in"].tolist() == [1.0, 1.0]


def test_simplification_ends_with_its_budget() -> None:
    tried: list[object] = []

    def fails(inputs: Any) -> bool:
        tried.append(inputs)
        return False

    own = {"in": np.arange(1, 1001)}
    assert simplified(own, {"in": (0, 1000)}, fails, lambda: len(tried) == 3)["in"] is own["in"] and len(tried) == 3


@pytest.mark.parametrize(
    ("values", "in_words", "option"),
    [
        (np.array([0, 0, 1], np.int32), "[0 0 1]", "0,0,1"),
        (np.append(np.zeros(256, np.float32), np.float32(1)), "[0 (256 times) 1]", "0*256,1"),
        (np.arange(1, 258, dtype=np.float32), "[1 2 3 ... 257]", "1..257"),
        (np.zeros((2, 2), np.float32), "[[0 0] [0 0]]", "0*4"),
        (np.array([0.1], np.float64), "[0.1]", "0.1"),
        (np.arange(30) % 7 / 8, "[0 0.125 0.25 ... 0.125]", None),
    ],
)
def test_notations_of_arrays(values: Any, in_words: str, option: str | None) -> None:
    assert (shown(values), as_option(values)) == (in_words, option)


@given(
    arrays.arrays(
        st.sampled_from([np.float32, np.float64, np.int32, np.uint64, np.uint8]),
        st.integers(1, 40),
        elements={"allow_subnormal": False},
        fill=st.nothing(),
    )
)
def test_the_command_line_keeps_every_bit(values: Any) -> None:
    option = as_option(values)
    if option is not None:
        np.testing.assert_array_equal(parsed(option, values.dtype), values)


@pytest.mark.parametrize("word", ["1,,2", "a", "1.5", "300", "-1"])
def test_words_that_are_no_list_of_bytes(word: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parsed(word, np.uint8)

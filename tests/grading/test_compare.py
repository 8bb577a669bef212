from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_gpulab.devices.errors import Hazard
from pytest_gpulab.grading.correctness import trials
from pytest_gpulab.grading.diagnosis import arithmetic_patterns, causes
from pytest_gpulab.grading.diagnosis import value_patterns as values
from pytest_gpulab.grading.diagnosis.causes import TOO_SHORT
from pytest_gpulab.grading.diagnosis.compare import compare, mismatches
from pytest_gpulab.grading.diagnosis.wrong_output import MAX_EXAMINED, UNREACHED
from pytest_gpulab.grading.findings import HINTS
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.plans.replay import FIRST, Run

pytestmark = pytest.mark.unit

POISON = FIRST.poison
NAN, INF = np.nan, np.inf


def found(actual: Any, expected: Any, tolerance: Any = 0.0) -> Finding:
    finding = compare("out", np.asarray(actual), np.asarray(expected), tolerance, POISON)
    assert finding is not None
    return finding


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def test_values_within_the_tolerance_are_correct() -> None:
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
    assert finding.hint == HINTS["wrong-result"]


@pytest.mark.parametrize(
    ("actual", "expected", "what", "element"),
    [
        (np.array([3], np.int32), [4], "the only element is wrong", "out[0] is 3, expected 4"),
        (np.array([3, 4], np.int32), [4, 5], "all 2 elements are wrong", "out[0] is 3, expected 4"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [9, 4]], "1 of 4 elements is wrong", "out[y=1, x=0] is 3, expected 9"),
        (
            floats(NAN, 0.1),
            [1, 0.1],
            "1 of 2 elements is wrong",
            "out[0] is nan, expected 1 (allowed error 1e-07)",
        ),
    ],
)
def test_the_words_for_counts_and_indices(actual: Any, expected: Any, what: str, element: str) -> None:
    finding = found(actual, expected, 1e-7 if actual.dtype.kind == "f" else 0)
    assert finding.what == f"`out`: {what}."
    assert finding.evidence[0] == element


def test_a_pattern_in_the_places_goes_into_the_sentence_and_gives_the_hint() -> None:
    finding = found(floats(1, 2, 3, 4, 5, 9, 7, 11), np.arange(1, 9))
    assert finding.what == "`out`: 2 of 8 elements are wrong."
    finding = found(floats(1, 2, 3, 4, 5, 6, 7, 8, 1, 11), np.arange(1, 11))
    assert finding.what == "`out`: 2 of 10 elements are wrong: the last 2 elements, from element 8 on."
    assert finding.hint == causes.TAIL


def test_a_pattern_in_the_values_is_evidence_and_its_cause_comes_before_that_of_the_place() -> None:
    finding = found(floats(1, 2, 3, 4, 5, 6, 14, 16), np.arange(1, 9))
    assert "the last 2 elements" in finding.what
    assert finding.evidence[-1] == "each of them is twice the expected value"
    assert finding.hint == arithmetic_patterns.FACTOR


def test_where_the_values_say_little_the_place_gives_the_hint() -> None:
    finding = found(floats(1, 2, 3, 4, 5, 6, 7, 8, 0, 0), np.arange(1, 11))
    assert finding.evidence[-1] == "each of them is 0"
    assert finding.hint == causes.TAIL


def test_elements_in_between_that_are_nearly_right_were_processed() -> None:
    expected = np.linspace(1.3, 7.9, 64)
    actual = np.where(np.arange(64) % 2, expected, expected * 0.995).astype(np.float32)
    finding = found(actual, expected, 1e-5)
    assert "every 2nd element" in finding.what
    assert finding.hint == values.NEARLY_RIGHT


def test_the_last_of_few_elements_that_are_nearly_right_are_chance() -> None:
    expected = np.linspace(1.3, 7.9, 64)
    actual = np.where(np.arange(64) < 62, expected, expected * 1.0005).astype(np.float32)
    assert found(actual[-7:], expected[-7:], 1e-6).hint == values.NEARLY_RIGHT
    assert found(actual, expected, 1e-6).hint == causes.TAIL


def test_of_very_many_elements_only_the_places_are_looked_at() -> None:
    expected = (np.arange(MAX_EXAMINED + 1) % 5).astype(np.int8)
    actual = expected.copy()
    actual[1::2] += 6
    finding = found(actual, expected)
    assert finding.what.endswith("elements are wrong: every 2nd element, from element 1 on.")
    assert all(line.startswith("out[") for line in finding.evidence)


@pytest.mark.parametrize("actual", [[0, 2, 3, 7, 5, 6, 7, 8], [0, 2, 9, 9, 5, 6, 7, 8], [1, 2, 0, 4, 5, 6, 7, 9]])
def test_no_pattern_is_invented(actual: list[int]) -> None:
    finding = found(np.array(actual), np.arange(1, 9))
    assert finding.what.endswith("elements are wrong.")
    assert all(line.startswith("out[") for line in finding.evidence)
    assert finding.hint == HINTS["wrong-result"]


def test_poisoned_elements_were_not_written() -> None:
    actual = POISON.filled((3, 4), np.float32)
    expected = np.arange(12.0).reshape(3, 4)
    everything = found(actual, expected)
    assert (everything.code, everything.what) == ("not-written", "`out`: all 12 elements are never written.")
    assert everything.evidence == ("at index (y=0, x=0), (y=0, x=1), (y=0, x=2), (y=0, x=3), (y=1, x=0), ...",)
    actual[:2] = expected[:2]
    tail = found(actual, expected)
    assert tail.what == "`out`: 4 of 12 elements are never written: only the last row, row 2."
    assert tail.evidence == ("at index (y=2, x=0), (y=2, x=1), (y=2, x=2), (y=2, x=3)",)
    assert tail.hint == UNREACHED.format("lower", "y")
    actual, expected = POISON.filled((300,), np.float32), np.arange(300.0)
    actual[:77] = expected[:77]
    assert found(actual, expected).hint == TOO_SHORT


def test_integers_that_were_added_to_garbage_were_written() -> None:
    expected = np.array([3, 0, 7, 0, 5], np.int32)
    finding = found(POISON.filled((5,), np.int32) + expected, expected)
    assert (finding.code, finding.what) == ("wrong-result", "`out`: all 5 elements are wrong.")
    partly = POISON.filled((5,), np.int32)
    partly[:3] = 3, 1, 7
    assert found(partly, expected).what == "`out`: 2 of 5 elements are never written."


def test_of_a_kernel_that_reads_garbage_no_element_is_called_unwritten() -> None:
    poison = POISON.filled((4,), np.uint32)  # as by atomicMax()
    finding = compare("out", poison, np.arange(4, dtype=np.uint32), 0, POISON, reads_garbage=True)
    assert finding is not None
    assert (finding.code, finding.what) == (
        "not-written", "`out`: all 4 elements are the garbage from before the launch."
    )  # fmt: skip


def test_a_run_that_reads_garbage_has_no_element_that_is_certainly_unwritten() -> None:
    outputs = {"out": POISON.filled((3,), np.int32)}
    read = Hazard("uninitialised", "uninitialized __global__ memory read of size 4 bytes: `out[0]` was never written")
    shared = replace(read, what=read.what.replace("global", "shared"))
    for hazards, unwritten in (((), 3), ((shared,), 3), ((shared, read), 0)):
        run = Run(outputs, damage=hazards)
        assert np.count_nonzero(trials._unwritten(run, "out")) == unwritten


def test_only_written_elements_of_a_partial_run_are_compared() -> None:
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


ODD = {
    "huge": (floats(1, INF, 3, NAN, 5), [1e300, -1e300, 1e308, 4, NAN]),
    "infinite": (floats(1, 2, 3, -INF), [INF, -INF, NAN, INF]),
    "complex": (np.array([1j, 2, 3]), [1, 2j, 3j]),
    "bool": (np.array([True, False, True]), [False, True, True]),
    "int for float": (np.array([1, -2, 3], np.int32), [1e20, NAN, INF]),
    "unsigned": (np.array([1, 2, 255], np.uint8), [0, 0, 0]),
    "half": (np.array([1, 2, 65504], np.float16), [1e9, -1e9, 3]),
    "empty dimensions": (np.zeros((2, 1, 3)), np.ones((2, 1, 3))),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_values_and_types_are_compared(kind: str) -> None:
    actual, expected = ODD[kind]
    assert found(actual, expected).code == "wrong-result"
    assert found(actual[..., :1], np.asarray(expected)[..., :1]).code == "wrong-result"

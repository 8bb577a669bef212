"""The first step at which values depart from those of a right run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from pytest_gpulab.grading.diagnosis.patterns import number

from .rows import Row, rows_of
from .tracing import Traced

CLOSE = 1e-4  # relative difference of floats that other orders of additions explain
Wrong = tuple[int, int, str]
"""The row, the element and the words of a mark."""


def departures(traced: Traced, launch: int, block: int, rows: Sequence[Row]) -> list[Wrong]:
    """Return the wrong elements of the first row that has any.

    They are compared with a right run: one of the same kernel with another order of warps, else one of the baseline
    with the same plan, else the reference.
    """
    if traced.run.error is not None or not traced.trial.wrong(traced.run):
        return []
    if traced.right is not None and traced.right.source == traced.source:
        others = rows_of(traced.right.launches[launch], traced.right.arrays[launch], block)
        wrong = sorted(_against_steps(rows, others))
    else:
        is_last = launch == len(traced.trial.prepared.plan.launches) - 1
        results = _judged(traced) if is_last else _results(traced, launch, block)
        found = _against_results(rows, results, 0 if is_last else CLOSE)
        wrong = sorted((place, index, _words(rows[place], index, right)) for place, index, right in found)
    return [each for each in wrong if each[0] == wrong[0][0]]


def last_values(traced: Traced, rows: Sequence[Row]) -> list[Wrong]:
    """Return the wrong elements of outputs that keep their values to the end, if no fault ended the run."""
    if traced.run.error is not None:
        return []
    found = []
    for place, index, right in _against_results(rows, _judged(traced), 0):
        array, value = rows[place].array, rows[place].values[index]
        if _is_close(value, np.asarray(traced.run.outputs[array.buffer]).reshape(-1)[index], 0):
            words = f"{array.element(index)} is {number(value)} until the end, right is {number(right)}"
            found.append((place, index, words))
    return found


def _words(row: Row, index: int, right: Any) -> str:
    return f"first wrong value: {row.array.element(index)} is {number(row.values[index])}, right is {number(right)}"


def _against_steps(rows: Sequence[Row], others: Sequence[Row]) -> Iterator[Wrong]:
    """Yield elements with another first, second or later value than the same element has in the other run."""
    history: dict[tuple[str, int], list[Any]] = {}
    for row in others:
        for index in row.writers:
            history.setdefault((row.array.name, index), []).append(row.values[index])
    seen: Counter[tuple[str, int]] = Counter()
    for place, row in enumerate(rows):
        for index in row.writers:
            key = row.array.name, index
            right = history.get(key, [])[seen[key] : seen[key] + 1]
            seen[key] += 1
            if right and not _is_close(row.values[index], right[0]):
                yield place, index, _words(row, index, right[0])


def _against_results(
    rows: Sequence[Row], results: Mapping[tuple[str, int], Any], tolerance: float
) -> Iterator[tuple[int, int, Any]]:
    """Yield the row, the element and the right value of elements with a wrong last value."""
    last = {(row.array.buffer, index): place for place, row in enumerate(rows) for index in row.writers}
    for (buffer, index), place in last.items():
        right = results.get((buffer, index))
        if right is not None and not _is_close(rows[place].values[index], right, tolerance):
            yield place, index, right


def _judged(traced: Traced) -> Mapping[tuple[str, int], Any]:
    """Return the right values of the elements that are wrong by the exercise's tolerance, by buffer and element."""
    expected = traced.trial.prepared.expected.values
    return {
        (name, index): np.asarray(expected[name]).reshape(-1)[index]
        for name, mask in traced.trial.wrong(traced.run).items()
        for index in np.flatnonzero(mask).tolist()
    }


def _results(traced: Traced, launch: int, block: int) -> Mapping[tuple[str, int], Any]:
    """Return the values of a right run after a launch that is not the last one, by buffer and element."""
    if traced.right is None or launch >= len(traced.right.launches):
        return {}
    right = traced.right.launches[launch]
    if block >= prod(right.grid):
        return {}
    rows = rows_of(right, traced.right.arrays[launch], block)
    return {(row.array.buffer, index): row.values[index] for row in rows if row.array.buffer for index in row.writers}


def _is_close(value: Any, right: Any, tolerance: float = CLOSE) -> bool:
    if np.asarray(right).dtype.kind == "f":
        return bool(np.isclose(value, right, rtol=tolerance, atol=0, equal_nan=True))
    return bool(value == right)

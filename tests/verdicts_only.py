"""A plugin of runs about verdicts: no search for the smallest failing input, half of the time of a wrong kernel."""

from __future__ import annotations


def pytest_collection_finish() -> None:
    from pytest_gpulab.grading.correctness import shrinking  # by now NumPy has been loaded with one thread

    shrinking.MAX_SEARCHES = 0

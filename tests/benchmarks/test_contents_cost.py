"""The cost of the contents of a timed run for a process that shares those of another: at most a third."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from pytest_gpulab.exercise import Problem
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.plans.prepare import make_plan
from pytest_gpulab.grading.speed import contents
from pytest_gpulab.grading.speed.costs import pattern_of
from pytest_gpulab.grading.speed.mixing import Mix, mixed
from pytest_gpulab.grading.speed.validation import SETS

ROOT = Path(__file__).parents[2]
LEAST_RATIO = 3


def taken_s() -> float:
    """CPU time to have both sets of the reduction, mix them, and read everything once, as copying to a GPU does."""
    exercise = Catalogue(ROOT / "exercises").load("reduction").exercise
    (tier, *_) = exercise.speed
    tunables = {each.name: each.allowed[0] if each.default is None else each.default for each in exercise.tunables}
    problem = Problem(tier.size, tunables, tier.variant)
    plan, pattern = make_plan(exercise, problem), pattern_of(exercise, tier.variant)
    begin_s = time.process_time()
    sets = [contents.timed_inputs(exercise, problem, plan, pattern, 1, (str(number),)) for number in range(SETS)]
    for each in (*sets, mixed(sets, Mix.drawn(0, np.random.default_rng(1)))):
        assert np.max(each["in"]) > 0
    return time.process_time() - begin_s


def test_contents_that_another_process_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(contents.FOLDER, raising=False)
    own_s = taken_s()
    with tempfile.TemporaryDirectory() as folder:  # pytest would keep half a gigabyte
        monkeypatch.setenv(contents.FOLDER, folder)
        monkeypatch.setattr(contents, "FREE_BYTES", 0)
        taken_s()  # by the first process
        shared_s = taken_s()
    print(f"own {own_s:.2f} s, shared {shared_s:.2f} s")
    assert own_s >= LEAST_RATIO * shared_s

"""Which timed runs are chosen to be checked."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from pytest_gpulab.grading.speed.statistics import FEWEST_ROUNDS, FIRST_ROUNDS
from pytest_gpulab.grading.speed.targets import REPLICAS
from pytest_gpulab.grading.speed.validation import CANDIDATES, CANDIDATES_IF_SMALL, SETS, SMALL_BYTES, CheckedRuns

pytestmark = pytest.mark.unit

SEEDS = range(200)


def runs_with(seed: int, nbytes: int = SMALL_BYTES + 1) -> CheckedRuns:
    return CheckedRuns(cast(Any, SimpleNamespace(nbytes=nbytes)), np.random.default_rng(seed))


@pytest.mark.parametrize(("nbytes", "candidates"), [(SMALL_BYTES + 1, CANDIDATES), (SMALL_BYTES, CANDIDATES_IF_SMALL)])
@pytest.mark.parametrize("seed", range(20))
def test_at_first_as_many_are_chosen_with_each_copy_and_of_each_set(seed: int, nbytes: int, candidates: int) -> None:
    chosen = runs_with(seed, nbytes).choose(0, FIRST_ROUNDS)
    assert set(chosen) <= set(range(FIRST_ROUNDS))
    copies = Counter(turn % REPLICAS for turn in list(chosen)[SETS:])
    assert copies == dict.fromkeys(range(REPLICAS), candidates // REPLICAS)
    assert Counter(chosen.values()) == dict.fromkeys(range(SETS), 1 + candidates // SETS)


@pytest.mark.parametrize("seed", range(20))
def test_the_few_rounds_of_a_slow_kernel_hold_a_run_of_each_set(seed: int) -> None:
    chosen = runs_with(seed).choose(0, FIRST_ROUNDS)
    early = list(chosen.items())[:SETS]
    assert {base for _, base in early} == set(range(SETS)) and all(turn < FEWEST_ROUNDS for turn, _ in early)


def test_any_turn_and_any_set_may_be_chosen() -> None:
    """A kernel that counts its launches does not know which are."""
    at_first = [runs_with(seed).choose(0, FIRST_ROUNDS) for seed in SEEDS]
    assert {pair for chosen in at_first for pair in chosen.items()} == {
        (turn, base) for turn in range(FIRST_ROUNDS) for base in range(SETS)
    }


def test_later_one_is_chosen_of_each_addition() -> None:
    found = []
    for seed in SEEDS:
        runs = runs_with(seed)
        runs.choose(0, FIRST_ROUNDS)
        ((turn, base),) = runs.choose(FIRST_ROUNDS, FIRST_ROUNDS).items()
        found.append((turn, base))
    assert {turn for turn, _ in found} == set(range(FIRST_ROUNDS, 2 * FIRST_ROUNDS))
    assert {base for _, base in found} == set(range(SETS))

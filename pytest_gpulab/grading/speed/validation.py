"""Validation of timed runs: chooses the runs to check and keeps their outputs.

A kernel cannot recognise a checked run. Each run has unique contents, unless the exercise's inputs cannot be mixed. The
candidates are chosen at random beforehand. Of large runs, the fastest per set of contents are checked, because a kernel
that skips work is fast then, and each further check costs a reference. To look faster, a kernel must skip work in half
of its runs; it then goes undetected 1 time in `2**CANDIDATES`. Of small runs twice as many are chosen, and all are
checked, because a batch does not show which of its runs was fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .mixing import Mix
from .statistics import FEWEST_ROUNDS
from .targets import REPLICAS, BenchmarkTarget, Outputs

SETS = 2  # of contents, mixed for each run
CANDIDATES = 2 * REPLICAS  # large runs that may be checked at first, besides a few early ones; later rounds add more
CANDIDATES_IF_SMALL = 2 * CANDIDATES
CHECKED_OF_A_SET = 2
SMALL_BYTES = 2**24  # of a small run, which is read and checked quickly; runs in batches are never larger


@dataclass(frozen=True)
class CheckedRun:
    """A timed run that is checked."""

    elapsed_ms: float  # its sample
    mix: Mix  # its contents
    outputs: Outputs  # its outputs, in memory that the pool keeps until it is closed
    changed: Mapping[str, int]  # counts of overwritten elements, by read-only input


def most_checked(own: BenchmarkTarget) -> int:
    """Return the maximal number of checked runs."""
    return CANDIDATES_IF_SMALL + SETS if _is_small(own) else SETS * CHECKED_OF_A_SET


def _is_small(own: BenchmarkTarget) -> bool:
    return own.nbytes <= SMALL_BYTES


class CheckedRuns:
    """The checked runs of a benchmark, of the submission's side."""

    def __init__(self, own: BenchmarkTarget, rng: np.random.Generator) -> None:
        self._own, self._rng = own, rng
        self._kept: list[CheckedRun] = []
        self._is_begun = False

    @property
    def kept(self) -> tuple[CheckedRun, ...]:
        """The kept runs: the fastest candidates so far."""
        return tuple(self._kept)

    def choose(self, first: int, rounds: int) -> dict[int, int]:
        """Return the candidate turns of the next rounds, with the index of the set that each is based on.

        The first call returns the most, equally many per copy, and one per set among the first few turns, because a
        slow kernel may have no more. Later calls return one.
        """
        # At random: a kernel that could predict the checked runs would skip work in the others.
        turns = [int(turn) for turn in self._rng.permutation(np.arange(first, first + rounds))]
        if self._is_begun:
            return {turns[0]: int(self._rng.integers(SETS))}
        self._is_begun = True
        early = [turn for turn in turns if turn < first + FEWEST_ROUNDS][:SETS]
        others = [turn for turn in turns if turn not in early]
        of_each = [[turn for turn in others if turn % REPLICAS == copy] for copy in range(REPLICAS)]
        chosen = [*early, *(turn for alike in zip(*of_each, strict=False) for turn in alike)]
        candidates = CANDIDATES_IF_SMALL if _is_small(self._own) else CANDIDATES
        return {turn: nth % SETS for nth, turn in enumerate(chosen[: len(early) + candidates])}

    def add(self, elapsed_ms: float, copy: int, mix: Mix) -> bool:
        """Keep the outputs of the latest run in a copy if it is among the fastest; return whether they were kept.

        After that the caller must call `take_copies`.
        """
        same_set = [run for run in self._kept if run.mix.base == mix.base]
        if len(same_set) == most_checked(self._own) // SETS:
            slowest = max(same_set, key=lambda run: run.elapsed_ms)
            if elapsed_ms >= slowest.elapsed_ms:
                return False
            self._own.drop_outputs(slowest.outputs)
            self._kept.remove(slowest)
        changed = self._own.changed_inputs(copy, mix)
        self._kept.append(CheckedRun(elapsed_ms, mix, self._own.keep_outputs(copy), changed))
        return True

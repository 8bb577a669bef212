"""Which timed runs of a submission are checked afterwards, and what is kept of them until then.

All runs look alike to a kernel, and each has contents that no other run has, unless these cannot be mixed. Some are
chosen at random beforehand. Of large ones the fastest on each set of contents are checked: whoever leaves out work is
fast then, and each more would cost a reference. So work that is left out in half of the runs, by chance or by what the
contents look like, is seen unless all that were chosen did it: once in `2**CANDIDATES` times it is not. Of small ones
twice as many are chosen, and all are checked: in a batch nothing tells which run was fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .mixing import Mix
from .statistics import FEWEST_ROUNDS
from .targets import REPLICAS, BenchmarkTarget, Outputs

SETS = 2  # of contents, which runs mix
CANDIDATES = 2 * REPLICAS  # large runs that may be checked, at first, besides a few early ones; later some more
CANDIDATES_IF_SMALL = 2 * CANDIDATES
CHECKED_OF_A_SET = 2
SMALL_BYTES = 2**24  # that a run touches: so much is read and computed in no time; what is timed in batches has no more


@dataclass(frozen=True)
class CheckedRun:
    """A timed run that is checked.

    Attributes:
        elapsed_ms: its sample.
        mix: its contents.
        outputs: what it wrote, in memory that the pool keeps until it is closed.
        changed: inputs that must stay as they are to how many of their elements it overwrote.
    """

    elapsed_ms: float
    mix: Mix
    outputs: Outputs
    changed: Mapping[str, int]


def most_checked(own: BenchmarkTarget) -> int:
    """Return how many runs are checked, at most."""
    return CANDIDATES_IF_SMALL + SETS if _is_small(own) else SETS * CHECKED_OF_A_SET


def _is_small(own: BenchmarkTarget) -> bool:
    return own.nbytes <= SMALL_BYTES


class CheckedRuns:
    """Those of one race.

    Args:
        own: the submission.
        rng: chooses.
    """

    def __init__(self, own: BenchmarkTarget, rng: np.random.Generator) -> None:
        self._own, self._rng = own, rng
        self._kept: list[CheckedRun] = []
        self._is_begun = False

    @property
    def kept(self) -> tuple[CheckedRun, ...]:
        """The fastest until now of those that were chosen."""
        return tuple(self._kept)

    def choose(self, first: int, rounds: int) -> dict[int, int]:
        """Return which turns to `add`, of so many from the first on, and on which set of contents each is to be based.

        One, but at first more, as many with each copy, besides one on each set among the first few turns: of a slow
        kernel there may be no more.
        """
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
        """Keep what the latest run in a copy wrote if it is one of the fastest; then copies are to be taken anew."""
        rivals = [run for run in self._kept if run.mix.base == mix.base]
        if len(rivals) == most_checked(self._own) // SETS:
            slowest = max(rivals, key=lambda run: run.elapsed_ms)
            if elapsed_ms >= slowest.elapsed_ms:
                return False
            self._own.drop_outputs(slowest.outputs)
            self._kept.remove(slowest)
        changed = self._own.changed_inputs(copy, mix)
        self._kept.append(CheckedRun(elapsed_ms, mix, self._own.keep_outputs(copy), changed))
        return True

"""Interference in a benchmark: monitors throttling and other processes, and marks suspect rounds.

Other processes may interrupt samples. They may also slow the clock by their power consumption. That changes a ratio,
because kernels depend on the clock to different degrees. Other processes pause at times, so one observation makes all
slow rounds suspect. A GPU that is slow without other processes has no better ratio; if other processes appear now and
then, it takes longer to tell the two cases apart.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.stopwatch import FULL_SPEED, Conditions, Stopwatch

SLOWED_BY_OTHERS = "other programs at work"
LEARNING_S = 10.0  # of observation: a process that slows the clock pauses at times
OFTEN = 1 / 2  # of the observations

Marks = npt.NDArray[np.bool_]  # one per round


@dataclass(frozen=True)
class Interference:
    """The interference in rounds that count because there are no better ones."""

    interruption_ms: float  # longest interruption by other processes that may have hit one of the rounds; 0 if none
    speed: float  # slowest clock over the GPU's full clock, if other processes may have slowed it; else 1
    held_down_by: tuple[str, ...]  # reasons for throttling, in words


class FullSpeed:
    """The clock that a GPU reaches, relative to its rated clock.

    It is 1 until long observation shows less: a laptop's GPU may never get near its rated clock, and a desktop that
    draws now and then is not the cause. If other processes are seen often, they may be the cause, and it stays 1.
    """

    def __init__(self) -> None:
        self._observations = self._seen = 0
        self._begin_s = self._latest_s = self._best = 0.0

    def learn(self, conditions: Conditions) -> None:
        """Add an observation of the GPU."""
        self._latest_s = time.monotonic()
        self._begin_s = self._begin_s or self._latest_s
        self._observations += 1
        self._seen += conditions.interruption_ms > 0
        self._best = max(self._best, conditions.speed)

    @property
    def over_rated(self) -> float:
        """The reachable clock over the rated one, as far as observed."""
        is_known = self._latest_s - self._begin_s >= LEARNING_S and self._seen < OFTEN * self._observations
        return (self._best if is_known else 0.0) or 1.0  # other processes may have slowed all observations


class ThrottleMonitor:
    """A monitor of throttling and of other processes on the GPU, before and after each group of rounds."""

    def __init__(self, full_speed: FullSpeed) -> None:
        self._full_speed = full_speed
        self._latest: Conditions | None = None
        self._around: list[tuple[Conditions, Conditions]] = []  # one pair per round
        self._others_ms = 0.0  # the longest interruption observed

    def begin(self) -> None:
        """Begin a timing session: the latest observation is out of date."""
        self._latest = None

    def discard(self) -> None:
        """Discard all rounds."""
        self._around.clear()
        self._others_ms = 0.0

    def take(self, stopwatch: Stopwatch) -> Conditions:
        """Observe the GPU now."""
        self._latest = seen = stopwatch.conditions()
        self._others_ms = max(self._others_ms, seen.interruption_ms)
        self._full_speed.learn(seen)
        return seen

    def latest(self, stopwatch: Stopwatch) -> Conditions:
        """Return the latest observation of this session; observe now if there is none."""
        return self._latest or self.take(stopwatch)

    def add(self, stopwatch: Stopwatch, rounds: int) -> None:
        """Observe after this number of rounds; the latest observation was before them."""
        self._around += [(self.latest(stopwatch), self.take(stopwatch))] * rounds

    def suspect(self) -> Marks:
        """Return the mask of rounds that count only if there are no better ones."""
        return self._disturbed() | _marks(any(conditions.held_down_by for conditions in pair) for pair in self._around)

    def of(self, kept: Marks) -> Interference:
        """Return the interference in the rounds of a mask."""
        around = [self._around[nth] for nth in np.flatnonzero(kept)]
        words = [word for pair in around for conditions in pair for word in conditions.held_down_by]
        is_slowed = bool(self._slowed()[kept].any())
        return Interference(
            interruption_ms=self._others_ms if self._disturbed()[kept].any() else 0.0,
            speed=min(map(self._speed, around)) if is_slowed else 1.0,
            held_down_by=tuple(dict.fromkeys([*words, SLOWED_BY_OTHERS] if is_slowed else words)),
        )

    def _disturbed(self) -> Marks:
        """Return the mask of rounds with possible interruptions or slowdowns by other processes."""
        return self._slowed() | _marks(any(conditions.interruption_ms for conditions in pair) for pair in self._around)

    def _slowed(self) -> Marks:
        return _marks(self._others_ms > 0 and self._speed(pair) < FULL_SPEED for pair in self._around)

    def _speed(self, pair: tuple[Conditions, Conditions]) -> float:
        return min(conditions.speed for conditions in pair) / self._full_speed.over_rated


def _marks(rounds: Iterable[bool]) -> Marks:
    return np.fromiter(rounds, np.bool_)

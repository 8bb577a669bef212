"""What looks at the GPU, every few rounds of a race, show of what disturbs it, and which rounds had better not count.

Others may interrupt samples. And while they work, a slow clock may be their power's doing, which changes a ratio,
because not all kernels depend on the clock alike: one look that sees them makes all slow rounds suspect, as they rest
at times. A GPU that is slow by itself has no other ratio; where others are seen now and then that takes time to tell.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_gpulab.devices.stopwatch import FULL_SPEED, Conditions, Stopwatch

SLOWED_BY_OTHERS = "other programs at work"
LEARNING_S = 10.0  # of looks: what holds a GPU's clock down by working hard rests sometimes
OFTEN = 1 / 2  # of the looks

Marks = npt.NDArray[np.bool_]  # one of each round


@dataclass(frozen=True)
class Disturbance:
    """What disturbed rounds that count all the same.

    Attributes:
        interruption_ms: how long others held the GPU at one time, if they may have disturbed one of the rounds; or 0.
        speed: the slowest clock over the GPU's full one, if others may have slowed it down; or 1.
        held_down_by: what held the GPU down, in words.
    """

    interruption_ms: float
    speed: float
    held_down_by: tuple[str, ...]


class FullSpeed:
    """The clock that a GPU reaches, over the one that it is rated at.

    It is 1 until looks have shown for long that it is less: a laptop's GPU may never come near, and its desktop, which
    draws now and then, is not to blame. Others that are seen often may well hold the clock down all that time.
    """

    def __init__(self) -> None:
        self._looks = self._seen = 0
        self._begin_s = self._latest_s = self._best = 0.0

    def learn(self, look: Conditions) -> None:
        """Learn from a look at the GPU."""
        self._latest_s = time.monotonic()
        self._begin_s = self._begin_s or self._latest_s
        self._looks += 1
        self._seen += look.interruption_ms > 0
        self._best = max(self._best, look.speed)

    @property
    def over_rated(self) -> float:
        """The clock over the rated one, by what is known."""
        is_known = self._latest_s - self._begin_s >= LEARNING_S and self._seen < OFTEN * self._looks
        return (self._best if is_known else 0.0) or 1.0  # others may have spoilt all measurements


class ThrottleMonitor:
    """The looks at a GPU before and after each round, and those while it warms up.

    Args:
        full_speed: of the GPU, to which they add.
    """

    def __init__(self, full_speed: FullSpeed) -> None:
        self._full_speed = full_speed
        self._latest: Conditions | None = None
        self._around: list[tuple[Conditions, Conditions]] = []  # each round
        self._others_ms = 0.0  # the longest interruption of all looks

    def begin(self) -> None:
        """Begin a sitting: what was seen last is long ago."""
        self._latest = None

    def forget(self) -> None:
        """Forget all rounds."""
        self._around.clear()
        self._others_ms = 0.0

    def take(self, watch: Stopwatch) -> Conditions:
        """Look."""
        self._latest = seen = watch.conditions()
        self._others_ms = max(self._others_ms, seen.interruption_ms)
        self._full_speed.learn(seen)
        return seen

    def latest(self, watch: Stopwatch) -> Conditions:
        """Return what was seen last in this sitting; look, if nothing was."""
        return self._latest or self.take(watch)

    def add(self, watch: Stopwatch, rounds: int) -> None:
        """Look after so many rounds; the latest look was before them."""
        self._around += [(self.latest(watch), self.take(watch))] * rounds

    def suspect(self) -> Marks:
        """Return which rounds count only if there are no better."""
        return self._disturbed() | _marks(any(look.held_down_by for look in looks) for looks in self._around)

    def of(self, kept: Marks) -> Disturbance:
        """Return what disturbed some of the rounds."""
        around = [self._around[nth] for nth in np.flatnonzero(kept)]
        words = [word for looks in around for look in looks for word in look.held_down_by]
        is_slowed = bool(self._slowed()[kept].any())
        return Disturbance(
            interruption_ms=self._others_ms if self._disturbed()[kept].any() else 0.0,
            speed=min(map(self._speed, around)) if is_slowed else 1.0,
            held_down_by=tuple(dict.fromkeys([*words, SLOWED_BY_OTHERS] if is_slowed else words)),
        )

    def _disturbed(self) -> Marks:
        """Return in which rounds others may have interrupted samples or slowed the GPU down."""
        return self._slowed() | _marks(any(look.interruption_ms for look in looks) for looks in self._around)

    def _slowed(self) -> Marks:
        return _marks(self._others_ms > 0 and self._speed(looks) < FULL_SPEED for looks in self._around)

    def _speed(self, looks: tuple[Conditions, Conditions]) -> float:
        return min(look.speed for look in looks) / self._full_speed.over_rated


def _marks(rounds: Iterable[bool]) -> Marks:
    return np.fromiter(rounds, np.bool_)

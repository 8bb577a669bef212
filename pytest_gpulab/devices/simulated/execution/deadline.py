"""The time that a launch may take, by the clock."""

from __future__ import annotations

import math
import time

STARVED_SHARE = 0.5  # of a processor core: a process that got less was held up by others


class TimeIsUp(Exception):
    """The launch has used up its time."""


class Deadline:
    """When a launch must have ended.

    Python code asks at every turn of a loop, because nothing else can stop it safely in the process that grades.

    Args:
        limit_s: from now on; None is no limit.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = math.inf if limit_s is None else limit_s
        self._begin_cpu_s = time.thread_time()
        self.end_s = time.perf_counter() + self.limit_s

    def check(self) -> None:
        """Raise TimeIsUp if it has passed."""
        if time.perf_counter() > self.end_s:
            raise TimeIsUp

    @property
    def was_starved(self) -> bool:
        """Whether this thread got so little processor time that the kernel is not to blame for a missed deadline."""
        return time.thread_time() - self._begin_cpu_s < STARVED_SHARE * self.limit_s

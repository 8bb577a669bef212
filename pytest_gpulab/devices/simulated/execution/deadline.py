"""The time that a launch may take, by the clock."""

from __future__ import annotations

import math
import time

from pytest_gpulab.devices.compiler.limits import SHARE, charged_s

MOST = 4.0  # times the limit, by the clock, for a process that gets less


class TimeIsUp(Exception):
    """The launch has used up its time."""


class Deadline:
    """When a launch must have ended.

    Python code asks at every turn of a loop, because nothing else can stop it safely in the process that grades.

    Args:
        limit_s: from now on; None is no limit.

    Attributes:
        was_starved: whether the machine, busy with others, left this thread too little time.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = math.inf if limit_s is None else limit_s
        self.was_starved = False
        self._begin_s, self._begin_cpu_s = time.perf_counter(), time.thread_time()
        self._next_look_s = self._begin_s + self.limit_s

    def check(self) -> None:
        """Raise TimeIsUp if it has passed."""
        if time.perf_counter() > self._next_look_s:
            self._look()

    def _look(self) -> None:
        now_s = time.perf_counter()
        elapsed_s = now_s - self._begin_s
        left_s = self.limit_s - charged_s(elapsed_s, time.thread_time() - self._begin_cpu_s)
        self.was_starved = left_s > 0
        if left_s <= 0 or elapsed_s > MOST * self.limit_s:
            raise TimeIsUp
        self._next_look_s = now_s + left_s * SHARE

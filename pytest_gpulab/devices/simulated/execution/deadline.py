"""The time limit of a launch."""

from __future__ import annotations

import math
import time

from pytest_gpulab.devices.compiler.limits import SHARE, charged_s

MAX_STRETCH = 4.0  # wall-clock limit over time limit, for a process that gets little processor time


class TimeIsUp(Exception):
    """The launch exceeded its time limit.

    Attributes:
        was_starved: True if other processes left this thread too little processor time.
    """

    def __init__(self, was_starved: bool = False) -> None:
        super().__init__(was_starved)
        self.was_starved = was_starved


class Deadline:
    """The time limit of a running launch.

    The scheduler checks it at every iteration of a loop: a thread of the grading process cannot be stopped otherwise.

    Args:
        limit_s: limit from now on; None for no limit.
    """

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = math.inf if limit_s is None else limit_s
        self._begin_s, self._begin_cpu_s = time.perf_counter(), time.thread_time()
        self._next_check_s = self._begin_s + self.limit_s

    def check(self) -> None:
        """Raise TimeIsUp if the limit has passed."""
        if time.perf_counter() > self._next_check_s:
            self._check()

    def _check(self) -> None:
        now_s = time.perf_counter()
        elapsed_s = now_s - self._begin_s
        left_s = self.limit_s - charged_s(elapsed_s, time.thread_time() - self._begin_cpu_s)
        if left_s <= 0 or elapsed_s > MAX_STRETCH * self.limit_s:
            raise TimeIsUp(was_starved=left_s > 0)
        self._next_check_s = now_s + left_s * SHARE

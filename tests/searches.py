"""The number of random examples of a test: a few in each run, more where they are asked for."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("GPULAB_TEST_EXAMPLES", "1"))


def examples(usual: int) -> int:
    """Return the number of examples; the environment variable GPULAB_TEST_EXAMPLES is a factor."""
    return TIMES * usual


def search(usual: int) -> settings:
    """Return hypothesis's settings for that many examples, however long each takes."""
    return settings(max_examples=examples(usual), deadline=None, suppress_health_check=list(HealthCheck))

"""The number of random examples of a test: a few in each run, more where they are asked for."""

from __future__ import annotations

import os


def examples(usual: int) -> int:
    """Return the number of examples; the environment variable GPULAB_TEST_EXAMPLES is a factor."""
    return usual * int(os.environ.get("GPULAB_TEST_EXAMPLES", "1"))

"""Settings of searches among random examples. The environment variable `SEARCH` multiplies the number of examples."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("SEARCH", "1"))


def search(examples: int) -> settings:
    """Return the settings of a search among that many examples in an ordinary run of the tests."""
    return settings(max_examples=TIMES * examples, deadline=None, suppress_health_check=list(HealthCheck))

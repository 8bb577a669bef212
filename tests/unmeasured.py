"""Coverage is not measured where whole folders of kernels are graded, or kernels run at full size.

That would double their time, and the lines they run are measured where tests of the parts run them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def environment() -> dict[str, str]:
    """Return the environment for a process that is not measured."""
    return {name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_START"}


@contextmanager
def stretch() -> Iterator[None]:
    """Measure nothing in this process meanwhile."""
    coverage = sys.modules.get("coverage")  # loaded where Python measures from its start
    measuring = coverage and coverage.Coverage.current()
    if measuring:
        measuring.stop()
    yield
    if measuring:
        measuring.start()

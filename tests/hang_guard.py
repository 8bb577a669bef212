"""How long a test waits for an event of another process or thread.

The event comes within seconds. Only a hang takes ten minutes, also beside other busy processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
HANG_S = 600.0


def wait_for(condition: Callable[[], T]) -> T:
    """Return what the condition returns as soon as it is true."""
    end_s = time.monotonic() + HANG_S
    while not (found := condition()):
        assert time.monotonic() < end_s
        time.sleep(0.02)
    return found

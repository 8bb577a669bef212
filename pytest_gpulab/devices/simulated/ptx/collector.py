"""A pause of Python's garbage collector while very many lasting objects are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the collector, which would scan all these objects repeatedly and find nothing to free.

    At the end the objects join the oldest generation, where they belong, without a scan of their own.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # else `unfreeze` would also release what the process has frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()

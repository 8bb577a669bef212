"""Whose turn it is among the processes of this machine to time on a GPU.

A turn is a lock on a file, which the system takes back from a process that ends, however it ends.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..processes import LOCKS
from ..protocol import DeviceUnavailable

LOCK_WAIT_S = 600.0
POLL_S = 0.005  # most turns take a tenth of a second


@contextmanager
def gpu_lock(identity: str, wait_s: float = LOCK_WAIT_S, folder: Path | None = None) -> Iterator[None]:
    """Hold a GPU for oneself among all processes of the machine that ask for it here.

    Args:
        identity: the GPU's UUID, or its PCI address.
        wait_s: the longest wait.
        folder: of the lock files; if None what the environment says in `LOCKS`, else the temporary folder.

    Raises:
        DeviceUnavailable: the wait was too long.
    """
    from filelock import FileLock, Timeout

    folder = folder or Path(os.environ.get(LOCKS) or tempfile.gettempdir())
    name = "pytest-gpulab-" + re.sub(r"[^\w-]+", "-", identity)
    path = folder / f"{name}.lock"
    if path.exists() and not os.access(path, os.W_OK):  # another user's: users do not wait for each other
        path = folder / f"{name}-{os.getuid()}.lock"
    lock = FileLock(path)
    try:
        lock.acquire(timeout=wait_s, poll_interval=POLL_S)
    except Timeout:
        raise DeviceUnavailable(f"another process has been timing on the GPU for {wait_s:g} s") from None
    try:
        yield
    finally:
        lock.release()

"""Whose turn it is among the graders of this machine: who times on a GPU, and who may give it work meanwhile.

A GPU works for one process at a time. An H200 that has worked for one through 2.1 ms turns to the others that want
something, however little, and is away for 0.3 ms at least. Whatever is shorter ends before; what is longer seems to
take longer, by a tenth and more (measured beside processes that launch empty kernels, copy a few bytes, load a module
or record an event; large copies between host and GPU do not interrupt). What is short takes longer, too, by 0.7 us, if
others had the GPU just before. So while one grader times, the others wait before they give the GPU anything to do.

Turns are locks on files, which the system takes back from a process that ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..processes import LOCKS
from ..protocol import DeviceUnavailable

LOCK_WAIT_S = 600.0
POLL_S = 0.005  # most turns take a tenth of a second
WORK_POLL_S = 0.001
SILENCE_WAIT_S = 1.0  # until others have ended their work; then a timing begins all the same
PATIENCE_S = 20.0  # of a process, altogether, until others have timed; then it works all the same
COURTESY_S = 0.25  # a kernel that takes longer, and is not timed, keeps nobody from timing


class Turns:
    """One process's turns on one GPU.

    Args:
        identity: the GPU's UUID, or its PCI address.
        folder: of the lock files; if None what the environment says in `LOCKS`, else the temporary folder.
    """

    def __init__(self, identity: str, folder: Path | None = None) -> None:
        self._name = "pytest-gpulab-" + re.sub(r"[^\w-]+", "-", identity)
        self._folder = folder or Path(os.environ.get(LOCKS) or tempfile.gettempdir())
        # Who works holds the second one together with others, and for a moment before the first one, too. Who times
        # holds both alone: the first one, so that nobody begins to work; then the others' work comes to an end.
        self._door, self._room = _SharedLock(self._path("door")), _SharedLock(self._path("room"))
        self._is_timing, self._patience_s = False, PATIENCE_S

    @contextmanager
    def timing(self, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Be the only one of all processes that times on the GPU, while none of the others works on it.

        Those that do not end their work are waited for, but not for ever.

        Raises:
            DeviceUnavailable: the wait was too long.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self._path("lock"))
        try:
            lock.acquire(timeout=wait_s, poll_interval=POLL_S)
        except Timeout:
            raise DeviceUnavailable(f"another process has been timing on the GPU for {wait_s:g} s") from None
        self._is_timing = True
        try:
            if self._door.take_alone(SILENCE_WAIT_S):
                self._room.take_alone(SILENCE_WAIT_S)
            yield
        finally:
            self._is_timing = False
            self._room.release()
            self._door.release()
            lock.release()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Give the GPU work that is not timed, while nobody times; who does is waited for, but not for ever."""
        if self._is_timing or self._room.is_held:
            yield
            return
        begin_s = time.monotonic()
        if self._door.take_shared(self._patience_s):
            self._room.take_shared(0)
            self._door.release()
        self._patience_s -= time.monotonic() - begin_s
        try:
            yield
        finally:
            self._room.release()

    def give_way(self) -> None:
        """Let others time beside the work that has begun."""
        if not self._is_timing:
            self._room.release()

    def close(self) -> None:
        """Give everything back."""
        self._room.close()
        self._door.close()

    def _path(self, ending: str) -> Path:
        path = self._folder / f"{self._name}.{ending}"
        if path.exists() and not os.access(path, os.W_OK):  # another user's: users do not wait for each other
            return self._folder / f"{self._name}-{os.getuid()}.{ending}"
        return path


class _SharedLock:
    """A lock on a file that many processes hold together, or one alone.

    Attributes:
        is_held: either way.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self.is_held = False

    def take_alone(self, wait_s: float) -> bool:
        """Wait for it, and say whether it was to be had."""
        return self._take(fcntl.LOCK_EX, wait_s)

    def take_shared(self, wait_s: float) -> bool:
        """Wait for it, and say whether it was to be had."""
        return self._take(fcntl.LOCK_SH, wait_s)

    def release(self) -> None:
        """Give it back, if it is held."""
        if self._descriptor is not None and self.is_held:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.is_held = False

    def close(self) -> None:
        """Give it back for good."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor, self.is_held = None, False

    def _take(self, how: int, wait_s: float) -> bool:
        if self._descriptor is None:
            new = 0 if self._path.exists() else os.O_CREAT  # which Linux refuses for another user's file in /tmp
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | new, 0o666)
        end_s = time.monotonic() + wait_s
        while not self._has_taken(how):
            if time.monotonic() >= end_s:
                return False
            time.sleep(WORK_POLL_S)
        return True

    def _has_taken(self, how: int) -> bool:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.is_held = True
        return True

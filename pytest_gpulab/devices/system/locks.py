"""File locks, which the system releases when a process ends, however it ends. Not on Windows."""

import fcntl
import os
import time
from pathlib import Path

POLL_S = 0.001  # file locks cannot be waited for with a timeout


class SharedLock:
    """A lock on a file, held shared by many processes or exclusively by one.

    Users do not wait for each other: if the file is another user's, this user's processes lock a file of their own.
    """

    def __init__(self, path: Path) -> None:
        self._path = self._file = path
        self._descriptor: int | None = None
        self.is_held = False

    def take_exclusive(self, wait_s: float) -> bool:
        """Acquire the lock exclusively; return False if that takes longer than `wait_s`."""
        return self._take(fcntl.LOCK_EX, wait_s)

    def take_shared(self, wait_s: float) -> bool:
        """Acquire the lock shared; return False if that takes longer than `wait_s`."""
        return self._take(fcntl.LOCK_SH, wait_s)

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor is not None and self.is_held:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.is_held = False

    def close(self) -> None:
        """Release the lock and close its file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor, self.is_held = None, False

    def _take(self, how: int, wait_s: float) -> bool:
        if self._descriptor is None:
            self._descriptor = self._opened()
        end_s = time.monotonic() + wait_s
        while True:
            if self._has_taken(how):
                if self._is_current():
                    return True
                self.close()  # the file was removed meanwhile: other processes lock a new file of the same name
                self._descriptor = self._opened()
                continue
            if time.monotonic() >= end_s:
                return False
            time.sleep(POLL_S)

    def _is_current(self) -> bool:
        assert self._descriptor is not None
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._file.stat())
        except FileNotFoundError:
            return False

    def remove(self) -> bool:
        """Remove the file unless another process uses it; return True if it was removed."""
        if not self.take_exclusive(0.0):
            return False
        self._file.unlink(missing_ok=True)
        self.close()
        return True

    def _opened(self) -> int:
        try:
            self._file = self._path
            return _open(self._file)
        except PermissionError:
            self._file = self._path.with_name(f"{self._path.stem}-{os.getuid()}{self._path.suffix}")
            return _open(self._file)

    def _has_taken(self, how: int) -> bool:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.is_held = True
        return True


def _open(path: Path) -> int:
    new = 0 if path.exists() else os.O_CREAT  # Linux refuses O_CREAT for another user's file in /tmp
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | new, 0o666)

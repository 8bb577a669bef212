"""What takes long to find out and stays true: machine code that was compiled before, and how long a reference takes.

It lies in a folder of the user's own among the temporary files, which nobody else may enter; where that is in another
state nothing is kept. Students' code never runs on this machine's CPU, so it cannot write there either. An entry is
named after everything that it depends on; what does not compile is not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gpulab.devices.system.processes import LOCKS

if TYPE_CHECKING:
    from pytest_gpulab.devices.system.locks import SharedLock

MAX_ENTRIES = 1000
LOCK = ".lock"
MAX_ENTRY_BYTES = 1 << 20  # so there is 1 GiB at most; kernels of a course need a few tens of KiB


class Cache:
    """Machine code and the compiler's messages, or a text alone, by a key.

    Args:
        folder: where to keep them; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, key: str) -> tuple[bytes, str] | None:
        """Return what was put there, or None."""
        if self._folder is None:
            return None
        try:
            contents = (self._folder / key).read_bytes()
            messages, _, cubin = contents.partition(b"\n")
            return cubin, str(json.loads(messages))
        except (OSError, ValueError):
            return None

    def put(self, key: str, cubin: bytes, messages: str) -> None:
        """Keep it if that is possible; another process sees all of it or nothing."""
        contents = json.dumps(messages).encode() + b"\n" + cubin
        if self._folder is None or len(contents) > MAX_ENTRY_BYTES:
            return
        with contextlib.suppress(OSError):
            self._make_room(self._folder)
            descriptor, name = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(contents)
                Path(name).replace(self._folder / key)
            except OSError:
                Path(name).unlink()

    def text(self, key: str, found_out: Callable[[], str]) -> str | None:
        """Return a text that was put there, or is found out now.

        None while another process finds it out, and where nothing is kept: it would be found out again and again.

        Args:
            key: see `key_of`.
            found_out: returns it; one process does so, and others need not wait.
        """
        known = self.get(key)
        if known is not None or self._folder is None:
            return known and known[1]
        from pytest_gpulab.devices.system.locks import SharedLock  # not on Windows, where nothing is kept

        with contextlib.closing(SharedLock(self._folder / f"{key}{LOCK}")) as lock:
            if not _is_free(lock):
                return None
            known = self.get(key)  # who held the lock until now may have put it there
            if known is None:
                known = b"", found_out()
                self.put(key, *known)
            return known[1]

    def _make_room(self, folder: Path) -> None:
        """Remove the older half where there are too many."""
        if sum(1 for _ in folder.iterdir()) < MAX_ENTRIES:
            return
        oldest_first = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in oldest_first[: MAX_ENTRIES // 2]:
            if path.suffix == LOCK:
                _remove_unused(path)
            else:
                path.unlink(missing_ok=True)


def _remove_unused(path: Path) -> None:
    """Remove a lock's file; one that a process holds stays, or two processes would do the same work."""
    from pytest_gpulab.devices.system.locks import SharedLock

    with contextlib.suppress(OSError), contextlib.closing(SharedLock(path)) as lock:
        lock.remove()


def _is_free(lock: SharedLock) -> bool:
    try:
        return lock.take_exclusive(0.0)
    except OSError:
        return False  # there is no room for the lock, nor then for what would be kept


def users_cache() -> Cache:
    """Return this user's cache; one that keeps nothing where there is no folder that only this user can write to."""
    if not hasattr(os, "getuid"):
        return Cache(None)
    # a process that grades has a temporary folder of its own
    folder = Path(os.environ.get(LOCKS) or tempfile.gettempdir()) / f"gpulab-cache-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        return Cache(folder if is_private(folder) else None)
    except OSError:
        return Cache(None)


def is_private(folder: Path) -> bool:
    """Return whether a path is a folder, no link to one, that belongs to this user and that nobody else may enter."""
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077


def key_of(parts: Iterable[str]) -> str:
    """Return a file name that stands for all the parts, in their order."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()

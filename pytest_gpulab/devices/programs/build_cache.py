"""A cache of built programs on disk, keyed by the command and the contents of every file that it read.

Like `compiler.cache`, it is a private folder of the user among the temporary files. An entry is a folder: its products,
and a list of the files that went into them with their hashes.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from pytest_gpulab.devices.compiler.cache import key_of, users_folder

MAX_ENTRIES = 100
IN_USE_S = 600.0  # since the last use, for which an entry stays
_READ = "read.json"

Produce = Callable[[Path], Iterable[Path]]
"""Writes products into a folder; returns the files that it has read."""


def built(key: Iterable[str], produce: Produce) -> Path:
    """Return the folder with the products of a key; produce them unless they are known and their sources unchanged.

    The key is all that the products depend on, but for the contents of files. After an exception nothing is kept.
    """
    folder = cache_folder() / key_of(key)
    if _is_current(folder):
        with suppress(OSError):
            os.utime(folder)
        return folder
    fresh = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        read = {str(path): _digest(path) for path in produce(fresh)}
        (fresh / _READ).write_text(json.dumps(read), encoding="utf-8")
        _evict(folder.parent)
        if _is_current(folder):  # another process was faster, and may use its products already
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another process was faster just now
            fresh.rename(folder)
        return folder
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@lru_cache(maxsize=1)
def cache_folder() -> Path:
    """Return the folder of the entries; one for this process only if the user's folder is not private."""
    if (folder := users_folder("gpulab-programs")) is not None:
        return folder
    import atexit

    own = Path(tempfile.mkdtemp(prefix="gpulab-programs-"))
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


def _is_current(folder: Path) -> bool:
    try:
        read = json.loads((folder / _READ).read_text(encoding="utf-8"))
        return all(_digest(Path(path)) == digest for path, digest in read.items())
    except (OSError, ValueError):
        return False


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _evict(folder: Path) -> None:
    """Remove the older half of the entries if there are too many, but for those that may be in use."""
    with suppress(OSError):
        entries = sorted((path.stat().st_mtime, path) for path in folder.iterdir())
        for used, path in entries[: MAX_ENTRIES // 2] if len(entries) > MAX_ENTRIES else ():
            if used < time.time() - IN_USE_S:
                shutil.rmtree(path, ignore_errors=True)

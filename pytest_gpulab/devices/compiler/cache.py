"""A cache on disk: compiled code, and the times of CPU references.

It is a private folder of the user among the temporary files. If the folder is not private, nothing is cached. Kernels
do not run on the CPU, and programs run in a sandbox with their own temporary files, so neither can write there. The
name of an entry is a hash of everything that the entry depends on. Failed compilations are not cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_gpulab.devices.system.processes import LOCKS

from .nvrtc_program import Answer, Request

if TYPE_CHECKING:
    from pytest_gpulab.devices.system.locks import SharedLock

MAX_ENTRIES = 2000  # a full cache drops its older half
LOCK = ".lock"
WAIT_S = 60.0  # for another process; then both make the entry
MAX_ENTRY_BYTES = 1 << 19  # so at most 1 GiB in all; a course's kernels need some ten KiB each
_READING = re.compile(r"\b(?:__has_)?(?:include(?:_next)?|embed)\b")
# A header by its name alone: a path could lead to a file of the user, which may change.
_BY_NAME = re.compile(r'#[ \t]*include[ \t]*[<"]\w(?:(?!\.\.)[\w./+-])*[>"]')
_FOLDER = "--include-path="


class Cache:
    """A mapping of keys to compiled code with compiler messages, or to texts; without a folder, it caches nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._room = 0  # entries to store before the next look at their number

    def get(self, key: str) -> tuple[bytes, str] | None:
        """Return the code and messages of a key, or None."""
        if self._folder is None:
            return None
        try:
            contents = (self._folder / key).read_bytes()
            messages, _, code = contents.partition(b"\n")
            return code, str(json.loads(messages))
        except (OSError, ValueError):
            return None

    def put(self, key: str, code: bytes, messages: str) -> None:
        """Store an entry if possible, atomically for other processes."""
        contents = json.dumps(messages).encode() + b"\n" + code
        if self._folder is None or len(contents) > MAX_ENTRY_BYTES:
            return
        with contextlib.suppress(OSError):
            self._evict(self._folder)
            # A new file is renamed, so that no process reads a part of an entry.
            descriptor, name = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(contents)
                Path(name).replace(self._folder / key)
            except OSError:
                Path(name).unlink()

    @contextlib.contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Hold a key's lock, so that one process makes the entry; no-op where nothing is cached."""
        if self._folder is None:
            yield
            return
        from pytest_gpulab.devices.system.locks import SharedLock

        with contextlib.closing(SharedLock(self._folder / f"{key}{LOCK}")) as lock:
            with contextlib.suppress(OSError):  # the disk is full, or it has no locks
                lock.take_exclusive(WAIT_S)
            yield
            with contextlib.suppress(OSError):
                lock.remove()

    def text(self, key: str, compute: Callable[[], str]) -> str | None:
        """Return the text of a key (see `key_of`); one process computes it if necessary, others do not wait.

        Return None while another process computes it, and if nothing is cached: it would be computed again and again.
        """
        known = self.get(key)
        if known is not None or self._folder is None:
            return known and known[1]
        from pytest_gpulab.devices.system.locks import SharedLock  # not available on Windows, where nothing is cached

        with contextlib.closing(SharedLock(self._folder / f"{key}{LOCK}")) as lock:
            if not _is_free(lock):
                return None
            known = self.get(key)  # the previous holder of the lock may have stored it
            if known is None:
                known = b"", compute()
                self.put(key, *known)
            return known[1]

    def _evict(self, folder: Path) -> None:
        """Remove the older half of the entries if there are too many."""
        self._room -= 1
        if self._room > 0:
            return
        entries = list(os.scandir(folder))  # takes several ms in a full cache
        self._room = (MAX_ENTRIES - len(entries)) // 2  # other processes store entries, too
        if len(entries) < MAX_ENTRIES:
            return
        oldest_first = sorted(entries, key=lambda entry: entry.stat().st_mtime)
        for path in map(Path, oldest_first[: MAX_ENTRIES // 2]):
            if path.suffix == LOCK:
                _remove_unused(path)
            else:
                path.unlink(missing_ok=True)


def _remove_unused(path: Path) -> None:
    """Remove a lock's file unless a process holds the lock: else two processes could do the same work."""
    from pytest_gpulab.devices.system.locks import SharedLock

    with contextlib.suppress(OSError), contextlib.closing(SharedLock(path)) as lock:
        lock.remove()


def _is_free(lock: SharedLock) -> bool:
    try:
        return lock.take_exclusive(0.0)
    except OSError:
        return False  # the disk is full, so the entry could not be stored either


def users_cache() -> Cache:
    """Return this user's cache; without a private folder it caches nothing."""
    if not hasattr(os, "getuid"):
        return Cache(None)
    return Cache(users_folder("gpulab-cache"))


def users_folder(name: str) -> Path | None:
    """Return a private folder of this user that its processes share; None if there is none."""
    # not `tempfile`: a worker process has its own temporary folder
    folder = Path(os.environ.get(LOCKS) or tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_private(folder):
            return folder
    return None


def is_private(folder: Path) -> bool:
    """Return whether a path is a folder (no link) that belongs to this user and that only this user may enter."""
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077


def key_of(parts: Iterable[str]) -> str:
    """Return a file name, the hash of the parts in their order."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


class KnownAnswers:
    """NVRTC's answers on disk, by its version. An answer is stored if no file of the user can change it."""

    def __init__(self, cache: Cache, version: str) -> None:
        self._cache, self._version = cache, version

    def get(self, request: Request) -> Answer | None:
        """Return the answer to a request, or None if it is not known."""
        found = self._cache.get(self._key(request))
        return found and Answer(*found)

    def put(self, request: Request, answer: Answer) -> None:
        """Store an answer that has an output."""
        texts = (request.macros, request.text, *request.files.values())
        if answer.output is not None and all(map(_includes_by_name, texts)):
            self._cache.put(self._key(request), answer.output, answer.log)

    def _key(self, request: Request) -> str:
        text, filename, files, options, output, macros = request
        folders = [option.removeprefix(_FOLDER) for option in options if option.startswith(_FOLDER)]
        changed = (str(Path(folder).stat().st_mtime_ns) for folder in folders)  # another version of the headers
        named = (part for file in files.items() for part in file)
        return key_of(("nvrtc", self._version, text, filename, output, macros, *options, *changed, "files", *named))


@lru_cache(maxsize=64)  # the standard headers come with each request
def _includes_by_name(text: str) -> bool:
    """Return whether each header is included by its name, not by a path or a macro."""
    joined = text.replace("\\\n", "")
    return len(_READING.findall(joined)) == len(_BY_NAME.findall(joined))

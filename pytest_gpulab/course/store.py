"""Where finished grades are kept, so that a run that was killed goes on where it stopped: one SQLite file a course.

Each grade is committed, synchronised to the disk, before `put` returns; what was not put yet is graded again. The file
may be used by several runs at once: of two grades for one key the first wins, and both runs go on with it. Grades are
kept under keys made of all that decides them, not under names: students with the same source share one, and nobody's
name is part of it. A store belongs on a disk of the machine that grades: SQLite's log is no good over a network.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_gpulab.grading.grade import Grade

SCHEMA_VERSION = 1
APPLICATION_ID = 0x67706C62  # "gplb", in the file's header: what tells a store from anyone's SQLite database
BUSY_TIMEOUT_S = 60.0
POLL_S = 0.01
SEED_BITS = 32
ELSEWHERE = "name a file on a disk of this machine with --gpulab-store=PATH"

_SCHEMA = """
CREATE TABLE number (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE grade (key TEXT, regrade INTEGER, grade TEXT NOT NULL, PRIMARY KEY (key, regrade));
CREATE TABLE standing (submission BLOB, exercise TEXT, source_sha256 TEXT NOT NULL, points TEXT NOT NULL,
                       PRIMARY KEY (submission, exercise));
"""
_NUMBER = "SELECT value FROM number WHERE name = ?"
_NEWEST = "SELECT grade FROM grade WHERE key = ? AND regrade >= ? ORDER BY regrade DESC LIMIT 1"


class StoreError(Exception):
    """The store cannot be used, in one line for whoever named the file."""


@dataclass(frozen=True)
class Change:
    """What grading the same source again did to one check's points; None where there was no such check."""

    submission: str
    exercise: str
    check: str
    points_before: float | None
    points_after: float | None


class Store:
    """The grades of a course in a file; usable from several threads, but not across a fork.

    A regrade takes what is stored for missing and keeps what it replaces. It goes on until `settle`: killed before
    that, the next one grades only what this one did not come to.
    """

    def __init__(self, path: Path, regrade: bool = False) -> None:
        """Open the file, or make it.

        Args:
            path: the file; its folders are made, too.
            regrade: whether grades from before do not count, other than to be compared with.

        Raises:
            StoreError: the file is something else, of another version, or cannot be written.
        """
        self._path, self._lock = path, threading.Lock()
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            _check_locks(path.parent)
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        try:
            self._prepare()
            self._counts_from = self._begin_regrade() if regrade else 0
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Let go of the file; nothing is lost without it."""
        with self._lock:
            self._connection.close()

    def seed(self, given: int | None) -> int:
        """Return the seed to grade with: the given one, else the store's own, drawn once.

        The first seed that a store sees, given or drawn, stays its own: a run that names none goes on with it.
        """
        with self._transaction() as connection:
            drawn = secrets.randbits(SEED_BITS) if given is None else given
            connection.execute("INSERT OR IGNORE INTO number VALUES ('seed', ?)", (drawn,))
            (own,) = connection.execute(_NUMBER, ("seed",)).fetchone()
        return int(own) if given is None else given

    def get(self, key: str) -> Grade | None:
        """Return the grade for the key, in nobody's name, or None if it has to be graded (again)."""
        with self._transaction() as connection:
            row = connection.execute(_NEWEST, (key, self._counts_from)).fetchone()
        return None if row is None else _grade(row[0])

    def put(self, key: str, grade: Grade) -> Grade:
        """Keep the grade, unless another run was faster; return the one that is kept, in the names of the given one."""
        text = json.dumps(replace(grade, submission="", student="").to_dict())
        with self._transaction() as connection:
            row = connection.execute(_NEWEST, (key, self._counts_from)).fetchone()
            if row is None:
                connection.execute("INSERT INTO grade VALUES (?, ?, ?)", (key, _regrade(connection), text))
        kept = _grade(text if row is None else row[0])
        return replace(kept, submission=grade.submission, student=grade.student)

    def changes(self, keys: Mapping[str, str]) -> tuple[Change, ...]:
        """Return how the points differ from those of the last run that settled, wherever the source is the same.

        The keys of then need not be those of now: another device, exercise or version of the plugin make others.

        Args:
            keys: of each submission that this run graded or found here, under which key; those that have no grade
                are passed over.
        """
        with self._transaction() as connection:
            return tuple(change for name, key in keys.items() for change in self._changes(connection, name, key))

    def settle(self, keys: Mapping[str, str]) -> None:
        """Make the grades of a finished run what later ones are compared with, and end a regrade.

        Args:
            keys: as for `changes`.
        """
        with self._transaction() as connection:
            for submission, key in keys.items():
                row = connection.execute(_NEWEST, (key, self._counts_from)).fetchone()
                if row is not None:
                    grade = _grade(row[0])
                    standing = (_blob(submission), grade.exercise, grade.provenance.source_sha256, _points_text(grade))
                    connection.execute("INSERT OR REPLACE INTO standing VALUES (?, ?, ?, ?)", standing)
            if self._counts_from:
                connection.execute("INSERT OR REPLACE INTO number VALUES ('regrading', 0)")

    def _changes(self, connection: sqlite3.Connection, submission: str, key: str) -> Iterator[Change]:
        row = connection.execute(_NEWEST, (key, self._counts_from)).fetchone()
        grade = None if row is None else _grade(row[0])
        if grade is None:
            return
        asked = (_blob(submission), grade.exercise, grade.provenance.source_sha256)
        stood = "SELECT points FROM standing WHERE submission = ? AND exercise = ? AND source_sha256 = ?"
        row = connection.execute(stood, asked).fetchone()
        after = _points(grade)
        before = after if row is None else json.loads(row[0])
        for check in dict.fromkeys((*after, *before)):
            if before.get(check) != after.get(check):
                yield Change(submission, grade.exercise, check, before.get(check), after.get(check))

    def _prepare(self) -> None:
        with self._explained():
            self._connection.execute("PRAGMA synchronous = FULL")  # of a power cut, too, nothing is lost
        with self._transaction() as connection:
            application, version = (_pragma(connection, name) for name in ("application_id", "user_version"))
            if (application, version) == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in (*_SCHEMA.split(";"), f"PRAGMA application_id = {APPLICATION_ID}"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif application != APPLICATION_ID:
                raise StoreError(f"{self._path} is no store of grades: name another file with --gpulab-store")
            elif version != SCHEMA_VERSION:
                raise StoreError(
                    f"{self._path} is a store of version {version}, and this pytest-gpulab reads version "
                    f"{SCHEMA_VERSION}: name another file with --gpulab-store"
                )
        with self._explained():
            self._write_ahead()

    def _write_ahead(self) -> None:
        """Note changes in a file of their own; where the file system has no shared memory SQLite keeps to its journal.

        Here it does not wait by itself for another run that uses the store just now, but raises an error at once.
        """
        end_s = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end_s:
                    raise
            time.sleep(POLL_S)

    def _begin_regrade(self) -> int:
        """Return the number from which on grades count: of the regrade that was not finished, or of a new one."""
        with self._transaction() as connection:
            under_way = connection.execute(_NUMBER, ("regrading",)).fetchone()
            number = _regrade(connection) + (0 if under_way == (1,) else 1)
            connection.execute("INSERT OR REPLACE INTO number VALUES ('regrade', ?), ('regrading', 1)", (number,))
        return number

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Let nobody else read or write in between; everything is on the disk at the end, or nothing."""
        with self._lock, self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                self._connection.rollback()  # does nothing once it is committed

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"cannot use the store {self._path}: {_cause(error)}; {ELSEWHERE}") from None
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.DatabaseError as error:  # not SQLite's format, or damaged
            raise StoreError(f"{self._path} is no store of grades: {error}; name another with --gpulab-store") from None
        except OSError as error:
            raise StoreError(f"cannot use the store {self._path}: {error.strerror}; {ELSEWHERE}") from None


def _check_locks(folder: Path) -> None:
    """Make sure that the folder's drive knows locks on files; SQLite would wait for them, and then call it locked.

    Raises:
        StoreError: it does not.
        OSError: no file can be made in the folder.
    """
    try:
        import fcntl
    except ImportError:  # Windows, whose drives have locks of their own
        return
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(f"the drive of {folder} has no locks on files ({error.strerror}); {ELSEWHERE}") from None


def _cause(error: sqlite3.OperationalError) -> str:
    is_locked = "locked" in str(error)
    return f"{error} for {BUSY_TIMEOUT_S:g} s by another run" if is_locked else str(error)


def _regrade(connection: sqlite3.Connection) -> int:
    row = connection.execute(_NUMBER, ("regrade",)).fetchone()
    return 0 if row is None else int(row[0])


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _grade(text: str) -> Grade:
    return Grade.from_dict(json.loads(text))


def _points(grade: Grade) -> dict[str, float]:
    return {check.name: check.points for check in grade.checks}


def _points_text(grade: Grade) -> str:
    return json.dumps(_points(grade))


def _blob(name: str) -> bytes:
    """File names need not be Unicode, SQLite's texts must be."""
    return name.encode("utf-8", "surrogatepass")

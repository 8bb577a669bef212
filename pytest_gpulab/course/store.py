"""The store of finished grades: one SQLite file per course, from which a killed run resumes.

Each grade is committed, synchronised to the disk, before `put` returns; a grade that was not put is made again. The
file may be used by several runs at once: of two grades for one key the first wins, and both runs go on with it. The
key of a grade is made of all of its inputs and of no name: students with the same source share one grade. A store
belongs on a disk of the grading machine: SQLite's log does not work over a network.
"""

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

from pytest_gpulab import UserError
from pytest_gpulab.grading.grade import Grade

SCHEMA_VERSION = 1
APPLICATION_ID = 0x67706C62  # "gplb", in the file's header: distinguishes a store from other SQLite databases
BUSY_TIMEOUT_S = 60.0  # far longer than any write: then another run hangs
POLL_S = 0.01
SEED_BITS = 32  # the range of `--gpulab-seed`
ELSEWHERE = "name a file on a disk of this machine with --gpulab-store=PATH"

_SCHEMA = """
CREATE TABLE number (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE grade (key TEXT, regrade INTEGER, grade TEXT NOT NULL, PRIMARY KEY (key, regrade));
CREATE TABLE standing (submission BLOB, exercise TEXT, source_sha256 TEXT NOT NULL, points TEXT NOT NULL,
                       PRIMARY KEY (submission, exercise));
"""
_NUMBER = "SELECT value FROM number WHERE name = ?"
_NEWEST = "SELECT grade FROM grade WHERE key = ? AND regrade >= ? ORDER BY regrade DESC LIMIT 1"


class StoreError(UserError):
    """A store that cannot be used, explained in one line."""


@dataclass(frozen=True)
class Change:
    """A check's points before and after the same source was graded again; None where there was no such check.

    A check that was not gradable has these words as its points.
    """

    submission: str
    exercise: str
    check: str
    points_before: float | str | None
    points_after: float | str | None


class Store:
    """The grades of a course in a file; usable from several threads, but not across a fork.

    A regrade ignores stored grades and keeps those that it replaces. It lasts until `settle`: after a kill, the next
    regrade continues with the submissions that are left.
    """

    def __init__(self, path: Path, regrade: bool = False) -> None:
        """Open or create the file and its folders; `regrade` uses earlier grades only for comparison.

        Raises StoreError if the file is not a store, has another version, or cannot be written.
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
        """Close the file; nothing is lost without it."""
        with self._lock:
            self._connection.close()

    def seed(self, given: int | None) -> int:
        """Return the seed of the run: the given one, else the store's own, drawn once.

        The first seed of a store, given or drawn, stays its own: runs without a given seed use it.
        """
        with self._transaction() as connection:
            drawn = secrets.randbits(SEED_BITS) if given is None else given
            connection.execute("INSERT OR IGNORE INTO number VALUES ('seed', ?)", (drawn,))
            (own,) = connection.execute(_NUMBER, ("seed",)).fetchone()
        return int(own) if given is None else given

    def get(self, key: str) -> Grade | None:
        """Return the grade for the key, without a label, or None if it must be made (again)."""
        with self._transaction() as connection:
            row = connection.execute(_NEWEST, (key, self._counts_from)).fetchone()
        return None if row is None else _grade(row[0])

    def put(self, key: str, grade: Grade) -> Grade:
        """Keep the grade unless another run was faster; return the kept one under the labels of the given one."""
        text = json.dumps(replace(grade, submission="", student="").to_dict())
        with self._transaction() as connection:
            row = connection.execute(_NEWEST, (key, self._counts_from)).fetchone()
            if row is None:
                connection.execute("INSERT INTO grade VALUES (?, ?, ?)", (key, _regrade(connection), text))
        kept = _grade(text if row is None else row[0])
        return replace(kept, submission=grade.submission, student=grade.student)

    def changes(self, keys: Mapping[str, str]) -> tuple[Change, ...]:
        """Return the changes of points since the last settled run, where the source is the same.

        The keys of the submissions may differ: they contain the device, the exercise and the version of the plugin.
        Keys without a grade are skipped.
        """
        with self._transaction() as connection:
            return tuple(change for name, key in keys.items() for change in self._changes(connection, name, key))

    def settle(self, keys: Mapping[str, str]) -> None:
        """Note the points of a finished run for later comparisons, and end a regrade; `keys` are as for `changes`."""
        with self._transaction() as connection:
            for submission, key in keys.items():
                row = connection.execute(_NEWEST, (key, self._counts_from)).fetchone()
                if row is not None:
                    grade = _grade(row[0])
                    source, points = grade.provenance.source_sha256, json.dumps(_points(grade))
                    standing = (_blob(submission), grade.exercise, source, points)
                    connection.execute("INSERT OR REPLACE INTO standing VALUES (?, ?, ?, ?)", standing)
            if self._counts_from:
                connection.execute("INSERT OR REPLACE INTO number VALUES ('regrading', 0)")

    def _changes(self, connection: sqlite3.Connection, submission: str, key: str) -> Iterator[Change]:
        row = connection.execute(_NEWEST, (key, self._counts_from)).fetchone()
        grade = None if row is None else _grade(row[0])
        if grade is None:
            return
        place = (_blob(submission), grade.exercise, grade.provenance.source_sha256)
        stood = "SELECT points FROM standing WHERE submission = ? AND exercise = ? AND source_sha256 = ?"
        row = connection.execute(stood, place).fetchone()
        after = _points(grade)
        before = after if row is None else json.loads(row[0])
        for check in dict.fromkeys((*after, *before)):
            if before.get(check) != after.get(check):
                yield Change(submission, grade.exercise, check, before.get(check), after.get(check))

    def _prepare(self) -> None:
        with self._explained():
            self._connection.execute("PRAGMA synchronous = FULL")  # survives a power cut
        with self._transaction() as connection:
            pragmas = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
            application, version = (int(row[0]) for row in pragmas)
            if (application, version) == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in (*_SCHEMA.split(";"), f"PRAGMA application_id = {APPLICATION_ID}"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif application != APPLICATION_ID:
                raise StoreError(f"{self._path} is not a store of grades: name another file with --gpulab-store")
            elif version != SCHEMA_VERSION:
                raise StoreError(
                    f"{self._path} is a store of version {version}, and this pytest-gpulab reads version "
                    f"{SCHEMA_VERSION}: name another file with --gpulab-store"
                )
        with self._explained():
            self._write_ahead()

    def _write_ahead(self) -> None:
        """Switch SQLite to a write-ahead log; it keeps its journal on a file system without shared memory.

        Unlike other statements, this one does not wait while another run uses the store, but fails at once.
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
        """Return the first regrade number that counts: that of the unfinished regrade, or a new one."""
        with self._transaction() as connection:
            under_way = connection.execute(_NUMBER, ("regrading",)).fetchone()
            number = _regrade(connection) + (0 if under_way == (1,) else 1)
            connection.execute("INSERT OR REPLACE INTO number VALUES ('regrade', ?), ('regrading', 1)", (number,))
        return number

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that excludes other runs: all of it is written, or nothing."""
        with self._lock, self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                self._connection.rollback()  # no-op after the commit

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"cannot use the store {self._path}: {_cause(error)}; {ELSEWHERE}") from None
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.DatabaseError as error:  # not SQLite's format, or damaged
            raise StoreError(f"{self._path} is not a store of grades: {error}; use another --gpulab-store") from None
        except OSError as error:
            raise StoreError(f"cannot use the store {self._path}: {error.strerror}; {ELSEWHERE}") from None


def _check_locks(folder: Path) -> None:
    """Raise StoreError if the folder's drive does not support file locks, and OSError if no file can be created in it.

    SQLite would wait for the locks and then report a locked store.
    """
    try:
        import fcntl
    except ImportError:  # Windows has locks of another kind
        return
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(f"the drive of {folder} has no file locks ({error.strerror}); {ELSEWHERE}") from None


def _cause(error: sqlite3.OperationalError) -> str:
    is_locked = "locked" in str(error)
    return f"{error} for {BUSY_TIMEOUT_S:g} s by another run" if is_locked else str(error)


def _regrade(connection: sqlite3.Connection) -> int:
    row = connection.execute(_NUMBER, ("regrade",)).fetchone()
    return 0 if row is None else int(row[0])


def _grade(text: str) -> Grade:
    return Grade.from_dict(json.loads(text))


def _points(grade: Grade) -> dict[str, float | str]:
    return {check.name: check.verdict if check.verdict == "not gradable" else check.points for check in grade.checks}


def _blob(name: str) -> bytes:
    """Return a name as bytes: file names need not be Unicode, texts in SQLite must be."""
    return name.encode("utf-8", "surrogatepass")

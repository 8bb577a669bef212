"""The store of grades: what is put survives any end of the process, runs share it, a regrade says what it changes."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_gpulab.course import store as store_module
from pytest_gpulab.course.store import Change, Store, StoreError
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Provenance

PROVENANCE = Provenance("GPU", "simulated", "sm_90", "nvrtc", 7, "1", "0.1", "abc")
COMPILES = CheckResult("compile", "compile", "passed", 10.0, 10.0)
FINDING = Finding("wrong-result", "Wrong.", "twice.cu:3", ("first bad index 30",))
WRONG = CheckResult("correct[n=1]", "correct", "failed", 0.0, 90.0, (FINDING,))
RIGHT = CheckResult("correct[n=1]", "correct", "passed", 90.0, 90.0)
PASSED = Grade("ann/twice.cu", "twice", (COMPILES, RIGHT), PROVENANCE, "ann")
FAILED = replace(PASSED, checks=(COMPILES, WRONG))
ANN = {"ann/twice.cu": "key"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "grades.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store(path)) as opened:
        yield opened


def finished_run(path: Path, grade: Grade, keys: dict[str, str] = ANN, **how: Any) -> tuple[Change, ...]:
    """Grade one submission in a run of its own, to its end; return which points changed."""
    with closing(Store(path, **how)) as store:
        for key in set(keys.values()):
            store.put(key, grade)
        changes = store.changes(keys)
        store.settle(keys)
    return changes


def nobodys(grade: Grade) -> Grade:
    return replace(grade, submission="", student="")


def test_stored_grades_are_there_for_later_runs(path: Path) -> None:
    with closing(Store(path)) as store:
        assert store.get("key") is None
        assert store.put("key", FAILED) == FAILED
    with closing(Store(path)) as store:
        assert store.get("key") == nobodys(FAILED)
        assert store.get("another key") is None


def test_stored_grades_name_no_student(store: Store, path: Path) -> None:
    store.put("key", PASSED)
    kept = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"wrong-result" not in kept and b"twice" in kept
    assert b"ann" not in kept


def test_of_two_runs_at_once_the_first_wins_and_both_go_on_with_it(store: Store, path: Path) -> None:
    slower = replace(
        PASSED, submission="bob/twice.cu", student="bob", checks=(replace(COMPILES, duration_s=9.0), RIGHT)
    )
    with closing(Store(path)) as other:
        assert store.get("key") is None and other.get("key") is None
        store.put("key", PASSED)
        assert other.put("key", slower) == replace(PASSED, submission="bob/twice.cu", student="bob")
        assert other.get("key") == store.get("key") == nobodys(PASSED)
        assert len(kept(path)) == 1


def test_the_seed_is_drawn_once_and_one_given_counts_for_its_own_run(path: Path, tmp_path: Path) -> None:
    with closing(Store(path)) as store:
        drawn = store.seed(None)
        assert 0 <= drawn < 2**32
        assert store.seed(drawn ^ 1) == drawn ^ 1
    with closing(Store(path)) as store:
        assert store.seed(None) == drawn
    with closing(Store(tmp_path / "another")) as store:
        assert (store.seed(5), store.seed(6), store.seed(None)) == (5, 6, 5)


def test_a_regrade_reuses_no_grade_and_keeps_the_replaced_ones(path: Path) -> None:
    finished_run(path, PASSED)
    with closing(Store(path, regrade=True)) as store:
        assert store.get("key") is None
        store.put("key", FAILED)
        assert store.get("key") == nobodys(FAILED)
    with closing(Store(path)) as store:
        assert store.get("key") == nobodys(FAILED)
    assert kept(path) == [nobodys(PASSED), nobodys(FAILED)]


def kept(path: Path) -> list[Grade]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT grade FROM grade ORDER BY regrade")
        return [Grade.from_dict(json.loads(text)) for (text,) in rows]


def test_a_regrade_that_was_killed_goes_on_and_one_that_ended_does_not(path: Path) -> None:
    finished_run(path, PASSED)
    with closing(Store(path, regrade=True)) as killed:
        killed.put("key", FAILED)
    with closing(Store(path, regrade=True)) as resumed:
        assert resumed.get("key") is not None
        resumed.settle(ANN)
    with closing(Store(path, regrade=True)) as new:
        assert new.get("key") is None


def test_a_plain_run_during_a_regrade_uses_what_there_is_and_grades_for_both(path: Path) -> None:
    finished_run(path, PASSED)
    with closing(Store(path, regrade=True)) as regrade, closing(Store(path)) as plain:
        assert plain.get("key") is not None
        plain.put("new", FAILED)
        assert regrade.get("new") is not None
        plain.settle(ANN)  # and does not end the other's regrade
        regrade.put("key", FAILED)
    with closing(Store(path, regrade=True)) as resumed:
        assert resumed.get("key") is not None


def test_a_regrade_lists_the_points_that_changed_until_it_settles(path: Path) -> None:
    assert finished_run(path, PASSED) == ()
    expected = Change("ann/twice.cu", "twice", "correct[n=1]", 90.0, 0.0)
    with closing(Store(path, regrade=True)) as killed:
        killed.put("key", FAILED)
        assert killed.changes(ANN) == (expected,)
    assert finished_run(path, FAILED, regrade=True) == (expected,)
    assert finished_run(path, FAILED, regrade=True) == ()
    assert finished_run(path, FAILED) == ()


def test_all_submissions_with_the_same_source_are_listed(path: Path) -> None:
    both = {"ann/twice.cu": "key", "bob/twice.cu": "key"}
    finished_run(path, FAILED, both)
    changes = finished_run(path, PASSED, both, regrade=True)
    assert [(change.submission, change.points_before, change.points_after) for change in changes] == [
        ("ann/twice.cu", 0.0, 90.0),
        ("bob/twice.cu", 0.0, 90.0),
    ]


def test_another_device_or_version_is_compared_too_but_not_another_source(path: Path) -> None:
    finished_run(path, PASSED)
    on_another = replace(FAILED, provenance=replace(PROVENANCE, device="another", plugin_version="0.2"))
    assert finished_run(path, on_another, {"ann/twice.cu": "key there"}) == (
        Change("ann/twice.cu", "twice", "correct[n=1]", 90.0, 0.0),
    )
    handed_in_again = replace(PASSED, provenance=replace(PROVENANCE, source_sha256="def"))
    assert finished_run(path, handed_in_again, {"ann/twice.cu": "new source"}) == ()


def test_checks_that_come_and_go_have_points_on_one_side_only(path: Path) -> None:
    finished_run(path, PASSED)
    more = replace(RIGHT, name="correct[n=2]", points=45.0)
    with_another_version = replace(PASSED, checks=(COMPILES, more))
    assert finished_run(path, with_another_version, {"ann/twice.cu": "key of version 2"}) == (
        Change("ann/twice.cu", "twice", "correct[n=2]", None, 45.0),
        Change("ann/twice.cu", "twice", "correct[n=1]", 90.0, None),
    )


def test_a_check_that_was_not_gradable_is_not_said_to_have_lost_its_points(path: Path) -> None:
    finished_run(path, PASSED)
    unknown = replace(PASSED, checks=(COMPILES, replace(RIGHT, verdict="not gradable", points=0.0)))
    assert finished_run(path, unknown, {"ann/twice.cu": "key of version 2"}) == (
        Change("ann/twice.cu", "twice", "correct[n=1]", 90.0, "not gradable"),
    )


def test_submissions_that_have_no_grade_are_passed_over(store: Store) -> None:
    store.settle({"ann/twice.cu": "never graded"})
    assert store.changes({"ann/twice.cu": "never graded"}) == ()


def test_names_and_texts_need_not_be_unicode(path: Path) -> None:
    odd = "zo\udcff/twice.cu"
    printed = replace(FAILED, submission=odd, student="zo\udcff", checks=(replace(RIGHT, printed="\udcfe\0"),))
    finished_run(path, printed, {odd: "key"})
    with closing(Store(path)) as store:
        assert store.get("key") == nobodys(printed)
    assert [change.submission for change in finished_run(path, FAILED, {odd: "key"}, regrade=True)] == [odd, odd]


def test_threads_share_a_store(store: Store) -> None:
    with ThreadPoolExecutor(8) as threads:
        kept = list(threads.map(lambda k: store.put(f"key {k % 10}", PASSED), range(80)))
    assert kept == [PASSED] * 80


RUN = """
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from pytest_gpulab.course.store import Store
from test_store import PASSED

path, own, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with closing(Store(path)) as store:
    print(store.seed(None), flush=True)
    for key in map(str, range(count)):
        kept = store.get(key) or store.put(key, replace(PASSED, exercise=own))
        print(key, kept.exercise, flush=True)
"""


def started(path: Path, own: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(path), own, str(count)]
    return subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True)


def test_runs_that_begin_one_store_at_once_end_with_the_same_grades(path: Path) -> None:
    runs = [started(path, f"run {k}", 50) for k in range(4)]
    first, *others = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0] * 4
    assert len(first.splitlines()) == 51
    assert others == [first] * 3


@contextmanager
def another_run(path: Path, monkeypatch: pytest.MonkeyPatch, for_s: float) -> Iterator[None]:
    """Let another run use a new store, from the moment on in which its tables are made."""
    transaction, others = Store._transaction, list[sqlite3.Connection]()

    @contextmanager
    def followed(store: Store) -> Iterator[sqlite3.Connection]:
        with transaction(store) as connection:
            yield connection
        if not others:
            others.append(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
            others[0].execute("BEGIN IMMEDIATE")
            ends.start()

    ends = threading.Timer(for_s, lambda: others[0].rollback())
    monkeypatch.setattr(Store, "_transaction", followed)
    yield
    ends.join()
    others[0].close()


def test_a_new_store_that_another_run_has_begun_to_use_is_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where SQLite itself does not wait: from now on it is to note changes in a file of their own."""
    with another_run(path, monkeypatch, 0.3), closing(Store(path)) as store:
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_new_store_that_another_run_does_not_leave_is_not_waited_for_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT_S", 0.1)
    with another_run(path, monkeypatch, 1.5), pytest.raises(StoreError, match="database is locked"):
        Store(path)


def test_stored_grades_survive_kill_9_at_any_moment(path: Path) -> None:
    told: dict[str, str] = {}
    for attempt in range(6):
        run = started(path, f"run {attempt}", 100_000)
        assert run.stdout is not None
        lines = [run.stdout.readline()]
        while f"run {attempt}" not in lines[-1]:  # it repeats the others' first
            lines.append(run.stdout.readline())
        lines += [run.stdout.readline() for _ in range(random.Random(attempt).randint(0, 50))]
        run.kill()
        lines += run.communicate()[0].splitlines(keepends=True)
        assert lines[0] == told.setdefault("seed", lines[0])
        for key, by in (line.split(" ", 1) for line in lines[1:] if line.endswith("\n")):
            assert told.setdefault(key, by) == by
    assert len(set(told.values())) == 1 + 6, "the seed and every run"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_grade_is_on_the_disk_before_put_returns(store: Store, path: Path) -> None:
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_file_system_without_shared_memory_will_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def without_shared_memory(path: Path, **how: Any) -> sqlite3.Connection:
        return connect(f"file:{path}?vfs=unix-dotfile", uri=True, **how)

    monkeypatch.setattr(store_module.sqlite3, "connect", without_shared_memory)
    finished_run(path, PASSED)
    with closing(Store(path)) as store:
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert store.get("key") is not None


def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    text, foreign = tmp_path / "grades.csv", tmp_path / "foreign.sqlite"
    text.write_text("student,points\n" * 100)
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = foreign.read_bytes()
    with pytest.raises(StoreError, match=r"^\S*grades.csv is not a store of grades: file is not a database; use"):
        Store(text)
    with pytest.raises(StoreError, match=r"^\S*foreign.sqlite is not a store of grades: name another file"):
        Store(foreign)
    assert text.read_text() == "student,points\n" * 100 and foreign.read_bytes() == before


def test_a_store_of_another_version_is_refused(path: Path) -> None:
    Store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreError, match=r"is a store of version 2, and this pytest-gpulab reads version 1: name"):
        Store(path)


def test_the_message_names_a_damaged_store(path: Path) -> None:
    finished_run(path, replace(PASSED, checks=(COMPILES,) * 1000))
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreError, match="is not a store of grades: database disk image is malformed"):
        finished_run(path, PASSED)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot use the store \S*file/grades: (Not|File)"):
        Store(tmp_path / "file" / "grades")
    with pytest.raises(StoreError, match=rf"cannot use the store {tmp_path}: unable to open database file"):
        Store(tmp_path)


def test_a_store_that_another_program_keeps_locked_is_not_waited_for_forever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(path).close()
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"cannot use the store .*: database is locked"):
            Store(path)


def test_a_full_disk_is_reported_and_loses_no_stored_grade(store: Store) -> None:
    store.put("key", PASSED)
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match=r"cannot use the store .*: database or disk is full"):
        store.put("large", replace(PASSED, checks=(COMPILES,) * 1000))
    assert store.get("large") is None and store.get("key") is not None
    store._connection.execute("PRAGMA max_page_count = 100000")
    assert store.put("large", PASSED) == PASSED

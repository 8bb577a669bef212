"""Cache entries: in a private folder, complete or absent, and keyed by everything that they depend on."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from pytest_gpulab.devices.compiler import cache
from pytest_gpulab.devices.compiler.cache import Cache, is_private, key_of, users_cache
from pytest_gpulab.devices.system.locks import SharedLock
from pytest_gpulab.devices.system.processes import LOCKS

ENTRY = (b"\x7fELF\n\0code\n", 'k.cu(3): warning: "x" was declared\nbut never used')


def test_machine_code_comes_back_with_the_compilers_messages(tmp_path: Path) -> None:
    Cache(tmp_path).put("key", *ENTRY)
    assert Cache(tmp_path).get("key") == ENTRY
    assert Cache(tmp_path).get("other") is None
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("name", ["there", None, "gone"])
def test_a_text_is_found_out_once_where_it_can_be_kept(tmp_path: Path, name: str | None) -> None:
    (tmp_path / "there").mkdir()
    cache, times = Cache(None if name is None else tmp_path / name), iter(["1.5", "2.5"])
    expected = "1.5" if name == "there" else None
    assert [cache.text("key", lambda: next(times)) for _ in range(2)] == [expected, expected]


def test_one_process_computes_the_entry_and_no_other_waits(tmp_path: Path) -> None:
    def found_out() -> str:
        assert Cache(tmp_path).text("key", lambda: "other") is None
        assert Cache(tmp_path).text("another key", lambda: "2.5") == "2.5"
        return "1.5"

    assert Cache(tmp_path).text("key", found_out) == "1.5"
    assert Cache(tmp_path).text("another key", lambda: "other") == "2.5"


def test_an_entry_of_another_process_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def free_once_it_is_known(lock: SharedLock) -> bool:
        Cache(tmp_path).put("key", b"", "1.5")
        return lock.take_exclusive(0.0)

    monkeypatch.setattr(cache, "_is_free", free_once_it_is_known)
    assert Cache(tmp_path).text("key", lambda: "2.5") == "1.5"


def test_a_failed_computation_is_left_to_other_processes(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        Cache(tmp_path).text("key", lambda: str(1 // 0))
    assert Cache(tmp_path).text("key", lambda: "1.5") == "1.5"


def test_a_damaged_entry_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"no JSON")
    assert Cache(tmp_path).get("key") is None


def test_a_folder_that_is_gone_or_none_keeps_nothing(tmp_path: Path) -> None:
    for folder in (None, tmp_path / "gone"):
        Cache(folder).put("key", *ENTRY)
        assert Cache(folder).get("key") is None


def test_large_entries_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRY_BYTES", 50)
    Cache(tmp_path).put("large", b"0" * 50, "")
    assert not list(tmp_path.iterdir())


def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 4)
    kept = Cache(tmp_path)
    for age, name in enumerate("abcd"):
        kept.put(name, *ENTRY)
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    kept.put("e", *ENTRY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "d", "e"]


def test_locks_make_room_unless_they_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 4)
    for age, name in enumerate(("held.lock", "left.lock", "c", "d")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    with closing(SharedLock(tmp_path / "held.lock")) as held:
        assert held.take_exclusive(0)
        Cache(tmp_path).put("e", *ENTRY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "d", "e", "held.lock"]


def test_a_folder_that_others_may_enter_or_a_link_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv(LOCKS, raising=False)
    users_cache().put("key", *ENTRY)
    (folder,) = tmp_path.iterdir()
    assert is_private(folder) and users_cache().get("key") == ENTRY
    folder.chmod(0o755)
    assert users_cache().get("key") is None
    folder.chmod(0o700)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert users_cache().get("key") is None


def test_processes_with_temporary_folders_of_their_own_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    monkeypatch.setenv(LOCKS, str(tmp_path))
    users_cache().put("key", *ENTRY)
    (folder,) = tmp_path.iterdir()
    assert is_private(folder) and [path.name for path in folder.iterdir()] == ["key"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert is_private(tmp_path)
    os.chown(tmp_path, 12345, -1)
    assert not is_private(tmp_path)


def test_a_key_tells_all_parts_apart() -> None:
    keys = {key_of(parts) for parts in (("a", "b"), ("ab",), ("b", "a"), ("a", "b", ""))}
    assert len(keys) == 4 and key_of(("a", "b")) in keys

"""Compiled machine code is kept where nobody else can write, whole or not at all, and found by all it depends on."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from pytest_gpulab.devices.cuda import cubin_cache
from pytest_gpulab.devices.cuda.cubin_cache import CubinCache, is_private, key_of, users_cache
from pytest_gpulab.devices.processes import LOCKS

ENTRY = (b"\x7fELF\n\0code\n", 'k.cu(3): warning: "x" was declared\nbut never used')


def test_machine_code_comes_back_with_the_compilers_messages(tmp_path: Path) -> None:
    CubinCache(tmp_path).put("key", *ENTRY)
    assert CubinCache(tmp_path).get("key") == ENTRY
    assert CubinCache(tmp_path).get("other") is None
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_damaged_entry_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"no JSON")
    assert CubinCache(tmp_path).get("key") is None


def test_a_folder_that_is_gone_or_none_keeps_nothing(tmp_path: Path) -> None:
    for folder in (None, tmp_path / "gone"):
        CubinCache(folder).put("key", *ENTRY)
        assert CubinCache(folder).get("key") is None


def test_what_is_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin_cache, "MAX_ENTRY_BYTES", 50)
    CubinCache(tmp_path).put("large", b"0" * 50, "")
    assert not list(tmp_path.iterdir())


def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin_cache, "MAX_ENTRIES", 4)
    cache = CubinCache(tmp_path)
    for age, name in enumerate("abcd"):
        cache.put(name, *ENTRY)
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    cache.put("e", *ENTRY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "d", "e"]


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


def test_a_key_tells_all_parts_apart_and_what_the_environment_tells_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {key_of(parts) for parts in (("a", "b"), ("ab",), ("b", "a"), ("a", "b", ""))}
    assert len(keys) == 4 and key_of(("a", "b")) in keys
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-use_fast_math")
    assert key_of(("a", "b")) not in keys

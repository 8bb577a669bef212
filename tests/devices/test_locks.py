"""Locks on files that other users may have made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_gpulab.devices.system import locks
from pytest_gpulab.devices.system.locks import SharedLock


def test_a_file_that_another_user_makes_is_left_alone_however_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, opened = tmp_path / "gpu.lock", locks.os.open
    first, second = SharedLock(path), SharedLock(path)
    path.touch()

    def refusing(asked: Path, *how: Any) -> int:
        if asked == path:
            raise PermissionError(13, "Permission denied")
        return opened(asked, *how)

    monkeypatch.setattr(locks.os, "open", refusing)
    monkeypatch.setattr(locks.os, "getuid", lambda: 77)
    assert first.take_exclusive(0) and not second.take_shared(0)
    assert {each.name for each in tmp_path.iterdir()} == {"gpu.lock", "gpu-77.lock"}
    first.close(), second.close()


def test_a_lock_in_use_is_not_removed_and_one_on_a_removed_file_is_taken_anew(tmp_path: Path) -> None:
    path = tmp_path / "key.lock"
    holder, waiting, third = SharedLock(path), SharedLock(path), SharedLock(path)
    assert holder.take_exclusive(0)
    assert not waiting.take_exclusive(0), "it has opened the file, too"
    assert not third.remove()
    assert path.exists()
    holder.close()
    assert third.remove()
    assert not path.exists()
    assert waiting.take_exclusive(0), "on a file of that name that is there"
    assert not SharedLock(path).take_shared(0)
    waiting.close()

"""Locks on files that other users may have made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_gpulab.devices import locks
from pytest_gpulab.devices.locks import SharedLock


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
    assert first.take_alone(0) and not second.take_shared(0)
    assert {each.name for each in tmp_path.iterdir()} == {"gpu.lock", "gpu-77.lock"}
    first.close(), second.close()

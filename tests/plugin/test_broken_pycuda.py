"""A PyCUDA that does not load, and warns before it fails, as the real one does."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from course import Course
from machine import Machine


@pytest.mark.parametrize("filtered", ["error", "always"])
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_of_a_pycuda_that_does_not_load_the_message_is_all_that_is_seen(
    course: Course, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, filtered: str
) -> None:
    machine = Machine(course, monkeypatch, tmp_path)
    machine.broken("undefined symbol: cuFoo_v2")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter(filtered)  # type: ignore[arg-type]
        said = machine.graded(f"--gpulab-device={device}", "-W", filtered)
    assert said.splitlines()[-1] == "ERROR: PyCUDA is installed but cannot be loaded: undefined symbol: cuFoo_v2"
    assert "INTERNALERROR" not in said and "Failed to import" not in said and not warned

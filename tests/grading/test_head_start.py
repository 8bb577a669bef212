"""The fork server starts before the device is opened, if it will be needed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gpulab import devices
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.grading.isolation import fork_server
from pytest_gpulab.plugin.session import GradingSession
from pytest_gpulab.plugin.settings import ClassSettings, Settings

EXERCISES = Path(__file__).parents[2] / "exercises"
ASKED = Settings("sim", EXERCISES, seed=7, reports=(), expected=())
CLASS = ClassSettings(workers=2)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In their order, what was begun."""
    begun: list[str] = []

    def open_device(*asked: object, **more: object) -> tuple[SimulatedDevice, str]:
        begun.append("device")
        return SimulatedDevice(), "it was requested"

    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setattr(devices, "open_device", open_device)
    monkeypatch.setattr(fork_server, "ensure_running", lambda: begun.append("fork server"))
    return begun


@pytest.fixture
def pycuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a package of that name where Python looks for packages."""
    (tmp_path / "pycuda.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


def opened(settings: Settings, will_grade: bool = True) -> None:
    bench = GradingSession.prepare(settings)
    bench.open_device(will_grade)
    bench.close_device()


@pytest.mark.usefixtures("pycuda")
@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:1"])
@pytest.mark.parametrize("course", [ClassSettings(), CLASS], ids=["", "class"])
def test_where_there_may_be_a_gpu(begun: list[str], device: str, course: ClassSettings) -> None:
    opened(replace(ASKED, device=device, course=course))
    assert begun == ["fork server", "device"]


@pytest.mark.parametrize("settings", [replace(ASKED, timeout_s=60.0), replace(ASKED, course=CLASS)], ids=["", "class"])
def test_where_checks_have_a_time_limit(begun: list[str], settings: Settings) -> None:
    opened(settings)
    assert begun == ["fork server", "device"]


@pytest.mark.usefixtures("pycuda")
def test_not_where_this_process_grades(begun: list[str]) -> None:
    opened(ASKED)
    assert begun == ["device"]


def test_not_without_pycuda(begun: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry) / "pycuda").exists()])
    opened(replace(ASKED, device="auto"))
    assert begun == ["device"]


def test_not_where_others_grade(begun: list[str]) -> None:
    opened(replace(ASKED, timeout_s=60.0), will_grade=False)
    assert begun == ["device"]


def test_not_where_processes_want_threads(begun: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "4")
    opened(replace(ASKED, timeout_s=60.0))
    assert begun == ["device"]

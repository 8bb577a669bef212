import sys
from pathlib import Path

import pytest
from clocked_device import ClockedBench
from doubling import Bench
from remote_class import Class, made_hostile

from pytest_gpulab.devices.system.processes import LOCKS
from pytest_gpulab.grading.isolation import worker_process


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def clocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClockedBench:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.WARM_UP_S", 0.0)
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.PAUSE_S", 0.0)
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_PAUSE_S", 0.0)
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_WAIT_S", 0.0)
    for limit in ("LONG_S", "BUDGET_S", "MAX_WARM_UP_S"):  # by a clock that is not the device's
        monkeypatch.setattr(f"pytest_gpulab.grading.speed.benchmark.{limit}", 1e9)
    monkeypatch.setattr("pytest_gpulab.grading.speed.buffers.SLACK_BYTES", 2**12)
    monkeypatch.setenv(LOCKS, str(tmp_path))  # where references' times are kept, too
    return ClockedBench(tmp_path)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Class:
    return made_hostile(Class(tmp_path), monkeypatch)


@pytest.fixture
def lucky_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake GPU, on which wrong kernels pass by luck."""
    worker = "from pytest_gpulab.grading.isolation.worker import main"
    program = worker_process.PROGRAM.replace(worker, "from lucky_device import main")
    monkeypatch.setattr(worker_process, "COMMAND", (sys.executable, "-I", "-c", program))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture
def lucky(tmp_path: Path, lucky_gpu: None) -> Class:
    """A class with that GPU."""
    made = Class(tmp_path)
    made.on_a_gpu()
    return made

"""A class that one exercise is graded for in other processes, and a device that may bring these down."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from every_element_twice import EXERCISE as EXERCISE
from every_element_twice import KERNEL as KERNEL
from hang_guard import HANG_S
from hostile_device import LOG_VARIABLE

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.isolation import worker_process as process
from pytest_gpulab.grading.isolation.remote import RemoteGrader

HOSTILE = process.PROGRAM.replace(
    "from pytest_gpulab.grading.isolation.worker import main", "from hostile_device import main"
)
READS_BEYOND = KERNEL.replace("if (i < n)", "int next = in[i + 1];\n    if (i < n && next != 1 << 30)")


class Class:
    """An exercise, a submission, and the log of what a hostile device did."""

    def __init__(self, folder: Path) -> None:
        (folder / "exercises" / "twice").mkdir(parents=True)
        (folder / "exercises" / "twice" / "exercise.py").write_text(EXERCISE)
        (folder / "exercises" / "twice" / "naive.cu").write_text(KERNEL)
        self.exercise = Catalogue(folder / "exercises").load("twice")
        self.checks = {check.name: check for check in checks_of(self.exercise.exercise)}
        self.submission, self.log = folder / "twice.cu", folder / "deeds.txt"
        device, _ = open_device("sim")
        self.device = "sim"
        self.info: DeviceInfo | None = device.info
        device.close()

    def on_a_gpu(self) -> None:
        """Grade on what the worker takes for a GPU."""
        assert self.info is not None
        self.device, self.info = "cuda", self.info._replace(kind="cuda")

    def grader(self, text: str = KERNEL, timeout_s: float = 60.0, **more: Any) -> RemoteGrader:
        self.submission.write_text(text)
        return RemoteGrader(self.exercise, self.submission, self.device, self.info, 1, "twice.cu", timeout_s, **more)

    def deeds(self) -> list[str]:
        return [line.split()[1] for line in self.log.read_text().splitlines()]

    def processes(self) -> list[int]:
        return [int(line.split()[0]) for line in self.log.read_text().splitlines()] if self.log.exists() else []


def made_hostile(bench: Class, monkeypatch: pytest.MonkeyPatch) -> Class:
    """All workers are forked, if this system can do that."""
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-I", "-c", HOSTILE))
    monkeypatch.setenv(LOG_VARIABLE, str(bench.log))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    bench.on_a_gpu()
    return bench


def graded(bench: Class, text: str, timeout_s: float = 60.0) -> dict[str, CheckResult]:
    results = {result.name: result for result in bench.grader(text, timeout_s).grade().checks}
    assert list(results) == list(bench.checks)
    wait_for_end(bench.processes())
    return results


def wait_for_end(processes: list[int]) -> None:
    end_s = time.monotonic() + HANG_S
    while left := [process for process in processes if is_alive(process)]:
        assert time.monotonic() < end_s, f"still there: {left}"
        time.sleep(0.02)


def is_alive(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return re.search(r"^State:\s+[ZX]", Path(f"/proc/{process}/status").read_text(), re.M) is None
    except (FileNotFoundError, ProcessLookupError):
        return False


def verdicts(results: dict[str, CheckResult]) -> dict[str, str]:
    return {name: result.verdict for name, result in results.items()}


EXPECTED = {
    "compile": "passed",
    "correct[n=1]": "passed",
    "correct[n=31]": "failed",
    "correct[n=100]": "passed",
    "safe[memory]": "passed",
    "speedup[0.5x]": "failed",
}

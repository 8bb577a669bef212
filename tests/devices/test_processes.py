"""Graders are known from other processes on a GPU, so that they are not warned of: with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpulab.devices.cuda import nvml
from pytest_gpulab.devices.system import processes

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the system does not tell")
HOLD = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


@contextmanager
def process(opened: Path, marked: bool) -> Iterator[int]:
    """A process that holds a file open, as one with a context on a GPU holds the GPU's."""
    environment = {key: value for key, value in os.environ.items() if key != processes.MARK}
    environment |= {processes.MARK: "1"} if marked else {}
    command = [sys.executable, "-I", "-c", HOLD, str(opened)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stdout.readline() == b"open\n"
        yield started.pid
        assert started.stdin is not None
        started.stdin.close()


@pytest.fixture
def gpu(tmp_path: Path) -> Path:
    """Stands for /dev/nvidia0."""
    file = tmp_path / "nvidia0"
    file.touch()
    return file


def test_children_of_a_marked_process_are_graders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(processes.MARK, "")
    monkeypatch.delenv(processes.ONE_QUEUE, raising=False)
    processes.mark_what_is_started()
    command = ["sh", "-c", f"echo begun ${processes.ONE_QUEUE}; read end"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stdout.readline() == b"begun 1\n"
        assert processes.is_grader(started.pid)
    assert not processes.is_grader(started.pid)  # it has ended


def test_others_are_strangers(gpu: Path) -> None:
    with process(gpu, marked=True) as grader, process(gpu, marked=False) as stranger:
        assert processes.is_grader(grader) and not processes.is_grader(stranger)
        assert processes.graders_using(str(gpu)) == {grader}
        assert processes.graders_using("/dev/nvidia-that-nobody-has") == set()


class Nvml:
    """The part of pynvml that `ConditionsReader` uses, on a machine with several processes."""

    class NVMLError(Exception):
        pass

    def __init__(self, computing: list[int], drawing: list[int] | None) -> None:
        self.computing, self.drawing = computing, drawing

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: object) -> list[Any]:  # noqa: N802 (NVML's name)
        return [SimpleNamespace(pid=process) for process in self.computing]

    def nvmlDeviceGetGraphicsRunningProcesses(self, gpu: object) -> list[Any]:  # noqa: N802 (NVML's name)
        if self.drawing is None:
            raise self.NVMLError
        return [SimpleNamespace(pid=process) for process in self.drawing]

    def nvmlSystemGetProcessName(self, process: int) -> bytes:  # noqa: N802 (NVML's name)
        return b"/usr/bin/render"


def others(computing: list[int], drawing: list[int] | None = None) -> tuple[str, ...]:
    reader = object.__new__(nvml.ConditionsReader)
    reader._nvml, reader._gpu = Nvml(computing, drawing), object()
    return reader.others()


def test_graders_are_left_out_and_strangers_named(gpu: Path) -> None:
    with process(gpu, marked=True) as grader, process(gpu, marked=False) as stranger:
        assert others([os.getpid(), os.getppid(), grader]) == ()
        assert others([os.getpid(), grader, stranger]) == (f"render (process {stranger})",)


def test_graphics_processes_are_listed_too_and_once(gpu: Path) -> None:
    with process(gpu, marked=False) as computes, process(gpu, marked=False) as draws:
        named = [f"render (process {stranger})" for stranger in (computes, draws)]
        assert list(others([os.getpid(), computes], [draws])) == named
        assert list(others([os.getpid(), computes], [computes, draws, draws])) == named
        assert list(others([os.getpid()], [draws])) == named[1:]


def test_where_numbers_are_another_systems_graders_are_taken_off(gpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = processes.graders_using
    monkeypatch.setattr(processes, "graders_using", lambda: counted(str(gpu)))
    with process(gpu, marked=True), process(gpu, marked=False):
        assert others([3_000_000_001, 3_000_000_002]) == ()  # this process and the grader
        assert others([3_000_000_001, 3_000_000_002, 3_000_000_003]) == ("1 unknown",)


def test_processor_time_counts_what_a_process_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    for number, parent, own, ended in ((7, 1, 2, 1), (8, 7, 3, 0), (9, 8, 4, 0), (10, 1, 100, 0)):
        times = f"{own * ticks} 0 {ended * ticks} 0"
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "stat").write_text(f"{number} (a (b) c) S {parent} 7 7 0 -1 0 0 0 0 0 {times} 20\n")
    (tmp_path / "11").mkdir()
    (tmp_path / "11" / "stat").write_text("")
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    assert processes.processor_s(7) == 10.0 and processes.processor_s(9) == 4.0
    assert processes.processor_s(11) is None and processes.processor_s(12) is None


def test_ones_own_processor_time_is_known() -> None:
    assert (processes.processor_s(os.getpid()) or 0.0) > 0.0

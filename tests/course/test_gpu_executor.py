"""Threads that wait for graders, which here are on the simulated GPU: what becomes of jobs, and that nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from pathlib import Path

import pytest
import trouble
from hang_guard import HANG_S
from test_executor import ALL_RIGHT, is_alive, verdicts, wait_for, workers_of
from trouble import SOURCE, exercises_in, job

from pytest_gpulab.course.executors import gpus
from pytest_gpulab.course.executors.gpus import GpuExecutor
from pytest_gpulab.course.executors.processes import Executor
from pytest_gpulab.course.jobs import NotGraded
from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.devices.system.processes import is_grader
from pytest_gpulab.grading.isolation import fork_server
from pytest_gpulab.grading.isolation.worker_process import ProcessScope

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")


@pytest.fixture
def exercises(tmp_path: Path) -> Path:
    return exercises_in(tmp_path)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, in which only the cache is left, and a fork server that uses it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    fork_server._server.cache_clear()
    yield folder
    fork_server._server.cache_clear()
    assert {path.name for path in folder.iterdir()} <= {f"gpulab-cache-{os.getuid()}"}


def graders() -> list[int]:
    server = fork_server.ensure_running()
    assert server is not None
    return workers_of(server.pid)


@linux
def test_submissions_cost_each_other_nothing(exercises: Path, temporary: Path) -> None:
    with closing(GpuExecutor(2, ("sim",))) as executor:
        futures = [executor.submit(job(exercises, SOURCE % number, f"s{number}")) for number in (1, 0, 0)]
        killer, *others = (future.result(HANG_S) for future in futures)
        assert verdicts(killer) == ALL_RIGHT | {"correct[n=31]": "crash"}
        assert killer.student == "s1" and [verdicts(grade) for grade in others] == [ALL_RIGHT, ALL_RIGHT]
    wait_for(lambda: not graders())


def test_jobs_are_dealt_to_all_gpus(exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "graded_apart", trouble.graded_nowhere)
    info = DeviceInfo("cuda", "the first GPU", "nvcc", "sm_90", estimates=False)
    with closing(GpuExecutor(3, ("cuda:0", "cuda:1"), info)) as executor:
        futures = [executor.submit(job(exercises, SOURCE % 0)) for _ in range(6)]
        graded_on = [future.result(HANG_S).provenance for future in futures]
    devices = sorted((on.device, on.architecture) for on in graded_on)
    assert devices == 4 * [("cuda:0", "the first GPU")] + 2 * [("cuda:1", "unknown")]


@linux
def test_waiting_jobs_are_cancelled_and_running_jobs_are_stopped(exercises: Path, temporary: Path) -> None:
    with closing(GpuExecutor(1, ("sim",))) as executor:
        running, waiting = (executor.submit(job(exercises, SOURCE % 2)) for _ in range(2))
        (grader,) = wait_for(graders)
        assert running.running() and not waiting.running()
        executor.cancel()
        assert waiting.cancelled()
        with pytest.raises(CancelledError):
            running.result(HANG_S)
        assert not is_alive(grader)
        later = executor.submit(job(exercises, SOURCE % 0))
        assert verdicts(later.result(HANG_S)) == ALL_RIGHT


@linux
def test_jobs_end_with_the_executor(exercises: Path, temporary: Path) -> None:
    executor: Executor = GpuExecutor(2, ("sim",))
    running = [executor.submit(job(exercises, SOURCE % 2)) for _ in range(2)]
    executor.close()
    for future in running:
        with pytest.raises(CancelledError):
            future.result(0)
    assert not graders()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NotGraded("the GPU is gone"), "the GPU is gone"),
        (MemoryError("1 GiB"), "there was no memory to grade it: 1 GiB"),
        (MemoryError(), "there was no memory to grade it: none was left"),
    ],
)
def test_a_failing_job_does_not_affect_others(
    exercises: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    def lost(*_: object) -> None:
        raise error

    with closing(GpuExecutor(1, ("sim",))) as executor:
        with monkeypatch.context() as patch:
            patch.setattr(gpus, "graded_apart", lost)
            with pytest.raises(NotGraded, match=f"^{told}$"):
                executor.submit(job(exercises, SOURCE % 0)).result(HANG_S)
        assert verdicts(executor.submit(job(exercises, SOURCE % 0)).result(HANG_S)) == ALL_RIGHT


def test_all_of_a_run_share_a_folder(exercises: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def graded_apart(job: object, known: object, scope: ProcessScope) -> None:
        seen.append(scope.folder)

    monkeypatch.setattr(gpus, "graded_apart", graded_apart)
    with closing(GpuExecutor(1, ("sim",))) as executor:
        for _ in range(2):
            executor.submit(job(exercises, SOURCE % 0)).result(HANG_S)
        first, second = seen
        assert first is not None and first == second and Path(first).is_dir()
    assert not Path(first).exists()


PARENT = """
import sys
from pathlib import Path
from trouble import SOURCE, exercises_in, job
from pytest_gpulab.course.executors.gpus import GpuExecutor

executor = GpuExecutor(2, ("sim",))
executor.submit(job(exercises_in(Path(sys.argv[1])), SOURCE % 2)).result()
"""


@linux
def test_no_grader_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(temporary)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, tmp_path], env=os.environ | environment)
    wait_for(lambda: list(temporary.glob("gpulab-*/gpulab-*/gpulab-*/twice.cu")))
    (server,) = (number for number in wait_for(lambda: workers_of(parent.pid)) if is_grader(number))
    (grader,) = wait_for(lambda: workers_of(server))
    parent.send_signal(signal.SIGKILL)
    parent.wait(HANG_S)
    wait_for(lambda: not is_alive(grader) and not is_alive(server))
    assert not list(temporary.glob("gpulab-*"))


@linux
def test_graders_are_known_for_such_wherever_they_are_started(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPULAB_GRADER", raising=False)
    with closing(GpuExecutor(1, ("cuda:0",))):
        server = fork_server.ensure_running()
        assert server is not None
        wait_for(lambda: is_grader(server.pid))  # a process that has just begun has no environment for a moment

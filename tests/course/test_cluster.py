"""Jobs on a Dask cluster of real processes: the grades are those of this machine, also if workers are lost."""

from __future__ import annotations

import gc
import operator
import os
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dask_cluster import WITH_GPU, DaskCluster
from hang_guard import HANG_S, wait_for
from trouble import SOURCE, job
from waiting import graders_in, waiting_exercises_in

import pytest_gpulab
from pytest_gpulab.course.executors import dask_cluster as cluster_module
from pytest_gpulab.course.executors import dask_worker
from pytest_gpulab.course.executors.dask_cluster import ClusterExecutor
from pytest_gpulab.course.executors.dask_worker import PackedJob, packed, unpacked
from pytest_gpulab.course.executors.processes import ExecutorUnavailable
from pytest_gpulab.course.jobs import Job, NotGraded, device_model, graded
from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.grading.grade import CheckResult, Grade

RIGHT = SOURCE % 0


def without_durations(grade: Grade) -> Grade:
    return replace(grade, checks=tuple(map(_without_times, grade.checks)))


def _without_times(check: CheckResult) -> CheckResult:
    """Return the check without times; that of the reference is unknown while another process measures it."""
    measured = check.measurement and replace(check.measurement, reference_ms=None)
    return replace(check, duration_s=0.0, measurement=measured)


@pytest.mark.unmeasured
def test_grades_are_those_of_this_machine_and_no_submission_harms_a_worker(
    cluster: DaskCluster, exercises: Path
) -> None:
    wrong = RIGHT.replace("2 * in[i]", "3 * in[i]")
    killer = job(exercises, SOURCE % 1, "killer")
    jobs = [job(exercises, source, f"s{number}") for number, source in enumerate((wrong, "no kernel", RIGHT))]
    with closing(ClusterExecutor(cluster.address, "sim")) as executor:
        brought_down, *others = [future.result(HANG_S) for future in map(executor.submit, (killer, *jobs))]
    assert list(map(without_durations, others)) == [without_durations(graded(each)) for each in jobs]
    found = {check.name: check.findings[0].code for check in brought_down.checks if check.findings}
    assert found == {"correct[n=31]": "crash"}


def test_the_job_of_a_worker_that_is_lost_is_done_by_another(cluster: DaskCluster, tmp_path: Path) -> None:
    lost = cluster.add_worker("--no-nanny")
    exercises = waiting_exercises_in(tmp_path)
    with closing(ClusterExecutor(cluster.address, "sim")) as executor:
        wait_for(lambda: len(executor._capacities()) == 3)
        futures = [executor.submit(job(exercises, RIGHT, f"s{number}")) for number in range(3)]
        wait_for(lambda: lost.pid in graders_in(tmp_path) and len(graders_in(tmp_path)) == 3)
        assert all(future.running() for future in futures)
        lost.kill()
        lost.wait()
        (tmp_path / "go").touch()
        grades = [future.result(HANG_S) for future in futures]
    assert [(grade.student, grade.points) for grade in grades] == [(f"s{number}", 100) for number in range(3)]


def test_jobs_for_a_gpu_go_to_workers_that_declare_one(cluster: DaskCluster, tmp_path: Path) -> None:
    exercises = waiting_exercises_in(tmp_path)
    with closing(ClusterExecutor(cluster.address)) as executor:
        assert executor.reason.startswith("no CUDA device") or executor.info.kind == "cuda"
        executor._needs_gpu = True  # as on a GPU, wherever this test runs
        futures = [executor.submit(job(exercises, RIGHT, f"s{number}")) for number in range(2)]
        wait_for(lambda: graders_in(tmp_path))
        assert [future.running() for future in futures] == [True, False]
        (tmp_path / "go").touch()
        assert [future.result(HANG_S).points for future in futures] == [100, 100]
    assert len(graders_in(tmp_path)) == 1


def test_all_workers_are_asked_what_they_have(cluster: DaskCluster) -> None:
    with closing(ClusterExecutor(cluster.address, "sim")) as executor:
        assert executor.all_say(gc.isenabled)
        assert not executor.all_say(bool)
        assert not executor.all_say(operator.truth), "an error is no yes"


def test_cancelled_jobs_stop_on_the_workers(cluster: DaskCluster, tmp_path: Path) -> None:
    exercises = waiting_exercises_in(tmp_path)
    with closing(ClusterExecutor(cluster.address, "sim")) as executor:
        *running, waiting = [executor.submit(job(exercises, RIGHT, f"s{number}")) for number in range(3)]
        workers = wait_for(lambda: len(graders_in(tmp_path)) == 2 and graders_in(tmp_path))
        assert all(map(children_of, workers))
        executor.cancel()
        assert waiting.cancelled()
        for stopped in running:
            with pytest.raises(CancelledError):
                stopped.result(HANG_S)
        wait_for(lambda: not any(map(children_of, workers)))
        (tmp_path / "go").touch()
        assert executor.submit(job(exercises, RIGHT)).result(HANG_S).points == 100


def children_of(parent: int) -> list[str]:
    """Return the processes that a worker grades in: its fork server's children."""
    try:
        servers = [pid for pid in started_by(parent) if b"fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return [pid for server in servers for pid in started_by(server)]
    except OSError:  # one ended while they were looked at
        return children_of(parent)


def started_by(parent: int | str) -> list[str]:
    threads = Path(f"/proc/{parent}/task").iterdir()
    return [pid for thread in threads for pid in (thread / "children").read_text().split()]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"version": "0.0"}, rf"has pytest-gpulab {pytest_gpulab.__version__}; the run needs 0\.0$"),
        ({"model": "another"}, r"has another device than the run began with: simulated; simulated GPU"),
    ],
)
def test_a_worker_that_joined_later_may_not_be_the_right_one(
    cluster: DaskCluster, exercises: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(cluster_module, "packed", lambda *sent: replace(packed(*sent), **changes))
    with (
        closing(ClusterExecutor(cluster.address, "sim")) as executor,
        pytest.raises(NotGraded, match=r"the worker tcp://127.0.0.1:\d+ " + expected),
    ):
        executor.submit(job(exercises, RIGHT)).result(HANG_S)


def test_a_job_that_no_worker_understands_is_not_graded(
    cluster: DaskCluster, exercises: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "graded_there", len)
    with (
        closing(ClusterExecutor(cluster.address, "sim")) as executor,
        pytest.raises(NotGraded, match=r"the worker tcp://\S+ failed: TypeError"),
    ):
        executor.submit(job(exercises, RIGHT)).result(HANG_S)


def test_an_exercise_that_cannot_be_sent_is_reported(
    cluster: DaskCluster, exercises: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> PackedJob:
        raise FileNotFoundError(2, "No such file or directory", "naive.cu")

    monkeypatch.setattr(cluster_module, "packed", unreadable)
    with (
        closing(ClusterExecutor(cluster.address, "sim")) as executor,
        pytest.raises(NotGraded, match=r"the exercise twice cannot be sent: .*No such file"),
    ):
        executor.submit(job(exercises, RIGHT)).result(HANG_S)


def test_workers_without_the_device_are_reported(cluster: DaskCluster) -> None:
    with pytest.raises(ExecutorUnavailable, match=r"the worker tcp://127.0.0.1:\d+ cannot grade: \w+"):
        ClusterExecutor(cluster.address, "cuda:99")


def test_another_version_on_a_worker_is_reported(cluster: DaskCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    own = pytest_gpulab.__version__
    monkeypatch.setattr(pytest_gpulab, "__version__", "0.0")
    expected = rf"tcp://\S+ has pytest-gpulab {own}, and this machine has 0\.0: install the same version there"
    with pytest.raises(ExecutorUnavailable, match=expected):
        ClusterExecutor(cluster.address)


def test_a_workers_version_is_that_of_the_files_it_finds(bare: DaskCluster, tmp_path: Path) -> None:
    found_first = tmp_path / "found_first"
    (found_first / "pytest_gpulab-0.0.dist-info").mkdir(parents=True)  # what pip would tell of
    (found_first / "pytest_gpulab-0.0.dist-info" / "METADATA").write_text("Name: pytest-gpulab\nVersion: 0.0\n")
    bare.add_worker("--no-nanny", PYTHONPATH=path_with(found_first))
    with closing(ClusterExecutor(bare.address, "sim")) as executor:
        assert executor.capacity == 1


def test_a_worker_without_a_gpu_is_not_asked_where_one_is_needed(bare: DaskCluster, tmp_path: Path) -> None:
    (tmp_path / "pytest_gpulab.py").write_text("raise ModuleNotFoundError('as if it were not there')\n")
    bare.add_worker("--no-nanny", PYTHONPATH=path_with(tmp_path))
    bare.add_worker("--no-nanny", *WITH_GPU)
    with closing(cluster_module._connected(bare.address)) as client:
        client.wait_for_workers(2, HANG_S)
    ClusterExecutor(bare.address).close()
    with pytest.raises(ExecutorUnavailable, match=r"the worker tcp://\S+ has no pytest-gpulab, and this machine has"):
        ClusterExecutor(bare.address, "sim")


def path_with(folder: Path) -> str:
    """Return a PYTHONPATH that begins with a folder."""
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


class Answering:
    """A client whose workers all answer the same way to any function."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def run(self, *_: object, **__: object) -> dict[str, Any]:
        return self._answers


def test_workers_of_different_kinds_are_reported() -> None:
    infos = {f"w{sm}": (DeviceInfo("cuda", "a GPU", "nvcc", f"sm_{sm}", False), "it is there") for sm in (80, 90)}
    expected = r"different devices, and grades would not compare: w80 has cuda; a GPU; sm_80; .* w90 has .*sm_90"
    with pytest.raises(ExecutorUnavailable, match=expected):
        cluster_module._common_device(Answering(**infos), list(infos), ("cuda", None, None))


def test_a_cluster_without_workers_is_waited_for_but_not_for_ever(
    bare: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "WORKERS_LIMIT_S", 0.1)
    expected = r"at tcp://\S+: there is no worker; start one for each GPU with: dask worker ADDRESS .*GPU=1\", or grade"
    with pytest.raises(ExecutorUnavailable, match=expected):
        ClusterExecutor(bare.address)
    monkeypatch.setattr(cluster_module, "WORKERS_LIMIT_S", HANG_S)
    only, exercises = bare.add_worker("--no-nanny"), waiting_exercises_in(tmp_path)
    with closing(ClusterExecutor(bare.address, "sim")) as executor:
        monkeypatch.setattr(cluster_module, "WORKERS_LIMIT_S", 0.1)
        with pytest.raises(ExecutorUnavailable, match="no worker has a GPU; start one for each GPU"):
            ClusterExecutor(bare.address)
        running, waiting = (executor.submit(job(exercises, RIGHT, student)) for student in ("a", "b"))
        wait_for(lambda: graders_in(tmp_path))
        monkeypatch.setattr(cluster_module, "ATTEMPTS", 1)
        monkeypatch.setattr(cluster_module, "DESERTED_LIMIT_S", 2.0)
        only.kill()
        with pytest.raises(
            NotGraded, match=r"worker that graded it was lost, the last time tcp://\S+; it was sent 1 times"
        ):
            running.result(HANG_S)
        with pytest.raises(NotGraded, match=r"the cluster at tcp://\S+ has had no worker for 2 s"):
            waiting.result(HANG_S)


def test_a_cluster_needs_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ExecutorUnavailable, match=r"needs Dask.*pip install 'pytest-gpulab\[cluster\]'"):
        ClusterExecutor("tcp://127.0.0.1:1")


@pytest.fixture
def sent(exercises: Path) -> PackedJob:
    (exercises / "twice" / "parts").mkdir()
    (exercises / "twice" / "parts" / "paths.cuh").write_text("// a header\n")
    return packed(job_of(exercises), "run", "model")


def job_of(exercises: Path) -> Job:
    return job(exercises, RIGHT)


def test_an_exercise_travels_with_its_job_and_is_written_once(sent: PackedJob, tmp_path: Path) -> None:
    folder = unpacked(sent, tmp_path / "worker")
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert files == ["twice/exercise.py", "twice/parts/paths.cuh"]
    written_ns = (folder / "twice" / "exercise.py").stat().st_mtime_ns
    assert unpacked(sent, tmp_path / "worker") == folder
    assert (folder / "twice" / "exercise.py").stat().st_mtime_ns == written_ns


def test_many_jobs_may_bring_the_same_exercise_at_once(sent: PackedJob, tmp_path: Path) -> None:
    barrier, found = threading.Barrier(8), []

    def unpack() -> None:
        barrier.wait()
        found.append(unpacked(sent, tmp_path / "worker"))

    threads = [threading.Thread(target=unpack) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1
    assert list(found[0].parent.iterdir()) == [found[0]]


def test_an_exercise_that_changes_meanwhile_is_noticed(exercises: Path, tmp_path: Path) -> None:
    before = job_of(exercises)
    (exercises / "twice" / "exercise.py").write_text("exercise = None\n")
    with pytest.raises(NotGraded, match="the exercise twice was changed while its submissions were graded"):
        unpacked(packed(before, "run", "model"), tmp_path / "worker")


def test_a_lost_run_is_ended_for_the_next(exercises: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = SimpleNamespace(address="here", local_directory=str(tmp_path / "worker"))
    worker.state = SimpleNamespace(nthreads=1)
    monkeypatch.setattr("distributed.get_worker", lambda: worker)
    model = device_model(dask_worker.looked_at("sim", None, None)[0])
    runs = dask_worker._runs
    for run, idle_limit_s, known in (("a", 600.0, "a"), ("b", 600.0, "ab"), ("c", 0.0, "c")):
        monkeypatch.setattr(dask_worker, "IDLE_LIMIT_S", idle_limit_s)
        processes = [each for run in runs.values() for each in run.executor._workers]
        assert dask_worker.graded_there(packed(job_of(exercises), run, model)).points == 100
        assert "".join(runs) == known
    assert [each._worker for each in processes] == [None, None]
    dask_worker.forget("c")
    assert not runs


def test_a_run_that_a_worker_does_not_know_is_forgotten_already() -> None:
    dask_worker.forget("unknown")

"""The connection to a Dask cluster: if it breaks, no wait is endless and no grade is wrong."""

from __future__ import annotations

import asyncio
import socket
import weakref
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from dask_cluster import DaskCluster
from distributed.client import ClosedClientError
from distributed.comm import CommClosedError
from distributed.utils import LoopRunner
from hang_guard import HANG_S, wait_for
from trouble import SOURCE, job
from waiting import graders_in, waiting_exercises_in

from pytest_gpulab.course.executors import dask_cluster as cluster_module
from pytest_gpulab.course.executors.dask_cluster import ClusterExecutor
from pytest_gpulab.course.executors.processes import ExecutorUnavailable
from pytest_gpulab.course.jobs import NotGraded

pytestmark = pytest.mark.unmeasured

RIGHT = SOURCE % 0


def test_without_the_scheduler_nothing_is_graded(
    bare: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "ATTEMPTS", 1)
    monkeypatch.setattr(cluster_module, "POLL_S", 0.1)
    bare.add_worker("--no-nanny")
    with closing(ClusterExecutor(bare.address, "sim")) as executor:
        monkeypatch.setattr(executor._client, "_timeout", 3.0)  # to connect anew
        running, waiting = (
            executor.submit(job(waiting_exercises_in(tmp_path / student), RIGHT, student)) for student in ("a", "b")
        )
        wait_for(lambda: graders_in(tmp_path / "a"))
        bare.scheduler.kill()
        with pytest.raises(NotGraded, match=r"the connection to the scheduler at tcp://\S+ broke; it was sent 1 times"):
            running.result(HANG_S)
        with pytest.raises(NotGraded, match=r"the scheduler at tcp://\S+ was lost"):
            waiting.result(HANG_S)


@pytest.mark.parametrize("method", ["packed", "submit", "cancel"])
def test_no_job_waits_for_ever_for_a_cluster_that_takes_none_any_more(
    cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise ClosedClientError("closed")

    with closing(ClusterExecutor(cluster.address, "sim")) as executor:
        if method == "packed":
            monkeypatch.setattr(cluster_module, "packed", refused)
        if method == "submit":
            monkeypatch.setattr(executor._client, "submit", refused)
        future = executor.submit(job(waiting_exercises_in(tmp_path), RIGHT))
        if method == "cancel":
            wait_for(lambda: graders_in(tmp_path))
            monkeypatch.setattr(executor._client, "cancel", refused)
            monkeypatch.setattr(executor, "_capacities", lambda: 1 / 0)
        with pytest.raises(
            NotGraded, match=rf"the cluster at {cluster.address} failed: (ClosedClient|ZeroDivision)Error"
        ):
            future.result(HANG_S)
        monkeypatch.undo()
        (tmp_path / "go").touch()


def test_a_connection_that_breaks_in_the_end_costs_nothing(
    cluster: DaskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise CommClosedError

    executor = ClusterExecutor(cluster.address, "sim")
    monkeypatch.setattr(executor._client, "run", broken)
    executor.close()
    assert executor._client.status == "closed"


def test_a_connection_that_comes_back_costs_nothing(cluster: DaskCluster, tmp_path: Path) -> None:
    exercises = waiting_exercises_in(tmp_path)
    with closing(ClusterExecutor(cluster.address, "sim")) as executor:
        running = executor.submit(job(exercises, RIGHT))
        wait_for(lambda: graders_in(tmp_path))
        executor._client.loop.add_callback(executor._client.scheduler_comm.comm.abort)
        (tmp_path / "go").touch()
        assert running.result(HANG_S).points == 100


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{free}", "nonsense", "tcp://no.such.host.invalid:1"])
def test_a_missing_scheduler_is_reported(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_LIMIT_S", 0.2)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and no process listens
        address = address.format(free=held.getsockname()[1])
        with pytest.raises(
            ExecutorUnavailable, match=rf"there is no Dask scheduler at {address} \(.+\); start one with"
        ):
            ClusterExecutor(address)


def test_a_dask_loop_that_does_not_start_is_reported(cluster: DaskCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(runner: LoopRunner) -> None:
        raise AssertionError  # as Dask says it

    monkeypatch.setattr(LoopRunner, "_start_unlocked", fail)
    with pytest.raises(ExecutorUnavailable, match="Dask has not started within 10 s; this machine is overloaded"):
        ClusterExecutor(cluster.address, "sim")


def test_no_client_is_collected_as_garbage_while_another_one_starts(
    cluster: DaskCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Garbage:
        def __init__(self) -> None:
            self.itself = self

    left, start = [], LoopRunner._start_unlocked
    garbage = weakref.ref(Garbage())
    monkeypatch.setattr(LoopRunner, "_start_unlocked", lambda runner: (left.append(garbage()), start(runner)))
    ClusterExecutor(cluster.address, "sim").close()
    assert left == [None]


@pytest.mark.parametrize("failure", [CommClosedError("lost"), OSError("timed out"), None])
def test_a_grade_that_cannot_be_fetched_is_graded_again(
    cluster: DaskCluster, exercises: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError | None
) -> None:
    """None: nothing is heard of it, as when Dask's loop ends, or waits for a message that was lost."""
    monkeypatch.setattr(cluster_module, "ANSWER_LIMIT_S", 0.5)
    tried = []
    with closing(ClusterExecutor(cluster.address, "sim")) as executor:
        gather = executor._client._gather

        async def failing(*args: object, **options: object) -> object:
            tried.append(args)
            monkeypatch.setattr(cluster_module, "ANSWER_LIMIT_S", HANG_S)
            if len(tried) > 1:
                return await gather(*args, **options)
            if failure:
                raise failure
            return await asyncio.get_running_loop().create_future()

        monkeypatch.setattr(executor._client, "_gather", failing)
        assert executor.submit(job(exercises, RIGHT)).result(HANG_S).points == 100
    assert len(tried) == 2


def test_a_grade_that_can_never_be_fetched_is_not_waited_for(
    cluster: DaskCluster, exercises: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object, **__: object) -> None:
        raise OSError("it is gone")

    with closing(ClusterExecutor(cluster.address, "sim")) as executor:
        monkeypatch.setattr(executor._client, "_gather", failing)
        told = (
            r"^its grade could not be fetched from the scheduler at tcp://\S+: OSError\('it is gone'\); it was sent 3"
        )
        with pytest.raises(NotGraded, match=told):
            executor.submit(job(exercises, RIGHT)).result(HANG_S)


def test_an_unneeded_answer_is_not_fetched(cluster: DaskCluster) -> None:
    """The loop that would fetch it may be gone, and the thread that all answers come by would wait for it."""
    fetched = []
    answer = SimpleNamespace(key="of a job that was cancelled", result=lambda **_: fetched.append("grade"))
    with closing(ClusterExecutor(cluster.address, "sim")) as executor:
        executor._ended(answer)
    assert not fetched

"""Folders of submissions, and Dask clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from dask_cluster import WITH_GPU, DaskCluster
from hang_guard import HANG_S
from trouble import exercises_in

from pytest_gpulab.course.executors import dask_cluster as cluster_module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of submissions."""
    made = tmp_path / "class"
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """A worker that declares a GPU, under a nanny as batch systems start it, and one that does not."""
    with closing(DaskCluster(tmp_path_factory.mktemp("cluster"))) as made:
        made.add_worker(*WITH_GPU)
        made.add_worker("--no-nanny")
        with closing(cluster_module._connected(made.address)) as client:
            client.wait_for_workers(2, HANG_S)
        yield made


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[DaskCluster]:
    """A scheduler without workers, which gives a job up with the first worker that is lost."""
    folder = tmp_path / "bare"
    folder.mkdir()
    with closing(DaskCluster(folder, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")) as made:
        yield made


@pytest.fixture
def exercises(tmp_path: Path) -> Path:
    return exercises_in(tmp_path)

"""`--gpulab-scheduler`: the same command, graded by the workers of a Dask cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import distributed  # noqa: F401 (the pytest within pytest forgets what it imports itself)
import pytest
from course import BROKEN, RIGHT, WRONG, Course
from dask_cluster import DaskCluster

from pytest_gpulab.course.executors import dask_cluster as cluster_module

CLASS = ("--gpulab-submissions=handed_in", "--gpulab-seed=7")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with closing(DaskCluster(tmp_path_factory.mktemp("cluster"))) as made:
        made.add_worker("--no-nanny")
        yield made


@pytest.fixture
def school(course: Course) -> Course:
    for student, source in (("ann", RIGHT), ("bob", WRONG), ("cem", BROKEN)):
        course.write(f"handed_in/{student}/twice.cu", source)
    return course


def grades(course: Course, name: str) -> list[dict[str, Any]]:
    found = json.loads((course.folder / name).read_text())["grades"]
    for check in (check for grade in found for check in grade["checks"]):
        check["duration_s"] = 0
        if check["measurement"]:
            del check["measurement"]["reference_ms"]  # unknown while another process measures it
    return list(found)


@pytest.mark.unmeasured
def test_a_class_gets_from_a_cluster_what_it_gets_here(school: Course, cluster: DaskCluster) -> None:
    there = school.grade_apart(
        *CLASS, f"--gpulab-scheduler={cluster.address}", "--gpulab-store=there", "--gpulab-report=json:there.json"
    )
    there.stdout.fnmatch_lines(
        [
            "gpulab: simulated GPU (cost model: NVIDIA H200), because it was requested",
            "gpulab: seed 7",
            f"gpulab: the cluster at {cluster.address}, 1 submission at a time; grades are stored in there",
            "gpulab: 3 submissions of 3 students in *handed_in",
            "gpulab: 3/3 graded, 2 with failures*",
        ]
    )
    school.grade(*CLASS, "--gpulab-workers=1", "--gpulab-store=here", "--gpulab-report=json:here.json")
    assert grades(school, "there.json") == grades(school, "here.json")
    again = school.grade(*CLASS, "--gpulab-workers=1", "--gpulab-store=there")
    again.stdout.fnmatch_lines(["gpulab: 3/3 graded, 2 with failures; 3 of them earlier"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--gpulab-scheduler=nowhere",),
            "ERROR: there is no Dask scheduler at nowhere (*); start one with: dask scheduler",
        ),
        (
            ("--gpulab-scheduler=nowhere", "--gpulab-workers=2"),
            "ERROR: --gpulab-workers starts processes on this machine: leave it out with --gpulab-scheduler",
        ),
    ],
)
def test_impossible_runs_are_refused_before_grading(
    school: Course, options: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_LIMIT_S", 0.2)
    result = school.grade(*CLASS, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([told])


def test_collecting_needs_no_cluster(school: Course) -> None:
    result = school.grade(*CLASS, "--gpulab-scheduler=nowhere", "--co", "-q")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["ann/twice.cu::compile"])

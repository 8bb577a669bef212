"""How many cores may be used: containers limit their time, not their number."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_gpulab.course.executors.cores import usable_cores


@pytest.fixture(autouse=True)
def _sixteen_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)


def system(root: Path, groups: str, files: dict[str, str]) -> Path:
    """Write what Linux says of a process' control groups below a folder that stands for the root."""
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("limit", "cores"),
    [("max 100000", 16), ("400000 100000", 4), ("150000 100000", 2), ("1000 100000", 1), ("6400000 100000", 16)],
)
def test_a_container_has_the_cores_of_its_quota(tmp_path: Path, limit: str, cores: int) -> None:
    assert usable_cores(system(tmp_path, "0::/\n", {"sys/fs/cgroup/cpu.max": f"{limit}\n"})) == cores


def test_the_least_quota_of_all_groups_around_counts(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/slurm/job/cpu.max": "800000 100000\n",
        "sys/fs/cgroup/slurm/cpu.max": "300000 100000\n",
        "sys/fs/cgroup/other/cpu.max": "100000 100000\n",
    }
    assert usable_cores(system(tmp_path, "0::/slurm/job\n", files)) == 3


def test_a_container_with_an_outside_path_reads_the_top_of_its_hierarchy(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/cpu.max": "200000 100000\n"}
    assert usable_cores(system(tmp_path, "0::/docker/4711\n", files)) == 2


@pytest.mark.parametrize(("quota", "cores"), [("-1", 16), ("250000", 3)])
def test_the_first_version_of_groups_is_read_too(tmp_path: Path, quota: str, cores: int) -> None:
    files = {
        "sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us": f"{quota}\n",
        "sys/fs/cgroup/cpu/docker/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/docker/cpu.max": "100000 100000\n",
    }
    groups = "9:name=systemd:/docker\n4:memory:/docker\n3:cpu,cpuacct:/docker\n0::/docker\n"
    assert usable_cores(system(tmp_path, groups, files)) == cores


@pytest.mark.parametrize("limit", ["", "many 100000", "100000", "100000 0"])
def test_a_limit_that_cannot_be_read_is_none(tmp_path: Path, limit: str) -> None:
    assert usable_cores(system(tmp_path, "0::/\nodd\n", {"sys/fs/cgroup/cpu.max": limit})) == 16


def test_a_system_without_groups_has_all_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert usable_cores(tmp_path) == 16
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cores(tmp_path) == 3

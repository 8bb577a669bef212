"""The page's script for Slurm starts workers that grade; Slurm itself, two of its commands, is a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from doc_pages import ROOT, blocks
from hang_guard import HANG_S

from pytest_gpulab.course.executors.dask_cluster import ClusterExecutor

# Slurm keeps a copy of the script, too; a job is a process group here.
SBATCH = """#!/bin/bash
cp "$1" job.sh
setsid bash job.sh > job.log 2>&1 < /dev/null &
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/bash
kill -- "-$1"
"""
JOBS = "cluster.scale(jobs=8)"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The page's script, but with one job."""
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (script,) = blocks(ROOT / "docs" / "class.md", "py")
    assert script.file == "workers.py" and JOBS in script.text
    (tmp_path / script.file).write_text(script.text.replace(JOBS, JOBS.replace("8", "1")))
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-W", "error", script.file]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.communicate("\n", timeout=HANG_S)


def test_the_script_starts_workers_that_grade(started: subprocess.Popen[str], tmp_path: Path) -> None:
    assert started.stdout is not None
    option, _, address = started.stdout.readline().strip().partition("=")
    assert option == "--gpulab-scheduler"
    with closing(ClusterExecutor(address)) as executor:
        assert executor.capacity == 4
    script = (tmp_path / "job.sh").read_text()
    assert f"{sys.executable} -m distributed.cli.dask_worker {address} " in script
    assert "#SBATCH -p gpu\n" in script and "#SBATCH --gres=gpu:1\n" in script and "module load cuda\n" in script
    started.communicate("\n", timeout=HANG_S)
    assert started.returncode == 0

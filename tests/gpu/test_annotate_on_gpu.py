"""An annotated listing where a real GPU grades: it comes from the simulated one, at its size, and says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("opened_device")]


def test_a_listing_comes_from_the_simulated_gpu(tmp_path):
    report = tmp_path / "grades.json"
    command = [sys.executable, "-m", "pytest", "--gpulab", "--gpulab-device=cuda", "--gpulab-annotate", "-q"]
    command += [f"--gpulab-report=json:{report}", "solutions/divergence/01_two_way_by_warp.cu", "-k", "speedup"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "COLUMNS": "100"}, capture_output=True, text=True, timeout=300
    )
    (grade,) = json.loads(report.read_text())["grades"]
    assert grade["provenance"]["device_kind"] == "cuda", done.stdout
    listings = {check["name"]: check["listing"] for check in grade["checks"] if check["listing"]}
    assert set(listings) == {"speedup[1.5x two-way]", "speedup[3x eight-way]"}
    for name, listing in listings.items():
        assert listing["device"].startswith("simulated GPU") and listing["size"] == "2^20", name
        headers = [line for file in listing["files"][1:] for line in file["lines"]]
        assert any(line["counters"].get("smsp__inst_executed.sum", 0) > 1e6 for line in headers)
    assert "size 2^20 on the simulated GPU (cost model: NVIDIA H200), estimated" in done.stdout

"""Calibrating one exercise on a real GPU, and grading with what came out."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("opened_device")]


@pytest.fixture
def course(tmp_path):
    for folder in ("exercises/divergence", "solutions/divergence"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pytest.ini").write_text("[pytest]\ngpulab_expected = solutions/divergence/expected.toml\n")
    return tmp_path


def run(course, *args):
    command = [sys.executable, "-m", "pytest", "--gpulab", "--gpulab-device=cuda", "-p", "no:cacheprovider", *args]
    ended = subprocess.run(command, cwd=course, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_calibration_separates_the_ladder_that_it_was_made_from(course):
    said = run(course, "--gpulab-calibrate", "solutions")
    (path,) = (course / "exercises" / "calibration").iterdir()
    assert f"Written to exercises/calibration/{path.name}." in said
    said = run(course, "solutions", "--gpulab-report=json:grades.json")
    assert "gpulab: thresholds: calibrated for " in said and f"({path.relative_to(course)})" in said
    grades = json.loads((course / "grades.json").read_text())["grades"]
    expected = tomllib.loads((course / "solutions/divergence/expected.toml").read_text())
    points = {Path(grade["submission"]).name: grade["points"] for grade in grades}
    assert points == {name: table["points"] for name, table in expected.items()}, (speeds(grades), path.read_text())
    measured = [check["measurement"] for grade in grades for check in grade["checks"] if check["kind"] == "speedup"]
    assert all(measurement["calibrated"] for measurement in measured)


def speeds(grades):
    """Return what was measured, for someone who has to find out why."""
    found = []
    for grade in grades:
        for check in grade["checks"]:
            if check["kind"] == "speedup":
                ratio = check["measurement"] and {key: check["measurement"][key] for key in ("low", "high", "dropped")}
                said = [finding["what"] for finding in check["findings"]]
                found.append((Path(grade["submission"]).name, check["name"], check["verdict"], ratio, said))
    return "\n".join(map(str, found))

"""Machines that lack something, or have something in its place: one line says what it is, and nobody loses a point."""

from __future__ import annotations

import pytest
from course import RIGHT, WITHOUT, Course
from test_settings import usage_error

WITHOUT_NVIDIAS_PACKAGES = """
import sys

sys.platform = "darwin"
sys.modules["pycuda"] = sys.modules["cuda"] = sys.modules["nvidia"] = None
"""


def grade(course: Course, *args: str) -> pytest.RunResult:
    course.write("twice.cu", RIGHT)
    return course.pytester.runpytest_subprocess(*WITHOUT, "--gpulab", *args, "twice.cu")


@pytest.mark.parametrize("options", [["--gpulab-device=auto"], ["--gpulab-device=sim"], ["--gpulab-timeout=9"]])
def test_on_a_mac_a_line_says_where_to_grade(course: Course, options: list[str]) -> None:
    course.write("mac.py", WITHOUT_NVIDIAS_PACKAGES)
    said = usage_error(grade(course, "-p", "mac", *options))
    assert "not for macOS: grade in a Linux container or on a Linux machine" in said


@pytest.mark.parametrize("name", ["cuda", "nvidia"])
@pytest.mark.parametrize("options", [["--gpulab-device=auto"], ["--gpulab-device=sim"], ["--gpulab-timeout=9"]])
def test_a_file_named_as_nvidias_package_is_named(
    course: Course, monkeypatch: pytest.MonkeyPatch, name: str, options: list[str]
) -> None:
    hiding = course.write(f"mine/{name}.py", "")
    monkeypatch.setenv("PYTHONPATH", str(hiding.parent))
    told = usage_error(grade(course, *options))
    assert told == f"{hiding} hides NVIDIA's package `{name}`: rename it, or start pytest in another folder"


def test_beside_pycuda_it_is_named_too(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    hiding = course.write("mine/cuda.py", "")
    course.write("mine/pycuda/__init__.py", "")
    monkeypatch.setenv("PYTHONPATH", str(hiding.parent))
    assert "cuda.py hides NVIDIA's package `cuda`" in usage_error(grade(course, "--gpulab-device=cuda"))

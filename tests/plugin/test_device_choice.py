"""`--gpulab-device=auto`: which device it takes, that pytest-xdist's workers take the same, and what ends a run."""

from __future__ import annotations

import pytest
from course import RIGHT, WITHOUT, Course
from test_settings import usage_error

FULL = "the GPU has no room for another process: out of memory"
STAND_IN = f"""
from types import SimpleNamespace

import pytest_gpulab.devices
from pytest_gpulab.devices.protocol import DeviceInfo, DeviceUnavailable


def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")

    def opened(*asked):
        if {{refused}}:
            raise DeviceUnavailable({FULL!r})
        info = DeviceInfo("cuda", "a GPU", "nvcc", "sm_90", estimates=False)
        return SimpleNamespace(info=info, close=lambda: None)

    pytest_gpulab.devices._open_cuda = opened
"""


def grade(course: Course, refused: str, *args: str) -> pytest.RunResult:
    """Grade where a GPU is there, or refused in some processes; `refused` says in Python in which."""
    course.write("stand_in.py", STAND_IN.format(refused=refused))
    course.write("twice.cu", RIGHT)
    return course.pytester.runpytest_subprocess(*WITHOUT, "-p", "stand_in", "--gpulab", *args, "twice.cu")


@pytest.mark.parametrize("device", [[], ["--gpulab-device=auto"], ["--gpulab-device=cuda"]])
def test_workers_never_grade_on_another_device_than_the_header_names(course: Course, device: list[str]) -> None:
    """One that cannot have the GPU ends the run, instead of taking the simulated one or being replaced for ever."""
    result = grade(course, "is_worker", "-n2", "--gpulab-report=json:grades.json", *device)
    result.stdout.fnmatch_lines(["gpulab: a GPU, because *"])
    assert usage_error(result) == FULL
    assert not (course.folder / "grades.json").exists()


def test_workers_do_not_look_for_a_gpu_where_the_simulated_one_was_found(course: Course) -> None:
    result = grade(course, "not is_worker", "-n2")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["gpulab: simulated GPU *"])

"""`--gpulab-device=auto`: which device it takes, that pytest-xdist's workers take the same, and what ends a run."""

from __future__ import annotations

import pytest
from course import RIGHT, WITHOUT, Course
from test_settings import usage_error

from pytest_gpulab import devices
from pytest_gpulab.grading.isolation.remote import RemoteGrader

FULL = "not enough GPU memory for another process: out of memory"
NONE = "no GPU can be used: the NVIDIA driver is installed but finds no device"
WINDOWS = """
import os
import sys

sys.modules["fcntl"] = sys.modules["resource"] = None
del os.getuid
"""
STAND_IN = f"""
from types import SimpleNamespace

import pytest_gpulab.devices
from pytest_gpulab.devices.protocol import DeviceAbsent, DeviceInfo, DeviceUnavailable


def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")

    def opened(ordinal, *asked):
        if {{full}}:
            raise DeviceUnavailable({FULL!r})
        if {{absent}}:
            raise DeviceAbsent({NONE!r})
        info = DeviceInfo("cuda", "GPU " + str(ordinal) if ordinal else "a GPU", "nvcc", "sm_90", estimates=False)
        return SimpleNamespace(info=info, close=lambda: None)

    pytest_gpulab.devices._open_cuda = opened
"""


def grade(course: Course, *args: str, full: str = "False", absent: str = "False") -> pytest.RunResult:
    """Grade where a GPU is there; `full` and `absent` say in Python in which processes it is so."""
    course.write("stand_in.py", STAND_IN.format(full=full, absent=absent))
    course.write("twice.cu", RIGHT)
    words = ("-p", "stand_in", "--gpulab", *args, "twice.cu")
    if any(
        word.startswith("-n") for word in args
    ):  # workers import from where the process that starts them did at first
        return course.pytester.runpytest_subprocess(*WITHOUT, *words)
    course.pytester.syspathinsert()
    with pytest.MonkeyPatch.context() as patch:  # takes back what the run changes in this process
        patch.setattr(devices, "_open_cuda", devices._open_cuda)
        patch.setattr(RemoteGrader, "run", RemoteGrader.run)
        return course.pytest(*words)


def test_a_gpu_that_is_there_is_taken(course: Course) -> None:
    result = grade(course, "-k", "nothing")
    result.stdout.fnmatch_lines(["gpulab: a GPU, because PyCUDA and an NVIDIA GPU were found", "gpulab: seed *"])


SAYS_WHICH = """
from pytest_gpulab.grading.isolation.remote import RemoteGrader

def run(grader, check):
    print("graded on", grader._task["device"])
    return check.result("passed")

RemoteGrader.run = run
"""


@pytest.mark.parametrize(("asked", "opened", "graded"), [("cuda:1", "GPU 1", "cuda:1"), ("auto", "a GPU", "cuda")])
def test_the_gpu_that_was_asked_for_grades(course: Course, asked: str, opened: str, graded: str) -> None:
    course.write("says_which.py", SAYS_WHICH)
    result = grade(course, "-p", "says_which", "-s", "-k", "compile", f"--gpulab-device={asked}")
    result.stdout.fnmatch_lines([f"gpulab: {opened}, because *", f"*graded on {graded}"])


def test_where_there_is_none_the_simulated_one_grades(course: Course) -> None:
    result = grade(course, "-k", "compile", absent="True")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["gpulab: simulated GPU *"])
    assert f", because no CUDA device: {NONE} gpulab: seed " in " ".join(result.stdout.str().split())


@pytest.mark.parametrize(
    ("device", "why"),
    [("auto", "no CUDA device: grading on a GPU works on Linux only"), ("sim", "it was requested")],
)
def test_the_simulated_one_grades_on_a_system_without_unixs_locks_and_limits(
    course: Course, device: str, why: str
) -> None:
    course.write("windows.py", WINDOWS)
    course.write("twice.cu", RIGHT)
    told = (*WITHOUT, "-p", "windows", "--gpulab", f"--gpulab-device={device}", "twice.cu")
    result = course.pytester.runpytest_subprocess(*told)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["gpulab: simulated GPU *", "*twice * passed *"])
    assert f", because {why} gpulab: seed " in " ".join(result.stdout.str().split())


@pytest.mark.parametrize("device", [[], ["--gpulab-device=auto"], ["--gpulab-device=cuda"]])
@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_a_gpu_that_cannot_be_had_now_is_a_usage_error(course: Course, device: list[str], workers: list[str]) -> None:
    """Otherwise a class would get estimates for grades, unnoticed."""
    assert usage_error(grade(course, *device, *workers, full="True")) == FULL


@pytest.mark.parametrize("device", [[], ["--gpulab-device=cuda"]])
def test_workers_never_grade_on_another_device_than_the_header_names(course: Course, device: list[str]) -> None:
    """One that cannot have the GPU ends the run, instead of taking the simulated one or being replaced for ever."""
    result = grade(course, "-n2", "--gpulab-report=json:grades.json", *device, full="is_worker")
    result.stdout.fnmatch_lines(["gpulab: a GPU, because *"])
    assert usage_error(result) == FULL
    assert not (course.folder / "grades.json").exists()


@pytest.mark.parametrize(("full", "absent"), [("is_worker", "not is_worker"), ("False", "not is_worker")])
def test_workers_do_not_look_for_a_gpu_where_the_simulated_one_was_found(
    course: Course, full: str, absent: str
) -> None:
    result = grade(course, "-n1", full=full, absent=absent)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["gpulab: simulated GPU *"])

"""A second Ctrl-C, while pytest is still busy with the first: what was graded does not pass for a complete run."""

from __future__ import annotations

import json

import pytest
from course import RIGHT, Course

STOP_AT_THE_SPEEDUP = """
import pytest

def pytest_runtest_logreport(report):
    if report.when == "setup" and "speedup" in report.nodeid:
        STOP
"""
AND_AGAIN = """
def pytest_keyboard_interrupt():
    raise KeyboardInterrupt
"""
STOPPING = ("-p", "stopping")
KEPT = "--gpulab-report=json:grades.json"


@pytest.fixture
def stopped_twice(course: Course) -> Course:
    course.write("stopping.py", STOP_AT_THE_SPEEDUP.replace("STOP", "raise KeyboardInterrupt") + AND_AGAIN)
    return course


def is_interrupted(course: Course, last: str = "safe[memory]") -> bool:
    document = json.loads((course.folder / "grades.json").read_text())
    assert [check["name"] for check in document["grades"][0]["checks"]][-1] == last
    return document["interrupted"] is True


@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_two_interrupts_leave_no_result(stopped_twice: Course, workers: list[str]) -> None:
    stopped_twice.write("twice.cu", RIGHT)
    result = stopped_twice.grade_apart(*STOPPING, "twice.cu", "--gpulab-report=gradescope:results.json", KEPT, *workers)
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["ERROR: *results.json: the run was stopped before everything was graded"])
    assert not (stopped_twice.folder / "results.json").exists()
    assert is_interrupted(stopped_twice)


def test_of_a_class_stopped_twice_no_student_gets_a_result(stopped_twice: Course) -> None:
    stopped_twice.write("handed_in/ann/twice.cu", RIGHT)
    asked = ("--gpulab-submissions=handed_in", "--gpulab-report=feedback:pages", KEPT)
    result = stopped_twice.grade_apart(*STOPPING, *asked)
    assert result.ret != pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["ERROR: *the run was stopped before everything was graded"])
    result.stdout.fnmatch_lines(["gpulab: stopped: 1 of 1 submissions are graded*"])
    assert not (stopped_twice.folder / "pages").exists()
    assert is_interrupted(stopped_twice, last="speedup[1000x]"), "graded it was, in another process"


def test_an_unwritten_report_of_a_stopped_run_keeps_its_exit_status(course: Course) -> None:
    course.write("stopping.py", STOP_AT_THE_SPEEDUP.replace("STOP", "raise KeyboardInterrupt"))
    course.write("handed_in/ann/twice.cu", RIGHT)
    result = course.grade_apart(*STOPPING, "--gpulab-submissions=handed_in", "--gpulab-report=feedback:pages")
    result.stdout.fnmatch_lines(["ERROR: *the run was stopped before everything was graded"])
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize("ending", ["pytest.exit('enough', returncode=0)", "raise RuntimeError"])
def test_however_a_run_ends_early_it_is_not_complete(course: Course, ending: str) -> None:
    course.write("stopping.py", STOP_AT_THE_SPEEDUP.replace("STOP", ending))
    course.write("twice.cu", RIGHT)
    course.grade_apart(*STOPPING, "twice.cu", KEPT)
    assert is_interrupted(course)

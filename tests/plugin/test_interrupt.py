"""Ctrl-C or a request to end in mid-run: what was graded until then is still reported and written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from course import EXERCISE, NAIVE, RIGHT, WITHOUT, Course
from hang_guard import HANG_S

SLOW = EXERCISE + (
    """
import dataclasses, os, pathlib, time

def wait(problem, pattern, rng):
    pathlib.Path("pid").write_text(str(os.getpid()))
    pathlib.Path("pid").rename("waiting")
    time.sleep(60)

exercise = dataclasses.replace(exercise, inputs=wait)
"""
)
NOTING = """
import pathlib, pytest

class Notes:
    reported = 0

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        self.reported += "twice.cu" in report.nodeid and report.when == "teardown"
        if self.reported == 7:  # checks, before the other submission begins to wait
            pathlib.Path("reported").touch()

def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # a worker's reports have a way to go
        config.pluginmanager.register(Notes())
"""


def heed_ctrl_c() -> None:
    """Undo what shells do to their children in the background, which inherit that they ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("apart", [[], ["--gpulab-timeout=60"]])
@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_ctrl_c_keeps_what_was_graded(course: Course, workers: list[str], apart: list[str]) -> None:
    process = begun(course, [*workers, *apart])
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process in its foreground
    assert_graded_until_then(course, process)


@pytest.mark.parametrize(
    ("number", "options"),
    [(signal.SIGHUP, []), (signal.SIGTERM, []), (signal.SIGTERM, ["--gpulab-timeout=60"]), (signal.SIGTERM, ["-n1"])],
)
def test_a_request_to_end_keeps_what_was_graded(course: Course, number: signal.Signals, options: list[str]) -> None:
    process = begun(course, options)
    process.send_signal(number)
    output = assert_graded_until_then(course, process)
    assert f"KeyboardInterrupt: {number.name}" in output


STOPPED = """
import signal

def {hook}():
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize(
    ("hook", "reached", "options"),
    [("pytest_collection", "the first check", ["-q"]), ("pytest_runtestloop", "submissions/twice.cu", [])],
)
def test_ctrl_c_before_the_first_check_says_so(course: Course, hook: str, reached: str, options: list[str]) -> None:
    course.write("submissions/twice.cu", RIGHT)
    course.write("stopping.py", STOPPED.format(hook=hook))
    result = course.grade_apart("-p", "stopping", *options, "submissions")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert f"The run was stopped before {reached}." in result.outlines


def begun(course: Course, options: list[str]) -> subprocess.Popen[str]:
    """Return a run that has graded one submission and waits in another."""
    course.write("exercises/unhurried/exercise.py", SLOW)
    course.write("exercises/unhurried/naive.cu", NAIVE)
    course.write("submissions/twice.cu", RIGHT)
    course.write("submissions/unhurried.cu", RIGHT)
    course.write("noting.py", NOTING)
    options = [*WITHOUT, "--gpulab", "--gpulab-device=sim", "--gpulab-report=json:grades.json", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "noting", *options, "submissions"],
        cwd=course.folder,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )
    deadline = time.monotonic() + HANG_S
    while not all((course.folder / name).exists() for name in ("waiting", "reported")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    return process


def assert_graded_until_then(course: Course, process: subprocess.Popen[str]) -> str:
    """Wait for the end of a stopped run, compare what it reports, and return its output."""
    output, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert not is_alive(int((course.folder / "waiting").read_text()))
    assert "90/100" in output
    assert "The run was stopped in submissions/unhurried.cu::correct[n=1]: no result." in output.splitlines()
    document = json.loads((course.folder / "grades.json").read_text())
    assert document["interrupted"] is True
    (grade,) = (grade for grade in document["grades"] if grade["submission"] == "submissions/twice.cu")
    assert grade["points"] == 90
    return output


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True

"""While a class is graded: what is shown, and what Ctrl-C and the death of the run leave behind."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from course import EXERCISE, NAIVE, RIGHT, WITHOUT, WRONG, Course
from hang_guard import HANG_S

from pytest_gpulab.course.store import Store, StoreError
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.plugin import parallel_run
from pytest_gpulab.reports.gradebook import Gradebook

SLOW = EXERCISE + (
    """
import dataclasses, os, pathlib, time

def wait(problem, pattern, rng):
    if not pathlib.Path("waiting").exists():
        pathlib.Path("pid").write_text(str(os.getpid()))
        pathlib.Path("pid").rename("waiting")
        time.sleep(SECONDS)
    return {"in": rng.integers(-1000, 1000, problem.size, dtype=np.int32)}

exercise = dataclasses.replace(exercise, inputs=wait)
"""
)
OPTIONS = (*WITHOUT, "--gpulab", "--gpulab-device=sim", "--gpulab-submissions=handed_in", "--gpulab-workers=1")
COMMAND = (sys.executable, "-m", "pytest", *OPTIONS)


@pytest.fixture
def unhurried(course: Course) -> Course:
    """A course with one student, whose second submission takes a minute."""
    course.write("exercises/unhurried/exercise.py", SLOW.replace("SECONDS", "60"))
    course.write("exercises/unhurried/naive.cu", NAIVE)
    course.write("handed_in/ann/twice.cu", RIGHT)
    course.write("handed_in/ann/unhurried.cu", RIGHT)
    return course


def test_lines_tell_how_far_it_is_where_there_is_no_terminal(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_run, "PLAIN_INTERVAL_S", 0.0)
    course.write("handed_in/ann/twice.cu", RIGHT)
    told = course.grade("--gpulab-submissions=handed_in", "--gpulab-workers=1", "-k", "compile")
    told.stdout.re_match_lines(
        [r"gpulab: 0/1 graded; now ann/twice\.cu$", r"gpulab: 1/1 graded; .* per (minute|hour), in .* s$"]
    )
    silent = course.grade("--gpulab-submissions=handed_in", "--gpulab-workers=1", "-q", "--gpulab-regrade")
    assert not [line for line in silent.outlines if "now ann" in line]


def test_on_a_terminal_one_line_is_written_over_and_goes_away(unhurried: Course) -> None:
    unhurried.write("exercises/unhurried/exercise.py", SLOW.replace("SECONDS", "2"))
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "-k", "unhurried"], cwd=unhurried.folder, stdout=its, stderr=its, env=os.environ | {"COLUMNS": "60"}
    )
    os.close(its)
    written = read_all(ours)
    assert process.wait(HANG_S) == pytest.ExitCode.OK
    live = re.findall(r"\r(gpulab: [^\r\n]*)", written)
    assert any(line.rstrip() == "gpulab: 0/1 graded; now ann/unhurried.cu" for line in live)
    assert {len(line) for line in live} == {59}, "each covers the one before"
    assert re.search(r"\r {59}\r", written), "what is left of it is wiped out"
    assert "ann/unhurried.cu ." not in written


def read_all(descriptor: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # Linux raises this when no process writes any more
            break
        if not part:
            break
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode()


def started(course: Course, *more: str) -> subprocess.Popen[str]:
    """Start grading and wait until the submission that takes a minute is under way."""
    process = subprocess.Popen(
        [*COMMAND, "--gpulab-report=json:grades.json", *more],
        cwd=course.folder,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background shells let children ignore it
    )
    end_s = time.monotonic() + HANG_S
    while not (course.folder / "waiting").exists():
        assert process.poll() is None and time.monotonic() < end_s
        time.sleep(0.05)
    return process


def wait_until_kept(course: Course, grades: int) -> None:
    path, end_s = course.folder / ".pytest_cache/d/gpulab/grades.sqlite", time.monotonic() + HANG_S
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
        while store.execute("SELECT count(*) FROM grade").fetchone()[0] < grades:
            assert time.monotonic() < end_s
            time.sleep(0.05)


def is_true_soon(condition: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True


def gone(process: int) -> bool:
    return is_true_soon(lambda: not Path(f"/proc/{process}").exists())


def test_ctrl_c_stops_all_processes_and_keeps_what_was_graded(unhurried: Course) -> None:
    process = started(unhurried)
    wait_until_kept(unhurried, 1)
    time.sleep(1)  # the second submission takes a minute; by now pytest has reported the checks of the first
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process in its foreground
    output, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert gone(int((unhurried.folder / "waiting").read_text()))
    assert "gpulab: 1/2 graded" in output
    told = "gpulab: stopped: 1 of 2 submissions are graded and stored; repeat the command to continue."
    assert told in output.splitlines() and "gpulab: wrote grades.json" in output.splitlines()
    document = json.loads((unhurried.folder / "grades.json").read_text())
    assert document["interrupted"] and [grade["points"] for grade in document["grades"]] == [90]
    again = unhurried.grade(*OPTIONS[len(WITHOUT) + 2 :])
    again.stdout.fnmatch_lines(["gpulab: 2/2 graded; 1 of them earlier; *"])


def test_of_a_stopped_run_all_is_reported_that_was_graded_also_behind_one_that_hangs(unhurried: Course) -> None:
    (unhurried.folder / "handed_in/ann/twice.cu").unlink()
    unhurried.write("handed_in/bob/twice.cu", RIGHT)
    unhurried.write("handed_in/cem/twice.cu", WRONG)
    unhurried.write("expected.toml", '["handed_in/cem/twice.cu"]\nfails = { "correct[n=31]" = "wrong-result" }\n')
    process = started(unhurried, "--gpulab-workers=2", "-o", "gpulab_expected=expected.toml")
    wait_until_kept(unhurried, 2)
    time.sleep(1)  # on a disk it is before the process knows that it is
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == pytest.ExitCode.INTERRUPTED and "gpulab: 2/3 graded, 1 with failures" in output
    assert re.search(r"^bob +passed +90 +- +90/200$", output, re.MULTILINE), "a line a student"
    document = json.loads((unhurried.folder / "grades.json").read_text())
    told = [(grade["student"], len(grade["checks"])) for grade in document["grades"]]
    assert told == [("bob", 7), ("cem", 7)] and document["grades"][0]["points"] == 90
    assert [check["name"] for check in document["grades"][1]["checks"] if check["expected"]] == ["correct[n=31]"]


@pytest.mark.parametrize("has_store", [False, True], ids=["without a store", "with a store that takes nothing"])
def test_a_run_that_keeps_nothing_does_not_promise_to_go_on(
    course: Course, monkeypatch: pytest.MonkeyPatch, has_store: bool
) -> None:
    def put(store: Store, key: str, grade: Grade) -> Grade:
        raise StoreError("the disk is full")

    def stop(book: Gradebook, properties: object, is_expected: bool) -> None:
        pytest.exit("stopped")

    monkeypatch.setattr(Store, "put", put)
    monkeypatch.setattr(Gradebook, "add", stop)
    course.write("handed_in/ann/twice.cu", RIGHT)
    result = course.grade(*OPTIONS[len(WITHOUT) + 2 :], *(() if has_store else ("-p", "no:cacheprovider")))
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["gpulab: stopped: 1 of 1 submissions are graded."])


def test_a_run_that_was_killed_leaves_no_process_and_no_folder_and_loses_no_grade(
    unhurried: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = started(unhurried)
    process.kill()
    process.communicate(timeout=HANG_S)
    assert gone(int((unhurried.folder / "waiting").read_text()))
    assert is_true_soon(lambda: {path.name for path in tmp_path.iterdir()} <= {f"gpulab-cache-{os.getuid()}"})
    again = unhurried.grade(*OPTIONS[len(WITHOUT) + 2 :])
    again.stdout.fnmatch_lines(["gpulab: 2/2 graded; 1 of them earlier; *"])

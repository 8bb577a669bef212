"""Everything that pytest and its plugins do with tests, they do with checks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from course import CHECKS, EXERCISE, RIGHT, WITHOUT, WRONG, Course

from pytest_gpulab.devices.system.processes import ONE_THREAD

pytestmark = pytest.mark.unmeasured


@pytest.fixture
def two(course: Course) -> Course:
    """A course with a right and a wrong submission."""
    course.write("submissions/alice/twice.cu", RIGHT)
    course.write("submissions/bob/twice.cu", WRONG)
    return course


@pytest.mark.parametrize(("asked", "threads"), [(None, "1"), ("3", "3")])
def test_numpy_has_one_thread_unless_someone_asks_for_more(
    course: Course, monkeypatch: pytest.MonkeyPatch, asked: str | None, threads: str
) -> None:
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "")  # so that it is as it was afterwards, whatever the run does
        monkeypatch.delenv(name)
    if asked is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", asked)
    noting = f'import os\nassert os.environ["OPENBLAS_NUM_THREADS"] == "{threads}"\n'
    course.write("exercises/twice/exercise.py", noting + EXERCISE)
    course.write("alice/twice.cu", RIGHT)
    course.grade("alice", "-k", "compile or correct").assert_outcomes(passed=4, deselected=len(CHECKS) - 4)


NOTING = """
import os
import sys


class Noting:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print("NumPy is loaded with", os.environ.get("OPENBLAS_NUM_THREADS"), "thread")
            sys.meta_path.remove(self)


assert "numpy" not in sys.modules
sys.meta_path.insert(0, Noting())
import pytest

sys.exit(pytest.main(["--gpulab", "--gpulab-device=sim", "alice", "--collect-only", *sys.argv[1:]]))
"""


def test_numpy_is_loaded_after_its_threads_are_limited(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the environment once: with a thread for every core, grading takes a third more of the processor."""
    for name in ONE_THREAD:
        monkeypatch.delenv(name, raising=False)
    course.write("alice/twice.cu", RIGHT)
    result = subprocess.run(
        [sys.executable, "-c", NOTING, *WITHOUT], cwd=course.folder, capture_output=True, text=True, check=True
    )
    assert "NumPy is loaded with 1 thread\n" in result.stdout


def test_select_by_keyword(two: Course) -> None:
    result = two.grade("submissions", "-k", "alice and correct")
    result.assert_outcomes(passed=3, deselected=2 * len(CHECKS) - 3)


def test_select_by_marker(two: Course) -> None:
    two.grade("submissions", "-m", "not gpulab").assert_outcomes(deselected=2 * len(CHECKS))
    result = two.grade("submissions", "-m", "gpulab", "--strict-markers", "-k", "compile")
    result.assert_outcomes(passed=2, deselected=2 * len(CHECKS) - 2)


def test_the_marker_is_listed(course: Course) -> None:
    course.pytest("--markers").stdout.fnmatch_lines(["@pytest.mark.gpulab: a check of a CUDA kernel*"])


def test_help_is_given_with_the_flag_too(course: Course) -> None:
    result = course.grade("--help")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["grading of CUDA kernels:", "*--gpulab-device=DEVICE*"])


def test_last_failed(two: Course) -> None:
    failed = two.grade("submissions").parseoutcomes()["failed"]
    assert failed
    result = two.grade("submissions", "--lf")
    assert result.parseoutcomes() == {"failed": failed} | result.parseoutcomes()
    assert "passed" not in result.parseoutcomes()
    two.write("submissions/bob/twice.cu", RIGHT)
    assert "failed" not in two.grade("submissions", "--lf").parseoutcomes()


def test_failed_first(two: Course) -> None:
    two.grade("submissions")
    lines = [line for line in two.grade("submissions", "--ff", "--co", "-q").outlines if "::" in line]
    assert "/bob/" in lines[0]


def test_stop_at_the_first_failure(two: Course) -> None:
    result = two.grade("submissions/bob", "submissions/alice", "-x")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes()["failed"] == 1
    last = "The run was stopped before submissions/alice/twice.cu."
    result.stdout.fnmatch_lines(["*gpulab: twice*", "*gpulab: findings*", last])


def test_collect_only_grades_nothing(two: Course) -> None:
    result = two.grade("submissions", "--co")
    result.stdout.fnmatch_lines(["*<CudaFile twice.cu>", "*<CheckItem correct[[]n=31[]]>"])
    result.stdout.no_fnmatch_line("*gpulab: twice*")


def test_switched_off(two: Course) -> None:
    result = two.pytest("-p", "no:gpulab", "--gpulab")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unrecognized arguments: --gpulab"])
    two.write("test_one.py", "def test_one(): pass\n")
    two.pytest("-p", "no:gpulab").assert_outcomes(passed=1)


def test_junit_xml(two: Course) -> None:
    two.grade("submissions", "--junit-xml=results.xml")
    cases = list(ElementTree.parse(two.folder / "results.xml").iter("testcase"))
    assert len(cases) == 2 * len(CHECKS)
    (case,) = (case for case in cases if "bob" in case.attrib["classname"] and case.attrib["name"] == "correct[n=31]")
    properties = {item.attrib["name"]: item.attrib["value"] for item in case.iter("property")}
    assert properties["gpulab_verdict"] == "failed" and float(properties["gpulab_points"]) == 0
    assert json.loads(properties["gpulab"])["grade"]["submission"] == "submissions/bob/twice.cu"
    (failure,) = case.iter("failure")
    assert failure.text is not None and failure.text.startswith("wrong-result: ")


def report_part(result: pytest.RunResult) -> list[str]:
    """Return the plugin's part of the terminal report, from the first table to the footnotes."""
    lines = result.outlines
    first = next(number for number, line in enumerate(lines) if "gpulab: twice" in line)
    last = next(number for number, line in enumerate(lines) if line.startswith("Repeat this run"))
    return lines[first : last + 1]


def test_workers_and_processes_report_what_one_process_reports(two: Course) -> None:
    alone = two.grade("submissions", "--gpulab-seed=7", "--gpulab-report=json:alone.json")
    for options in (["-n2"], ["--gpulab-timeout=60"], ["--gpulab-timeout=60", "-n2"]):
        spread = two.grade("submissions", "--gpulab-seed=7", "--gpulab-report=json:spread.json", *options)
        assert ("2 workers" in spread.stdout.str()) == ("-n2" in options)
        assert report_part(spread) == report_part(alone)
        assert spread.parseoutcomes() == alone.parseoutcomes() and spread.ret == alone.ret
        if options == ["-n2"]:  # with a time limit it also says how compilers are confined
            assert document(two, "spread.json") == document(two, "alone.json")


def document(course: Course, name: str) -> Any:
    """Return a JSON report without what differs from run to run."""
    written = json.loads((course.folder / name).read_text())
    del written["created_utc"]
    for check in (check for grade in written["grades"] for check in grade["checks"]):
        del check["duration_s"]
        if check["measurement"]:
            del check["measurement"]["reference_ms"]  # unknown while another process measures it
    return written


def test_workers_share_a_fresh_seed_and_one_worker_grades_all_of_a_file(two: Course) -> None:
    result = two.grade("submissions", "--gpulab-report=json:grades.json", "-n2", "-v")
    document = json.loads((two.folder / "grades.json").read_text())
    header = re.search(r"^gpulab: seed (\d+)$", result.stdout.str(), re.M)
    assert header
    assert {grade["provenance"]["seed"] for grade in document["grades"]} == {int(header[1])}
    workers = set(re.findall(r"^\[(gw\d)\] .* submissions/(\w+)/", result.stdout.str(), re.M))
    assert sorted(name for _, name in workers) == ["alice", "bob"]

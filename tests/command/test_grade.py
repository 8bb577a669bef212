"""`gpulab grade`: each platform gets its result file, whatever was handed in and however the grading ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from xml.etree import ElementTree

import jsonschema
import pytest
from hang_guard import HANG_S, wait_for

sys.path += [str(Path(__file__).parents[1] / name) for name in ("course", "plugin")]
from course import EXERCISE, NAIVE, RIGHT, SKELETON, WRONG
from test_planted import MARK, PLANTS

from pytest_gpulab.command.main import main
from pytest_gpulab.course.intake.submissions import Collection
from pytest_gpulab.deployment import child
from pytest_gpulab.deployment.child import Ended
from pytest_gpulab.deployment.platforms import PLATFORMS
from pytest_gpulab.deployment.result import NotGraded, gradebook
from pytest_gpulab.grading.catalogue import Catalogue

SCHEMAS = Path(__file__).parents[1] / "reports"
RUNNER = dict.fromkeys(
    ("CLASSROOM", "ASSIGNMENT", "SUBMISSION_TAG", "COMMIT_URL", "RELEASE_URL"), "https://x.org/x"
) | {"SUBMISSION_TAG": "submit/1"}
ALL, WRONG_POINTS = 100, 30  # WRONG is right in its smallest case and safe
FAULTS = ("sleeps", "killed", "raises", "needs-memory")
SLEEPS = "import time; time.sleep(3600)\n"
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
RAISES = "raise RuntimeError('the secret of the exercise')\n"
NEEDS_MEMORY = EXERCISE.replace("1000, problem.size,", "1000, problem.size + 2**46 * (problem.size == 100),")
WAITS = (
    EXERCISE
    + """
import dataclasses, pathlib, time

def reference(problem, inputs):
    if problem.size == 100:
        pathlib.Path(__file__).with_name("reached").touch()
        time.sleep(3600)
    return Expected({"out": 2 * inputs["in"]})

exercise = dataclasses.replace(exercise, reference=reference)
"""
)


@pytest.fixture(autouse=True)
def _runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in RUNNER.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def course(tmp_path: Path) -> Path:
    write(tmp_path / "exercises/twice/exercise.py", EXERCISE)
    write(tmp_path / "exercises/twice/naive.cu", NAIVE)
    (tmp_path / "handed_in").mkdir()
    return tmp_path


class GradedOnce(Protocol):
    """Let the first test of a name grade; for equal files the process of later ones ends as it did then."""

    def __call__(self, name: str) -> None: ...


@pytest.fixture
def graded_once(processes: dict[object, tuple[Ended, bytes | None]], monkeypatch: pytest.MonkeyPatch) -> GradedOnce:
    """The process that grades is the same for all platforms: they differ in what is made of its report."""
    run = child.run

    def once(name: str) -> None:
        def first_or_kept(files: Any, folder: Path, cleaner: Any, report: Path, *more: Any) -> Ended:
            key = name, more[1:3], *((path.name, path.read_bytes()) for path in files)
            if key not in processes:
                ended = run(files, folder, cleaner, report, *more)
                processes[key] = ended, report.read_bytes() if report.exists() else None
            ended, contents = processes[key]
            if contents is not None:
                report.write_bytes(contents)
            return ended

        monkeypatch.setattr(child, "run", first_or_kept)

    return once


@pytest.fixture(scope="module")
def processes() -> dict[object, tuple[Ended, bytes | None]]:
    return {}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def words(platform: str, *more: str) -> list[str]:
    return ["grade", "--for", platform, "--exercises=exercises", "--result=out/result.json", "--device=sim", *more]


def grade(platform: str, *more: str) -> int:
    return main([*words(platform, *more), "handed_in"])


def result(platform: str) -> Any:
    """The contents of the result file, valid by the schema of its platform."""
    path = Path("out/result.json")
    if platform == "github":
        return ElementTree.fromstring(path.read_text())
    data = json.loads(path.read_text())
    jsonschema.validate(data, json.loads((SCHEMAS / f"{platform}.schema.json").read_text()))
    return data


def points(platform: str) -> float:
    if platform == "github":
        return float(Path("summary.md").read_text().split()[1])
    return float(result(platform)["score"]) * (ALL if platform == "prairielearn" else 1)


def told(platform: str) -> str:
    if platform == "github":
        return Path("summary.md").read_text() + ElementTree.tostring(result(platform), "unicode")
    return json.dumps(result(platform), ensure_ascii=False)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_submission_is_graded(
    course: Path, platform: str, capsys: pytest.CaptureFixture[str], graded_once: GradedOnce
) -> None:
    graded_once("shared exercise")
    write(course / "handed_in/twice.cu", WRONG)
    assert grade(platform) == PLATFORMS[platform].failed
    assert points(platform) == WRONG_POINTS
    assert "wrong-result" in told(platform)
    said = capsys.readouterr().out
    assert said.splitlines()[-1] == f"gpulab grade: {WRONG_POINTS} of 100 points; wrote out/result.json"
    assert ("passed in" in said) == PLATFORMS[platform].is_log_private


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_missing_file_and_a_wrong_name_are_said_to_the_student(
    course: Path, platform: str, graded_once: GradedOnce
) -> None:
    graded_once("shared exercise")
    write(course / "handed_in/transpose.cpp", RIGHT)
    assert grade(platform) == PLATFORMS[platform].failed
    assert points(platform) == 0
    said = told(platform)
    assert "There is no .cu file, but transpose.cpp" in said
    assert "Name the file after its exercise: twice.cu." in said and "There is no file twice.cu." in said


@pytest.mark.parametrize("handed_in", ["handed_in", "handed_in/twice.cu"])
def test_nothing_handed_in_is_a_result(course: Path, handed_in: str, graded_once: GradedOnce) -> None:
    graded_once("shared exercise")
    assert main([*words("gradescope"), handed_in]) == 0
    data = result("gradescope")
    assert data["score"] == 0 and sum(test["max_score"] for test in data["tests"]) == ALL
    assert "There is no file twice.cu." in told("gradescope")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_folder_that_is_not_there_is_no_fault_of_the_student(course: Path, platform: str) -> None:
    assert main([*words(platform), "no/where"]) == PLATFORMS[platform].not_graded
    said = told(platform)
    assert "no fault of yours" in said and "The submission cannot be read: " in said and "no/where" in said


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (SLEEPS, "Grading took longer than 3 s and was stopped."),
        (KILLED, "The grader was killed (signal 9)."),
        (RAISES, "the exercise twice cannot be loaded"),
        (NEEDS_MEMORY, "60 of 100 points could not be graded. There is not enough memory to grade this check:"),
    ],
    ids=FAULTS,
)
def test_without_a_grade_the_student_reads_why(
    course: Path, platform: str, broken: str, reason: str, capsys: pytest.CaptureFixture[str], graded_once: GradedOnce
) -> None:
    graded_once(broken)
    write(course / "handed_in/twice.cu", RIGHT)
    write(course / "exercises/twice/exercise.py", broken)
    assert grade(platform, f"--timeout={3 if broken == SLEEPS else 540}") == PLATFORMS[platform].not_graded
    said = told(platform)
    assert reason in said and "no fault of yours" in said
    assert "secret" not in said
    shown = capsys.readouterr().out
    assert f"gpulab grade: not graded: {reason}" in shown and ("secret" in shown) == (broken == RAISES)
    if platform == "prairielearn":
        assert result(platform)["gradable"] is False
    elif platform != "github":
        assert result(platform)["score"] == 0


def test_without_a_report_the_end_of_the_process_is_the_reason(tmp_path: Path) -> None:
    for ended, reason in (
        (Ended(None, ""), r"took longer than 60 s"),
        (Ended(-9, "", lacked_memory=True), r"ran out of memory .* very large arrays"),
        (Ended(3, "INTERNALERROR"), r"failed \(exit code 3\)"),
    ):
        with pytest.raises(NotGraded, match=reason):
            gradebook(tmp_path / "missing", ended, 60, Collection((), (), ()), Catalogue(tmp_path), ("twice",))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_checks_that_have_ended_in_time_count(
    course: Path,
    platform: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    graded_once: GradedOnce,
) -> None:
    graded_once("in time")
    write(course / "exercises/other/exercise.py", EXERCISE.replace('Case("n=1", 1, 20)', 'Case("n=2", 2, 20)'))
    write(course / "exercises/other/naive.cu", NAIVE)
    write(course / "exercises/twice/exercise.py", WAITS)
    for name in ("other", "twice"):
        write(course / f"handed_in/{name}.cu", RIGHT)
    reached, wait = course / "exercises/twice/reached", subprocess.Popen.wait

    def until_reached(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        until = time.monotonic() + HANG_S
        while timeout == 500 and time.monotonic() < until:
            if reached.exists():
                raise subprocess.TimeoutExpired("pytest", timeout)
            time.sleep(0.05)
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", until_reached)
    assert grade(platform, "--timeout=500") == PLATFORMS[platform].failed
    said = told(platform)
    assert "No result: grading was stopped after 500 s." in said and "no fault of yours" not in said
    assert points(platform) == (90 + 40) / (2 if platform == "prairielearn" else 1)
    *_, note, last = capsys.readouterr().out.splitlines()
    assert note == "grading was stopped after 500 s; checks without a result earn no points"
    assert last == "gpulab grade: 130 of 200 points; wrote out/result.json"


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_grader_that_is_killed_leaves_a_result_and_nothing_else(
    course: Path, monkeypatch: pytest.MonkeyPatch, ending: signal.Signals
) -> None:
    temporary = course / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    write(course / "handed_in/twice.cu", RIGHT)
    write(course / "exercises/twice/exercise.py", WAITS)
    command = [sys.executable, "-m", "pytest_gpulab", *words("gradescope"), "handed_in"]
    reached = course / "exercises/twice/reached"
    with subprocess.Popen(command) as process:
        wait_for(reached.exists)
        process.send_signal(ending)
        if ending == signal.SIGINT:  # a second one interrupts the cleaning up
            time.sleep(0.2)
            process.send_signal(ending)
    assert "stopped from outside" in result("gradescope")["output"]
    wait_for(lambda: {path.name for path in temporary.iterdir()} <= {f"gpulab-cache-{os.getuid()}"})
    wait_for(lambda: not graders_in(temporary))


def graders_in(folder: Path) -> list[str]:
    """Return the command lines of running processes that name a folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_text(errors="replace"))
    return [line for line in lines if str(folder) in line]


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_file_that_cannot_be_used_is_named_with_the_reason(course: Path, is_packed: bool) -> None:
    secret, inside = "/etc/passwd", zipfile.ZipInfo("twice.cu")
    inside.external_attr = 0o120777 << 16
    if is_packed:
        with zipfile.ZipFile(course / "handed_in/hw.zip", "w") as packed:
            packed.writestr(inside, secret)
    else:
        (course / "handed_in/twice.cu").symlink_to(secret)
    assert grade("gradescope") == 0
    first, *_ = result("gradescope")["tests"]
    name = "hw.zip/twice.cu" if is_packed else "twice.cu"
    assert f"link: submission/{name}: It is a link, and links are not followed." in first["output"]
    assert "There is no file" not in told("gradescope")


def test_each_exercise_counts_also_without_a_file(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(course / "exercises/other/exercise.py", EXERCISE)
    write(course / "exercises/other/naive.cu", NAIVE)
    write(course / "handed_in/twice.cu", RIGHT)
    assert grade("prairielearn") == 0
    log = capsys.readouterr().out
    assert "There is no other.cu to grade." in log and "The file is empty." not in log
    right_alone = 90 / ALL  # the bonus of 1000x is out of reach
    assert result("prairielearn")["score"] == pytest.approx(right_alone / 2)
    assert "There is no file other.cu." in told("prairielearn")


def test_one_exercise_of_a_course_can_be_named(course: Path) -> None:
    write(course / "exercises/other/exercise.py", RAISES)
    write(course / "handed_in/twice.cu", RIGHT)
    assert main([*words("gradescope", "--exercises=exercises/twice"), "handed_in"]) == 0
    assert result("gradescope")["score"] == 90


def test_a_zip_is_unpacked_and_the_exercises_folder_is_skipped(course: Path) -> None:
    write(course / "exercises/twice/twice.cu", SKELETON)
    with zipfile.ZipFile(course / "homework.zip", "w") as archive:
        archive.writestr("twice.cu", RIGHT)
    assert main([*words("gradescope"), "."]) == 0
    assert result("gradescope")["score"] == 90


def test_several_files_for_an_exercise_are_named(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a/twice.cu", "b/twice.cu"):
        write(course / "handed_in" / name, WRONG)
        os.utime(course / "handed_in" / name, (1e9, 1e9))
    assert grade("github") == 1
    assert "handed_in/b/twice.cu (2001-09-09 01:46:40) counts" in capsys.readouterr().out.replace(
        "submission", "handed_in"
    )


def test_an_unreadable_file_costs_no_points(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(course / "handed_in/twice.cu", RIGHT)

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pytest_gpulab.course.intake.entries.opened_for_reading", refused)
    assert grade("gradescope") == 0
    assert "NOT GRADED" in result("gradescope")["output"] and "Permission denied" in told("gradescope")


def test_wrong_arguments_are_one_line(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert grade("gradescope", "--timeout=0") == 2
    assert grade("gradescope", "--exercises=handed_in") == 2
    write(course / "file", "")
    assert grade("gradescope", "--result=file/result.json") == 2
    assert grade("gradescope", "--result=out/results") == 2
    first, second, third, fourth = capsys.readouterr().err.splitlines()
    assert "--timeout is a number of seconds" in first and "has no exercise" in second and "file" in third
    assert "--result is the file of one student and ends in .json" in fourth


@pytest.mark.parametrize("platform", PLATFORMS)
def test_nothing_beside_a_submission_changes_its_grade(course: Path, platform: str) -> None:
    """The grader starts in the student's folder, as in a workflow, with variables that lead there."""
    work = course / "handed_in"
    for place in ("", "deeper"):
        for name, text in {**PLANTS, "results.json": '{"score": 100}'}.items():
            write(work / place / name, text)
    write(work / "twice.cu", WRONG)
    write(course / "precious", "kept")
    (work / "result.json").symlink_to(course / "precious")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    environment |= {MARK: str(course / "mark"), "PYTEST_ADDOPTS": "-p plugin", "PYTEST_PLUGINS": "plugin"}
    console = str(Path(sys.executable).with_name("gpulab"))
    command = [console, *words(platform, "--exercises=../exercises", "--result=result.json"), "."]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == PLATFORMS[platform].failed, done.stdout + done.stderr
    assert not (course / "mark").exists(), (course / "mark").read_text()
    assert (course / "precious").read_text() == "kept"
    (course / "out").mkdir()
    (work / "result.json").rename(course / "out/result.json")
    assert points(platform) == WRONG_POINTS

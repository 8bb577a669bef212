"""Which files are graded, and that nothing a student hands in is ever imported or obeyed."""

from __future__ import annotations

import pytest
from course import CHECKS, RIGHT, SKELETON, Course

EVIL = "raise SystemExit('code of a student ran')\n"


def graded(result: pytest.RunResult) -> set[str]:
    """Return the ids of what `--collect-only -q` lists."""
    return {line for line in result.outlines if "::" in line}


def ids(*files: str) -> set[str]:
    return {f"{file}::{check}" for file in files for check in CHECKS}


def test_without_the_flag_everything_is_inert(course: Course) -> None:
    course.write("exercises/twice/twice.cu", RIGHT)
    course.write("test_one.py", "def test_one(): pass\n")
    result = course.pytest("-v", "-Werror")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*gpulab:*")


def test_a_named_cu_file_needs_the_flag(course: Course) -> None:
    path = course.write("twice.cu", RIGHT)
    result = course.pytest(path)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: not found: *twice.cu"])


def test_no_path_means_the_students_own_copies(course: Course) -> None:
    course.write("exercises/twice/twice.cu", RIGHT)
    course.write("exercises/twice/another.cu", RIGHT)
    course.write("submissions/twice.cu", RIGHT)
    course.write("test_one.py", "def test_one(): pass\n")
    assert graded(course.grade("--co", "-q")) == ids("exercises/twice/twice.cu")


def test_no_path_wins_over_testpaths(course: Course) -> None:
    course.write("exercises/twice/twice.cu", RIGHT)
    course.write("tests/test_one.py", "def test_one(): pass\n")
    assert graded(course.grade("--co", "-q", "-o", "testpaths=tests")) == ids("exercises/twice/twice.cu")


def test_no_path_works_from_any_folder(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    course.write("exercises/twice/twice.cu", RIGHT)
    monkeypatch.chdir(course.folder / "exercises")
    assert graded(course.grade("--co", "-q")) == ids("exercises/twice/twice.cu")


def test_no_path_and_no_copy_is_an_empty_run(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    assert course.grade().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_an_untouched_skeleton_is_not_started(course: Course) -> None:
    course.write("exercises/twice/twice.cu", SKELETON)
    result = course.grade("-rs")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(skipped=len(CHECKS))
    result.stdout.fnmatch_lines(
        [
            "twice *not started *0/100*",
            "SKIPPED * exercises/twice/twice.cu:1: not started: `twice` still has its GPULAB_TODO line*",
        ]
    )


def test_folders_are_searched_and_mapped_by_stem_or_folder(course: Course) -> None:
    course.write("submissions/alice/twice.cu", RIGHT)
    course.write("submissions/twice/01_first.cu", RIGHT)
    course.write("submissions/twice/notes.txt", "")
    expected = ids("submissions/alice/twice.cu", "submissions/twice/01_first.cu")
    assert graded(course.grade("--co", "-q", "submissions")) == expected


def test_one_check_can_be_named(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    result = course.grade("--co", "-q", "twice.cu::correct[n=31]")
    assert graded(result) == {"twice.cu::correct[n=31]"}


def test_baselines_are_never_submissions(course: Course) -> None:
    course.write("exercises/twice/twice.cu", RIGHT)
    assert graded(course.grade("--co", "-q", "exercises")) == ids("exercises/twice/twice.cu")
    result = course.grade("exercises/twice/naive.cu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *naive.cu belongs to the exercise itself: copy it elsewhere*"])


def test_a_loop_of_links_is_not_followed(course: Course) -> None:
    path = course.write("submissions/twice.cu", RIGHT)
    (path.parent / "again").symlink_to(path.parent, target_is_directory=True)
    assert graded(course.grade("--co", "-q", "submissions")) == ids("submissions/twice.cu")


def test_no_such_path(course: Course) -> None:
    result = course.grade("nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: file or directory not found: nowhere"])


def test_another_kind_of_file_is_refused(course: Course) -> None:
    course.write("submissions/test_one.py", EVIL)
    result = course.grade("submissions/test_one.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *test_one.py is not a .cu file: --gpulab grades nothing else"])


@pytest.mark.parametrize(
    ("path", "workers"),
    [
        ("submissions", []),
        ("submissions/alice", []),
        ("submissions/alice/twice.cu", []),
        ("submissions/alice/twice.cu", ["-n1"]),
    ],
)
def test_python_in_a_submission_never_runs(course: Course, path: str, workers: list[str]) -> None:
    course.write("submissions/alice/twice.cu", RIGHT)
    for name in ("conftest.py", "test_evil.py", "__init__.py", "sitecustomize.py", "test/conftest.py"):
        course.write(f"submissions/alice/{name}", EVIL)
    result = course.grade(*workers, path, "-k", "compile")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1, deselected=0 if workers else len(CHECKS) - 1)
    assert "code of a student" not in result.stdout.str() + result.stderr.str()


def test_configuration_in_a_submission_is_refused(course: Course) -> None:
    course.write("submissions/twice.cu", RIGHT)
    course.write("submissions/pytest.ini", "[pytest]\ngpulab_expected = expected.toml\n")
    result = course.grade("submissions/twice.cu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: *submissions/pytest.ini may be a student's and is not used as configuration*name the file with -c*"]
    )


def test_a_named_configuration_is_the_instructors(course: Course) -> None:
    course.write("submissions/twice.cu", RIGHT)
    course.write("submissions/pytest.ini", "[pytest]\ngpulab_expected = expected.toml\n")
    result = course.grade("--co", "-q", "-c", "tox.ini", "submissions/twice.cu")
    assert graded(result) == ids("submissions/twice.cu")


def test_the_instructors_conftest_is_loaded(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    course.write("conftest.py", "def pytest_report_header(): return 'hello from the course'\n")
    course.grade("--co", "twice.cu").stdout.fnmatch_lines(["hello from the course"])


def test_submissions_elsewhere_bring_no_exercises_along(
    course: Course, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (course.folder / "tox.ini").unlink()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    course.write(elsewhere / "twice.cu", RIGHT)
    course.write(elsewhere / "exercises/twice/exercise.py", EVIL)
    result = course.grade(elsewhere, "-k", "compile")
    result.assert_outcomes(passed=1, deselected=len(CHECKS) - 1)

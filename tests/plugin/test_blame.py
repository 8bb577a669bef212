"""A mistake of an exercise is an error of the run, never a failure of the student's work."""

from __future__ import annotations

from pathlib import Path

import pytest
from course import Course
from test_fifth_exercise import NAIVE, SAXPY, SUBMISSION

from pytest_gpulab.course.store import Store, StoreError
from pytest_gpulab.grading.grade import Grade

RIGHT, WRONG_REFERENCE, RAISING = SAXPY, SAXPY.replace("2 * x + y}", "3 * x + y}"), SAXPY.replace("abs(x)", "abs(z)")


def written(course: Course, exercise: str = RIGHT, naive: str = NAIVE, submission: str = SUBMISSION) -> Path:
    course.write("exercises/saxpy/exercise.py", exercise)
    course.write("exercises/saxpy/naive.cu", naive)
    return course.write("submissions/ann/saxpy.cu", submission)


def test_a_reference_that_raises_is_an_error_with_the_instructors_line(course: Course) -> None:
    written(course, RAISING)
    result = course.grade("submissions")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, errors=9)
    result.stdout.fnmatch_lines(["*The exercise's own `reference` is wrong: name 'z' is not defined*", "*Traceback*"])
    result.stdout.no_fnmatch_line("*ERROR at call of*")  # the findings say it, once
    result.stdout.no_fnmatch_line("*prepare.py*")


def test_students_read_the_line_without_the_instructors_folders(course: Course) -> None:
    written(course, SAXPY.replace("2 * x + y}", "(2 * x + y)[1:]}"))
    result = course.grade("submissions/ann/saxpy.cu::correct[n=33]")
    result.assert_outcomes(errors=1)
    what = "The exercise's own `reference` is wrong: exercise.py, line 20: the values of 'out' have shape (32,)"
    assert what in " ".join(result.stdout.str().split())


def test_a_wrong_baseline_is_found_before_its_time_counts(course: Course) -> None:
    written(course, naive=NAIVE.replace("a * x[i] + y[i]", "a * x[i]"))
    result = course.grade("submissions")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=9, errors=1)
    result.stdout.fnmatch_lines(["*The exercise's baseline naive.cu cannot be used: in case 'n=1025', `out`:*"])


def test_a_baseline_that_faults_is_at_fault(course: Course) -> None:
    written(course, naive=NAIVE.replace("slow[i] =", "slow[i + (1 << 28)] ="))
    result = course.grade("submissions")
    result.assert_outcomes(passed=9, errors=1)
    result.stdout.fnmatch_lines(["*The exercise's baseline naive.cu cannot be used: *"])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("2 * x + y}", "3 * x + y}", "elements are wrong"),
        ("(-(-n // block),)", "(-(-(n - 1) // block) or 1,)", "never written"),
        ("np.int32(n))", "np.int32(n + 1))", "Invalid"),
    ],
    ids=["a wrong reference", "too few blocks", "a wrong argument"],
)
def test_a_failure_that_the_baseline_shares_is_the_exercises(course: Course, old: str, new: str, reason: str) -> None:
    assert old in RIGHT
    written(course, RIGHT.replace(old, new), submission=SUBMISSION)
    result = course.grade("submissions")
    counts = result.parseoutcomes()
    assert counts["errors"] > 0 and not {"failed", "skipped"} & set(counts)
    output = " ".join(result.stdout.str().split())
    assert "The exercise's own baseline naive.cu fails here, too: " in output and reason in output
    assert "smallest failing input" not in output


@pytest.mark.parametrize(
    ("exercise", "submission", "status"),
    [(RIGHT, SUBMISSION, 0), (RIGHT, SUBMISSION.replace("i < n", "i < n - 1"), 1), (RAISING, SUBMISSION, 10)],
    ids=["graded", "failing work", "the exercise"],
)
def test_a_classs_exit_code_tells_the_causes_apart(course: Course, exercise: str, submission: str, status: int) -> None:
    written(course, exercise, submission=submission)
    assert course.grade("--gpulab-submissions=submissions").ret == status


def test_grades_that_cannot_be_stored_have_their_own_exit_code(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(store: Store, key: str, grade: Grade) -> Grade:
        raise StoreError("the disk is full")

    written(course)
    monkeypatch.setattr(Store, "put", put)
    assert course.grade("--gpulab-submissions=submissions").ret == 11


def test_a_kernel_is_not_acquitted_by_an_explanation_that_raises(course: Course) -> None:
    written(
        course,
        RIGHT.replace("safe=", "mistakes=lambda problem, inputs: 1 / 0, safe="),
        submission=SUBMISSION.replace("+ y", "- y"),
    )
    result = course.grade("submissions/ann/saxpy.cu::correct[n=1023]")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*The exercise's own `mistakes` is wrong: division by zero*", "*A result of your kernel*"]
    )
    result.stdout.no_fnmatch_line("*not at fault*")


def test_a_loop_without_an_end_in_an_exercise_is_no_loop_of_the_student(course: Course) -> None:
    looping = SAXPY.replace(
        "def reference(problem, inputs):",
        "def reference(problem, inputs):\n    import time\n    while True: time.sleep(0.05)",
    )
    assert looping != SAXPY
    written(course, looping)
    result = course.grade("--gpulab-timeout=8", "submissions/ann/saxpy.cu::correct[n=33]")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*The exercise's own `reference` is wrong: it had not ended after * s*"])
    result.stdout.no_fnmatch_line("*endless-loop*")

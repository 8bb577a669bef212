"""The outcome of each verdict in pytest, and the text for the student."""

from __future__ import annotations

import pytest
from course import BEYOND, BROKEN, CHECKS, EXERCISE, NAIVE, PUZZLING, RIGHT, WRONG, Course


def no_traceback(result: pytest.RunResult) -> None:
    assert "Traceback" not in result.stdout.str()
    assert "pytest_gpulab/" not in result.stdout.str()


def test_a_right_kernel_passes_and_a_missed_bonus_is_no_failure(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    result = course.grade("twice.cu", "-v")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "twice.cu::compile PASSED *",
            "twice.cu::speedup[[]1.5x[]] PASSED *",
            "twice.cu::speedup[[]1000x[]] BONUS MISSED *",
            "twice *passed *90/100 *",
            "*missed speedup[[]1000x[]]: too-slow: *",
            "*6 passed, 1 bonus missed in *",
        ]
    )


def test_the_naive_kernel_as_a_submission_fails_for_speed_alone(course: Course) -> None:
    course.write("submissions/twice.cu", NAIVE)
    result = course.grade("submissions")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["twice *failed *70/100 *", "  FAILED speedup[[]1.5x[]], missed 1000x: too-slow: *", "*1 failed, *"]
    )


def test_a_wrong_result_is_explained_without_a_traceback(course: Course) -> None:
    course.write("twice.cu", WRONG)
    result = course.grade("twice.cu::correct[n=31]")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*gpulab: findings*",
            "twice.cu",
            "  FAILED correct[[]n=31[]]:",
            "      wrong-result: `out`: 1 of 31 elements is wrong: only the last element, element 30.",
            "      out[[]30[]] is *, expected *",
            "      hint: *",
            "*1 failed in *",
        ]
    )
    no_traceback(result)
    assert result.stdout.str().count("wrong-result") == 1


PYTESTS_LIST = [
    "_* twice.cu: correct[[]n=31[]] _*",
    "wrong-result: `out`: 1 of 31 elements is wrong: only the last element, element 30.",
    "  out[[]30[]] is *, expected *",
    "  hint: *",
]
SHORT_SUMMARY = ["FAILED twice.cu::correct[[]n=31[]] - wrong-result: *"]


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (["--tb=short"], [*PYTESTS_LIST, "*gpulab: findings*", *SHORT_SUMMARY]),
        (["-rf"], [*PYTESTS_LIST, "*gpulab: findings*", *SHORT_SUMMARY]),
        (["-q", "--tb=short"], [*PYTESTS_LIST, "*gpulab: findings*", *SHORT_SUMMARY]),
    ],
)
def test_pytests_own_lists_are_printed_on_request(course: Course, asked: list[str], shown: list[str]) -> None:
    course.write("twice.cu", WRONG)
    result = course.grade("twice.cu::correct[n=31]", *asked)
    result.stdout.fnmatch_lines([*shown, "*1 failed in *"])
    no_traceback(result)


@pytest.mark.parametrize("more", [[], ["-v"], ["-n1"]])
def test_pytests_own_lists_hold_failures_without_a_finding(course: Course, more: list[str]) -> None:
    course.write("twice.cu", WRONG)
    course.write(
        "conftest.py",
        "def pytest_runtest_setup(item):\n    if item.name == 'compile':\n        item.runtest = lambda: 1 / 0\n",
    )
    result = course.grade("twice.cu", *more)
    result.stdout.fnmatch_lines(
        [
            "_* twice.cu: compile _*",
            "E *ZeroDivisionError: division by zero",
            "*gpulab: findings*",
            "  FAILED correct*",
            "FAILED twice.cu::compile - ZeroDivisionError: *",
            "*[!1] failed, *",
        ]
    )
    result.stdout.no_fnmatch_line("FAILED twice.cu::correct*")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_other_hooks_find_all_failures_in_the_summary(course: Course) -> None:
    course.write("twice.cu", WRONG)
    course.write(
        "conftest.py",
        "def pytest_terminal_summary(terminalreporter):\n"
        "    print('found', len(terminalreporter.stats.get('failed', [])))\n",
    )
    result = course.grade("twice.cu::correct[n=31]", "twice.cu::correct[n=100]")
    result.stdout.fnmatch_lines(["*found 2", "*2 failed in *"])
    result.stdout.no_fnmatch_line("*short test summary*")


def test_the_output_of_an_exercise_is_shown_if_a_check_fails(course: Course) -> None:
    course.write("twice.cu", WRONG)
    course.write("exercises/twice/exercise.py", EXERCISE + "\nprint('loaded: look here')\n")
    result = course.grade("twice.cu::correct[n=31]")
    assert "look here" not in result.stdout.str()
    told = EXERCISE.replace("def plan(problem):", "def plan(problem):\n    print('planned: look here')", 1)
    assert told != EXERCISE
    course.write("exercises/twice/exercise.py", told)
    result = course.grade("twice.cu::correct[n=31]")
    result.stdout.fnmatch_lines(["_* twice.cu: correct[[]n=31[]] _*", "*Captured stdout call*", "planned: look here"])


def test_out_of_bounds_names_the_students_line(course: Course) -> None:
    course.write("twice.cu", BEYOND)
    result = course.grade("twice.cu::safe[memory]")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "  FAILED safe[[]memory[]]:",
            "      out-of-bounds: *`in[[]1[]]` read, `in` has 1 element",
            "        (twice.cu:4)",
            "      4 | *",
        ]
    )
    no_traceback(result)


def test_a_compile_error_fails_every_check_with_one_reason_shown_once(course: Course) -> None:
    course.write("twice.cu", BROKEN)
    result = course.grade("twice.cu")
    result.assert_outcomes(failed=len(CHECKS))
    compilers_words = [line for line in result.outlines if "twice.cu(5): error" in line]
    assert len(compilers_words) == 1
    result.stdout.fnmatch_lines(
        [
            "twice *failed *0/100*",
            "*gpulab: findings*",
            "twice.cu",
            "  FAILED compile, and 6 checks that need it:",
            "      compile-error: The file does not compile: *",
        ]
    )
    assert len([line for line in result.outlines if line.startswith("  FAILED ")]) == 1
    no_traceback(result)


def test_details_of_a_failure_fit_the_terminal(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    course.write("twice.cu", BEYOND)
    monkeypatch.setenv("COLUMNS", "60")
    lines = course.grade("twice.cu", "--tb=short").outlines
    details = [line for line in lines if line.startswith("  ")]
    assert "  hint: " in "\n".join(details) and max(map(len, details)) <= 60


@pytest.mark.parametrize(("source", "code"), [(b"", "empty-source"), ("// x".encode("utf-16"), "not-utf8")])
def test_a_file_that_is_no_source(course: Course, source: bytes, code: str) -> None:
    course.write("twice.cu", source)
    result = course.grade("twice.cu::compile")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"  FAILED compile: {code}: *"])
    no_traceback(result)


def test_an_unsupported_instruction_is_named_and_gives_no_score(course: Course) -> None:
    course.write("twice.cu", PUZZLING)
    result = course.grade("twice.cu", "-rs")
    assert result.ret == pytest.ExitCode.TESTS_FAILED, "a run that grades nothing is not taken for one that passed"
    assert result.parseoutcomes().keys() == {"skipped"} or result.parseoutcomes().keys() == {"skipped", "passed"}
    result.stdout.fnmatch_lines(
        [
            "twice *not gradable *",
            "      cannot-simulate: *bulk asynchronous copies*",
            "ERROR: twice.cu: 100 of 100 points could not be graded, so there is no score; see the findings",
        ]
    )


def test_printf_is_shown_with_a_failure(course: Course) -> None:
    course.write("twice.cu", WRONG.replace("int i =", 'printf("hello from a thread\\n"); int i ='))
    result = course.grade("twice.cu::correct[n=31]")
    result.stdout.fnmatch_lines(["  FAILED correct[[]n=31[]]:", "      output of correct[[]n=31[]]:"])
    printed = [line for line in result.outlines if "hello" in line]
    assert printed == ["        hello from a thread"] * 10
    result.stdout.fnmatch_lines(["        ... and * more lines; -v shows all"])
    verbose = course.grade("twice.cu::correct[n=31]", "-v").outlines
    assert len([line for line in verbose if "hello" in line]) > 20


def test_a_file_of_no_exercise_is_named(course: Course) -> None:
    course.write("submissions/alice/twize.cu", RIGHT)
    result = course.grade("submissions")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "submissions/alice/twize.cu F *",
            "submissions/alice/twize.cu",
            "  NOT GRADED: no-exercise: twize.cu belongs to no exercise",
            "      hint: Name the file or its folder after an exercise: twice",
        ]
    )
    no_traceback(result)


def test_a_broken_exercise_is_an_error_and_the_others_are_graded(course: Course) -> None:
    course.write("exercises/broken/exercise.py", EXERCISE + "\n1 / 0\n")
    course.write("submissions/alice/broken.cu", RIGHT)
    course.write("submissions/bob/broken.cu", RIGHT)
    course.write("submissions/bob/twice.cu", RIGHT)
    result = course.grade("submissions", "-k", "exercise or compile")
    result.assert_outcomes(errors=2, passed=1, deselected=len(CHECKS) - 1)
    result.stdout.fnmatch_lines(
        [
            "_* ERROR at setup of submissions/alice/broken.cu: exercise _*",
            "*exercises/broken/exercise.py*, line *",
            "ZeroDivisionError: division by zero",
            "_* ERROR at setup of submissions/bob/broken.cu: exercise _*",
            "ZeroDivisionError: division by zero (as above)",
            "  NOT GRADED: broken-exercise: the exercise broken cannot be loaded; tell your instructor",
        ]
    )
    assert "catalogue.py" not in result.stdout.str()


def test_a_bug_of_the_plugin_is_an_error_with_its_traceback(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    course.write(
        "conftest.py",
        "from pytest_gpulab.grading.grader import Grader\n"
        "def pytest_runtest_setup(item):\n"
        "    item.parent.grader(item.exercise).run = None\n",
    )
    result = course.grade("twice.cu::compile")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *TypeError: 'NoneType' object is not callable", "*items.py:*: TypeError"])
    assert "pluggy" not in "".join(result.outlines[5:])
    result.stdout.no_fnmatch_line("*passed*0/0*")


def test_an_inconclusive_check_is_named(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    course.write(
        "conftest.py",  # only a noisy GPU gives this verdict
        "from pytest_gpulab.grading.grade import CheckResult, Finding\n"
        "def pytest_runtest_setup(item):\n"
        "    finding = Finding('too-noisy', '1.4x to 1.6x, needs 1.5x')\n"
        "    result = CheckResult('speedup[1.5x]', 'speedup', 'inconclusive', 0, 20, (finding,))\n"
        "    item.parent.grader(item.exercise).run = lambda check: result\n",
    )
    result = course.grade("twice.cu::speedup[1.5x]", "-rs")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "twice *inconclusive *0/20*",
            "  inconclusive speedup[[]1.5x[]]: too-noisy: 1.4x to 1.6x, needs 1.5x",
            "SKIPPED * twice.cu:1: inconclusive: 1.4x to 1.6x, needs 1.5x",
        ]
    )

"""`gpulab_expected`: strict expected failures, from the instructor's configuration only."""

from __future__ import annotations

import pytest
from course import BROKEN, CHECKS, NAIVE, RIGHT, WRONG, Course

HONOURED = ("-o", "gpulab_expected=expected.toml")


def expect(course: Course, fails: str, source: str = NAIVE) -> None:
    course.write("solutions/twice/01_naive.cu", source)
    course.write("expected.toml", f'["solutions/twice/01_naive.cu"]\nfails = {{ {fails} }}\n')


@pytest.mark.parametrize("workers", [[], ["-n1"]])
def test_the_expected_finding_is_an_expected_failure(course: Course, workers: list[str]) -> None:
    expect(course, '"speedup[1.5x]" = "too-slow"')
    result = course.grade(*HONOURED, *workers, "solutions", "-rx")
    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes()["xfailed"] == 1
    result.stdout.fnmatch_lines(
        [
            "01_naive *failed[*] *70/100 *",
            "  expected speedup[[]1.5x[]], missed 1000x: too-slow: *",
            "[*] fails as the instructor's expected verdicts say.",
            "XFAIL solutions/twice/01_naive.cu::speedup[[]1.5x[]] - the instructor expects too-slow",
        ]
    )


def test_a_star_in_the_ini_key_stands_for_any_folder(course: Course) -> None:
    course.write("steps/twice/01_naive.cu", NAIVE)
    course.write("steps/twice/expected.toml", '["01_naive.cu"]\nfails = { "speedup[1.5x]" = "too-slow" }\n')
    result = course.grade("-o", "gpulab_expected=steps/*/expected.toml", "steps")
    assert result.parseoutcomes()["xfailed"] == 1
    none = course.grade("-o", "gpulab_expected=no/*/expected.toml", "steps")
    assert none.parseoutcomes()["failed"] == 1


def test_another_finding_is_a_plain_failure(course: Course) -> None:
    expect(course, '"correct[n=31]" = "not-written"', WRONG)
    result = course.grade(*HONOURED, "solutions", "-k", "31")
    result.assert_outcomes(failed=1, deselected=len(CHECKS) - 1)
    result.stdout.fnmatch_lines(["wrong-result: *", "the instructor expects another finding: not-written"])


def test_an_unexpected_pass_fails(course: Course) -> None:
    expect(course, '"correct[n=31]" = "wrong-result"', RIGHT)
    result = course.grade(*HONOURED, "solutions", "-k", "31")
    result.assert_outcomes(failed=1, deselected=len(CHECKS) - 1)
    result.stdout.fnmatch_lines(["*XPASS(strict)* the instructor expects wrong-result"])


def test_a_star_stands_for_every_check(course: Course) -> None:
    expect(course, '"*" = "compile-error"', BROKEN)
    result = course.grade(*HONOURED, "solutions")
    result.assert_outcomes(xfailed=len(CHECKS))


def test_expected_failures_are_no_last_failures(course: Course) -> None:
    expect(course, '"speedup[1.5x]" = "too-slow"')
    course.grade(*HONOURED, "solutions")
    result = course.grade(*HONOURED, "solutions", "--lf", "--co", "-q")
    assert len([line for line in result.outlines if "::" in line]) == len(CHECKS)


def test_a_check_that_the_exercise_has_not_is_an_error(course: Course) -> None:
    expect(course, '"speedup[2x]" = "too-slow"')
    result = course.grade(*HONOURED, "solutions", "-k", "expected")
    result.assert_outcomes(errors=1, deselected=len(CHECKS))
    result.stdout.fnmatch_lines(["expected verdicts name checks that the exercise does not have: speedup[[]2x[]]"])


def test_a_check_of_a_later_version_is_none_yet(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    course.write("expected.toml", '["twice.cu"]\nfails = { "safe[race]" = "race" }\nlater = "race"\n')
    result = course.grade(*HONOURED, "twice.cu", "-k", "expected or compile")
    result.assert_outcomes(passed=1, deselected=len(CHECKS) - 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not toml", "*expected.toml: not valid TOML: *"),
        ('["nowhere.cu"]\nfails = {}', "*expected.toml: there is no file 'nowhere.cu' beside it"),
        ('["exercises/twice/naive.cu"]\nfail = {}', "*unknown key 'fail'*"),
    ],
)
def test_broken_expected_verdicts_are_a_usage_error(course: Course, text: str, message: str) -> None:
    course.write("expected.toml", text)
    result = course.grade(*HONOURED)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_no_such_file_of_expected_verdicts(course: Course) -> None:
    result = course.grade(*HONOURED)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *expected.toml: cannot be read: No such file or directory"])


def test_expected_verdicts_beside_a_submission_count_for_nothing(course: Course) -> None:
    course.write("submissions/twice.cu", NAIVE)
    course.write("submissions/expected.toml", '["twice.cu"]\nfails = { "speedup[1.5x]" = "too-slow" }\n')
    result = course.grade("submissions")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "xfailed" not in result.parseoutcomes()

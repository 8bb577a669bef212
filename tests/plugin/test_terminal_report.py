"""The tables and findings, from grades made by hand: figures, marks, widths, grouping, verbosity."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from reported import NO_COMPILE, TOO_SLOW, book, correct, report, speed

from pytest_gpulab.grading.grade import CheckResult, Finding, SmallestInput
from pytest_gpulab.reports.terminal.sections import failure_text, sections
from pytest_gpulab.reports.terminal.text import WIDTH, as_wide_as


def test_a_second_baseline_has_its_row_where_both_times_are_one_estimate() -> None:
    second = replace(speed(0.2, "missed", 4, baseline="blelloch.cu"), name="speedup[4x blelloch]")
    second = replace(second, measurement=replace(second.measurement, baseline_ms=0.3, speedup=1.5))  # type: ignore[type-var]
    rows = [line.split() for line in report(book(("a.cu", [speed(0.2), second]))).splitlines()[3:7]]
    assert [row[:2] for row in rows] == [
        ["naive.cu", "baseline"],
        ["+", "blelloch"],
        ["a", "passed"],
        ["+", "blelloch"],
    ]
    assert rows[1][2] == "~0.300" and rows[3][2:] == ["~0.200", "~1325", "~1.50x", "4x", "(+20)", "50%", "16"]


def test_the_next_tier_is_the_lowest_one_that_was_missed() -> None:
    tiers = [speed(0.4, "missed", 4), speed(0.4, "missed", 2), speed(0.4, threshold=1.4)]
    extra = replace(speed(0.5, "missed", 9), max_points=0.0)
    wrong = [correct("correct[n=1]", "failed", NO_COMPILE)]
    lines = report(book(("a.cu", tiers), ("b.cu", [extra]), ("c.cu", wrong))).splitlines()
    at = lines[1].index("next") + len("next")
    assert [line[:at].split("  ")[-1].strip() for line in lines[4:7]] == ["2x (+20)", "9x", "-"]


def test_one_compile_error_is_one_finding() -> None:
    checks = [correct(f"correct[n={n}]", "failed", NO_COMPILE) for n in range(10)]
    text = report(book(("s/x.cu", checks)))
    assert text.count("does not compile") == 1
    assert (
        "s/x.cu\n"
        "  FAILED correct[n=0], n=1, n=2, and 7 more: compile-error: does not compile (x.cu:4)\n"
        "      x.cu(4): error: expected a ;\n"
        "      hint: Read it."
    ) in text


def test_the_hint_of_a_note_is_shown_with_the_finding_that_has_it_too() -> None:
    note = Finding("tunable-unread", "nothing reads it", hint="Each block has more elements.")
    wrong = Finding("wrong-result", "`out`: all wrong", hint=note.hint)
    compiled = replace(correct("compile", "passed", note), kind="compile")
    assert f"hint: {note.hint}" in report(book(("x.cu", [compiled, correct("correct[n=1]", "failed", wrong)])))


def not_graded(cause: Finding, because: str) -> Finding:
    return Finding(cause.code, f"Not graded, because `{because}` did not pass: {cause.what}", because=because)


def test_ungraded_checks_are_counted_with_their_cause() -> None:
    compiled = replace(correct("compile", "failed", NO_COMPILE), kind="compile")
    others = [correct(f"correct[n={n}]", "failed", not_graded(NO_COMPILE, "compile")) for n in range(26)]
    for verbosity in (0, 1):
        assert (
            "\nx.cu\n"
            "  FAILED compile, and 26 checks that need it: compile-error: does not compile (x.cu:4)\n"
            "      x.cu(4): error: expected a ;\n"
            "      hint: Read it."
        ) in report(book(("x.cu", [compiled, *others])), verbosity)
    assert "  FAILED compile, and 1 check that needs it: " in report(book(("x.cu", [compiled, *others[:1]])))


def test_ungraded_checks_are_listed_if_their_cause_is_not() -> None:
    others = [correct(f"correct[n={n}]", "failed", not_graded(NO_COMPILE, "compile")) for n in range(2)]
    heading, what = report(book(("x.cu", others))).splitlines()[-2:]
    assert heading == "  FAILED correct[n=0], n=1:"
    assert what == "      compile-error: Not graded, because `compile` did not pass: does not compile"
    another = Finding("missing-kernel", "there is no kernel `sum`")
    compiled = replace(correct("compile", "failed", another), kind="compile")
    text = report(book(("x.cu", [compiled, *others])))
    assert "  FAILED compile: missing-kernel: " in text and "  FAILED correct[n=0], n=1:" in text


def test_an_unexpected_failure_is_not_counted_with_an_expected_one() -> None:
    compiled = replace(correct("compile", "failed", NO_COMPILE), kind="compile")
    others = [correct(f"correct[n={n}]", "failed", not_graded(NO_COMPILE, "compile")) for n in range(2)]
    text = report(book(("x.cu", [compiled, *others]), expected=("compile", "correct[n=0]")))
    assert "  expected compile, and 1 check that needs it: compile-error: " in text
    assert "  FAILED correct[n=1]:" in text


def test_checks_that_need_a_wrong_result_are_counted_with_it() -> None:
    wrong = Finding("wrong-result", "all elements are wrong.")
    checks = [correct(f"correct[n={n}]", "failed", wrong) for n in range(2)]
    unsafe = [correct(f"safe[{kind}]", "failed", not_graded(wrong, "correct[n=0]")) for kind in ("memory", "barriers")]
    text = report(book(("x.cu", [*checks, *unsafe])))
    assert "  FAILED correct[n=0], n=1, and 2 checks that need them: wrong-result: " in text


def test_missed_tiers_of_one_measurement_are_one_line() -> None:
    tiers = [speed(0.5, "missed", threshold, required=False) for threshold in (1.8, 2.4, 4.3)]
    text = report(book(("x.cu", [speed(0.5, threshold=1.4), *tiers])))
    missed = "\nx.cu\n  missed speedup[1.8x], 2.4x, 4.3x: too-slow: 1.10x over naive.cu.\n"
    assert f"{missed}      hint: Mind the addresses.\ntotal: " in text


def test_a_failed_tier_and_the_missed_ones_above_it_share_evidence_and_hint() -> None:
    tiers = [speed(0.5, "failed", 1.4), *(speed(0.5, "missed", threshold, required=False) for threshold in (2, 3))]
    assert (
        "\nx.cu\n"
        "  FAILED speedup[1.4x], missed 2x, 3x: too-slow: 1.10x over naive.cu.\n"
        "      interval 1.09 to 1.11\n"
        "      hint: Mind the addresses.\n"
        "total: "
    ) in report(book(("x.cu", tiers)))
    expected = report(book(("x.cu", tiers), expected=("speedup[1.4x]",)))
    assert "\n  expected speedup[1.4x], missed 2x, 3x: too-slow: 1.10x over naive.cu.\n      hint: Mind" in expected


def test_an_unexpected_failure_is_not_hidden_among_expected_ones_of_the_same_reason() -> None:
    checks = [correct(f"correct[n={n}]", "failed", NO_COMPILE) for n in range(2)]
    text = report(book(("x.cu", checks), expected=("correct[n=0]",)))
    assert "  expected correct[n=0], FAILED n=1: compile-error: " in text
    assert "hint: Read it." in text


def test_tiers_of_different_measurements_stay_apart() -> None:
    slow = replace(TOO_SLOW, what="1.05x over blelloch.cu.")
    other = replace(speed(0.5, "missed", 2), name="speedup[2x blelloch]", findings=(slow,))
    lines = report(book(("x.cu", [speed(0.5, "missed", 2), other]))).splitlines()
    assert "  missed speedup[2x]: too-slow: 1.10x over naive.cu." in lines
    assert "  missed speedup[2x blelloch]: too-slow: 1.05x over blelloch.cu." in lines


def test_verbose_names_all_checks() -> None:
    checks = [correct(f"correct[n={n}]", "failed", NO_COMPILE) for n in range(5)]
    lines = report(book(("x.cu", checks)), verbosity=1).splitlines()
    assert "  FAILED correct[n=0], n=1, n=2, n=3, n=4: compile-error: does not compile (x.cu:4)" in lines


def wrong_results(count: int, where: str = "") -> list[CheckResult]:
    findings = [Finding("wrong-result", f"out[{n}] is 0", where, evidence=("proof",)) for n in range(count)]
    return [correct(f"correct[n={n}]", "failed", finding) for n, finding in enumerate(findings)]


def test_findings_of_one_kind_are_shown_three_times_and_then_summed_up_unless_verbose() -> None:
    gradebook = book(("x.cu", wrong_results(9)))
    text = report(gradebook)
    assert text.count("proof") == 3
    assert text.endswith(
        "  FAILED correct[n=2]: wrong-result: out[2] is 0\n"
        "      proof\n"
        "  FAILED correct[n=3], n=4, n=5, and 3 more: wrong-result: more of the same; -v shows all"
    )
    in_full = report(gradebook, verbosity=1)
    assert in_full.count("proof") == 9 and "more of the same" not in in_full


def with_input(check: CheckResult, command: str) -> CheckResult:
    smallest = SmallestInput("n = 1, in = [1]", "", command)
    return replace(check, findings=(replace(check.findings[0], smallest=smallest),))


def test_findings_with_another_smallest_input_are_another_kind() -> None:
    checks = wrong_results(10)
    both = [with_input(check, f"gpulab explain x.cu --case {'a' if n < 5 else 'b'}") for n, check in enumerate(checks)]
    text = report(book(("x.cu", both)))
    assert text.count("proof") == 6 and text.count("more of the same") == 2
    assert text.count("--case a") == text.count("--case b") == 1


def test_a_smallest_input_is_not_summed_up() -> None:
    """It stands at the findings of its variant only."""
    checks = wrong_results(9)
    text = report(book(("x.cu", [*checks[:7], with_input(checks[7], "gpulab explain x.cu --case n=7"), checks[8]])))
    assert text.count("proof") == 3
    assert "FAILED correct[n=7]: wrong-result: out[7] is 0\n      proof\n      smallest failing input: n = 1" in text


def test_checks_that_need_a_summarised_finding_are_counted() -> None:
    checks = wrong_results(5)
    unsafe = correct("safe[memory]", "failed", not_graded(checks[4].findings[0], "correct[n=4]"))
    text = report(book(("x.cu", [*checks, unsafe])))
    assert "\n  FAILED correct[n=3], n=4, and 1 check that needs them:\n      wrong-result: more of " in text


def test_expected_failures_are_neither_counted_as_similar_nor_summed_up() -> None:
    checks = wrong_results(6)
    lines = report(book(("x.cu", checks), expected=("correct[n=3]", "correct[n=5]"))).splitlines()
    assert lines[-3:-1] == [
        "  FAILED correct[n=4]: wrong-result: more of the same; -v shows all",
        "  expected correct[n=5]: wrong-result: out[5] is 0",
    ]


def test_each_source_line_with_a_finding_is_listed() -> None:
    elsewhere = Finding("wrong-result", "out[9] is 0", "x.cu:9")
    checks = [*wrong_results(5, where="x.cu:8"), correct("correct[n=9]", "failed", elsewhere)]
    lines = report(book(("x.cu", checks))).splitlines()
    assert "  FAILED correct[n=3], n=4: wrong-result: more of the same; -v shows all (x.cu:8)" in lines
    assert "  FAILED correct[n=9]: wrong-result: out[9] is 0 (x.cu:9)" in lines


def test_a_check_with_several_findings_is_named_once() -> None:
    findings = tuple(Finding("wrong-result", f"out{n} is wrong") for n in range(6))
    check = replace(correct(verdict="failed"), findings=findings)
    assert report(book(("x.cu", [check]))).endswith(
        "\n  FAILED correct[n=1]: wrong-result: more of the same; -v shows all"
    )


def test_of_findings_alike_the_most_telling_ones_come_first() -> None:
    worth = {1: 0, 2: 20, 3: 64, 4: 0, 5: 48, 6: 64}
    checks = [
        correct(f"correct[n={n}]", "failed", Finding("wrong-result", f"out is {n}.", bits=bits))
        for n, bits in worth.items()
    ]
    other = correct("correct[other]", "failed", Finding("not-written", "out is never written."))
    lines = report(book(("x.cu", [other, *checks]))).splitlines()
    assert lines[-5:] == [
        "  FAILED correct[other]: not-written: out is never written.",
        "  FAILED correct[n=3]: wrong-result: out is 3.",
        "  FAILED correct[n=6]: wrong-result: out is 6.",
        "  FAILED correct[n=5]: wrong-result: out is 5.",
        "  FAILED correct[n=2], n=1, n=4: wrong-result: more of the same; -v shows all",
    ]


def test_the_smallest_failing_input_is_shown_once() -> None:
    smallest = SmallestInput("n = 1, in = [0]", "fails for every n tried", "gpulab explain x.cu --n 1 --in 0")
    checks = [
        correct(f"correct[n={n}]", "failed", Finding("wrong-result", f"out[{n}] is 0", smallest=smallest))
        for n in range(3)
    ]
    lines = report(book(("x.cu", checks))).splitlines()
    first = lines.index("      smallest failing input: n = 1, in = [0]")
    assert lines[first - 1] == "  FAILED correct[n=0]: wrong-result: out[0] is 0"
    assert lines[first + 1 : first + 4] == [
        "      fails for every n tried",
        "      run it: gpulab explain x.cu --n 1 --in 0",
        "  FAILED correct[n=1]: wrong-result: out[1] is 0",
    ]
    assert sum("smallest failing input" in line for line in lines) == 1


def test_a_command_is_shown_once_per_submission() -> None:
    command = "gpulab explain x.cu --n 1 --in 0"
    both = [
        SmallestInput("n = 1, in = [0]: out should be [0], is [7]", "", command),
        SmallestInput("n = 1, in = [0]", "fails for every n tried", command),
    ]
    checks = [
        correct(f"correct[n={n}]", "failed", Finding(code, f"{code} {n}", smallest=smallest))
        for n, code, smallest in zip((1, 2), ("wrong-result", "race"), both, strict=True)
    ]
    lines = report(book(("x.cu", checks))).splitlines()
    assert [line.strip() for line in lines if "smallest" in line or "run it" in line or "fails for" in line] == [
        f"smallest failing input: {both[0].what}",
        f"run it: {command}",
        f"smallest failing input: {both[1].what}",
        "fails for every n tried",
    ]


def test_a_quoted_line_is_cut_to_the_terminal() -> None:
    line = "sum += u >= 0 && u < width ? in[v * width + u] : 0;"
    found = Finding("race", "A race.", where="x.cu:12", line=line)
    gradebook = book(("x.cu", [correct("correct[n=1]", "failed", found)]))
    with as_wide_as(60):
        assert f"      12 | {line[:46]}..." in report(gradebook).splitlines()
    assert f"      12 | {line}" in report(gradebook).splitlines()


def test_the_command_for_the_smallest_input_fits_the_terminal_and_runs_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "--case 'n=1' --n 1 --in '0*256, 1*256, 2*256' --seed 1506445825"
    smallest = SmallestInput("n = 1", "", f"gpulab explain x.cu {options}")
    found = Finding("wrong-result", "out[0] is 0", smallest=smallest)
    gradebook = book(("exercises/x.cu", [correct("correct[n=1]", "failed", found)]))
    gradebook.root = tmp_path

    def shown(columns: int = 60) -> str:
        with as_wide_as(columns):
            lines = report(gradebook).partition("      run it: ")[2].splitlines()
        length = 1 + next(at for at, line in enumerate(lines) if not line.endswith("\\"))
        assert all(len(line) <= columns for line in lines[1:length]) and len(lines[0]) <= columns - 14
        assert length == (2 if columns == 60 else 1), "a wide terminal needs one line"
        command = "\n".join(lines[:length])
        return subprocess.run(
            ["sh", "-c", f"printf '%s|' {command}"], capture_output=True, text=True, check=True
        ).stdout

    words = "--case|n=1|--n|1|--in|0*256, 1*256, 2*256|--seed|1506445825|"
    assert shown() == shown(160) == f"gpulab|explain|x.cu|{words}"  # no such file
    file = tmp_path / "exercises" / "x.cu"
    file.parent.mkdir()
    file.touch()
    monkeypatch.chdir(tmp_path)
    assert shown() == f"gpulab|explain|exercises/x.cu|{words}"
    monkeypatch.chdir(file.parent)
    assert shown() == f"gpulab|explain|x.cu|{words}"


def test_several_files_that_are_not_started_are_one_list_unless_verbose() -> None:
    todo = Finding("not-started", "`sum` still has its GPULAB_TODO line.", "sum.cu:4", hint="Write the kernel.")
    idle = [correct("compile", "not started", todo)]
    begun = ("c.cu", [correct()])
    assert report(book(("a.cu", idle), begun, ("b.cu", idle))).splitlines()[-5:] == [
        "c           passed    10/10",
        "== gpulab: not started",
        "a.cu",
        "b.cu",
        "hint: Write the code, then delete the file's GPULAB_TODO lines. -v shows them.",
    ]
    assert report(book(("a.cu", idle), ("b.cu", idle))).startswith("== gpulab: not started\na.cu\nb.cu\n")
    shown = "  not started compile: not-started: `sum` still has its GPULAB_TODO line. (sum.cu:4)"
    for alone in report(book(("a.cu", idle), begun)), report(book(("a.cu", idle), ("b.cu", idle)), verbosity=1):
        assert shown in alone.splitlines() and "== gpulab: not started" not in alone


def test_a_hint_is_given_once() -> None:
    checks = [
        correct(f"correct[n={n}]", "failed", Finding("wrong-result", f"out[{n}] is 0", hint="Use paper."))
        for n in range(3)
    ]
    text = report(book(("x.cu", [speed(0.64, "missed"), *checks]), ("y.cu", checks)))
    assert text.count("Use paper.") == 2, "once for each submission"


def test_the_hint_for_a_missed_bonus_is_one_line_unless_verbose() -> None:
    slow = Finding("too-slow", "1.10x over naive.cu.", hint="Limited by latency: 80 % of the time. What could it do?")
    missed = replace(speed(0.5, "missed", required=False), findings=(slow,))
    assert "      hint: Limited by latency: 80 % of the time.\n" in report(book(("x.cu", [missed])))
    assert "What could it do?" in report(book(("x.cu", [missed])), verbosity=1)
    long = replace(missed, findings=(replace(slow, hint="word " * 60),))
    (hint,) = [line for line in report(book(("x.cu", [long]))).splitlines() if "hint: " in line]
    assert hint.endswith("...") and len(hint) <= WIDTH


def test_the_output_of_a_kernel_that_passed_is_announced_and_shown_if_asked() -> None:
    checks = [replace(correct(f"correct[n={n}]"), printed=f"n is {n}\n") for n in range(3)]
    gradebook = book(("x.cu", checks))
    note = "x.cu\n  There is output of correct[n=0], correct[n=1], correct[n=2]; -s or -v shows it."
    assert note in report(gradebook) and "n is 2" not in report(gradebook)
    assert "There is output" not in report(gradebook, verbosity=-1)
    for shown in (sections(gradebook, 1), sections(gradebook, 0, with_output=True)):
        lines = [line for title, lines in shown if title == "gpulab: findings" for line in lines]
        assert lines[-2:] == ["      output of correct[n=2]:", "        n is 2"]


def test_expected_findings_are_one_line_unless_verbose() -> None:
    gradebook = book(("x.cu", [speed(0.64, "failed")]), expected=("speedup[1.5x]",))
    assert "  expected speedup[1.5x]: too-slow: 1.10x over naive.cu.\n" in report(gradebook)
    assert "interval" not in report(gradebook)
    assert "interval" in report(gradebook, verbosity=1)


def test_quiet_leaves_the_tables_and_the_first_finding() -> None:
    missed = speed(0.64, "missed", threshold=9, required=False)
    text = report(book(("x.cu", [*wrong_results(4), speed(0.64, "passed"), missed])), verbosity=-1)
    assert text.count("FAILED") == 1 and "missed speedup" not in text and "failed" in text


def test_failure_text_shows_a_shared_message_once() -> None:
    shown: set[Finding] = set()
    assert failure_text((NO_COMPILE,), shown) == (
        "compile-error: does not compile\n  at x.cu:4\n  x.cu(4): error: expected a ;\n  hint: Read it."
    )
    assert failure_text((NO_COMPILE,), shown) == "compile-error: does not compile\n  (details above)"


def test_the_failure_text_of_a_check_that_was_not_gradable_is_one_line() -> None:
    finding = replace(not_graded(NO_COMPILE, "compile"), where="x.cu:4")
    one_line = "compile-error: Not graded, because `compile` did not pass: does not compile"
    shown: set[Finding] = set()
    assert [failure_text((finding,), shown) for _ in range(2)] == [one_line, one_line]

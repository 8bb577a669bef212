"""The tables and findings, from grades made by hand: figures, marks, widths, grouping, verbosity."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Measurement, Provenance, SmallestInput, Verdict
from pytest_gpulab.reports.gradebook import Gradebook, result_properties
from pytest_gpulab.reports.terminal.sections import failure_text, footnotes, sections
from pytest_gpulab.reports.terminal.table import short_names
from pytest_gpulab.reports.terminal.text import WIDTH, as_wide_as

PROVENANCE = Provenance("simulated GPU", "simulated", "sm_90", "NVRTC 13", 7, "1", "0.1.0", "0" * 64)
TOO_SLOW = Finding("too-slow", "1.10x over naive.cu.", evidence=("interval 1.09 to 1.11",), hint="Mind the addresses.")
NO_COMPILE = Finding("compile-error", "does not compile", "x.cu:4", ("x.cu(4): error: expected a ;",), "Read it.")


def speed(
    elapsed_ms: float,
    verdict: Verdict = "passed",
    threshold: float = 1.5,
    required: bool = True,
    estimated: bool = True,
    bandwidth_gb_s: float | None = 414.0,
    baseline: str = "naive.cu",
) -> CheckResult:
    points = 20.0 if verdict == "passed" else 0.0
    findings = () if verdict == "passed" else (TOO_SLOW,)
    speedup = 0.64 / elapsed_ms
    figures = (elapsed_ms, 0.64, speedup, threshold, estimated, bandwidth_gb_s and bandwidth_gb_s * speedup)
    measurement = Measurement("n=65536", *figures, occupancy=0.5, registers=16, baseline=baseline)
    name = f"speedup[{threshold:g}x]"
    return CheckResult(name, "speedup", verdict, points, 20.0, findings, measurement, required)


def correct(name: str = "correct[n=1]", verdict: Verdict = "passed", finding: Finding | None = None) -> CheckResult:
    points = 10.0 if verdict == "passed" else 0.0
    return CheckResult(name, "correct", verdict, points, 10.0, (finding,) if finding else ())


def book(*grades: tuple[str, list[CheckResult]], expected: tuple[str, ...] = (), exercise: str = "sum") -> Gradebook:
    gradebook = Gradebook()
    for submission, checks in grades:
        for position, check in enumerate(checks):
            properties = result_properties(Grade(submission, exercise, (check,), PROVENANCE), position)
            gradebook.add(properties, is_expected=check.name in expected)
    return gradebook


def report(gradebook: Gradebook, verbosity: int = 0) -> str:
    parts = (line for title, lines in sections(gradebook, verbosity) for line in (f"== {title}", *lines))
    return "\n".join((*parts, *footnotes(gradebook)))


def test_the_classic_table() -> None:
    gradebook = book(
        ("solutions/sum/10_loads.cu", [correct(), speed(0.0665)]),
        ("solutions/sum/2_strided.cu", [correct(), speed(0.4)]),
        ("solutions/sum/1_modulo.cu", [correct(), speed(0.64, "failed")]),
        expected=("speedup[1.5x]",),
    )
    assert report(gradebook).splitlines()[:7] == [
        "== gpulab: sum, speed at n=65536",
        "submission  verdict   points       ms   GB/s    step   total  needs        next  occup.  regs",
        "----------  --------  ------  -------  -----  ------  ------  -----  ----------  ------  ----",
        "naive.cu    baseline           ~0.640   ~414           1.00x",
        "1_modulo    failed*    10/30   ~0.640   ~414  ~1.00x  ~1.00x   1.5x  1.5x (+20)     50%    16",
        "2_strided   passed     30/30   ~0.400   ~662  ~1.60x  ~1.60x   1.5x           -     50%    16",
        "10_loads    passed     30/30  ~0.0665  ~3984  ~6.02x  ~9.62x   1.5x           -     50%    16",
    ]


def test_estimates_are_marked_and_explained() -> None:
    text = report(book(("a.cu", [speed(0.2)])))
    row = next(line for line in text.splitlines() if line.startswith("a "))
    assert row.count("~") == 3
    legend = "\ntotal: over the baseline; needs: the total that is required; next: the next tier and its points.\n"
    assert legend in text and "step" not in text  # the only submission has no row above but the baseline
    assert "\nstep: speedup over the row above; total: " in report(book(("a.cu", [speed(0.2)]), ("b.cu", [speed(0.1)])))
    assert text.endswith("~ estimated by a cost model of the GPU: an estimate, never a measurement.")
    assert "~" not in report(book(("a.cu", [speed(0.2, estimated=False)])))


def test_the_rows_figures_come_from_the_required_tier_against_the_naive_kernel() -> None:
    tiers = [
        replace(speed(0.2, threshold=3, baseline="blelloch.cu"), name="speedup[3x blelloch]"),
        speed(0.2, "missed", threshold=9, required=False),
        speed(0.2, threshold=2),
    ]
    lines = report(book(("a.cu", tiers))).splitlines()
    assert lines[5].split()[3:9] == ["~0.200", "~1325", "~3.20x", "2x", "9x", "(+20)"]
    assert not any(line.startswith("+ 9x") for line in lines)


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
    assert rows[1][2] == "~0.300" and rows[3][2:] == ["~0.200", "~1325", "~1.50x", "4x", "4x", "(+20)", "50%", "16"]


def test_the_next_tier_is_the_lowest_one_that_was_missed() -> None:
    tiers = [speed(0.4, "missed", 4), speed(0.4, "missed", 2), speed(0.4, threshold=1.4)]
    extra = replace(speed(0.5, "missed", 9), max_points=0.0)
    wrong = [correct("correct[n=1]", "failed", NO_COMPILE)]
    lines = report(book(("a.cu", tiers), ("b.cu", [extra]), ("c.cu", wrong))).splitlines()
    at = lines[1].index("next") + len("next")
    assert [line[:at].split("  ")[-1].strip() for line in lines[4:7]] == ["2x (+20)", "9x", "-"]


def test_further_variants_and_baselines_have_their_own_rows() -> None:
    eight = replace(speed(0.2, threshold=3), name="speedup[3x eight-way]")
    more_of_the_same = speed(0.4, threshold=9)
    faster = replace(speed(0.1, threshold=3), name="speedup[3x eight-way]")
    gradebook = book(("a.cu", [speed(0.4), eight, more_of_the_same]), ("b.cu", [speed(0.4), faster]))
    rows = [(line[:11].rstrip(), *line[11:].split()) for line in report(gradebook).splitlines()[3:9]]
    assert rows == [
        ("naive.cu", "baseline", "~0.640", "~414", "1.00x"),
        ("+ eight-way", "~0.640", "~414", "1.00x"),
        ("a", "passed", "60/60", "~0.400", "~662", "~1.60x", "~1.60x", "1.5x", "50%", "16"),
        ("+ eight-way", "~0.200", "~1325", "~3.20x", "~3.20x", "3x", "50%", "16"),
        ("b", "passed", "40/40", "~0.400", "~662", "~1.00x", "~1.60x", "1.5x", "50%", "16"),
        ("+ eight-way", "~0.100", "~2650", "~2.00x", "~6.40x", "3x", "50%", "16"),
    ]


def test_a_row_without_the_headlines_time_says_so() -> None:
    eight = replace(speed(0.2, threshold=3, required=False), name="speedup[3x eight-way]")
    gradebook = book(("a.cu", [eight]), ("b.cu", [replace(speed(0.4), name="speedup[1.5x two-way]"), eight]))
    rows = [line.split()[:4] for line in report(gradebook).splitlines()[3:9]]
    assert rows == [
        ["naive.cu", "baseline", "~0.640", "~414"],
        ["+", "eight-way", "~0.640", "~414"],
        ["a", "passed", "20/20", "-"],
        ["+", "eight-way", "~0.200", "~1325"],
        ["b", "passed", "40/40", "~0.400"],
        ["+", "eight-way", "~0.200", "~1325"],
    ]


def test_unknown_figures() -> None:
    lines = report(book(("a.cu", [speed(0.4, bandwidth_gb_s=None)]), ("b.cu", [correct()]))).splitlines()
    assert lines[3].split()[-5:] == ["~0.640", "n/a", "1.00x"] or "n/a" in lines[3]
    assert lines[4].split()[4] == "n/a"
    assert lines[5].split() == ["b", "passed", "10/10", *"-------"]


@pytest.mark.parametrize(
    ("verdicts", "overall"),
    [
        (["passed", "missed"], "passed"),
        (["passed", "not started"], "not started"),
        (["inconclusive", "not started"], "inconclusive"),
        (["inconclusive", "not gradable"], "not gradable"),
        (["not gradable", "failed"], "failed"),
    ],
)
def test_a_submissions_verdict_is_its_worst(verdicts: list[Verdict], overall: str) -> None:
    checks = [correct(f"correct[n={n}]", verdict) for n, verdict in enumerate(verdicts)]
    row = report(book(("a.cu", checks))).splitlines()[3]
    assert row[3:].strip().startswith(overall)


@pytest.mark.parametrize(("verdict", "told"), [("passed", "incomplete"), ("failed", "failed")])
def test_a_submission_with_checks_that_were_not_run_has_not_passed(verdict: Verdict, told: str) -> None:
    """As when a time limit or -x stopped the run."""
    gradebook = Gradebook()
    grade = Grade("x/reduction.cu", "reduction", (correct(verdict=verdict, finding=TOO_SLOW),), PROVENANCE)
    gradebook.add(result_properties(grade, 0, 33))
    ((_, (*_, row)), *_) = sections(gradebook, -1)
    assert row.split()[:2] == ["reduction", told]
    assert next(footnotes(gradebook)) == (
        "Only some checks were run, and the points are those of these checks: x/reduction.cu (1 of 33 checks)."
    )


def test_a_failure_beyond_the_expected_ones_takes_the_asterisk_away() -> None:
    checks = [correct("correct[n=1]", "failed", NO_COMPILE), speed(0.64, "failed")]
    text = report(book(("a.cu", checks), expected=("speedup[1.5x]",)))
    assert "failed*" not in text and "* fails as" in text


def test_long_names_do_not_widen_the_report() -> None:
    name = "submissions/" + "a_very_long_name_" * 12 + "end.cu"
    slow = Finding("too-slow", "word " * 60, hint="word " * 60)
    gradebook = book((name, [speed(0.0123456, "failed"), correct("c" * 20, "failed", slow)]), ("b.cu", [speed(0.5)]))
    lines = [line for line in report(gradebook).splitlines() if line != name]
    assert max(map(len, lines)) <= WIDTH
    assert any(line.startswith("..") and "name_end " in line for line in lines)


def test_short_names_leave_out_the_common_folder() -> None:
    assert short_names(["s/alice/sum.cu", "s/bob/sum.cu"]) == ["alice/sum", "bob/sum"]
    assert short_names(["s/sum/1_a.cu", "s/sum/2_b.cu"]) == ["1_a", "2_b"]
    assert short_names(["sum.cu"]) == ["sum"]
    assert short_names(["/tmp/sum.cu", "s/sum.cu"]) == ["/tmp/sum", "s/sum"]


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


def test_the_command_for_the_smallest_input_is_one_line_that_runs_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smallest = SmallestInput("n = 1", "", "gpulab explain x.cu --n 1 --in '0*256, 1*256, 2*256, 3*256, 4*256, 5*256'")
    found = Finding("wrong-result", "out[0] is 0", smallest=smallest)
    gradebook = book(("exercises/x.cu", [correct("correct[n=1]", "failed", found)]))
    gradebook.root = tmp_path
    options = "--n 1 --in '0*256, 1*256, 2*256, 3*256, 4*256, 5*256'"
    with as_wide_as(60):
        assert f"\n      run it: gpulab explain x.cu {options}" in report(gradebook)  # no such file
        file = tmp_path / "exercises" / "x.cu"
        file.parent.mkdir()
        file.touch()
        monkeypatch.chdir(tmp_path)
        assert f"\n      run it: gpulab explain exercises/x.cu {options}" in report(gradebook)
        monkeypatch.chdir(file.parent)
        assert f"\n      run it: gpulab explain x.cu {options}" in report(gradebook)


def test_several_files_that_are_not_started_are_one_list_unless_verbose() -> None:
    todo = Finding("not-started", "`sum` still has its GPULAB_TODO line.", "sum.cu:4", hint="Write the kernel.")
    idle = [correct("compile", "not started", todo)]
    begun = ("c.cu", [correct()])
    assert report(book(("a.cu", idle), begun, ("b.cu", idle))).splitlines()[-5:] == [
        "c           passed    10/10   -     -      -      -       -     -",
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
    note = "x.cu\n  The kernel printed in correct[n=0], correct[n=1], correct[n=2]; -s or -v shows it."
    assert note in report(gradebook) and "n is 2" not in report(gradebook)
    assert "The kernel printed" not in report(gradebook, verbosity=-1)
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


def test_exercises_have_a_table_each() -> None:
    gradebook = book(("a.cu", [correct()]), exercise="sum")
    gradebook.add(result_properties(Grade("b.cu", "scan", (correct(),), PROVENANCE), 0))
    titles = [title for title, _ in sections(gradebook, 0)]
    assert titles == ["gpulab: scan", "gpulab: sum"]


def test_failure_text_shows_a_shared_message_once() -> None:
    shown: set[Finding] = set()
    assert failure_text((NO_COMPILE,), shown) == (
        "compile-error: does not compile\n  at x.cu:4\n  x.cu(4): error: expected a ;\n  hint: Read it."
    )
    assert failure_text((NO_COMPILE,), shown) == "compile-error: does not compile\n  (details above)"


def test_failure_text_of_what_could_not_be_graded_is_one_line() -> None:
    finding = replace(not_graded(NO_COMPILE, "compile"), where="x.cu:4")
    one_line = "compile-error: Not graded, because `compile` did not pass: does not compile"
    shown: set[Finding] = set()
    assert [failure_text((finding,), shown) for _ in range(2)] == [one_line, one_line]

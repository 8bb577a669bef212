"""The table of the terminal report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reported import NO_COMPILE, PROVENANCE, TOO_SLOW, book, correct, report, speed

from pytest_gpulab.grading.grade import Finding, Grade, Verdict
from pytest_gpulab.reports.gradebook import Gradebook, result_properties
from pytest_gpulab.reports.terminal.sections import footnotes, sections
from pytest_gpulab.reports.terminal.table import short_names
from pytest_gpulab.reports.terminal.text import WIDTH, as_wide_as


def test_the_classic_table() -> None:
    gradebook = book(
        ("solutions/sum/10_loads.cu", [correct(), speed(0.0665)]),
        ("solutions/sum/2_strided.cu", [correct(), speed(0.4)]),
        ("solutions/sum/1_modulo.cu", [correct(), speed(0.64, "failed")]),
        expected=("speedup[1.5x]",),
    )
    assert report(gradebook).splitlines()[:7] == [
        "== gpulab: sum, speed at n=65536",
        "submission  verdict   points       ms   GB/s    step   total        next  occup.  regs",
        "----------  --------  ------  -------  -----  ------  ------  ----------  ------  ----",
        "naive.cu    baseline           ~0.640   ~414           1.00x",
        "1_modulo    failed*    10/30   ~0.640   ~414  ~1.00x  ~1.00x  1.5x (+20)     50%    16",
        "2_strided   passed     30/30   ~0.400   ~662  ~1.60x  ~1.60x           -     50%    16",
        "10_loads    passed     30/30  ~0.0665  ~3984  ~6.02x  ~9.62x           -     50%    16",
    ]


def test_estimates_are_marked_and_explained() -> None:
    text = report(book(("a.cu", [speed(0.2)])))
    row = next(line for line in text.splitlines() if line.startswith("a "))
    assert row.count("~") == 3
    assert "\ntotal: over the baseline.\n" in text
    assert "step" not in text  # the only submission has no row above but the baseline
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
    assert lines[5].split()[3:9] == ["~0.200", "~1325", "~3.20x", "9x", "(+20)", "50%"]
    assert not any(line.startswith("+ 9x") for line in lines)


def test_a_wide_terminal_has_room_for_the_word_points() -> None:
    grades = book(("a.cu", [speed(0.2, "missed", threshold=9, required=False)]))
    with as_wide_as(119):
        assert " 9x (+20) " in report(grades)
    with as_wide_as(120):
        assert " 9x (+20 points) " in report(grades)


def test_further_variants_and_baselines_have_their_own_rows() -> None:
    eight = replace(speed(0.2, threshold=3), name="speedup[3x eight-way]")
    more_of_the_same = speed(0.4, threshold=9)
    faster = replace(speed(0.1, threshold=3), name="speedup[3x eight-way]")
    gradebook = book(("a.cu", [speed(0.4), eight, more_of_the_same]), ("b.cu", [speed(0.4), faster]))
    rows = [(line[:11].rstrip(), *line[11:].split()) for line in report(gradebook).splitlines()[3:9]]
    assert rows == [
        ("naive.cu", "baseline", "~0.640", "~414", "1.00x"),
        ("+ eight-way", "~0.640", "~414", "1.00x"),
        ("a", "passed", "60/60", "~0.400", "~662", "~1.60x", "~1.60x", "50%", "16"),
        ("+ eight-way", "~0.200", "~1325", "~3.20x", "~3.20x", "50%", "16"),
        ("b", "passed", "40/40", "~0.400", "~662", "~1.00x", "~1.60x", "50%", "16"),
        ("+ eight-way", "~0.100", "~2650", "~2.00x", "~6.40x", "50%", "16"),
    ]


def test_a_table_without_times_has_no_columns_for_them() -> None:
    rows = report(book(("a.cu", [correct()]), ("b.cu", [correct()]))).splitlines()[1:5]
    assert rows == [
        "submission  verdict  points",
        "----------  -------  ------",
        "a           passed    10/10",
        "b           passed    10/10",
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
    assert lines[5].split() == ["b", "passed", "10/10", *"------"]


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


def test_exercises_have_a_table_each() -> None:
    gradebook = book(("a.cu", [correct()]), exercise="sum")
    gradebook.add(result_properties(Grade("b.cu", "scan", (correct(),), PROVENANCE), 0))
    titles = [title for title, _ in sections(gradebook, 0)]
    assert titles == ["gpulab: scan", "gpulab: sum"]

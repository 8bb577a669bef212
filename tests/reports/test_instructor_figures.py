"""The figures of the instructor's report, each worked out by hand for a class of a few."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from generated_class import add

from pytest_gpulab.grading.findings import because_of
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Measurement, Provenance, Student, Verdict
from pytest_gpulab.reports.class_statistics import TOTAL, Scores, check_rates, commonest, hardest, scores
from pytest_gpulab.reports.gradebook import Gradebook, SimilarPair
from pytest_gpulab.reports.instructor.flags import BORDERLINE, IMPOSSIBLE, LIKENESS, SHARED, UNGRADABLE, flags
from pytest_gpulab.reports.instructor.ladders import ladders
from pytest_gpulab.reports.instructor.people import Cell, people
from pytest_gpulab.reports.instructor.plots import roofline_plot, score_plot, speed_plot
from pytest_gpulab.reports.instructor.speeds import Series, Threshold, all_series
from pytest_gpulab.reports.standings import exercises_of, standings

pytestmark = pytest.mark.unit

PROVENANCE = Provenance("a GPU", "cuda", "sm_90", "nvcc", 7, "1", "0.1", "0" * 64)
WRONG = Finding("wrong-result", "out[3] is 4, expected 5.", hint="Work it out by hand.")
MEASURED = Measurement("2^20", 0.5, 1.0, 2.0, 1.5, False, bandwidth_gb_s=100.0, low=1.9, high=2.1)


def check(name: str, verdict: Verdict = "passed", max_points: float = 10.0, **more: object) -> CheckResult:
    points = max_points if verdict in ("passed", "inconclusive") else 0.0
    kind = name.partition("[")[0]
    return CheckResult(name, kind, verdict, points, max_points, **more)  # type: ignore[arg-type]


def grade(student: str, exercise: str, *checks: CheckResult) -> Grade:
    return Grade(f"class/{student}/{exercise}.cu", exercise, checks, PROVENANCE, student)


def timed(**figures: object) -> CheckResult:
    return check("speedup[1.5x]", measurement=replace(MEASURED, **figures))  # type: ignore[arg-type]


def book(*grades: Grade, **more: object) -> Gradebook:
    made = Gradebook(**more)  # type: ignore[arg-type]
    for each in grades:
        add(made, each)
    return made


def test_missing_submissions_count_in_the_total_and_ungradable_checks_do_not() -> None:
    made = book(
        grade("s1", "scan", check("compile"), check("correct[1]", "failed")),
        grade("s1", "sum", check("compile"), check("correct[1]", "not gradable")),
        grade("s2", "scan", check("compile"), check("correct[1]")),
        roster=(Student("s1"), Student("s2"), Student("s3", "Ada")),
        absent=(Student("s3", "Ada"),),
    )
    one, two = standings(made, made.grades)
    assert exercises_of(made.grades) == {"scan": 20, "sum": 20}
    assert (one.earned, one.possible) == (20, 30) and (two.earned, two.possible) == (20, 40)
    found = scores(made.grades, [one, two])
    assert [(each.title, each.max_points, each.shares) for each in found] == [
        ("scan", 20, (0.5, 1.0)),
        (TOTAL, 40, (0.5,)),
    ]


def test_a_submission_without_a_student_misses_no_exercise() -> None:
    made = book(replace(grade("", "scan", check("compile")), submission="a/scan.cu"), grade("s1", "sum", timed()))
    nobodys = next(each for each in standings(made, made.grades) if each.row.student.id == "a/scan.cu")
    assert nobodys.possible == 10


def test_a_student_with_only_a_file_of_no_exercise_misses_all_exercises() -> None:
    made = book(grade("s1", "scan", check("compile")), owners={"s2/skan.cu": "s2"})
    made.ungraded["s2/skan.cu"] = Finding("no-exercise", "belongs to no exercise")
    assert [(each.earned, each.possible) for each in standings(made, made.grades)] == [(10, 10), (0, 10)]


def test_a_distribution_in_tenths() -> None:
    shares = (0.0, 0.1, 0.29, 0.3, 0.5, 0.95, 1.0, 1.0)
    found = Scores("scan", 100, shares)
    assert found.histogram == (1, 1, 1, 1, 0, 1, 0, 0, 0, 3)
    assert found.quartiles == pytest.approx((0.2425, 0.4, 0.9625))
    assert (found.full, found.below_half) == (2, 4) and found.mean == pytest.approx(0.5175)
    assert Scores("scan", 100, (0.4,)).quartiles == (0.4, 0.4, 0.4)
    assert Scores("scan", 100, (0.7,) * 3).histogram[7] == 3  # 0.7 * 10 is a little less than 7


def test_a_pass_rate_counts_submissions_that_reached_the_check() -> None:
    name = "correct[1]"
    made = [
        grade("s1", "scan", check(name)),
        grade("s2", "scan", check(name, "failed", findings=(WRONG,))),
        grade("s3", "scan", check(name, "failed", findings=(because_of("compile", WRONG),))),
        grade("s4", "scan", check(name, "not gradable", findings=(WRONG,))),
        grade("s5", "scan", check(name, "not started", findings=(WRONG,))),
        grade("s6", "scan", check(name, "inconclusive", findings=(WRONG,))),
        grade("s7", "scan", check(name, "missed", findings=(WRONG,))),
    ]
    (rate,) = check_rates(made)
    assert (rate.passed, rate.failed, rate.inconclusive, rate.not_reached, rate.not_gradable) == (1, 2, 1, 2, 1)
    assert rate.decided == 4 and rate.rate == 0.25


def test_the_hardest_checks_come_first_and_those_all_passed_not_at_all() -> None:
    failed = check("b", "failed", findings=(WRONG,))
    made = [
        grade("s1", "scan", check("a"), failed, check("c", "missed", required=False, findings=(WRONG,))),
        grade("s2", "scan", check("a"), failed, check("c", required=False)),
    ]
    rates = check_rates(made)
    assert [(each.name, each.required, each.rate) for each in hardest(rates, 9)] == [("b", True, 0), ("c", False, 0.5)]
    assert len(hardest(rates, 1)) == 1


def test_a_finding_counts_once_a_submission_and_no_consequences() -> None:
    race = Finding("race", "Two threads.")
    made = [
        grade("s1", "scan", check("a", "failed", findings=(WRONG,)), check("b", "failed", findings=(WRONG, race))),
        grade("s2", "sum", check("a", "failed", findings=(WRONG,))),
        grade("s3", "sum", check("a", "missed", findings=(race,)), check("b", "inconclusive", findings=(race,))),
        grade("s4", "sum", check("b", "failed", findings=(because_of("a", race),))),
    ]
    first, second = commonest(made, 9)
    assert (first.code, first.submissions, first.exercises) == ("wrong-result", 2, ("scan", "sum"))
    assert first.example == WRONG.what and (second.code, second.submissions) == ("race", 1)
    assert [each.code for each in commonest(made, 1)] == ["wrong-result"]


def test_a_ladder_starts_from_the_baseline_and_tells_each_steps_speedup() -> None:
    names = {"1": 1.0, "2": 2.0, "10": 8.0}
    steps = [
        replace(grade("", "scan", timed(elapsed_ms=1 / up, speedup=up)), submission=f"scan/{name}.cu")
        for name, up in names.items()
    ]
    alone = grade("s1", "scan", timed())
    (ladder,) = ladders([*steps, alone])
    assert [(step.name, step.step, step.measurement.speedup) for step in ladder.steps] == [
        ("naive.cu", None, 1.0),
        ("1", 1.0, 1.0),
        ("2", 2.0, 2.0),
        ("10", 4.0, 8.0),
    ]
    assert ladder.steps[0].measurement.bandwidth_gb_s == pytest.approx(100.0)
    assert [step.verdict for step in ladder.steps] == ["", "passed", "passed", "passed"]
    assert (ladder.exercise, ladder.label, ladder.size, ladder.estimated) == ("scan", "", "2^20", False)


def test_marks_are_labelled_by_student_or_by_the_distinct_part_of_the_path() -> None:
    nobodys = [replace(grade("", "scan", timed()), submission=f"class/{name}/scan.cu") for name in ("ada", "bob")]
    (series,) = all_series([*nobodys, grade("s1", "scan", timed()), grade("s2", "scan", timed())])
    names = {"s1": "Ada Lovelace", "s2": ""}
    drawing = speed_plot(series, "speed", names)
    (axis,) = drawing.figure.axes
    called = ["ada/scan", "bob/scan", "Ada Lovelace", "s2"]
    assert [label.get_text() for label in axis.get_yticklabels()] == called
    tips = [tip for group in drawing.tips.values() for tip in group]
    assert [tip.partition(":")[0] for tip in tips] == called
    roofline = roofline_plot([with_roof(series)], names)
    assert roofline is not None
    assert [tip.partition(":")[0] for tip in roofline.tips["roof-points-0"]] == called


def with_roof(series: Series) -> Series:
    points = (replace(each, measurement=replace(each.measurement, peak_bandwidth_gb_s=900.0)) for each in series.points)
    return replace(series, points=tuple(points))


def test_titles_of_histograms_do_not_meet() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # takes longer than most files of unit tests
    from matplotlib.text import Text

    drawing = score_plot([Scores("a_long_name_of_an_exercise", 100, (0.1, 0.65))] * 4)
    FigureCanvasAgg(drawing.figure).draw()
    titles = [axis.get_title(loc="left") for axis in drawing.figure.axes]
    boxes = [text.get_window_extent() for text in drawing.figure.findobj(Text) if text.get_text() in titles]
    assert len(boxes) == 4 and all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_steps_at_different_sizes_are_not_compared() -> None:
    steps = [
        replace(grade("", "scan", timed(size=size)), submission=f"scan/{size}.cu") for size in ("2^20", "2^21", "2^22")
    ]
    (ladder,) = ladders(steps)
    assert [step.step for step in ladder.steps] == [None, 2.0, None, None]


def test_a_class_is_no_ladder() -> None:
    made = [grade(f"s{number}", "scan", timed()) for number in range(3)]
    assert not list(ladders(made))


def test_speedups_stand_beside_all_that_is_asked_of_them() -> None:
    other = replace(MEASURED, baseline="blelloch.cu", threshold=1.1, speedup=1.2)
    bonus = check("speedup[3x]", "missed", required=False, measurement=replace(MEASURED, threshold=3.0))
    estimated = check("speedup[3x two-way]", measurement=replace(MEASURED, elapsed_ms=0.1, estimated=True))
    made = [
        grade("s1", "scan", timed(), bonus, estimated, check("speedup[1.1x blelloch]", measurement=other)),
        grade("s2", "scan", timed(elapsed_ms=0.25, speedup=4.0)),
    ]
    plain, two_way, blelloch = all_series(made)
    assert blelloch.title == "scan, blelloch"
    assert (plain.title, two_way.title) == ("scan", "scan, two-way") and two_way.estimated and not plain.estimated
    assert plain.thresholds == (Threshold(1.5, True), Threshold(3.0, False))
    assert [(point.speedup, point.interval) for point in plain.points] == [(2.0, (1.9, 2.1)), (4.0, (1.9, 2.1))]


def test_an_estimate_from_a_sample_may_err_by_two_standard_errors() -> None:
    estimate = timed(low=None, high=None, estimated=True, sampling_error_pct=5.0)
    ((point,),) = (series.points for series in all_series([grade("s1", "scan", estimate)]))
    assert point.interval == pytest.approx((1.8, 2.2))


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), 0.0])
def test_points_that_cannot_be_drawn_are_left_out(figure: float) -> None:
    assert all_series([grade("s1", "scan", timed(elapsed_ms=figure))]) == []
    (series,) = all_series([grade("s1", "scan", timed(peak_bandwidth_gb_s=figure))])
    assert series.with_bandwidth == ()


@pytest.mark.parametrize(
    ("figures", "verdict", "told"),
    [
        ({"low": 1.4, "high": 1.6, "speedup": 1.52}, "inconclusive", "inconclusive with 1.520x (1.400x to 1.600x)"),
        ({"low": 1.51, "high": 1.53, "speedup": 1.52}, "passed", "passed with 1.520x (1.510x to 1.530x)"),
        ({"low": None, "high": None, "speedup": 1.49}, "failed", "failed with 1.490x"),
        ({"low": 1.9, "high": 2.1, "speedup": 2.0}, "passed", None),
        ({"low": 1.4, "high": 1.6, "speedup": 1.5}, "not gradable", None),
    ],
)
def test_a_verdict_near_its_threshold_is_flagged(
    figures: dict[str, float | None], verdict: Verdict, told: str | None
) -> None:
    result = replace(timed(**figures), verdict=verdict)
    found = [flag for flag in flags(Gradebook(), [grade("s1", "scan", result)]) if flag.kind == BORDERLINE]
    assert [flag.what for flag in found] == ([f"speedup[1.5x] {told}"] if told else [])


def test_everything_odd_is_flagged_worst_first() -> None:
    impossible = Finding("impossible-time", "Faster than the memory.")
    fault = Finding("device-fault", "The device failed.")
    one = grade(
        "s1",
        "scan",
        check("speedup[2x]", "failed", findings=(impossible,)),
        check("speedup[3x]", "failed", findings=(impossible,)),
        *(check(f"correct[{n}]", "not gradable", findings=(fault,)) for n in range(5)),
        timed(shared_with=("a game", "a browser")),
    )
    two = grade("s2", "scan", check("compile", "not gradable", findings=(fault,)))
    alike = SimilarPair("scan", ("class/s1/scan.cu", "class/s2/scan.cu"), 0.974)
    found = flags(book(one, two, duplicates=(alike,)), [one, two])
    assert [(flag.kind, flag.what) for flag in found] == [
        (IMPOSSIBLE, "Faster than the memory."),
        (LIKENESS, "97 % alike"),
        (UNGRADABLE, "correct[0], correct[1], correct[2] and 2 more"),
        (UNGRADABLE, "all checks"),
        (SHARED, "a browser, a game"),
    ]
    assert found[1].submissions == alike.submissions


def test_sources_that_hang_together_are_one_flag() -> None:
    pairs = [("d", "e", 0.9), ("a", "b", 0.95), ("b", "c", 0.91), ("e", "a", 0.9), ("x", "y", 1.0)]
    alike = [SimilarPair("scan", (one, other), similarity) for one, other, similarity in pairs]
    other = SimilarPair("sum", ("a", "b"), 0.99)
    assert [(flag.exercise, flag.submissions, flag.what) for flag in flags(book(duplicates=(*alike, other)), [])] == [
        ("scan", ("x", "y"), "100 % alike"),
        ("scan", ("a", "b", "c", "d", "e"), "90 to 95 % alike"),
        ("sum", ("a", "b"), "99 % alike"),
    ]
    crowd = tuple(SimilarPair("scan", (f"s{n}", f"s{m}"), 1.0) for n in range(200) for m in range(n))
    (flag,) = flags(book(duplicates=crowd), [])
    assert len(flag.submissions) == 200


def test_students_are_listed_by_name_and_searchable_by_result() -> None:
    one = grade("s1", "scan", check("a", "failed", findings=(WRONG,)), check("b", "missed", findings=(WRONG,)))
    two = [replace(grade("", "sum", check("a")), submission=f"my/files/{name}.cu") for name in "xy"]
    made = book(one, *two, roster=(Student("s1", "Ada"),), owners={"s9/odd.cu": "s9"})
    made.ungraded["s9/odd.cu"] = Finding("no-exercise", "No exercise is called odd.")
    found = flags(book(duplicates=(SimilarPair("scan", (one.submission, "other.cu"), 0.9),)), [])
    persons = people(standings(made, made.grades), ["scan", "sum"], found, (), interrupted=False)
    assert [person.called for person in persons] == ["x", "y", "Ada", "s9"]
    assert [person.flags for person in persons] == [(), (), tuple(found), ()]
    assert [person.words for person in persons] == [
        "passed",
        "passed",
        "failed near-identical sources wrong-result",
        "no-exercise",
    ]
    one, other = persons[2].cells
    assert isinstance(one, Cell) and (one.verdict, other) == ("failed", "not handed in")
    assert len({person.place for person in persons}) == 4

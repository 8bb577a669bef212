"""Grades as hypothesis makes them up: any texts and points, verdicts that fit them, NumPy scalars among the figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Measurement, Provenance, Student, Verdict
from pytest_gpulab.reports.gradebook import Gradebook, result_properties

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ['=HYPERLINK("http://x","y")', "+1", "a;=1+1", "<script>alert(1)</script>", "\x1b[2J", "‮", "\ud800", "", "a\nb"]
    ),
)
VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "missed", "inconclusive", "not gradable", "not started")
PROVENANCE = Provenance("a GPU", "cuda", "sm_90", "NVRTC", 1, "1", "0.1", "0" * 64)
FIGURES = st.floats(allow_nan=True, allow_infinity=True)
POINTS = st.one_of(
    st.integers(0, 100), st.floats(0, 100), st.floats(0, 100, width=32).map(np.float32), st.just(100 / 3)
)


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    evidence = tuple(draw(st.lists(TEXTS, max_size=3)))
    because = draw(st.sampled_from(["", "compile", "correct[0]", "correct[elsewhere]"]))
    hidden = draw(st.booleans())
    code = draw(st.sampled_from(["wrong-result", "race", "cannot-simulate"]))
    return Finding(code, draw(TEXTS), "a.cu:3", evidence, "Think.", because, hidden=hidden and because != "compile")


@st.composite
def checks(draw: st.DrawFn, number: int) -> CheckResult:
    verdict = draw(st.sampled_from(VERDICTS))
    possible = draw(POINTS)
    earned = possible if verdict in ("passed", "inconclusive") else 0.0
    found = () if verdict == "passed" else tuple(draw(st.lists(findings(), min_size=1, max_size=2)))
    hidden = draw(st.booleans())
    kind = "correct" if hidden else "speedup"
    measurement = None
    if not hidden and draw(st.booleans()):
        measurement = Measurement("n", draw(FIGURES), 1.0, np.float64(2), 1.5, True, shared_with=("bob's job",))
    return CheckResult(
        f"{kind}[{number}]", kind, verdict, earned, possible, found, measurement,  # type: ignore[arg-type]
        required=draw(st.booleans()), duration_s=draw(st.floats(0, 100)), printed=draw(TEXTS), hidden=hidden,
    )  # fmt: skip


@st.composite
def grades(draw: st.DrawFn, exercise: str = "scan", student: str = "s1") -> Grade:
    results = tuple(draw(checks(number)) for number in range(draw(st.integers(1, 4))))
    return Grade(f"{student}/{exercise}.cu", exercise, results, PROVENANCE, student)


@st.composite
def one_students_books(draw: st.DrawFn) -> Gradebook:
    exercises = draw(st.lists(st.sampled_from(["scan", "sum", "paths"]), min_size=1, max_size=2, unique=True))
    return book(*(draw(grades(exercise)) for exercise in exercises))


@st.composite
def class_books(draw: st.DrawFn) -> Gradebook:
    students = draw(st.lists(TEXTS.filter(bool), max_size=3, unique=True))
    made = book(*(draw(grades(student=student)) for student in students))
    absent = tuple(Student(f"absent {number}", draw(TEXTS)) for number in range(draw(st.integers(0, 2))))
    made.roster = (*absent, *(Student(student, draw(TEXTS)) for student in students))
    made.absent = absent
    for number in range(draw(st.integers(0, 2))):
        made.ungraded[f"file {number}"] = Finding(
            draw(st.sampled_from(["no-exercise", "broken-exercise"])), draw(TEXTS)
        )
    return made


def book(*given: Grade) -> Gradebook:
    """Put grades into a gradebook as a run does, check by check."""
    made = Gradebook()
    for grade in given:
        for position, check in enumerate(grade.checks):
            made.add(result_properties(replace(grade, checks=(check,)), position))
    return made

"""A class's near-identical sources are in the reports, and are no finding of anybody's."""

from __future__ import annotations

import json

import pytest
from course import RIGHT, Course

pytestmark = pytest.mark.usefixtures("no_plots")
ROUNDS = "\n".join(f"    value = (value ^ {k}) * {2 * k + 1} - (value >> {k});" for k in range(1, 12))
HELPER = f"""
// Mixes.
__device__ int mixed(int value) {{
{ROUNDS}
    return value;
}}
"""


def test_two_folders_of_one_student_are_neither_alike_nor_counted_twice(course: Course) -> None:
    course.write("roster.csv", "id,folder\nann,ann\nbob,bob\n")
    for folder in ("ann", "hw-ann", "bob"):
        course.write(f"handed_in/{folder}/twice.cu", (RIGHT if folder == "bob" else RIGHT + HELPER))
    options = ("--gpulab-submissions=handed_in", "--gpulab-workers=1", "--gpulab-store=kept")
    result = course.grade(*options, "--gpulab-roster=roster.csv", "--gpulab-report=json:grades.json")
    assert json.loads((course.folder / "grades.json").read_text())["duplicates"] == []
    result.stdout.fnmatch_lines(["exercise * graded *", "twice *  2  *"])
    result.stdout.no_fnmatch_line("*near-identical*")


def test_a_renamed_copy_is_reported_for_both_and_costs_no_points(course: Course) -> None:
    copy = HELPER.replace("value", "x").replace("mixed", "helper").replace("// Mixes.", "/* Mine. */")
    for student, source in (("ann", RIGHT + HELPER), ("bob", copy + RIGHT), ("cem", RIGHT), ("dora", RIGHT)):
        course.write(f"handed_in/{student}/twice.cu", source)
    reports = ("--gpulab-report=json:grades.json", "--gpulab-report=html:report.html")
    result = course.grade("--gpulab-submissions=handed_in", "--gpulab-workers=1", "--gpulab-store=kept", *reports)
    document = json.loads((course.folder / "grades.json").read_text())
    (found,) = document["duplicates"]
    assert (found["exercise"], found["submissions"]) == ("twice", ["ann/twice.cu", "bob/twice.cu"])
    assert 0.7 <= found["similarity"] <= 1
    assert found["lines"] == [[[3, 4], [8, 20]], [[3, 15], [19, 20]]]
    told = "* % alike: ann/twice.cu:3-4, 8-20 and bob/twice.cu:3-15, 19-20"
    result.stdout.fnmatch_lines(["*gpulab: near-identical sources*", told])
    assert len({grade["points"] for grade in document["grades"]}) == 1
    assert "% alike" in (course.folder / "report.html").read_text()

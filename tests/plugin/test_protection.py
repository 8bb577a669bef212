"""Which protection strangers' kernels were compiled under: the header and every report say so."""

from __future__ import annotations

import json

import pytest
from course import RIGHT, Course

from pytest_gpulab.devices.compiler import sandbox
from pytest_gpulab.devices.compiler.sandbox import refusal

TIGHT = "bubblewrap and limits"


@pytest.mark.parametrize(
    "options",
    [("--gpulab-submissions=class",), ("--gpulab-timeout=60", "class/alice/twice.cu")],
    ids=["class", "limit"],
)
def test_the_header_and_the_report_say_it(course: Course, options: tuple[str, ...]) -> None:
    course.write("class/alice/twice.cu", RIGHT)
    words = f"limits only: {refusal()}" if refusal() else TIGHT
    result = course.grade_apart(*options, "--gpulab-report=json:grades.json", "-k", "compile")
    result.stdout.fnmatch_lines([f"gpulab: submissions are compiled under {words}"])
    (grade,) = json.loads((course.folder / "grades.json").read_text())["grades"]
    assert grade["provenance"]["details"]["compiled under"] == words


def test_the_reason_for_a_missing_sandbox_is_shown(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    course.write("twice.cu", RIGHT)
    monkeypatch.setattr(sandbox, "refusal", lambda: "bubblewrap (bwrap) is not installed")
    result = course.grade("--gpulab-timeout=60", "-k", "nothing", "twice.cu")
    told = "gpulab: submissions are compiled under limits only: bubblewrap (bwrap) is not installed"
    result.stdout.fnmatch_lines([told])


def test_a_students_own_file_is_compiled_in_this_process(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    assert "compiled under" not in course.grade("-k", "compile", "twice.cu").stdout.str()

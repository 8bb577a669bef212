"""`--gpulab-report=html:PATH` and `--gpulab-feedback=DIR` on a real run."""

from __future__ import annotations

import pytest
from course import RIGHT, WRONG, Course

pytestmark = pytest.mark.unmeasured


def test_a_run_writes_the_report_and_the_pages(course: Course) -> None:
    course.write("ladder/1_more/twice.cu", WRONG)
    course.write("ladder/2_less/twice.cu", RIGHT)
    result = course.grade("ladder", "--gpulab-report=html:report.html", "--gpulab-feedback=feedback")
    result.stdout.fnmatch_lines(["gpulab: wrote report.html, 2 pages in feedback/"])
    report = (course.folder / "report.html").read_text(encoding="utf-8")
    assert "Grades of 2 submissions" in report and "Annotated source" in report and "wrong-result" in report
    assert "<svg" in report and "Distribution of scores" in report and "Speedups of " in report
    assert "Times and speedups are estimates" in report and "simulated GPU" in report
    names = sorted(path.name for path in (course.folder / "feedback").iterdir())
    assert len(names) == 2 and names[0].startswith("ladder-1-more-twice-cu-")
    wrong, right = ((course.folder / "feedback" / name).read_text(encoding="utf-8") for name in names)
    assert "wrong-result" in wrong and "wrong-result" not in right and "2_less" not in wrong


def test_a_folder_for_feedback_that_cannot_be_made_is_refused_before_grading(course: Course) -> None:
    course.write("twice.cu", RIGHT)
    course.write("taken", "")
    result = course.grade("--gpulab-feedback=taken", "twice.cu")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: taken is a file: pages of feedback are written into a folder"])


def test_only_reports_that_were_written_are_said_to_be(course: Course) -> None:
    course.write("handed_in/ann/twice.cu", WRONG)
    course.write("handed_in/bob/twice.cu", RIGHT)
    asked = ("--gpulab-submissions=handed_in", "--gpulab-report=json:grades.json", "--gpulab-feedback=pages")
    result = course.grade("-x", *asked)
    result.stdout.fnmatch_lines(["gpulab: wrote grades.json", "ERROR: cannot write the report *pages: *"])
    result = course.grade("--gpulab-submissions=handed_in")
    result.stdout.no_fnmatch_line("gpulab: wrote*")


def test_pages_have_the_titles_of_the_course_and_of_the_exercise(course: Course) -> None:
    for student in ("ann", "bob"):
        course.write(f"handed_in/{student}/twice.cu", RIGHT + f"// {student}")
    asked = ("--gpulab-submissions=handed_in", "--gpulab-report=html:new/report.html", "--gpulab-feedback=new/pages")
    course.grade("--gpulab-title=GPU 26", *asked)
    report = (course.folder / "new/report.html").read_text(encoding="utf-8")
    assert "<h1>GPU 26: grades of 2 students</h1>" in report and "Every element times two" in report
    page = (course.folder / "new/pages/ann.html").read_text(encoding="utf-8")
    assert "GPU 26: feedback for ann" in page and "Every element times two" in page

"""Titles, dismissed flags, sources side by side and shades in the instructor's report; titles in feedback."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path

import pytest
from generated_class import Made
from without_plots import no_plots as no_plots

from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context
from pytest_gpulab.reports.instructor.comparison import side_by_side
from pytest_gpulab.reports.instructor.flags import flags, number_of
from pytest_gpulab.reports.instructor.page import page
from pytest_gpulab.reports.pages import feedback
from pytest_gpulab.reports.standings import standings
from pytest_gpulab.reports.students import counting_grades

pytestmark = [pytest.mark.unit, pytest.mark.unmeasured, pytest.mark.usefixtures("no_plots")]

EVENING = datetime(2026, 5, 1, 18, 30, tzinfo=timezone.utc)
FEW = Made(6, exercises=("scan",))


def test_the_titles_of_the_course_and_of_the_exercises_are_shown() -> None:
    book = FEW.gradebook()
    book.title, book.titles = "GPU <lab> 2026", {"scan": "Prefix sums"}
    text = page(book, EVENING)
    (ann, *_) = standings(book, book.grades)
    to_student = feedback.page(ann, EVENING, (), book)
    assert "<h1>GPU &lt;lab&gt; 2026: feedback for " in to_student and "Prefix sums. " in to_student
    assert "<h1>GPU &lt;lab&gt; 2026: grades of " in text and "Prefix sums</small>" in text


def test_a_flag_is_dismissed_by_its_number_in_a_file_beside_the_report(tmp_path: Path) -> None:
    book, path = Made(8).gradebook(), tmp_path / "report.html"
    first, *others = flags(book, counting_grades(book))
    assert others
    formats.write("html", path, book, Context(finished=EVENING))
    assert "Dismissed" not in path.read_text(encoding="utf-8")
    (tmp_path / "report-dismissed.txt").write_text(f"# mine\n{number_of(first)} they are a pair & said so\n\nffffff\n")
    formats.write("html", path, book, Context(finished=EVENING))
    text = path.read_text(encoding="utf-8")
    assert f"<dt>to review</dt><dd>{len(others)}</dd>" in text
    assert "Dismissed (1)" in text and "they are a pair &amp; said so" in text
    assert len({number_of(flag) for flag in (first, *others)}) == 1 + len(others)


def test_similar_sources_stand_side_by_side() -> None:
    book = FEW.gradebook()
    left, right = book.duplicates[0].submissions
    assert "side by side" not in page(book, EVENING), "nothing to compare without the sources"
    book.sources = {left: "int a;\n<b>\nc\n", right: "int  a;\nother\nmore\nc\n"}
    text = page(book, EVENING)
    assert text.count('<tr class="differs">') == 2 and "<code>&lt;b&gt;</code>" in text


def test_lines_that_differ_in_spaces_only_are_the_same() -> None:
    rows = side_by_side("a b\nx\nend", "ab\nend\ny")
    shown = [(row.left and row.left.number, row.right and row.right.number, row.differs) for row in rows]
    assert shown == [(1, 1, False), (2, None, True), (3, 2, False), (None, 3, True)]
    assert len(side_by_side("line\n" * 5000, "")) == 400


def test_the_shade_of_a_cell_is_the_share_of_its_points() -> None:
    cells = re.findall(r'<td class="level(\d+)" data-v="(\d+)"', page(Made(20).gradebook(), EVENING))
    assert len({level for level, _ in cells}) > 3
    assert all(int(level) == round(int(points) / 8.2) for level, points in cells), "82 points are all"

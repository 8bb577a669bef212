"""The summary and the JUnit XML for GitHub Actions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from any_grades import VERDICTS, book
from examples import WRONG, check, grade, hidden, only

from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.reports import formats
from pytest_gpulab.reports.context import Context, ReportError
from pytest_gpulab.reports.gradebook import Gradebook

pytestmark = pytest.mark.unit


def written(gradebook: Gradebook, folder: Path) -> tuple[ElementTree.Element, str]:
    path, summary = folder / "junit.xml", folder / "summary.md"
    summary.write_text("before\n")
    formats.write("github", path, gradebook, Context(environment={"GITHUB_STEP_SUMMARY": str(summary)}))
    return ElementTree.fromstring(path.read_text(encoding="utf-8")), summary.read_text(encoding="utf-8")


def test_each_verdict_has_its_element_and_its_row(tmp_path: Path) -> None:
    suites, summary = written(only(*(check(v, v, 5 if v == "not gradable" else 10) for v in VERDICTS)), tmp_path)
    (suite,) = suites
    assert {case.get("name"): [element.tag for element in case] for case in suite} == {
        "passed": [],
        "failed": ["failure"],
        "missed": [],
        "inconclusive": ["skipped"],
        "not gradable": ["skipped"],
        "not started": ["skipped"],
    }
    counts = {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")}
    assert counts == {"tests": "6", "failures": "1", "skipped": "3", "errors": "0"}
    assert summary.startswith("before\n### 20 of 50 points\n\n| check | result | points |\n|---|---|---:|\n")
    assert "| <code>failed</code> | ❌ failed | 0 of 10 |" in summary


def test_hidden_cases_show_only_the_kind_of_a_mistake(tmp_path: Path) -> None:
    suites, summary = written(only(check("a"), hidden()), tmp_path)
    shown = ElementTree.tostring(suites, "unicode") + summary
    assert "correct[hidden]" in shown and "Think." in shown
    assert "1023" not in shown and "42" not in shown


def test_text_of_a_student_is_text(tmp_path: Path) -> None:
    evil = replace(WRONG, what="</pre><script>x</script> | `y`", evidence=("first\n\n# heading", "\x1b[2J"))
    suites, summary = written(only(check("a|b", "failed", findings=(evil,))), tmp_path)
    assert "<script>" not in summary and "\x1b" not in summary and "\n\n#" not in summary
    assert "<code>a&#124;b</code>" in summary
    assert "</pre><script>" in "".join(suites.itertext())


def test_files_that_are_not_graded_are_failures(tmp_path: Path) -> None:
    made = book(grade(check("a")))
    made.ungraded["skan.cu"] = Finding("no-exercise", "skan.cu belongs to no exercise")
    suites, summary = written(made, tmp_path)
    assert [case.get("name") for case in suites[0] if len(case)] == ["skan.cu"]
    assert "skan.cu belongs to no exercise" in summary


def test_nothing_gradable_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="could be graded"):
        written(only(check("a", "not gradable")), tmp_path)
    assert (tmp_path / "summary.md").read_text() == "before\n"

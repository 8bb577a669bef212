"""Sources that do not end in .cu: one line names them."""

from __future__ import annotations

from pathlib import Path

import pytest
from zips import EXERCISES

from pytest_gpulab.course.intake.submissions import handed_in

pytestmark = pytest.mark.unit

ADVICE = "submissions end in .cu."


def told(tmp_path: Path, code: str, *names: str) -> str:
    """Return the line for a student who handed in files of these names."""
    for name in names:
        path = tmp_path / "class/cid" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "scratch").mkdir()
    (problem,) = handed_in(tmp_path / "class", EXERCISES, tmp_path / "scratch").problems
    assert (problem.label, problem.finding.code) == ("cid", code)
    return problem.finding.what


@pytest.mark.parametrize(
    "name", ["reduction.cpp", "Reduction.CPP", "reduction", "mine/scan.txt", "reduction.cu.txt", "mine.CU.txt", "a.cu~"]
)
def test_a_source_with_another_ending_is_named_with_advice(tmp_path: Path, name: str) -> None:
    assert told(tmp_path, "wrong-ending", name) == f"There is no .cu file, but {name}: {ADVICE}"


@pytest.mark.parametrize("name", ["notes.txt", "reductions.cpp", "reduction/notes.txt"])
def test_another_file_is_named_without_advice(tmp_path: Path, name: str) -> None:
    assert told(tmp_path, "no-source", name) == f"There is no .cu file, but {name}."


def test_of_many_files_three_are_named_likely_sources_first(tmp_path: Path) -> None:
    names = ("a.txt", "b.txt", "c.txt", "d.txt", "scan.cpp")
    found = told(tmp_path, "wrong-ending", *names)
    assert found == f"There is no .cu file, but scan.cpp, a.txt, b.txt and 2 more: {ADVICE}"


def test_a_source_with_another_ending_beside_a_submission_is_named_with_the_same_advice(tmp_path: Path) -> None:
    names = ("reduction.cu", "a.txt", "scan.cpp")
    assert told(tmp_path, "no-exercise", *names) == f"2 files for no exercise, left out: scan.cpp, a.txt: {ADVICE}"


def test_ignored_files_beside_a_submission_are_named_sources_first(tmp_path: Path) -> None:
    names = ("reduction.cu", "a.txt", "skan.cu")
    assert told(tmp_path, "no-exercise", *names) == "2 files for no exercise, left out: skan.cu, a.txt."


def test_a_c_source_is_named_before_the_other_files_of_a_repository(tmp_path: Path) -> None:
    found = told(tmp_path, "no-source", "NOTES.md", "a.txt", "b.txt", "c.txt", "transpose.cpp")
    assert found.startswith("There is no .cu file, but transpose.cpp, NOTES.md, ")

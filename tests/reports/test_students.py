"""Rows of students and the names of their files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_gpulab.reports.students import file_name

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("student", "name"),
    [
        ("jdoe42", "jdoe42"),
        ("m.smith_2", "m.smith_2"),
        ("JDoe42", r"jdoe42-[0-9a-f]{16}"),
        ("../../etc/passwd", r"etc-passwd-[0-9a-f]{16}"),
        ("nul", r"nul-[0-9a-f]{16}"),
        ("aux.c", r"aux-c-[0-9a-f]{16}"),
        ("学生", r"student-[0-9a-f]{16}"),
        ("\ud800", r"student-[0-9a-f]{16}"),
        ("x" * 300, r"x{24}-[0-9a-f]{16}"),
        (".hidden", r"hidden-[0-9a-f]{16}"),
        ("bob-0123456789abcdef", r"bob-0123456789abcdef-[0-9a-f]{16}"),
    ],
)
def test_names_of_files_are_safe(student: str, name: str) -> None:
    assert re.fullmatch(name, file_name(student))


@given(st.lists(st.one_of(st.text(max_size=12), st.text("aA-.0", max_size=4)), unique=True))
def test_no_two_students_share_a_file(students: list[str]) -> None:
    names = [file_name(student) for student in students]
    assert len({name.casefold() for name in names}) == len(students)
    assert all(Path(name).name == name and name.isascii() and len(name) < 50 for name in names)

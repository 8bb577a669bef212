"""ZIPs of a class, made by hand, and what is found in them."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from pytest_gpulab.course.intake.student_files import Unusable
from pytest_gpulab.course.intake.submissions import Collection, handed_in

EXERCISES = ("reduction", "scan")
NOON = (2026, 3, 1, 12, 0, 0)
HUGE = 10_000_000


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def member(name: str, mode: int = 0, date_time: tuple[int, int, int, int, int, int] = NOON) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("x", date_time)
    info.filename = info.orig_filename = name  # as it is, with what ZipInfo() would mend
    info.external_attr = mode << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def packed(*members: tuple[str | zipfile.ZipInfo, bytes | str]) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name, contents in members:
            zipped.writestr(member(name) if isinstance(name, str) else name, contents)
    return buffer.getvalue()


def collected(scratch: Path, contents: bytes) -> Collection:
    path = scratch.parent / "class.zip"
    path.write_bytes(contents)
    return handed_in(path, EXERCISES, scratch)


def labels(found: Collection) -> list[str]:
    return [submission.label for submission in found.submissions]


def codes(found: Collection) -> list[tuple[str, str, str]]:
    return [(problem.student, problem.exercise, problem.finding.code) for problem in found.problems]


def only_problem(found: Collection) -> Unusable:
    (problem,) = found.problems
    return problem

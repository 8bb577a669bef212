"""A folder of submissions: links, special files, and files and folders that cannot be read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from test_submissions import NOON_S, collected, only_problem, refused, write

from pytest_gpulab.course.intake import entries

pytestmark = pytest.mark.unit


def test_a_link_is_never_followed(folder: Path, tmp_path: Path) -> None:
    secret = write(tmp_path, "outside/reduction.cu", "secret")
    write(folder, "bob/reduction.cu")
    (folder / "alice").mkdir()
    (folder / "alice/reduction.cu").symlink_to(secret)
    (folder / "alice/scan.cu").symlink_to(folder / "bob/reduction.cu")
    (folder / "alice/reduction").symlink_to(secret.parent)
    (folder / "carol").symlink_to(secret.parent)
    found = collected(folder)
    assert [submission.student for submission in found.submissions] == ["bob"]
    assert {problem.finding.code for problem in found.problems} == {"link"}
    assert [(problem.student, problem.exercise, problem.label) for problem in found.problems] == [
        ("", "", "carol"),
        ("alice", "reduction", "alice/reduction.cu"),
        ("alice", "scan", "alice/scan.cu"),
        ("alice", "", "alice/reduction"),
    ]
    assert {problem.verdict for problem in found.problems} == {"failed"}


def test_many_links_of_a_student_are_one_finding(folder: Path) -> None:
    write(folder, "alice/reduction.cu")
    for number in range(12):
        (folder / f"alice/{number:02}.txt").symlink_to("/etc/passwd")
    problem = only_problem(folder)
    assert (problem.label, problem.finding.code) == ("alice/00.txt", "link")
    assert problem.finding.what == "It is a link, and links are not followed. There are 11 more."
    assert problem.finding.evidence[:2] == ("alice/00.txt", "alice/01.txt")
    assert problem.finding.evidence[-1] == "and 2 more"


def test_a_file_that_becomes_a_link_is_not_read(folder: Path) -> None:
    path = write(folder, "alice/reduction.cu")
    (found,) = collected(folder).submissions
    path.unlink()
    path.symlink_to(write(folder, "bob/reduction.cu"))
    with pytest.raises(OSError, match="symbolic link"):
        found.read()


def test_a_file_that_grows_is_not_read(folder: Path) -> None:
    path = write(folder, "alice/reduction.cu")
    (found,) = collected(folder).submissions
    path.write_bytes(bytes(entries.MAX_SOURCE_BYTES + 1))
    with pytest.raises(OSError, match="has grown"):
        found.read()


def test_a_pipe_or_socket_is_not_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "alice").mkdir()
    os.mkfifo(folder / "alice/reduction.cu")
    monkeypatch.chdir(folder / "alice")  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("scan.cu")
        problems = collected(folder).problems
    assert [(problem.exercise, problem.finding.code) for problem in problems] == [
        ("reduction", "not-a-file"),
        ("scan", "not-a-file"),
    ]


def test_a_huge_file_is_not_read(folder: Path) -> None:
    write(folder, "alice/reduction.cu")
    with (folder / "alice/reduction.cu").open("ab") as file:
        file.truncate(1 << 40)
    problem = only_problem(folder)
    assert (problem.student, problem.exercise, problem.finding.code) == ("alice", "reduction", "too-large")
    assert problem.finding.what == "The file has 1099511627776 bytes; at most 1048576 are read."


def test_an_unread_file_beside_one_that_counts_is_only_noted(folder: Path) -> None:
    write(folder, "alice/reduction.cu")
    write(folder, "alice/reduction/huge.cu", "x" * (entries.MAX_SOURCE_BYTES + 1), NOON_S + 1)
    found = collected(folder)
    assert [submission.label for submission in found.submissions] == ["alice/reduction.cu"]
    assert [(problem.exercise, problem.finding.code) for problem in found.problems] == [("", "too-large")]


def test_of_several_files_that_cannot_be_read_one_stands_for_the_submission(folder: Path) -> None:
    (folder / "alice/reduction").mkdir(parents=True)
    for name in ("a.cu", "b.cu"):
        (folder / "alice/reduction" / name).symlink_to("nowhere")
    assert [problem.exercise for problem in collected(folder).problems] == ["reduction", ""]


def test_an_unreadable_file_costs_no_points(folder: Path) -> None:
    path = write(folder, "alice/reduction.cu")
    with refused("open", path):
        problem = only_problem(folder)
    assert (problem.exercise, problem.finding.code, problem.verdict) == ("reduction", "unreadable", "not gradable")
    assert problem.finding.what == "It cannot be read: Permission denied."


def test_an_unreadable_folder_affects_no_other_student(folder: Path) -> None:
    write(folder, "alice/reduction.cu")
    write(folder, "bob/reduction.cu")
    with refused("scandir", folder / "alice"):
        found = collected(folder)
    assert found.students == ("alice", "bob") and [each.student for each in found.submissions] == ["bob"]
    assert [(problem.student, problem.finding.code) for problem in found.problems] == [("alice", "unreadable")]

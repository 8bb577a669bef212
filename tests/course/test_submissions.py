"""A folder of submissions: the file that counts, and a note for every other file in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_gpulab.course.intake import entries, student_files
from pytest_gpulab.course.intake.student_files import HandedIn, Unusable
from pytest_gpulab.course.intake.submissions import Collection, SubmissionsError, handed_in

pytestmark = pytest.mark.unit

EXERCISES = ("reduction", "scan")
NOON_S = 1_772_366_400  # 2026-03-01 12:00:00 UTC


def write(folder: Path, name: str, text: str = "", modified_s: float = NOON_S) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.fsencode(text or name))
    os.utime(path, (modified_s, modified_s))
    return path


def collected(folder: Path) -> Collection:
    scratch = folder.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    return handed_in(folder, EXERCISES, scratch)


def only_problem(folder: Path) -> Unusable:
    (problem,) = collected(folder).problems
    return problem


def test_a_file_counts_for_the_exercise_of_its_name_or_of_its_folder(folder: Path) -> None:
    write(folder, "bob/scan.cu")
    write(folder, "alice/reduction.cu")
    write(folder, "alice/scan/attempt.cu")
    found = collected(folder)
    assert found.submissions == (
        HandedIn("alice", "reduction", folder / "alice/reduction.cu", "alice/reduction.cu"),
        HandedIn("alice", "scan", folder / "alice/scan/attempt.cu", "alice/scan/attempt.cu"),
        HandedIn("bob", "scan", folder / "bob/scan.cu", "bob/scan.cu"),
    )
    assert found.students == ("alice", "bob") and found.problems == ()
    assert [submission.read() for submission in found.submissions][1] == b"alice/scan/attempt.cu"


def test_names_in_upper_case_are_graded(folder: Path) -> None:
    write(folder, "alice/Reduction.cu")
    write(folder, "alice/SCAN/mine.cu")
    write(folder, "bob/REDUCTION.CU")
    write(folder, "bob/scan/mine.Cu")
    found = collected(folder)
    assert [(each.student, each.exercise) for each in found.submissions] == [
        ("alice", "reduction"),
        ("alice", "scan"),
        ("bob", "reduction"),
        ("bob", "scan"),
    ]
    assert found.problems == ()


@pytest.mark.parametrize(
    "name", ["scan (1).cu", "Scan(12).cu", "scan - Copy.cu", "scan - Copy (2).cu", "scan copy 2.cu"]
)
def test_a_second_copy_is_graded_as_the_file(folder: Path, name: str) -> None:
    write(folder, f"alice/{name}")
    (only,) = collected(folder).submissions
    assert (only.exercise, only.label, only.note) == ("scan", f"alice/{name}", "")
    write(folder, "alice/scan.cu")
    for path in (folder / "alice").iterdir():
        os.utime(path, (1, 1))
    (one,) = collected(folder).submissions
    assert one.label == "alice/scan.cu" and name in one.note


def test_a_version_of_ones_own_is_no_copy(folder: Path) -> None:
    for name in ("scan2.cu", "scan_old.cu", "(1).cu", "photocopy.cu"):
        write(folder, f"alice/{name}")
    assert collected(folder).submissions == ()


def test_composed_and_decomposed_accents_are_the_same_name(folder: Path) -> None:
    write(folder, "Zoe\u0308/scan.cu")
    write(folder, "Zo\u00eb/reduction.cu")
    found = collected(folder)
    assert found.students == ("Zo\u00eb",)
    assert [each.label for each in found.submissions] == ["Zo\u00eb/reduction.cu", "Zo\u00eb/scan.cu"]
    assert found.submissions[1].read() == "Zoe\u0308/scan.cu".encode()


def test_a_copy_of_the_course_is_searched_for_the_students_own_files(folder: Path) -> None:
    write(folder, "alice/exercises/reduction/reduction.cu")
    write(folder, "alice/exercises/reduction/naive.cu", modified_s=NOON_S + 60)
    found = collected(folder)
    assert [submission.label for submission in found.submissions] == ["alice/exercises/reduction/reduction.cu"]
    assert found.problems[0].finding.evidence == ("alice/exercises/reduction/naive.cu",)


def test_the_newest_file_counts_and_the_choice_is_noted(folder: Path) -> None:
    write(folder, "alice/reduction/first.cu", modified_s=NOON_S)
    write(folder, "alice/reduction/second.cu", modified_s=NOON_S + 61)
    write(folder, "alice/reduction.cu", modified_s=NOON_S - 1)
    (found,) = collected(folder).submissions
    assert found.path.name == "second.cu"
    assert found.note == (
        "alice/reduction/second.cu (2026-03-01 12:01:01) counts, the newest of 3 files; not alice/reduction/first.cu "
        "(2026-03-01 12:00:00), alice/reduction.cu (2026-03-01 11:59:59)"
    )


def test_of_equally_new_files_the_last_by_name_counts(folder: Path) -> None:
    write(folder, "alice/reduction/a.cu")
    write(folder, "alice/reduction/b.cu")
    (found,) = collected(folder).submissions
    assert found.path.name == "b.cu" and "counts, the last by name of the newest of 2 files; not" in found.note


def test_a_note_names_only_some_of_many_files(folder: Path) -> None:
    for number in range(13):
        write(folder, f"alice/reduction/{number:02}.cu", modified_s=NOON_S + number)
    (found,) = collected(folder).submissions
    assert found.path.name == "12.cu" and found.note.endswith("(2026-03-01 12:00:02), 2 more")


def test_a_modification_time_outside_the_calendar_is_shown_at_its_limit(folder: Path) -> None:
    write(folder, "alice/reduction/a.cu", modified_s=-1e9)
    write(folder, "alice/reduction/b.cu", modified_s=1e10)
    assert "(1970-01-01 00:00:00)" in collected(folder).submissions[0].note
    assert "(9999-12-31 23:59:59)" in student_files._with_time(entries.Entry(("a",), modified_s=1e18))


def test_files_for_no_exercise_are_one_finding_per_student(folder: Path) -> None:
    for name in ("reduction.cu", "helper.cu", "notes.txt", "scan/deeper/file.cu", ".git/config", ".DS_Store"):
        write(folder, f"alice/{name}")
    problem = only_problem(folder)
    assert (problem.student, problem.exercise, problem.label) == ("alice", "", "alice")
    told = "3 files for no exercise, left out: helper.cu, scan/deeper/file.cu, notes.txt."
    assert problem.finding.code == "no-exercise" and problem.finding.what == told, "kernels come first"
    assert problem.finding.evidence == ("alice/helper.cu", "alice/scan/deeper/file.cu", "alice/notes.txt")
    assert problem.finding.hint == "Name a file after its exercise: reduction.cu or scan.cu."


def test_files_of_a_copy_of_the_course_are_not_reported(folder: Path) -> None:
    for name in ("scan/scan.cu", "scan/naive.cu", "scan/exercise.py", "calibration/gpu.toml", "../README.md"):
        write(folder, f"alice/course/exercises/{name}")
    found = collected(folder)
    assert [each.label for each in found.submissions] == ["alice/course/exercises/scan/scan.cu"] and not found.problems
    write(folder, "alice/course/exercises/scan/skan.cu")
    write(folder, "alice/course/exercises/scan/scan.cpp")
    (deeper, advice) = ("course/exercises/scan/", "submissions end in .cu.")
    expected = f"2 files for no exercise, left out: {deeper}skan.cu, {deeper}scan.cpp: {advice}"
    assert only_problem(folder).finding.what == expected


def test_three_of_many_files_for_no_exercise_are_named(folder: Path) -> None:
    for name in "abcde":
        write(folder, f"alice/{name}\u202e.txt" if name == "b" else f"alice/{name}.txt")
    write(folder, "alice/z.cu")
    left_out = next(each.finding for each in collected(folder).problems if each.finding.code == "no-exercise")
    assert left_out.what == r"6 files for no exercise, left out: z.cu, a.txt, b\u202e.txt and 3 more."


def test_the_hint_names_the_only_exercise(folder: Path) -> None:
    write(folder, "alice/z.cu")
    (problem,) = handed_in(folder, ["scan"], folder.parent).problems
    assert problem.finding.hint == "Name a file after its exercise: scan.cu."


def test_a_source_in_a_folder_named_after_an_exercise_is_for_no_exercise(folder: Path) -> None:
    write(folder, "reduction/carol.cu")  # the folders are exercises, not students
    assert only_problem(folder).finding.code == "no-exercise"


def test_a_student_without_a_source_gets_a_finding(folder: Path) -> None:
    for number in range(12):
        write(folder, f"alice/{number:02}.txt")
    (folder / "bob").mkdir()
    found = collected(folder)
    assert found.students == ("alice", "bob") and found.submissions == ()
    alice, bob = found.problems
    assert alice.finding.code == "no-source" and bob.finding.code == "nothing-handed-in" and bob.finding.evidence == ()
    assert alice.finding.what == "There is no .cu file, but 00.txt, 01.txt, 02.txt and 9 more."
    assert alice.finding.hint == "Name a file after its exercise: reduction.cu or scan.cu."
    assert alice.finding.evidence[-2:] == ("alice/09.txt", "and 2 more")
    assert bob.finding.what == "There is no .cu file."


def test_a_source_outside_students_folders_is_reported_and_other_files_are_not(folder: Path) -> None:
    write(folder, "alice/scan.cu")
    write(folder, "reduction.cu")
    write(folder, "roster.csv")
    problem = only_problem(folder)
    assert (problem.student, problem.label, problem.finding.code) == ("", "reduction.cu", "no-student")


@contextmanager
def refused(what: str, path: Path) -> Iterator[None]:
    """Refuse to open one file or folder, because the user of the tests may be allowed to read everything."""
    real = getattr(os, what)

    def refuse(name: str, *more: int) -> object:
        if str(name) == str(path):
            raise PermissionError(13, "Permission denied", name)
        return real(name, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, what, refuse)
        yield


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("al\nice", r"al\x0aice"),
        ("al\x1b[31mice", r"al\x1b[31mice"),
        ("al\u202eice", r"al\u202eice"),
        ("al\u2028ice", r"al\u2028ice"),
        ("Jürgen".encode("cp1252"), r"J\xfcrgen"),
    ],
)
def test_a_name_that_cannot_be_printed_is_graded_with_escapes(folder: Path, name: str | bytes, escaped: str) -> None:
    student = os.fsdecode(name)
    write(folder, f"{student}/reduction.cu")
    write(folder, f"bob/{student}.cu")
    write(folder, f"bob/scan/{student}.cu")
    found = collected(folder)
    assert found.students == (escaped, "bob") if escaped < "bob" else ("bob", escaped)
    assert {each.label for each in found.submissions} == {f"{escaped}/reduction.cu", f"bob/scan/{escaped}.cu"}
    assert all(each.read() for each in found.submissions)
    assert [(each.student, each.finding.code) for each in found.problems] == [("bob", "no-exercise")]


def test_a_students_long_name_is_cut_and_stays_apart_from_others(folder: Path) -> None:
    for last in "ab":
        write(folder, f"{120 * 'ü'}{last}/reduction.cu")
    first, second = collected(folder).students
    assert first != second and max(len(first.encode()), len(second.encode())) < 120
    assert len(collected(folder).submissions) == 2


def test_a_very_long_name_is_reported(folder: Path) -> None:
    write(folder, f"alice/{'x' * 230}.cu")
    assert only_problem(folder).finding.what == "The name has 233 bytes; at most 200 are read."


def test_names_in_any_script_are_accepted(folder: Path) -> None:
    for name in ("Zoë Ångström", "李四", "محمد", "O'Neil; DROP"):
        write(folder, f"{name}/reduction.cu")
    found = collected(folder)
    assert len(found.submissions) == 4 and found.problems == ()


def test_too_many_files_of_a_student_affect_no_other_student(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MAX_FILES", 10)
    for number in range(12):
        write(folder, f"alice/{number}.txt")
    write(folder, "alice/reduction.cu")
    write(folder, "bob/reduction.cu")
    found = collected(folder)
    assert [submission.student for submission in found.submissions] == ["bob"]
    assert [(each.student, each.finding.code) for each in found.problems] == [("alice", "too-many-files")]
    assert found.problems[0].finding.what == "There are more than 10 files, so none is read."


def test_hidden_files_do_not_count_towards_the_limit_of_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MAX_FILES", 10)
    write(folder, "alice/reduction.cu")
    for number in range(100):
        write(folder, f"alice/.{number}")
    scandir = os.scandir
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda path: HiddenFirst(scandir(path)))
        found = collected(folder)
    assert [submission.label for submission in found.submissions] == ["alice/reduction.cu"]


class HiddenFirst(list[os.DirEntry[str]]):
    """A folder's contents in the order that a file system may tell them in."""

    def __init__(self, children: Iterator[os.DirEntry[str]]) -> None:
        super().__init__(sorted(children, key=lambda child: child.name))

    def __enter__(self) -> HiddenFirst:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_deeply_nested_folders_are_not_searched(folder: Path) -> None:
    write(folder, "alice/" + "deep/" * 20 + "reduction.cu")
    assert only_problem(folder).finding.what == "Folders below 16 others are not searched."


@pytest.mark.parametrize("name", ["mallory.cu.zip", "alice/mallory.cu.zip", "alice/scan.cu.zip"])
def test_an_archive_named_like_a_source_affects_no_other_student(folder: Path, name: str) -> None:
    write(folder, name, "no ZIP")
    write(folder, "bob/scan.cu")
    found = collected(folder)
    assert [each.student for each in found.submissions] == ["bob"]
    assert [each.finding.code for each in found.problems] == ["bad-archive"]


@pytest.mark.parametrize("name", ["x.cu", "scan.cu", "alice/x.cu", "alice/scan.cu"])
def test_a_folder_named_like_a_source_affects_no_other_student(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    write(folder, "bob/scan.cu")
    found = collected(folder)
    assert [each.student for each in found.submissions] == ["bob"]
    assert [each.finding.code for each in found.problems] == ["nothing-handed-in"]


@pytest.mark.parametrize(
    "name", ["ada.tar.gz", "ada.7z", "ada.RAR", "ada.tgz", "ada.tar", "ada.zipx", "ada.gz", "ada.tar.Z", "ada.tar.lzma"]
)
def test_archives_other_than_zip_are_reported_with_their_student(folder: Path, name: str) -> None:
    write(folder, name)
    write(folder, "bob/scan.cu")
    found = collected(folder)
    assert found.students == ("ada", "bob")
    assert [(each.student, each.finding.what) for each in found.problems] == [
        ("ada", "It is an archive, but not a ZIP.")
    ]


def test_a_folder_without_students_is_refused(folder: Path) -> None:
    write(folder, "reduction.cu")
    with pytest.raises(
        SubmissionsError, match=r"class: there is no student's folder in it; the layout is <student>/<ex"
    ):
        collected(folder)


def test_a_missing_folder_and_a_file_that_is_no_zip_are_refused(folder: Path) -> None:
    with pytest.raises(SubmissionsError, match=r"absent: there is no such folder or ZIP$"):
        collected(folder / "absent")
    with pytest.raises(
        SubmissionsError, match=r"note.txt: neither a folder nor a ZIP of one. It cannot be read as a ZIP"
    ):
        collected(write(folder, "note.txt"))


def test_the_message_about_a_refused_folder_is_one_line(folder: Path) -> None:
    with (
        refused("scandir", folder),
        pytest.raises(SubmissionsError, match=r"class: cannot be read: Permission denied$"),
    ):
        collected(folder)

"""A ZIP is unpacked into the same collection as its folder would be, and nothing in it reaches beyond its student."""

from __future__ import annotations

import re
import stat
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from zips import EXERCISES, HUGE, codes, collected, labels, member, only_problem, packed
from zips import scratch as scratch

from pytest_gpulab.course.intake import archive, entries
from pytest_gpulab.course.intake.submissions import SubmissionsError, handed_in

pytestmark = pytest.mark.unit


def test_a_zip_gives_what_its_folder_gives(scratch: Path) -> None:
    found = collected(
        scratch,
        packed(("alice/", b""), ("alice/reduction.cu", b"one"), ("bob/scan/mine.cu", b"two"), ("carol/", b"")),
    )
    assert labels(found) == ["alice/reduction.cu", "bob/scan/mine.cu"]
    assert [submission.read() for submission in found.submissions] == [b"one", b"two"]
    assert [submission.path.name for submission in found.submissions] == ["reduction.cu", "mine.cu"]
    assert all(submission.path.is_relative_to(scratch) for submission in found.submissions)
    assert found.students == ("alice", "bob", "carol") and codes(found) == [("carol", "", "nothing-handed-in")]


def test_unpacked_files_are_private_and_no_other_files_are_unpacked(scratch: Path) -> None:
    collected(scratch, packed((member("alice/reduction.cu", 0o104777), b"one"), ("alice/data.bin", b"two")))
    (folder,) = scratch.iterdir()
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert file.name == "reduction.cu" and not stat.S_IMODE(file.stat().st_mode) & 0o7111


def test_one_folder_around_all_students_is_looked_through(scratch: Path) -> None:
    found = collected(
        scratch,
        packed(
            ("hw1/alice/reduction.cu", b"one"),
            ("hw1/bob/scan/mine.cu", b"two"),
            ("__MACOSX/hw1/alice/._reduction.cu", b"litter"),
            ("hw1/.DS_Store", b"litter"),
            ("readme.txt", b"from the platform"),
        ),
    )
    assert labels(found) == ["alice/reduction.cu", "bob/scan/mine.cu"] and found.problems == ()


def test_a_lone_student_is_no_folder_around_students(scratch: Path) -> None:
    assert labels(
        collected(
            scratch,
            packed(
                ("alice/reduction/mine.cu", b""),
            ),
        )
    ) == ["alice/reduction/mine.cu"]


def test_one_folder_around_the_zips_of_all_students_is_looked_through(scratch: Path) -> None:
    inner = packed(("scan.cu", b""))
    assert labels(collected(scratch, packed(("hw1/alice.zip", inner), ("hw1/bob.zip", inner)))) == [
        "alice/scan.cu",
        "bob/scan.cu",
    ]


def test_a_lone_student_may_pack_each_exercise(scratch: Path) -> None:
    inner = {name: packed((f"{name}.cu", b"")) for name in EXERCISES}
    found = collected(scratch, packed(*((f"alice/{name.upper()}.zip", inner[name]) for name in EXERCISES)))
    assert labels(found) == ["alice/REDUCTION.zip/reduction.cu", "alice/SCAN.zip/scan.cu"]


def test_a_lone_students_folders_may_be_in_upper_case(scratch: Path) -> None:
    assert labels(collected(scratch, packed(("alice/Scan/mine.CU", b"")))) == ["alice/Scan/mine.CU"]


def test_a_students_zip_may_be_in_upper_case(scratch: Path) -> None:
    found = collected(scratch, packed(("alice/HW.ZIP", packed(("scan.cu", b"")))))
    assert labels(found) == ["alice/HW.ZIP/scan.cu"]


def test_a_folder_around_students_may_have_their_names_in_upper_case(scratch: Path) -> None:
    assert labels(collected(scratch, packed(("HW1/alice/SCAN.CU", b"")))) == ["alice/SCAN.CU"]


def test_deeply_nested_folders_are_refused(scratch: Path) -> None:
    found = collected(scratch, packed(("alice/" + "deep/" * 20 + "scan.cu", b""), ("bob/scan.cu", b"fine")))
    assert labels(found) == ["bob/scan.cu"] and codes(found) == [("alice", "", "too-deep")]
    assert only_problem(found).label == "alice" + "/deep" * 16


@pytest.mark.parametrize("sign", ["x", "\u6587"])
def test_a_name_too_long_for_a_file_system_is_abridged_in_reports(scratch: Path, sign: str) -> None:
    found = collected(scratch, packed((f"alice/scan/{9_000 * sign}.cu", b""), (f"bob/{9_000 * sign}/scan.cu", b"")))
    assert labels(found) == [] and codes(found) == [("alice", "scan", "bad-name"), ("bob", "", "bad-name")]
    assert found.problems[0].label == f"alice/scan/{100 * sign}...{97 * sign}.cu"
    assert found.problems[1].label == f"bob/{100 * sign}...{100 * sign}"


def test_a_name_with_too_many_bytes_is_reported(scratch: Path) -> None:
    found = collected(scratch, packed((f"alice/scan/{99 * '文'}.cu", b"")))
    assert only_problem(found).finding.what == "The name has 300 bytes; at most 200 are read."


def test_a_long_name_that_leaves_the_archive_is_abridged(scratch: Path) -> None:
    found = collected(scratch, packed(("../" * 10_000 + "scan.cu", b""), ("bob/scan.cu", b"")))
    assert len(only_problem(found).label) == 203


def test_the_times_in_the_zip_say_which_file_is_newest(scratch: Path) -> None:
    later = (2026, 3, 1, 12, 0, 2)
    found = collected(
        scratch, packed((member("alice/scan/a.cu", 0, later), b"new"), (member("alice/scan/b.cu"), b"old"))
    )
    (submission,) = found.submissions
    assert submission.read() == b"new"
    assert submission.note == (
        "alice/scan/a.cu (2026-03-01 12:00:02) counts, the newest of 2 files; not alice/scan/b.cu (2026-03-01 12:00:00)"
    )


def test_a_date_that_no_calendar_has_is_the_oldest(scratch: Path) -> None:
    undated = member("alice/scan/z.cu", 0, (1980, 0, 0, 0, 0, 0))
    found = collected(scratch, packed((undated, b"undated"), (member("alice/scan/b.cu"), b"dated")))
    assert found.submissions[0].read() == b"dated" and "z.cu (1970-01-01 00:00:00)" in found.submissions[0].note


@pytest.mark.parametrize(
    "name",
    ["/etc/reduction.cu", "../reduction.cu", "alice/../../reduction.cu", "..\\reduction.cu", "C:\\x\\reduction.cu"],
)
def test_a_name_that_leaves_the_archive_is_reported_and_not_unpacked(scratch: Path, name: str) -> None:
    found = collected(scratch, packed((name, b"out"), ("bob/reduction.cu", b"fine")))
    assert labels(found) == ["bob/reduction.cu"] and codes(found) == [("", "", "bad-name")]
    assert found.problems[0].finding.what == "Its path leads outside the ZIP, so it is not unpacked."
    assert not list(scratch.parent.rglob("etc")) and len(list(scratch.parent.rglob("reduction.cu"))) == 1


def test_links_and_devices_are_not_unpacked(scratch: Path) -> None:
    found = collected(
        scratch,
        packed(
            (member("alice/reduction.cu", stat.S_IFLNK | 0o777), "/etc/passwd"),
            (member("alice/scan.cu", stat.S_IFCHR | 0o666), b""),
            (member("bob", stat.S_IFLNK | 0o777), "alice"),
        ),
    )
    assert labels(found) == []
    assert codes(found) == [("", "", "link"), ("alice", "reduction", "link"), ("alice", "scan", "not-a-file")]


def test_names_that_differ_in_case_only_or_not_at_all_do_not_overwrite_each_other(scratch: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        contents = packed(
            ("alice/scan.cu", b"1"),
            ("alice/Scan.cu", b"2"),
            (member("alice/scan.cu", 0, (2026, 3, 2, 0, 0, 0)), b"3"),
            ("Alice/scan.cu", b"4"),
        )
    found = collected(scratch, contents)
    assert [(each.student, each.read()) for each in found.submissions] == [("Alice", b"4"), ("alice", b"3")]
    assert "the newest of 3 files" in found.submissions[1].note


@pytest.mark.parametrize("raw", ["Zoë".encode(), "Zoe\u0308".encode(), "Zoë".encode("cp437")])
def test_names_are_read_with_and_without_a_declared_encoding(scratch: Path, raw: bytes) -> None:
    placeholder = "Q" * len(raw)
    contents = packed((f"{placeholder}/scan.cu", b"")).replace(placeholder.encode(), raw)
    assert labels(collected(scratch, contents)) == ["Zoë/scan.cu"]


def test_backslashes_part_folders(scratch: Path) -> None:
    assert labels(collected(scratch, packed(("alice\\scan\\mine.cu", b"")))) == ["alice/scan/mine.cu"]


def test_names_that_cannot_be_printed_are_graded_with_escapes(scratch: Path) -> None:
    found = collected(
        scratch, packed(("al\nice/scan.cu", b""), ("al\nice/reduction.cu", b""), ("bob/scan/a\x1b.cu", b""))
    )
    assert codes(found) == []
    assert labels(found) == [r"al\x0aice/reduction.cu", r"al\x0aice/scan.cu", r"bob/scan/a\x1b.cu"]


def test_a_bomb_is_not_unpacked(scratch: Path) -> None:
    found = collected(scratch, packed(("alice/reduction.cu", bytes(HUGE)), ("bob/reduction.cu", b"fine")))
    assert labels(found) == ["bob/reduction.cu"] and codes(found) == [("alice", "reduction", "too-large")]
    what = found.problems[0].finding.what
    assert re.fullmatch(r"It would grow from \d+ to 10000000 bytes, so it is not unpacked\.", what)


def test_a_file_that_is_merely_large_is_not_unpacked(scratch: Path) -> None:
    info = member("alice/reduction.cu")
    info.compress_type = zipfile.ZIP_STORED
    found = collected(scratch, packed((info, bytes(entries.MAX_SOURCE_BYTES + 1))))
    assert only_problem(found).finding.what == "The file has 1048577 bytes; at most 1048576 are read."


def test_all_files_of_a_student_have_a_limit_together(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_STUDENT_BYTES", 25)
    ten = b"0123456789"
    found = collected(
        scratch,
        packed(*((f"{student}/scan/{number}.cu", ten) for student in ("alice", "bob") for number in range(3))),
    )
    assert labels(found) == ["alice/scan/1.cu", "bob/scan/1.cu"]
    assert codes(found) == [("alice", "", "too-large"), ("bob", "", "too-large")]
    assert found.problems[0].finding.what == "The student's packed files, up to this one, have more than 25 bytes."


def test_too_many_files_of_a_student_in_an_archive_affect_no_other_student(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "MAX_FILES", 10)
    many = ((f"alice/scan/{number}.cu", b"") for number in range(11))
    found = collected(scratch, packed(*many, ("bob/scan.cu", b"")))
    assert labels(found) == ["bob/scan.cu"] and codes(found) == [("alice", "", "too-many-files")]


def test_a_zip_with_far_too_many_files_is_refused(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 1)
    with pytest.raises(SubmissionsError, match=r"class.zip: neither a folder nor .* It holds more than 1 files."):
        collected(scratch, packed(("alice/scan.cu", b""), ("bob/scan.cu", b"")))


def test_a_damaged_file_is_one_students_trouble(scratch: Path) -> None:
    contents = bytearray(packed(("alice/scan.cu", b"some text" * 9), ("bob/scan.cu", b"fine")))
    contents[contents.index(b"alice/scan.cu") + len("alice/scan.cu")] ^= 0xFF
    found = collected(scratch, bytes(contents))
    assert labels(found) == ["bob/scan.cu"] and codes(found) == [("alice", "scan", "bad-archive")]
    assert found.problems[0].finding.what.startswith("It cannot be unpacked: ")


def test_a_disk_that_is_full_is_no_students_fault(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_bytes(path: Path, contents: bytes) -> int:
        raise OSError(28, "No space left on device")

    contents = packed(("alice/hw.zip", packed(("scan.cu", b"text"))), ("bob/scan.cu", b"text"))
    (scratch.parent / "class.zip").write_bytes(contents)
    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(
        SubmissionsError, match=r"class\.zip: cannot be unpacked to .*scratch: No space left on device$"
    ):
        handed_in(scratch.parent / "class.zip", EXERCISES, scratch)


def test_a_file_larger_than_its_header_says_is_cut_off(scratch: Path) -> None:
    contents = bytearray(packed(("alice/scan.cu", bytes(10 * HUGE))))
    for header, size_at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = contents.index(header) + size_at
        contents[at : at + 4] = (1000).to_bytes(4, "little")
    tracemalloc.start()
    found = collected(scratch, bytes(contents))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert codes(found) == [("alice", "scan", "bad-archive")] and peak_bytes < HUGE


def test_an_encrypted_file_is_reported(scratch: Path) -> None:
    contents = bytearray(packed(("alice/scan.cu", b"secret")))
    contents[contents.index(b"PK\x01\x02") + 8] |= 1  # in the table of contents, where flags are looked up
    assert only_problem(collected(scratch, bytes(contents))).finding.what == "It is encrypted."


def test_a_packing_that_swells_without_limit_is_not_read(scratch: Path) -> None:
    info = member("alice/scan.cu")
    info.compress_type = zipfile.ZIP_LZMA
    found = collected(scratch, packed((info, b"text")))
    assert only_problem(found).finding.what == "Its compression method is not supported."


def test_a_truncated_zip_is_refused(scratch: Path) -> None:
    contents = packed(("alice/scan.cu", b"text"))
    with pytest.raises(SubmissionsError, match=r"neither a folder nor a ZIP of one\. It cannot be read as a ZIP: "):
        collected(scratch, contents[: len(contents) // 2])

"""A ZIP is unpacked into the same collection as its folder would be, and nothing in it reaches beyond its student."""

from __future__ import annotations

import random
import re
import stat
import tracemalloc
import zipfile
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest

from pytest_gpulab.course import archive, entries
from pytest_gpulab.course.submissions import Collection, Problem, SubmissionsError, handed_in

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


def only_problem(found: Collection) -> Problem:
    (problem,) = found.problems
    return problem


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


def test_what_is_unpacked_is_private_and_nothing_else_is_unpacked(scratch: Path) -> None:
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


def test_folders_are_not_searched_for_ever(scratch: Path) -> None:
    found = collected(scratch, packed(("alice/" + "deep/" * 20 + "scan.cu", b""), ("bob/scan.cu", b"fine")))
    assert labels(found) == ["bob/scan.cu"] and codes(found) == [("alice", "", "too-deep")]
    assert only_problem(found).label == "alice" + "/deep" * 16


@pytest.mark.parametrize("sign", ["x", "\u6587"])
def test_a_name_that_no_file_system_holds_is_told_in_short(scratch: Path, sign: str) -> None:
    found = collected(scratch, packed((f"alice/scan/{9_000 * sign}.cu", b""), (f"bob/{9_000 * sign}/scan.cu", b"")))
    assert labels(found) == [] and codes(found) == [("alice", "scan", "bad-name"), ("bob", "", "bad-name")]
    assert found.problems[0].label == f"alice/scan/{100 * sign}...{97 * sign}.cu"
    assert found.problems[1].label == f"bob/{100 * sign}...{100 * sign}"


def test_a_name_that_takes_more_bytes_than_a_file_system_has_for_it_is_told(scratch: Path) -> None:
    found = collected(scratch, packed((f"alice/scan/{99 * '文'}.cu", b"")))
    assert only_problem(found).finding.what == "The name has 300 bytes; at most 200 are read."


def test_a_long_name_that_leads_out_is_told_in_short(scratch: Path) -> None:
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
def test_a_name_that_leads_out_is_told_and_not_unpacked(scratch: Path, name: str) -> None:
    found = collected(scratch, packed((name, b"out"), ("bob/reduction.cu", b"fine")))
    assert labels(found) == ["bob/reduction.cu"] and codes(found) == [("", "", "bad-name")]
    assert found.problems[0].finding.what == "Its name leads out of the ZIP: it is not unpacked."
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
def test_names_are_read_whether_or_not_their_encoding_is_told(scratch: Path, raw: bytes) -> None:
    placeholder = "Q" * len(raw)
    contents = packed((f"{placeholder}/scan.cu", b"")).replace(placeholder.encode(), raw)
    assert labels(collected(scratch, contents)) == ["Zoë/scan.cu"]


def test_backslashes_part_folders(scratch: Path) -> None:
    assert labels(collected(scratch, packed(("alice\\scan\\mine.cu", b"")))) == ["alice/scan/mine.cu"]


def test_names_that_cannot_be_printed_are_told_once(scratch: Path) -> None:
    found = collected(
        scratch, packed(("al\nice/scan.cu", b""), ("al\nice/reduction.cu", b""), ("bob/scan/a\x1b.cu", b""))
    )
    assert codes(found) == [("", "", "bad-name"), ("bob", "scan", "bad-name")]
    assert [problem.label for problem in found.problems] == ["al\\x0aice", "bob/scan/a\\x1b.cu"]


def test_a_bomb_is_not_unpacked(scratch: Path) -> None:
    found = collected(scratch, packed(("alice/reduction.cu", bytes(HUGE)), ("bob/reduction.cu", b"fine")))
    assert labels(found) == ["bob/reduction.cu"] and codes(found) == [("alice", "reduction", "too-large")]
    what = found.problems[0].finding.what
    assert re.fullmatch(r"It swells from \d+ to 10000000 bytes: it is not unpacked\.", what)


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
    assert found.problems[0].finding.what == "With this one the packed files have more than 25 bytes."


def test_a_student_with_far_too_many_files_is_alone_with_that(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_that_swells_beyond_what_it_tells_is_cut_off_in_time(scratch: Path) -> None:
    contents = bytearray(packed(("alice/scan.cu", bytes(10 * HUGE))))
    for header, size_at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        at = contents.index(header) + size_at
        contents[at : at + 4] = (1000).to_bytes(4, "little")
    tracemalloc.start()
    found = collected(scratch, bytes(contents))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert codes(found) == [("alice", "scan", "bad-archive")] and peak_bytes < HUGE


def test_an_encrypted_file_is_told(scratch: Path) -> None:
    contents = bytearray(packed(("alice/scan.cu", b"secret")))
    contents[contents.index(b"PK\x01\x02") + 8] |= 1  # in the table of contents, where flags are looked up
    assert only_problem(collected(scratch, bytes(contents))).finding.what == "It is encrypted."


def test_a_packing_that_swells_without_limit_is_not_read(scratch: Path) -> None:
    info = member("alice/scan.cu")
    info.compress_type = zipfile.ZIP_LZMA
    found = collected(scratch, packed((info, b"text")))
    assert only_problem(found).finding.what == "It is packed in a way that is not read."


def test_a_truncated_zip_is_refused(scratch: Path) -> None:
    contents = packed(("alice/scan.cu", b"text"))
    with pytest.raises(SubmissionsError, match=r"neither a folder nor a ZIP of one\. It cannot be read as a ZIP: "):
        collected(scratch, contents[: len(contents) // 2])


def test_a_zip_that_a_student_handed_in_is_that_students_folder(scratch: Path) -> None:
    inner = packed(("hw/reduction.cu", b"one"), ("scan/mine.cu", b"two"), ("more.zip", packed(("scan.cu", b""))))
    found = collected(scratch, packed(("alice/hw.zip", inner), ("bob.zip", inner), ("bob/", b"")))
    assert labels(found) == [
        "alice/hw.zip/hw/reduction.cu",
        "alice/hw.zip/scan/mine.cu",
        "bob/hw/reduction.cu",
        "bob/scan/mine.cu",
    ]
    assert codes(found) == [("alice", "", "no-exercise"), ("bob", "", "no-exercise")]
    assert found.problems[0].finding.evidence == ("alice/hw.zip/more.zip",)


def test_files_that_a_platform_names_after_students_are_in_their_folders(scratch: Path) -> None:
    names = ("lovelaceada_17_991_reduction.cu", "lovelaceada_17_995_scan-2.cu", "dylanbob_LATE_18_992_scan.cu")
    moodles = ("Zoë_3_assignsubmission_file_scan.cu", "Li Wei_4_assignsubmission_file_hw.zip")
    inner = packed(("scan.cu", b""))
    found = collected(scratch, packed(*((name, inner if "hw" in name else b"") for name in (*names, *moodles))))
    assert [(each.student, each.exercise) for each in found.submissions] == [
        ("Li Wei_4_assignsubmission_file", "scan"),
        ("Zoë_3_assignsubmission_file", "scan"),
        ("dylanbob_canvas_18", "scan"),
        ("lovelaceada_canvas_17", "reduction"),
        ("lovelaceada_canvas_17", "scan"),
    ]
    assert codes(found) == [("dylanbob_canvas_18", "", "late")]


@pytest.mark.parametrize("order", [(1, -1), (-1, 1)], ids=["first to last", "last to first"])
def test_of_equally_new_attempts_in_canvas_the_highest_counts(scratch: Path, order: tuple[int, int]) -> None:
    names = ["ann_17_990_scan.cu", "ann_17_991_scan-2.cu", "ann_17_992_scan-10.cu"][:: order[0]]
    found = collected(scratch, packed(*((member(name), name.encode()) for name in names)))
    (submission,) = found.submissions
    assert submission.read() == b"ann_17_992_scan-10.cu" and submission.label == "ann_canvas_17/scan.cu"
    assert submission.note == (
        "ann_17_992_scan-10.cu (2026-03-01 12:00:00) counts, the last attempt of the newest of 3 files; "
        "not ann_17_991_scan-2.cu (2026-03-01 12:00:00), ann_17_990_scan.cu (2026-03-01 12:00:00)"
    )


def test_a_newer_file_in_canvas_counts_whatever_its_attempt(scratch: Path) -> None:
    newest = member("ann_17_990_scan.cu", 0, (2026, 3, 1, 12, 0, 2))
    (submission,) = collected(scratch, packed((newest, b"new"), (member("ann_17_991_scan-1.cu"), b"old"))).submissions
    assert (
        submission.read() == b"new" and "ann_17_990_scan.cu (2026-03-01 12:00:02) counts, the newest" in submission.note
    )


def test_of_zips_handed_in_to_canvas_the_last_attempts_counts(scratch: Path) -> None:
    names = ("ann_17_991_hw-1.zip", "ann_17_990_hw.zip")
    zips = ((member(name), packed((member("mine/scan.cu"), name))) for name in names)
    (submission,) = collected(scratch, packed(*zips)).submissions
    assert submission.read() == b"ann_17_991_hw-1.zip"
    assert "ann_17_991_hw-1.zip/mine/scan.cu (2026-03-01 12:00:00) counts, the last attempt" in submission.note
    assert "not ann_17_990_hw.zip/mine/scan.cu (" in submission.note


def test_what_canvas_calls_late_is_told_once_a_student(scratch: Path) -> None:
    names = ("ann_LATE_17_990_scan.cu", "ann_LATE_17_991_reduction.cu", "bob_LATE_18_992_hw.zip", "cem_19_993_scan.cu")
    contents = (packed(("scan.cu", b"")) if name.endswith(".zip") else b"" for name in names)
    found = collected(scratch, packed(*zip(names, contents, strict=True)))
    assert [(each.label, each.finding.what) for each in found.problems] == [
        ("ann_canvas_17", "reduction.cu and scan.cu were handed in late, says Canvas."),
        ("bob_canvas_18", "scan.cu was handed in late, says Canvas."),
    ]


def test_a_late_file_that_does_not_count_is_not_told(scratch: Path) -> None:
    late, newer = member("ann_LATE_17_990_scan.cu"), member("ann_17_991_scan-1.cu", 0, (2026, 3, 1, 12, 0, 2))
    assert collected(scratch, packed((late, b""), (newer, b""))).problems == ()


def test_a_zip_in_a_folder_is_unpacked_too(scratch: Path) -> None:
    folder = scratch.parent / "class"
    (folder / "alice").mkdir(parents=True)
    (folder / "alice" / "hw.zip").write_bytes(packed(("reduction.cu", b"one")))
    found = handed_in(folder, EXERCISES, scratch)
    assert labels(found) == ["alice/hw.zip/reduction.cu"] and found.submissions[0].read() == b"one"


def test_a_students_zip_that_becomes_a_link_is_not_read(scratch: Path) -> None:
    secret, link = scratch.parent / "secret.zip", scratch.parent / "hw.zip"
    secret.write_bytes(packed(("scan.cu", b"secret")))
    link.symlink_to(secret)
    _, told = archive.Unpacker(scratch).of_student(entries.Entry(("alice", "hw.zip"), link))
    assert told.fault is not None and told.fault.code == "unreadable" and told.label == "alice/hw.zip"


def test_a_students_zip_that_is_none_is_that_students_trouble(scratch: Path) -> None:
    found = collected(scratch, packed(("alice/hw.zip", b"text"), ("carol.zip", b"text"), ("bob/scan.cu", b"")))
    assert labels(found) == ["bob/scan.cu"] and found.students == ("alice", "bob", "carol")
    assert codes(found) == [("alice", "", "bad-archive"), ("carol", "", "bad-archive")]
    assert found.problems[0].finding.what == "It cannot be read as a ZIP: File is not a zip file."


def test_a_students_zip_does_not_lead_out_of_it(scratch: Path) -> None:
    found = collected(scratch, packed(("alice/hw.zip", packed(("../bob/scan.cu", b""))), ("bob/scan.cu", b"fine")))
    assert labels(found) == ["bob/scan.cu"] and found.submissions[0].read() == b"fine"
    assert codes(found) == [("alice", "scan", "bad-name")]


def test_damage_of_any_kind_is_told_in_a_line_and_stays_with_its_student(scratch: Path) -> None:
    inner = packed(("hw/reduction.cu", b"one" * 40), ("scan/mine.cu", b"two"))
    for seed in range(300):
        rng, damaged = random.Random(seed), bytearray(inner)
        for _ in range(rng.choice((1, 2, 4, 16))):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 255, rng.randrange(256)))
        with suppress(SubmissionsError):
            collected(scratch, bytes(damaged))
        found = collected(scratch, packed(("alice/hw.zip", bytes(damaged)), ("bob/scan.cu", b"fine")))
        assert [each.read() for each in found.submissions if each.student == "bob"] == [b"fine"]
        told = [each.label + each.finding.what for each in found.problems]
        assert all("\n" not in line and len(line) < 400 for line in told), seed

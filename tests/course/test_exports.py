"""ZIPs that students hand in, and the names and marks that learning platforms' exports give to files."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from zips import EXERCISES, codes, collected, labels, member, only_problem, packed
from zips import scratch as scratch

from pytest_gpulab.course.intake import archive, entries
from pytest_gpulab.course.intake.submissions import SubmissionsError, handed_in

pytestmark = pytest.mark.unit


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


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("de_la_cruzana_17_991_scan.cu", "de_la_cruzana_canvas_17/scan.cu"),
        ("group_07_17_991_scan.cu", "group_07_canvas_17/scan.cu"),
        ("group_07_LATE_17_991_scan-1.cu", "group_07_canvas_17/scan.cu"),
        ("ann_17_991_scan-1-2.cu", "ann_canvas_17/scan.cu"),  # the student's own file was a download of the first one
        ("ann_17_991_scan (1)-1.cu", "ann_canvas_17/scan (1).cu"),
        ("ann_1700_991_99_scan-1.cu", None),  # a name that the student chose
        ("anon_k3Xy9_991_scan-1.cu", "anon_canvas_k3Xy9/scan.cu"),
        ("LATE_anon_k3Xy9_991_scan.cu", "anon_canvas_k3Xy9/scan.cu"),
    ],
)
def test_names_of_canvas_are_read(scratch: Path, name: str, label: str | None) -> None:
    found = collected(scratch, packed((name, b"")))
    assert labels(found) == [label] * (label is not None) and len(found.students) == 1


def test_an_exercise_with_a_number_is_found_in_canvas(scratch: Path) -> None:
    (scratch / "class").mkdir()
    for name in ("ann_17_990_lab-2.cu", "bob_18_991_lab-2-1.cu"):
        (scratch / "class" / name).touch()
    found = handed_in(scratch / "class", ["lab-2"], scratch)
    assert labels(found) == ["ann_canvas_17/lab-2.cu", "bob_canvas_18/lab-2.cu"]


def test_a_text_in_canvas_is_a_students_file(scratch: Path) -> None:
    found = collected(scratch, packed(("ann_17_text.html", b""), ("bob_LATE_18_link.html", b"")))
    assert codes(found) == [("ann_canvas_17", "", "no-source"), ("bob_canvas_18", "", "no-source")]


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        ("hw/ann/scan.cu", "hw/bob/scan.cu", "index.html"),
        ("out/hw/ann/scan.cu", "out/hw/bob/scan.cu"),
        ("hw/Ann_3_assignsubmission_file_scan.cu", "hw/Bob_4_assignsubmission_file_scan.cu"),
        ("hw/ann_17_990_scan.cu", "hw/bob_18_991_scan.cu"),
        ("hw/HW_ann_attempt_2026-03-01-12-00-00_scan.cu", "hw/HW_bob_attempt_2026-03-01-12-00-00_scan.cu"),
    ],
)
def test_folders_around_the_class_are_looked_through(scratch: Path, names: tuple[str, ...], is_packed: bool) -> None:
    if is_packed:
        found = collected(scratch, packed(*((name, b"") for name in names)))
    else:
        for name in names:
            (scratch / "class" / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / "class" / name).touch()
        found = handed_in(scratch / "class", EXERCISES, scratch)
    assert [name.casefold()[:3] for name in found.students] == ["ann", "bob"] and len(found.submissions) == 2


@pytest.mark.parametrize("names", [("ann/hw/scan.cu",), ("ann/scan/1.cu", "ann/reduction/1.cu"), ("ann/scan.cu",)])
def test_the_only_students_folder_is_not_around_a_class(scratch: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (scratch / "class" / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / "class" / name).touch()
    assert handed_in(scratch / "class", EXERCISES, scratch).students == ("ann",)


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


def test_late_files_in_canvas_are_reported_once_per_student(scratch: Path) -> None:
    names = ("ann_LATE_17_990_scan.cu", "ann_LATE_17_991_reduction.cu", "bob_LATE_18_992_hw.zip", "cem_19_993_scan.cu")
    contents = (packed(("scan.cu", b"")) if name.endswith(".zip") else b"" for name in names)
    found = collected(scratch, packed(*zip(names, contents, strict=True)))
    assert [(each.label, each.finding.what) for each in found.problems] == [
        ("ann_canvas_17", "reduction.cu and scan.cu were handed in late, according to the platform."),
        ("bob_canvas_18", "scan.cu was handed in late, according to the platform."),
    ]


def test_a_late_file_that_does_not_count_is_not_reported(scratch: Path) -> None:
    late, newer = member("ann_LATE_17_990_scan.cu"), member("ann_17_991_scan-1.cu", 0, (2026, 3, 1, 12, 0, 2))
    assert collected(scratch, packed((late, b""), (newer, b""))).problems == ()


def test_a_zip_in_a_zip_is_reported_as_one(scratch: Path) -> None:
    found = collected(scratch, packed(("alice/hw.zip", packed(("more.zip", packed(("scan.cu", b"")))))))
    assert only_problem(found).finding.what == "more.zip is a ZIP in a ZIP, and only the outer one is unpacked."


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


def test_damage_of_any_kind_is_one_line_and_affects_only_its_student(scratch: Path) -> None:
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

"""A folder of submissions as a platform exports it: archives other than ZIP, names of Moodle and Blackboard."""

from __future__ import annotations

import os
from pathlib import Path
from time import process_time

import pytest
from test_submissions import collected, write

pytestmark = pytest.mark.unit


def test_the_name_that_a_platform_gives_a_file_may_be_unprintable_too(folder: Path) -> None:
    write(folder, "Ada \u202e_4711_assignsubmission_file_scan.cu")
    write(folder, "bob/scan.cu")
    assert collected(folder).students == (r"Ada \u202e_4711_assignsubmission_file", "bob")
    assert len(collected(folder).submissions) == 2


def test_an_archive_other_than_zip_that_a_platform_names_is_reported_as_one(folder: Path) -> None:
    names = ("Ada_1_assignsubmission_file_hw.tar.gz", "bob_102_815_hw.7z", "HW_cid_attempt_2026-03-01-12-00-00_hw.rar")
    for name in (*names, "dora/hw.tgz"):
        write(folder, name)
    assert sorted(each.finding.what for each in collected(folder).problems) == [
        f"hw.{ending} is an archive, but not a ZIP." for ending in ("7z", "rar", "tar.gz", "tgz")
    ]


def test_a_file_of_moodle_belongs_to_the_student_whose_name_it_begins_with(folder: Path) -> None:
    write(folder, "Mallory_1_assignsubmission_file_Bob_2_assignsubmission_file_scan.cu")
    write(folder, "Bob_2_assignsubmission_file_scan.cu")
    found = collected(folder)
    assert found.students == ("Bob_2_assignsubmission_file", "Mallory_1_assignsubmission_file")
    assert [each.student for each in found.submissions] == ["Bob_2_assignsubmission_file"]


def test_moodles_online_text_is_in_the_folder_of_the_same_students_files(folder: Path) -> None:
    for student in ("Ada_1", "Bob_2"):
        write(folder, f"{student}_assignsubmission_onlinetext_/onlinetext.html")
    write(folder, "Ada_1_assignsubmission_file_/scan.cu")
    found = collected(folder)
    assert found.students == ("Ada_1_assignsubmission_file_", "Bob_2_assignsubmission_onlinetext_")
    assert [each.student for each in found.submissions] == ["Ada_1_assignsubmission_file_"]
    assert [(each.student, each.finding.what) for each in found.problems] == [
        ("Bob_2_assignsubmission_onlinetext_", "There is no .cu file, but onlinetext.html.")
    ]


def test_the_last_attempt_counts_among_files_of_blackboard(folder: Path) -> None:
    for time in ("2026-03-01-12-00-00", "2026-03-02-08-30-00"):
        write(folder, f"Scan of floats_alovelace_attempt_{time}_scan.cu", time)
    write(folder, "Scan of floats_alovelace_attempt_2026-13-99-00-00-00_reduction.cu")
    write(folder, "Scan of floats_alovelace_attempt_2026-03-02-08-30-00.txt")
    found = collected(folder)
    assert found.students == ("alovelace",)
    assert {each.exercise: each.read() for each in found.submissions}["scan"] == b"2026-03-02-08-30-00"
    assert len(found.submissions) == 2


def test_a_file_of_blackboard_belongs_to_the_student_whose_attempt_is_named_first(folder: Path) -> None:
    write(folder, "HW_mallory_attempt_2026-03-01-12-00-00_x_bob_attempt_2026-03-02-12-00-00_scan.cu")
    write(folder, "HW_bob_attempt_2026-03-01-12-00-00_scan.cu")
    found = collected(folder)
    assert found.students == ("bob", "mallory")
    assert [(each.student, each.note) for each in found.submissions] == [("bob", "")]


@pytest.mark.parametrize(
    ("heads", "students"),
    [
        (("HW 1_ada_l", "HW 1_bob_l", "HW 1_cid"), ("ada_l", "bob_l", "cid")),
        (("My_HW_ada", "My_HW_bob", "Other_HW_ada", "Other_HW_bob"), ("ada", "bob")),
        (("Scan_ada", "Reduction_ada"), ("ada",)),
    ],
    ids=["underscores in names", "underscores in assignments", "two assignments"],
)
def test_the_username_in_a_name_of_blackboard_is_recognised(
    folder: Path, heads: tuple[str, ...], students: tuple[str, ...]
) -> None:
    for head in heads:
        write(folder, f"{head}_attempt_2026-03-01-12-00-00_scan.cu")
    assert collected(folder).students == students


def test_a_text_that_a_platform_names_after_a_student_is_that_students(folder: Path) -> None:
    texts = ("Ada_1_assignsubmission_onlinetext_onlinetext.html", "HW_bob_attempt_2026-03-01-12-00-00.txt")
    for name in texts:
        write(folder, name)
    found = collected(folder)
    assert found.students == ("Ada_1_assignsubmission_onlinetext", "bob")
    assert [each.finding.what for each in found.problems] == [
        "There is no .cu file, but onlinetext.html.",
        f"There is no .cu file, but {texts[1]}.",
    ]


def test_a_text_beside_a_students_files_is_left_out(folder: Path) -> None:
    write(folder, "HW_bob_attempt_2026-03-01-12-00-00.txt")
    write(folder, "HW_bob_attempt_2026-03-01-12-00-00_scan.cu")
    write(folder, "Ada_1_assignsubmission_onlinetext_onlinetext.html")
    write(folder, "Ada_1_assignsubmission_file_scan.cu")
    assert collected(folder).students == ("Ada_1_assignsubmission_file", "bob") and not collected(folder).problems


def test_files_of_brightspace_are_in_their_students_folders(folder: Path) -> None:
    ada, bob = "4711-3322 - Ada-Mae Lovelace - Mar 1, 2026 1105 AM", "4712-3322 - Dylan, Bob- 1 mars 2026 905"
    write(folder, f"{ada} - scan.cu")
    write(folder, f"{bob} - {ada} - scan.cu")  # a name that the student chose
    write(folder, "index.html")
    found = collected(folder)
    assert found.students == (ada, bob) and [each.student for each in found.submissions] == [ada]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("ada_l@x.org_1_scan_1_1_98765_scan.cu", "ada_l@x.org_1_scan_1_2_98766_scan.cu"),
        ("ada_l@x.org_1_cuda/scan_1_9_98765_scan.cu", "ada_l@x.org_1_cuda/scan_1_10_98766_scan.cu"),
        ("ada_l@x.org_4711_lab_2_98765_scan.cu", "ada_l@x.org_4711_lab_2_98766_scan.cu"),  # for manual grading
    ],
)
def test_files_of_prairielearn_are_in_their_students_folders(folder: Path, older: str, newer: str) -> None:
    for name in (newer, older, older.replace("ada_l", "bob")):
        write(folder, name, name)
        os.utime(folder / name, (1e9, 1e9))
    found = collected(folder)
    assert found.students == ("ada_l@x.org", "bob@x.org") and len(found.submissions) == 2
    assert found.submissions[0].read() == newer.encode()


def test_names_of_moodle_that_are_addresses_are_not_taken_for_those_of_prairielearn(folder: Path) -> None:
    write(folder, "ada@x.org_4711_assignsubmission_file_/scan.cu")
    write(folder, "bob@x.org_4712_assignsubmission_file_scan_1_2.cu")
    write(folder, "cid@x.org_1_homework/scan.cu")
    found = collected(folder)
    assert found.students == (
        "ada@x.org_4711_assignsubmission_file_",
        "bob@x.org_4712_assignsubmission_file",
        "cid@x.org_1_homework",
    )


def test_a_long_name_is_read_at_once(folder: Path) -> None:
    parts = ("1-1 - 2026 ", "a@b_1_2", "_1_assignsubmission", "_x_attempt_1", "_1_1_1")
    names = [(part * 100)[:196] + ".cu" for part in parts]
    for name in names:
        write(folder, f"{name}/{name}")
        write(folder, name.replace(".cu", "9.cu"))
    begin_s = process_time()
    collected(folder)
    assert process_time() - begin_s < 1


def test_a_late_file_of_ilias_is_graded_and_listed(folder: Path) -> None:
    write(folder, "Lovelace_Ada_ada_301/Late Submission - scan.cu")
    write(folder, "Dylan_Bob_bob_302/Verspatete Abgabe - scan.cu")
    found = collected(folder)
    assert [each.exercise for each in found.submissions] == ["scan", "scan"]
    assert {each.finding.what for each in found.problems} == {"scan.cu was handed in late, according to the platform."}

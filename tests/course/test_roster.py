"""A roster says who is in the class and whose folder is whose, and where it is wrong."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pytest_gpulab.course.intake.roster import Roster, RosterError
from pytest_gpulab.grading.grade import Student

pytestmark = pytest.mark.unit

ADA, BOB = Student("17", "Ada Lovelace"), Student("18", "Bob Dylan")


def roster(tmp_path: Path, contents: str | bytes) -> Roster:
    path = tmp_path / "roster.csv"
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    return Roster.read(path)


def mistakes(tmp_path: Path, contents: str | bytes) -> list[str]:
    with pytest.raises(RosterError) as caught:
        roster(tmp_path, contents)
    return [line.removeprefix(f"{tmp_path / 'roster.csv'}: ") for line in str(caught.value).split("\n")]


@pytest.mark.parametrize(
    "contents",
    [
        "id,name\n17,Ada Lovelace\n18,Bob Dylan\n",
        "\ufeffID;Name;Folder\r\n17;Ada Lovelace;\r\n18;Bob Dylan;\r\n",
        "name\tid\nAda Lovelace\t17\nBob Dylan\t18",
        '\n"Name" , "ID"\n"Ada Lovelace",17\n\n,,\n Bob  Dylan ,18\n'.replace('" , "', '","').replace("  ", " "),
        "First name,Last name,ID number,Email address\nAda,Lovelace,17,a@b.c\nBob,Dylan,18,b@b.c\n",  # Moodle
        "Student,ID,SIS User ID\n    Points Possible,,\nAda Lovelace,17,x\nBob Dylan,18,y\n",  # Canvas
        "First Name,Last Name,SID,Email,Total Score\nAda,Lovelace,17,a@b.c,\nBob,Dylan,18,b@b.c,3\n",  # Gradescope
        "uid,uin,name,role\na@b.c,17,Ada Lovelace,Student\nb@b.c,18,Bob Dylan,Student\n",  # PrairieLearn
        "Identifier,Full name\n17,Ada Lovelace\n18,Bob Dylan\n",
        "First name,Last name,ID number,Username\nAda,Lovelace,,17\nBob,Dylan,,18\n",  # Moodle's grade export
        "First Name,Last Name,SID,Email\nAda,Lovelace,,17\nBob,Dylan,x9,18\n",  # Gradescope, of whom one has a blank
        "Student,ID,SIS User ID\n,,,Manual Posting\n    Points Possible,,\nAda Lovelace,17,x\nBob Dylan,18,y\n".replace(
            ",SIS User ID", ",SIS User ID,HW 1"
        ),
        "OrgDefinedId,Last Name,First Name,HW 1\n17,Lovelace,Ada,\n18,Dylan,Bob,\n",  # Brightspace
        "Last Name\tFirst Name\tStudent ID\nLovelace\tAda\t17\nDylan\tBob\t18\n".encode("utf-16"),  # Blackboard
        "roster_identifier,github_username,name\n17,ada-l,Ada Lovelace\n18,,Bob Dylan\n",  # GitHub Classroom
        "Vorname,Nachname,ID-Nummer,E-Mail-Adresse\nAda,Lovelace,17,a@b.c\nBob,Dylan,18,b@b.c\n",  # Moodle in German
        "Vorname;Nachname;Anmeldename;ID-Nummer\nAda;Lovelace;17;\nBob;Dylan;18;\n",
        "ID,Vollst\u00e4ndiger Name,E-Mail-Adresse\n17,Ada Lovelace,a@b.c\n18,Bob Dylan,b@b.c\n",
        "Pr\u00e9nom,Nom de famille,Num\u00e9ro d\u2019identification\nAda,Lovelace,17\nBob,Dylan,18\n",
        "Nombre,Apellido(s),N\u00famero de ID,Direcci\u00f3n de correo\nAda,Lovelace,17,a\nBob,Dylan,18,b\n",
    ],
)
def test_tables_of_usual_kinds_are_read(tmp_path: Path, contents: str | bytes) -> None:
    assert roster(tmp_path, contents).students == (ADA, BOB)


def test_a_student_without_the_usual_id_has_the_next_one(tmp_path: Path) -> None:
    known = roster(tmp_path, "First Name,Last Name,SID,Email\nAda,Lovelace,17,\nBob,Dylan,,18\n")
    assert known.students == (ADA, BOB)


def test_a_separator_inside_quotes_parts_nothing(tmp_path: Path) -> None:
    assert roster(tmp_path, 'id;"name"\n17;"Lovelace; Ada"\n').students == (Student("17", "Lovelace; Ada"),)


def test_names_may_be_missing(tmp_path: Path) -> None:
    assert roster(tmp_path, "username\nada\nbob\n").students == (Student("ada"), Student("bob"))


def test_a_folder_is_found_by_its_column_then_by_id_then_by_name(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name,folder\n17,Ada Lovelace,team1\n18,Bob Dylan,\nTeam1,Zoë,\n")
    assert known.student("team1") == known.student("TEAM1") == known.student("17") == ADA
    assert known.student("18") == known.student("bob dylan") == BOB
    assert known.student("Zoe\u0308") == Student("Team1", "Zoë")
    assert known.student("team2") is None and known.student("") is None


def test_a_name_that_two_students_have_names_neither(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name\n1,Li Wei\n2,Li Wei\n")
    assert known.student("Li Wei") is None and known.student("2") == Student("2", "Li Wei")


def test_moodles_folders_are_understood(tmp_path: Path) -> None:
    known = roster(tmp_path, "Identifier,Full name\nParticipant 4711,Li Wei\nParticipant 12,Li Wei\n18,Bob Dylan\n")
    assert known.student("Li Wei_12_assignsubmission_file_") == Student("Participant 12", "Li Wei")
    assert known.student("Participant_4711_assignsubmission_file") == Student("Participant 4711", "Li Wei")
    assert known.student("Bob Dylan_99_assignsubmission_file_") == BOB


@pytest.mark.parametrize("participant", ["Teilnehmer/in 4711", "Teilnehmer/in4711", "Participante 4711"])
def test_moodles_participants_have_numbers_in_other_languages(tmp_path: Path, participant: str) -> None:
    known = roster(tmp_path, f"ID,Vollst\u00e4ndiger Name\n{participant},Li Wei\nTeilnehmer/in 12,Li Wei\n")
    assert known.student("Li Wei_4711_assignsubmission_file") == Student(participant, "Li Wei")
    assert known.student("Li Wei_471_assignsubmission_file") is None


def test_a_folder_of_gradescope_is_reported_with_the_file_that_names_its_students() -> None:
    assert Roster.described("dora") == "dora: not on the roster"
    assert Roster.described("submission_4711") == (
        "submission_4711: not on the roster; export Gradescope's table of grades as the roster, or add a column "
        "`folder`"
    )


def test_gradescopes_table_of_grades_names_its_folders(tmp_path: Path) -> None:
    table = "Name,SID,Status,Submission ID\nAda Lovelace,17,Graded,4711\nBob Dylan,18,Missing,\nCid,19,Graded,4712\n"
    known = roster(tmp_path, table + "Dora,20,Graded,4712\n")
    assert known.student("submission_4711") == ADA
    assert known.student("submission_4712") is None, "a group"


@pytest.mark.parametrize(
    "table",
    [
        "sep=;\nid;name\n17;Ada Lovelace\n",  # Excel
        "HW 1,Points\n\nDisplay ID,ID,Last Name,First Name,grade\nada,17,Lovelace,Ada,\n",  # Sakai
        "Login;Matrikelnummer;Nachname;Vorname;E-Mail\nada;17;Lovelace;Ada;\n",  # ILIAS
        "Student;ID;SIS Login ID;HW (1)\n    Mögliche Punkte;;;10\nAda Lovelace;17;ada;\n",  # Canvas
    ],
)
def test_tables_of_other_programs_are_read(tmp_path: Path, table: str) -> None:
    assert roster(tmp_path, table).students == (ADA,)


def test_canvas_folders_are_understood(tmp_path: Path) -> None:
    known = roster(tmp_path, "Student,ID\nAda Lovelace,17\nBob Dylan,18\n")
    assert (
        known.student("lovelaceada_canvas_17") == known.student("x_canvas_18_canvas_17") == ADA
        and known.student("team_17") is None
    )


def test_other_columns_that_may_hold_ids_name_folders_too(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name,username,email\n17,Ada Lovelace,ada,a@b.c\n18,Bob Dylan,bob,17\n")
    assert known.student("ada") == known.student("a@b.c") == ADA and known.student("bob") == BOB
    assert known.student("17") == ADA, "an id before another student's other columns"


@pytest.mark.parametrize("written", ["17.0", "0017", "'17", '"=""17"""', "#17", "17\u200b", "\uff11\uff17"])
def test_ids_are_found_as_spreadsheets_write_them(tmp_path: Path, written: str) -> None:
    known = roster(tmp_path, f"id,name\n{written},Ada Lovelace\n18,Bob Dylan\n")
    ada = known.students[0]
    assert ada.id == next(csv.reader([written]))[0], "the platform's own spelling stays"
    assert known.student("17") == known.student("017") == known.student("ada_canvas_17") == ada
    assert known.student("hw-1-017") is None, "a part of a folder's name is taken as it is"


def test_an_id_that_two_students_may_have_is_neithers(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name\n0017,Ada Lovelace\n17,Bob Dylan\n")
    assert known.student("17") == Student("17", "Bob Dylan") and known.student("017") is None


def test_clones_of_gh_classroom_are_understood(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name,github_username\n17,Ada Lovelace,ada-l\n18,Bob Dylan,l\n")
    assert known.student("hw-1-ada-l") == ADA and known.student("hw-1-l") == BOB
    assert known.student("hw-1-eve") is None
    assert known.student("hw-ada-l-1") == ADA  # a repository that was made again
    numbered = roster(tmp_path, "id,name,github_username\n17,Ada Lovelace,ada-l-1\n18,Bob Dylan,ada-l\n")
    assert numbered.student("hw-ada-l-1") == ADA and numbered.student("hw-ada-l") == BOB
    assert roster(tmp_path, "id,github_username\n1,eve\n17,ada-l\n").student("hw-ada-l-1") == Student("17", "")
    assert known.student("hw-ada-l-12") is None


def test_an_unknown_student_with_a_number_is_not_taken_for_the_one_without(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name,github_username\n17,Ada Lovelace,ada-l\n18,Bob Dylan,bob\n")
    known.note_folders(["hw-ada-l", "hw-ada-l-1", "hw-bob-1"])
    assert known.student("hw-ada-l") == ADA and known.student("hw-bob-1") == BOB
    assert known.student("hw-ada-l-1") is None and known.strangers(["hw-ada-l-1"]) == ("hw-ada-l-1",)
    known.note_folders(["hw-ada-l-1", "hw-bob"])
    assert known.student("hw-ada-l-1") == ADA, "a repository that was made again, without the first one"


def test_the_assignment_is_what_clones_share(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name,github_username\n17,Ada Lovelace,ada-l\n18,Bob Dylan,bob\n")
    known.note_folders(["hw-1-ada-l", "hw-1-jo-bob"])
    assert known.student("hw-1-ada-l") == ADA and known.student("hw-1-jo-bob") is None


def test_brightspaces_folders_are_understood(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name\n17,Ada Lovelace\n18,Bob Dylan\n")
    assert known.student("4711-332211 - Ada Lovelace - Mar 1, 2026 1105 AM") == ADA
    assert known.student("18-332211 - Somebody Else - Mar 1, 2026 905 PM") == BOB
    assert known.student("4711-332211 - Ada Lovelace - 1 March, 2026 1105 AM") == ADA
    assert known.student("4711-332211 - Ada Lovelace - 1 March 2026 2105") == ADA


def test_brightspaces_dates_may_be_in_any_language(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name\n17,Ada Lovelace\n18,Bob Dylan\n")
    assert known.student("4711-3322 - Ada Lovelace - 1 mars, 2026 11 h 05") == ADA
    assert known.student("4711-3322 - Bob Dylan - 2026-03-01 1105") == BOB


def test_moodles_folders_of_groups_are_understood(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name\n17,Ada Lovelace\n18,Jean-Luc Picard\n")
    ada, luc = (f"{name}_{number}_assignsubmission_file_" for number, name in enumerate(
        ("Team Ada Lovelace-Ada Lovelace", "Default group-Jean-Luc Picard")))  # fmt: skip
    stranger = "Ada Lovelace-Eve_3_assignsubmission_file_"
    known.note_folders([ada, luc, stranger])
    assert known.student(ada) == ADA and known.student(luc) == Student("18", "Jean-Luc Picard")
    assert known.student(stranger) is None
    double = "Marie-Ada Lovelace_4_assignsubmission_file_"
    known.note_folders(["Jean-Luc Picard_2_assignsubmission_file_", double])
    assert known.student(double) is None, "a class without groups"


@pytest.mark.parametrize(
    "folder",
    [
        "Müller, Zoë(zmue)",  # Sakai
        "Muller_Zoe_zmue_301", "Mueller_Zoe_zmue_301",  # ILIAS
        "Zoe\u0308 Mu\u0308ller zmue", "Zoë Müller (zmue@x.org)", "90125 Zoë Müller",
    ],
)  # fmt: skip
def test_a_folder_with_a_students_id_and_full_name_is_that_students(tmp_path: Path, folder: str) -> None:
    table = "id,username,email,name\n90125,zmue,zmue@x.org,Zoë Müller\n18,zm,zm@x.org,Zoë Müller\n19,bob,,Bob Dylan\n"
    known = roster(tmp_path, table)
    assert known.student(folder) == Student("90125", "Zoë Müller")
    assert known.student("dylan_bob") == Student("19", "Bob Dylan"), "a full name in another order"


@pytest.mark.parametrize(
    "folder",
    [
        "Müller_Zoë_eve_301", "Dylan, Robert(bob)", "Zoë Müller 18", "Zoë Müller (zm, zmue)", "zm, zmue",
        "Zoë Müller_18_assignsubmission_file", "Mueller_Zoe", "Bob Dylan Thomas",
    ],
)  # fmt: skip
def test_a_folder_with_only_a_part_of_them_or_with_two_students_is_neithers(tmp_path: Path, folder: str) -> None:
    table = "id,username,name\n17,zmue,Zoë Müller\n18,zm,Zoë Müller\n19,bob,Bob Dylan\n"
    assert roster(tmp_path, table).student(folder) is None


def test_a_name_with_the_last_one_first_is_a_name_too(tmp_path: Path) -> None:
    known = roster(tmp_path, 'Student,ID\n"Lovelace, Ada",17\n"Dylan, Bob",18\n')
    assert known.student("Ada Lovelace") == known.student("Lovelace, Ada") == Student("17", "Lovelace, Ada")
    known = roster(tmp_path, "id,first name,last name\n17,Ada,Lovelace\n18,Bob,Dylan\n")
    assert known.student("Lovelace, Ada") == known.student("Lovelace Ada") == ADA


def test_moodles_name_is_the_first_one(tmp_path: Path) -> None:
    known = roster(tmp_path, "Identifier,Full name\nParticipant 1,Mallory\nParticipant 2,Bob Dylan\n")
    assert known.student("Mallory_1_assignsubmission_file_Bob Dylan_2_assignsubmission_file") == Student(
        "Participant 1", "Mallory"
    )


def test_the_absent_the_strangers_and_shared_folders_are_listed(tmp_path: Path) -> None:
    known = roster(tmp_path, "id,name\n17,Ada Lovelace\n18,Bob Dylan\n")
    folders = ("17", "Ada Lovelace", "eve")
    assert known.absent(folders) == (BOB,)
    assert known.strangers(folders) == ("eve",)
    assert known.shared(folders) == {ADA: ("17", "Ada Lovelace")}


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ("", "line 1: no column holds ids: one must be called id (student id, "),
        ("name,mark\nAda,1\n", "netid, email, email address); there are: name, mark"),
        ("id,name,ID\n1,a,2\n", "line 1: two columns are called id"),
        ("id,name\n", "there is no student below the header"),
        ("id,name\n17,Ada\n18\n,Bob\n", "line 4: the id is missing"),
        ("id,name\n17,Lovelace, Ada\n", "line 2: 3 cells for 2 columns; quote cells that contain a separator"),
        ('id,name\n17,"A\nda"\n18,"B', "line 4: unexpected end of data"),
        ('"id,name\n17,Ada\n', "line 1: a quote in the header is not closed"),
        ("id,name\n17,Ada\nab\x1bc,Bob\n", "line 3: ab\\x1bc: too long, or with unprintable characters"),
        ("id,name\n17,Ada\n\n17,Bob\n", "line 4: the id 17 is already on line 2"),
        ("id,folder\n17,f\n18,F\n", "line 3: the folder F is already on line 2"),
        (b"id,name\n17,Ada\n18,B\xf6b\n", "line 3: this is not UTF-8; save the table as CSV in UTF-8"),
        ("id,name\n17,Ada\n".encode("utf-16-le"), "line 1: this is not UTF-8; save the table as CSV in UTF-8"),
        (b"PK\x03\x04\x14\x00", "line 1: this is not UTF-8; save the table as CSV in UTF-8"),
        ("id,name\n17,Ada\n".encode("utf-16")[:-1], "line 2: this is not UTF-8; save the table as CSV in UTF-8"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, contents: str | bytes, expected: str) -> None:
    (mistake,) = mistakes(tmp_path, contents)
    assert expected in mistake


def test_all_mistakes_are_reported_at_once_but_not_hundreds(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "id\n1\n1\n1\n") == [
        "line 3: the id 1 is already on line 2",
        "line 4: the id 1 is already on line 2",
    ]
    assert mistakes(tmp_path, "id\n" + "1\n" * 40)[-1] == "and 19 more mistakes"


def test_a_missing_roster_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RosterError, match=r"absent.csv: cannot be read: No such file or directory$"):
        Roster.read(tmp_path / "absent.csv")

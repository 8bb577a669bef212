"""A table of adjustments: points by student and exercise, and one clear line per mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpulab.course.intake.adjustments import AdjustmentsError, read_adjustments
from pytest_gpulab.course.intake.tables import MAX_MISTAKES
from pytest_gpulab.grading.grade import Adjustment

pytestmark = pytest.mark.unit

IDS = {"17": "17", "team-red": "17", "18": "18"}
HEADER = "student,exercise,points,comment\n"


def read(tmp_path: Path, contents: str | bytes) -> dict[tuple[str, str], Adjustment]:
    path = tmp_path / "adjustments.csv"
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    return read_adjustments(path, ("scan", "reduction"), IDS.get)


def mistakes(tmp_path: Path, contents: str | bytes) -> list[str]:
    with pytest.raises(AdjustmentsError) as caught:
        read(tmp_path, contents)
    return [line.removeprefix(f"{tmp_path / 'adjustments.csv'}: ") for line in str(caught.value).split("\n")]


@pytest.mark.parametrize(
    "contents",
    [
        HEADER + '17,scan,-5,"late, by two days"\n18,reduction,2.5,\n',
        "\ufeffComment;Points;Student;Exercise\r\nlate, by two days;-5;team-red;scan\r\n\r\n;+2.5;18;reduction\r\n",
        "student\texercise\tpoints\tcomment\tby\n17\tscan\t-5.0\tlate, by two days\tme\n18\treduction\t2.5\n",
    ],
)
def test_adjustments_are_read(tmp_path: Path, contents: str) -> None:
    found = read(tmp_path, contents)
    assert found == {("17", "scan"): Adjustment(-5, "late, by two days"), ("18", "reduction"): Adjustment(2.5, "")}
    assert [each.text for each in found.values()] == ["-5 points: late, by two days", "+2.5 points"]
    assert read(tmp_path, HEADER) == {}
    assert Adjustment(1, "x").text == "+1 point: x"


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (HEADER + "19,scan,5,\n", "line 2: there is no student '19': neither on the roster nor with a submission"),
        (HEADER + ",scan,5,\n", "line 2: there is no student '': neither on the roster nor with a submission"),
        (HEADER + "17,scam,5,\n", "line 2: there is no exercise 'scam'; exercises: reduction, scan"),
        (HEADER + "17,scan,five,\n", "line 2: the points 'five' are no number; write them as 5 or -2.5"),
        (HEADER + '17,scan,"2,5",\n', "line 2: the points '2,5' are no number; write them as 5 or -2.5"),
        (HEADER + "17,scan,nan,\n", "line 2: the points 'nan' are no number; write them as 5 or -2.5"),
        (HEADER + "17,scan,inf,\n", "line 2: the points 'inf' are no number; write them as 5 or -2.5"),
        (HEADER + "17,scan,,x\n", "line 2: the points '' are no number; write them as 5 or -2.5"),
        (
            HEADER + "17,scan,5,\nteam-red,scan,5,again\n",
            "line 3: 17 and scan are already on line 2: add up their points",
        ),
        (
            HEADER + "17,scan,5,late, by two days\n",
            "line 2: there are more cells than columns; quote a comment that contains a separator",
        ),
        (
            "student,exercise,comment\n17,scan,\n",
            "line 1: not one column is called points: the columns must be student, exercise, points, comment; "
            "there are: student, exercise, comment",
        ),
        (
            "\nstudent,exercise,points,points,comment\n",
            "line 2: not one column is called points: the columns must be student, exercise, points, comment; "
            "there are: student, exercise, points, points, comment",
        ),
        (
            "",
            "line 1: not one column is called student: the columns must be student, exercise, points, comment; "
            "there are: none",
        ),
        (HEADER.encode() + b"17,scan,5,f\xfcr\n", "line 2: this is not UTF-8; save the table as CSV in UTF-8"),
        (HEADER + '17,scan,5,"late\n', "line 2: unexpected end of data"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, contents: str | bytes, message: str) -> None:
    assert mistakes(tmp_path, contents) == [message]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(AdjustmentsError) as caught:
        read_adjustments(tmp_path, (), IDS.get)
    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory"


def test_all_mistakes_are_listed_up_to_a_limit(tmp_path: Path) -> None:
    found = mistakes(tmp_path, HEADER + "17,scam,5,\n18,scan,x,\n")
    assert [line.partition(":")[0] for line in found] == ["line 2", "line 3"]
    found = mistakes(tmp_path, HEADER + 25 * "19,scan,5,\n")
    assert len(found) == MAX_MISTAKES + 1 and found[-1] == "and 5 more mistakes"

"""The proofs on a class of a dozen: what the scripts here hold of hundreds of submissions, held whenever tests run."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import killed
import lost_worker
import pytest
from claims import nobody_lost, nothing_imported, nothing_leaked, points_by_kind, verdicts_as_alone
from class_of_500 import claims_of
from classroom import SHARES, Classroom, Submission, write
from hostile import HARMS, QUICK, SECRET
from runs import ROOT

EXERCISES = ("constant_memory",)
FEWER_CHECKS = """
from dataclasses import replace

few = tuple(replace(case, points=18) for case in (*exercise.cases[:3], *exercise.cases[6:8]))
exercise = replace(exercise, cases=few, uses=(), speed=())
"""


@pytest.fixture
def exercises(tmp_path: Path) -> str:
    """The option for a course of the exercise with small cases, and without estimates of large ones."""
    folder = tmp_path / "exercises" / EXERCISES[0]
    shutil.copytree(ROOT / "exercises" / EXERCISES[0], folder)
    with (folder / "exercise.py").open("a") as file:
        file.write(FEWER_CHECKS)
    return f"--gpulab-exercises={folder.parent}"


def dozen(seed: int, count: int = 14) -> list[Submission]:
    return Classroom(seed, EXERCISES, QUICK).students(count)


def test_a_small_class_with_hostile_students_is_graded_without_side_effects(tmp_path: Path, exercises: str) -> None:
    submissions = dozen(seed=1)
    claims = claims_of(submissions, tmp_path, exercises, "--gpulab-workers=2", "--gpulab-seed=1")
    assert [claim for claim in claims if claim.holds is False] == []
    rows = {
        kind: (count, graded, full) for kind, count, graded, full, _ in points_by_kind(submissions, tmp_path / "out")
    }
    assert set(rows) == set(SHARES)
    assert rows["right"][0] == rows["right"][1] and rows["hostile"][2] == 0


def test_a_killed_class_ends_with_the_gradebook_of_one_that_was_not(tmp_path: Path, exercises: str) -> None:
    rows, claims = killed.compared(dozen(2, 6), tmp_path, 2, 1, 0.5, exercises, "--gpulab-workers=2")
    assert [claim for claim in claims if claim.holds is False] == [], rows
    assert rows[0][-3] < rows[0][-2]


def test_a_class_that_loses_one_of_two_workers_gets_the_verdicts_of_one_that_does_not(
    tmp_path: Path, exercises: str
) -> None:
    claims = lost_worker.compared(dozen(3, 7), tmp_path, 0.2, exercises)
    assert [claim for claim in claims if claim.holds is False] == []


def test_a_class_is_the_same_for_the_same_seed_and_has_all_kinds() -> None:
    submissions = Classroom(1).students(500)
    assert submissions == Classroom(1).students(500) != Classroom(2).students(500)
    assert len({submission.student for submission in submissions}) == 500
    kinds = Counter(submission.kind for submission in submissions)
    assert kinds == {kind: round(500 * share) for kind, share in SHARES.items()}
    assert {submission.told for submission in submissions if submission.kind == "hostile"} == set(HARMS)
    copies = [submission for submission in submissions if submission.kind == "duplicate"]
    sources = Counter(submission.source for submission in submissions if submission.kind not in ("duplicate", "empty"))
    assert set(sources.values()) == {1} and {copy.source for copy in copies} < set(sources)


def gradebook(out: Path, submissions: Sequence[Submission], changes: dict[str, str] | None = None) -> Path:
    """Write what a run would, everyone with one passed check, but for the verdicts that are given."""
    out.mkdir()
    told = changes or {}
    entries = [
        {
            "submission": each.label,
            "points": 1.0,
            "max_points": 1.0,
            "checks": [{"name": "compile", "verdict": told.get(each.student, "passed"), "points": 1.0, "findings": []}],
        }
        for each in submissions
    ]
    (out / "grades.json").write_text(json.dumps({"grades": entries, "ungraded": []}))
    rows = "".join(f"{each.student},1\n" for each in submissions)
    (out / "grades.csv").write_text(f"student,total\n{rows}", "utf-8-sig")
    return out


def test_the_proof_notices_lost_submissions(tmp_path: Path) -> None:
    submissions = dozen(seed=1)
    assert nobody_lost(submissions, gradebook(tmp_path / "all", submissions)).holds
    assert not nobody_lost(submissions, gradebook(tmp_path / "few", submissions[1:])).holds
    assert not nobody_lost(submissions, gradebook(tmp_path / "many", [*submissions, submissions[0]])).holds


def test_the_proof_notices_a_verdict_that_a_neighbour_changed(tmp_path: Path) -> None:
    submissions = dozen(seed=1)
    known = next(each for each in submissions if each.kind == "right")
    assert known.based_on is not None
    alone = {each.based_on: Path(each.label) for each in submissions if each.based_on}
    quiet, out = gradebook(tmp_path / "quiet", submissions), gradebook(tmp_path / "out", submissions)
    assert verdicts_as_alone(submissions, out, alone, quiet).holds
    changed = gradebook(tmp_path / "changed", submissions, {known.student: "failed"})
    assert known.label in verdicts_as_alone(submissions, changed, alone, quiet).found


@pytest.mark.parametrize("shown", ["root:x:0:0", f"// student999 {SECRET}", f"#error {SECRET}"])
def test_the_proof_notices_a_leak_and_a_planted_file_that_ran(shown: str, tmp_path: Path) -> None:
    submissions = dozen(seed=1)
    own = {submissions[0].student: f"// {submissions[0].student} {SECRET}"}
    assert nothing_leaked(submissions, gradebook(tmp_path / "own", submissions, own)).holds
    assert not nothing_leaked(
        submissions, gradebook(tmp_path / "out", submissions, {submissions[0].student: shown})
    ).holds
    write(submissions, tmp_path / "class")
    assert nothing_imported(tmp_path / "class").holds
    (tmp_path / "class" / submissions[0].student / "was_imported").touch()
    assert not nothing_imported(tmp_path / "class").holds

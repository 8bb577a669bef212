"""Calibrations: from thresholds to a file, and back into grades."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from clocked_device import QUIET, ClockedBench
from doubling import Bench, right
from tiers import LADDER, TWO, expecting, graded, measured, speedup, with_tiers

from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.exercise import Exercise
from pytest_gpulab.grading.calibration.choice import DeviceThresholds
from pytest_gpulab.grading.calibration.file import CalibrationError, document, read, text
from pytest_gpulab.grading.calibration.fit import exercise_table, ladders, proposals
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise, Thresholds
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.speed.benchmark import CALIBRATING_ROUNDS, ROUNDS_PER_READING
from pytest_gpulab.grading.speed.statistics import FIRST_ROUNDS
from pytest_gpulab.reports.files.calibration import lines, problems

H200 = DeviceInfo("cuda", "NVIDIA H200", "nvcc 13.0", "sm_90", False, {"SMs": "132", "compute capability": "9.0"})
T4 = DeviceInfo("cuda", "Tesla T4", "nvcc 13.0", "sm_75", False, {"SMs": "40"})


def calibrated(folder: Path, exercise: Exercise = TWO, name: str = "calibration/nvidia-h200.toml") -> Path:
    """Write what a calibration of the ladder gives."""
    table = exercise_table(
        exercise, proposals(exercise, LADDER, 0.85), graded("a.cu"), 0.85, "2026-11-20T13:01:00+00:00"
    )
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text(document(H200, {"twice": table})))
    return path


class TestTheFile:
    def test_holds_all_that_was_measured_and_where(self, tmp_path: Path) -> None:
        table = read(calibrated(tmp_path)).exercises["twice"]
        assert {key: table[key] for key in ("version", "driver", "compiler", "plugin_version", "fraction")} == {
            "version": "7",
            "driver": "580.1",
            "compiler": "nvcc 13.0",
            "plugin_version": "0.1.0",
            "fraction": 0.85,
        }
        tier = table["tiers"]["4.3x"]
        assert tier["measured"]["4_loads.cu"] == {
            "must_reach": True,
            "speedup": 8.0,
            "low": 7.99,
            "high": 8.01,
            "rounds": 256,
            "caches": "cold",
        }
        assert len(tier.pop("measured")) == len(LADDER)
        assert tier == {
            "threshold": 6.79,
            "own_threshold": 4.3,
            "own_threshold_holds": True,
            "baseline": "naive.cu",
            "size": "2^10",
            "variant": "default",
            "reference": "4_loads.cu",
            "fastest_below": "3_sequential.cu",
        }

    def test_survives_reading_and_writing_whatever_stands_in_it(self, tmp_path: Path) -> None:
        path = calibrated(tmp_path)
        odd = 'note = "a \\"quoted\\" nöte\\n"\nsince = 2026-11-20\nlist = [1, 2.5, "x", true]\n[exercises.twice]'
        path.write_text(path.read_text().replace("[exercises.twice]", f"[exercises.other]\nversion = '1'\n{odd}", 1))
        path.write_text(path.read_text().replace("since", "created_utc = ''\ntiers = {}\nsince"))
        once = read(path).exercises
        path.write_text(text(document(H200, once)))
        assert read(path).exercises == once
        assert once["other"]["note"] == 'a "quoted" nöte\n'

    @pytest.mark.parametrize(
        ("old", "new", "complaint"),
        [
            ("threshold = 1.35", "threshold = ", "not valid TOML: "),
            ("threshold = 1.35", "threshold = 0", '[exercises.twice.tiers."1.4x"]: threshold must be a number greater'),
            ("threshold = 1.35", "threshold = true", '[exercises.twice.tiers."1.4x"]: threshold must be a number'),
            ("threshold = 1.35", "threshold = '1'", '[exercises.twice.tiers."1.4x"]: threshold must be a number'),
            ("threshold = 1.35", "threshold = inf", '[exercises.twice.tiers."1.4x"]: threshold must be a number'),
            ('size = "2^10"', "size = 1024", '[exercises.twice.tiers."1.4x"] needs the key size, a string'),
            ('version = "7"', "", "[exercises.twice] needs the key version, a string"),
            ('device = "NVIDIA H200"', "", "the file needs the key device, a string"),
            ('SMs = "132"', "SMs = 132", "SMs must be a string"),
            ("schema_version = 1", "schema_version = 2", "a calibration of schema version 2; this is version 1"),
            ("format", "form", 'not a calibration: it must say format = "pytest-gpulab/calibration"'),
            ("exercises.", "exams.", "the file needs the table exercises, a table of tables"),
        ],
    )
    def test_mistakes_are_named(self, tmp_path: Path, old: str, new: str, complaint: str) -> None:
        path = calibrated(tmp_path)
        count = -1 if old.endswith(".") else 1
        path.write_text(path.read_text().replace(old, new, count))
        with pytest.raises(CalibrationError) as error:
            read(path)
        assert str(error.value).startswith(f"{path}: {complaint}")

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(CalibrationError, match=r"x\.toml: cannot be read: No such file"):
            read(tmp_path / "x.toml")


@pytest.fixture
def exercises(tmp_path: Path) -> Path:
    folder = tmp_path / "exercises"
    folder.mkdir()
    return folder


def device(exercises: Path, spec: str | Path = "auto", measuring: bool = False) -> DeviceThresholds:
    return DeviceThresholds(str(spec), exercises, measuring)


class TestWhichCalibrationHolds:
    def test_the_one_of_the_device(self, exercises: Path) -> None:
        calibrated(exercises)
        (exercises / "calibration" / "t4.toml").write_text(text(document(T4, {})))
        found = device(exercises)
        assert found.choose(H200) == "thresholds: calibrated for NVIDIA H200 (exercises/calibration/nvidia-h200.toml)"
        assert found.calibration is not None and found.calibration.exercises

    def test_none_for_another_device_or_another_number_of_multiprocessors(self, exercises: Path) -> None:
        calibrated(exercises)
        own = "thresholds: the exercises' own; no calibration in exercises/calibration is for this GPU"
        for info in (T4, H200._replace(details={"SMs": "60"})):
            assert device(exercises).choose(info) == own
        assert device(exercises / "none").choose(H200).startswith("thresholds: the exercises' own;")

    def test_an_edited_file_need_not_say_how_many_multiprocessors(self, exercises: Path) -> None:
        path = calibrated(exercises)
        path.write_text(path.read_text().replace('SMs = "132"\n', ""))
        assert device(exercises).choose(H200).startswith("thresholds: calibrated for NVIDIA H200")

    def test_none_if_none_is_wanted(self, exercises: Path) -> None:
        calibrated(exercises).write_text("broken")
        line = device(exercises, "none").choose(H200)
        assert line == "thresholds: the exercises' own, because of --gpulab-calibration=none"

    def test_a_file_that_is_named_wins_over_the_one_that_is_found(self, exercises: Path, tmp_path: Path) -> None:
        calibrated(exercises)
        mine = calibrated(tmp_path, name="mine/h200.toml")
        assert device(exercises, mine).choose(H200) == "thresholds: calibrated for NVIDIA H200 (mine/h200.toml)"
        foreign = device(exercises, mine).choose(T4)
        assert foreign == "thresholds: the exercises' own; mine/h200.toml is for NVIDIA H200 with 132 SMs"

    def test_two_for_one_device_are_a_mistake(self, exercises: Path) -> None:
        first, second = calibrated(exercises), calibrated(exercises, name="calibration/z.toml")
        with pytest.raises(CalibrationError) as error:
            device(exercises).choose(H200)
        assert str(error.value) == f"{first} and {second} are both for NVIDIA H200: remove one"

    def test_estimates_are_never_held_to_it(self, exercises: Path) -> None:
        calibrated(exercises).write_text("broken")
        assert device(exercises).choose(H200._replace(estimates=True)) == ""


def source(exercises: Path, exercise: Exercise, name: str = "twice") -> Thresholds:
    found = device(exercises)
    found.choose(H200)
    return found.applied_to(LoadedExercise(name, exercises / name, exercise)).thresholds


class TestWhatAnExerciseTakesFromIt:
    def test_the_thresholds(self, exercises: Path) -> None:
        calibrated(exercises)
        found = source(exercises, TWO)
        assert found.source == "calibrated for NVIDIA H200 on 2026-11-20 (exercises/calibration/nvidia-h200.toml)"
        assert [found.of(tier) for tier in TWO.speed] == [1.35, 6.79]

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"threshold": 5}, "the exercise's own for 5x, which was not measured"),
            ({"size": 2048}, "the exercise's own for 4.3x, which was measured with size 2^10, not 2^11"),
        ],
    )
    def test_a_tier_that_has_changed_keeps_its_own(self, exercises: Path, changes: dict[str, Any], reason: str) -> None:
        calibrated(exercises)
        tiers = TWO.speed[0], replace(TWO.speed[1], **changes)
        found = source(exercises, with_tiers(*tiers))
        assert found.source.endswith(f"(exercises/calibration/nvidia-h200.toml); {reason}")
        assert [found.of(tier) for tier in tiers] == [1.35, tiers[1].threshold]
        assert [found.is_calibrated(tier) for tier in tiers] == [True, False]

    def test_a_tier_without_a_threshold_keeps_its_own(self, exercises: Path) -> None:
        path = calibrated(exercises)
        path.write_text(path.read_text().replace("threshold = 6.79\n", ""))
        assert source(exercises, TWO).source.endswith("; the exercise's own for 4.3x, which has no threshold there")

    def test_another_version_and_another_exercise_keep_their_own(self, exercises: Path) -> None:
        calibrated(exercises)
        where = "exercises/calibration/nvidia-h200.toml"
        older = source(exercises, replace(TWO, version="8"))
        assert older == Thresholds(f"the exercise's own; {where} is for its version 7, this is 8")
        assert source(exercises, TWO, "thrice") == Thresholds(f"the exercise's own; {where} has no entry for it")


class TestMakingOne:
    def test_the_file_is_named_after_the_device(self, exercises: Path) -> None:
        line = device(exercises, measuring=True).choose(H200)
        assert line == "thresholds: this run measures them for exercises/calibration/nvidia-h200.toml"

    def test_a_device_that_estimates_cannot_be_calibrated(self, exercises: Path) -> None:
        with pytest.raises(CalibrationError, match="measures times, but the NVIDIA H200 only estimates them"):
            device(exercises, measuring=True).choose(H200._replace(estimates=True))

    def test_the_file_of_another_device_is_not_overwritten(self, exercises: Path) -> None:
        path = calibrated(exercises)
        with pytest.raises(CalibrationError) as error:
            device(exercises, path, measuring=True).choose(T4)
        assert str(error.value) == (
            f"{path} is for NVIDIA H200 with 132 SMs, but this is Tesla T4: "
            "name another file with --gpulab-calibration=PATH"
        )

    def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(self, exercises: Path) -> None:
        path = exercises / "no" / "such" / "file.toml"
        with pytest.raises(CalibrationError, match=f"cannot write the calibration {path}"):
            device(exercises, path, measuring=True).choose(H200)

    def test_exercises_that_were_not_measured_again_stay(self, exercises: Path) -> None:
        path = calibrated(exercises)
        made = device(exercises, measuring=True)
        made.choose(H200)
        assert made.write({"thrice": {"version": "1", "created_utc": "", "tiers": {}}}) == (
            "exercises/calibration/nvidia-h200.toml"
        )
        assert list(read(path).exercises) == ["thrice", "twice"]
        assert read(path).exercises["twice"]["tiers"]["1.4x"]["threshold"] == 1.35


def clocked_grade(clocked: ClockedBench, costs_ms: float, thresholds: Thresholds) -> Grade:
    """Grade a kernel; the baseline takes 3 ms."""
    clocked.programs["submission"] = right(costs_ms)
    path = clocked.folder / "student.cu"
    path.write_text("submission")
    loaded = LoadedExercise("twice", clocked.folder, TWO, thresholds)
    return Grader(loaded, path, clocked.device, 1, "solutions/student.cu").grade()


def test_a_run_that_measures_takes_half_of_the_rounds_later(clocked: ClockedBench) -> None:
    clocked_grade(clocked, 1.0, Thresholds(measuring=True))
    first, second = (list(run) for is_end, run in groupby(clocked.watch.events, "given back".__eq__) if not is_end)
    assert first.count("learns on") == second.count("learns on") == CALIBRATING_ROUNDS // 2 // ROUNDS_PER_READING


def test_nothing_is_measured_for_a_calibration_while_others_work_on_the_gpu(clocked: ClockedBench) -> None:
    clocked.watch.conditions = lambda: replace(QUIET, interruption_ms=0.293)  # type: ignore[method-assign]
    grade = clocked_grade(clocked, 1.0, Thresholds(measuring=True))
    (check,) = {check.verdict: check for check in grade.checks if check.kind == "speedup"}.values()
    assert check.verdict == "not gradable"
    assert check.findings[0].what == (
        "The speed cannot be graded here: other programs used the GPU meanwhile, 0.29 ms at a time, which would "
        "distort the times."
    )


def test_a_calibration_notes_possible_interference(clocked: ClockedBench) -> None:
    clocked.watch.conditions = lambda: replace(QUIET, interruption_ms=0.3, speed=0.85)  # type: ignore[method-assign]
    grade = clocked_grade(clocked, 1.0, Thresholds(measuring=True))
    (what,) = {check.findings[0].what for check in grade.checks if check.kind == "speedup"}
    assert what == (
        "The speed cannot be graded here: other programs used the GPU meanwhile, 0.3 ms at a time, which may have "
        "slowed its clock."
    )


def test_a_ratio_is_asked_for_again_when_others_may_have_ended(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_gpulab.grading.speed.benchmark.INTERRUPTED_WAIT_S", 60.0)
    looks = iter([replace(QUIET, interruption_ms=0.3)] * 3)
    clocked.watch.conditions = lambda: next(looks, QUIET)  # type: ignore[method-assign]
    grade = clocked_grade(clocked, 1.0, Thresholds(measuring=True))
    measured = next(check.measurement for check in grade.checks if check.kind == "speedup")
    assert measured is not None
    assert (measured.rounds, measured.dropped) == (CALIBRATING_ROUNDS + FIRST_ROUNDS, FIRST_ROUNDS)


def test_a_run_that_measures_takes_many_rounds_and_fails_no_speed(clocked: ClockedBench) -> None:
    grade = clocked_grade(clocked, 3.0, Thresholds(measuring=True))
    checks = {check.name: check for check in grade.checks if check.kind == "speedup"}
    assert {check.verdict for check in checks.values()} == {"missed"}
    taken = checks["speedup[1.4x]"].measurement
    assert taken is not None and taken.rounds == CALIBRATING_ROUNDS and not taken.calibrated


def test_a_calibrated_threshold_is_applied_and_shown(clocked: ClockedBench) -> None:
    asked = Thresholds("calibrated for a test", {"1.4x": 2.5, "4.3x": 2.9})
    grade = clocked_grade(clocked, 1.1, asked)
    first, second = grade.checks[-2:]
    assert (first.name, first.verdict) == ("speedup[1.4x]", "passed")
    assert (second.name, second.verdict) == ("speedup[4.3x]", "missed")
    assert first.measurement is not None and (first.measurement.threshold, first.measurement.calibrated) == (2.5, True)
    assert grade.provenance.thresholds == "calibrated for a test"
    assert [check.verdict for check in clocked_grade(clocked, 1.1, Thresholds()).checks[-2:]] == ["passed", "missed"]
    slow = clocked_grade(clocked, 1.5, asked).checks[-2]
    assert (slow.verdict, clocked_grade(clocked, 1.5, Thresholds()).checks[-2].verdict) == ("failed", "passed")


def test_rounds_are_added_while_a_calibrated_threshold_is_undecided(clocked: ClockedBench) -> None:
    near = clocked_grade(clocked, 1.0, Thresholds("", {"4.3x": 3.0})).checks[-1].measurement
    far = clocked_grade(clocked, 1.0, Thresholds()).checks[-1].measurement
    assert near is not None and far is not None and near.rounds > far.rounds


def test_from_grades_to_a_file_to_grades(clocked: ClockedBench, exercises: Path) -> None:
    costs = {"1_naive.cu": 3.0, "2_strided.cu": 1.8, "3_shuffle.cu": 0.4}
    points = {"1_naive.cu": expecting(60, **{"1.4x": "too-slow"}), "2_strided.cu": expecting(70)}
    (exercises / "twice").mkdir()
    (exercises / "twice" / "exercise.py").write_text("from tiers import TWO as exercise\n")
    made = device(exercises, measuring=True)
    made.choose(H200)
    measuring = made.applied_to(LoadedExercise("twice", clocked.folder, TWO)).thresholds
    grades = [replace(clocked_grade(clocked, ms, measuring), submission=name) for name, ms in costs.items()]
    expected = {**points, "3_shuffle.cu": expecting(100)}
    (ladder,) = ladders(grades, Catalogue(exercises), lambda grade: expected[grade.submission], 0.85)
    made.write({ladder.name: ladder.table})
    found = source(exercises, TWO)
    assert found.of(TWO.speed[0]) == pytest.approx(0.85 * 3 / 1.8, rel=0.01)
    assert found.of(TWO.speed[1]) == pytest.approx(0.85 * 3 / 0.4, rel=0.01)
    verdicts = {name: [c.verdict for c in clocked_grade(clocked, ms, found).checks[-2:]] for name, ms in costs.items()}
    assert verdicts == {
        "1_naive.cu": ["failed", "missed"],
        "2_strided.cu": ["passed", "missed"],
        "3_shuffle.cu": ["passed", "passed"],
    }
    assert problems([ladder]) == []
    report = lines([ladder], 0.85)
    assert report[:2] == [
        "twice:",
        "tier  slowest that must reach     at  fastest that must not     at   own  threshold",
    ]
    assert report[3].split()[:2] == ["1.4x", "2_strided"]


def test_the_report_lists_problems_of_a_calibration(tmp_path: Path) -> None:
    (tmp_path / "twice").mkdir()
    (tmp_path / "twice" / "exercise.py").write_text("from tiers import TWO as exercise\n")
    grades = [
        graded("2_strided.cu", *(speedup(tier.name, measurement=measured(1.3)) for tier in TWO.speed)),
        graded("9_unknown.cu", *(speedup(tier.name, measurement=measured(9)) for tier in TWO.speed)),
    ]
    expected = {"solutions/twice/2_strided.cu": expecting(70)}
    (ladder,) = ladders(grades, Catalogue(tmp_path), lambda grade: expected.get(grade.submission), 0.85)
    report = lines([ladder], 0.85)
    assert report[3].split() == ["1.4x", "2_strided", "1.29x", "-", "-", "1.4x!", "1.1x"]
    assert report[4].split() == ["4.3x", "-", "-", "2_strided", "1.31x", "4.3x", "-"]
    assert report[5] == "left out: solutions/twice/9_unknown.cu: it has no expected verdict"
    assert problems([ladder]) == ["twice: no threshold for speedup[4.3x]: no solution that must reach it was measured"]
    assert max(map(len, report)) <= 105
    assert ladders(grades[1:], Catalogue(tmp_path), lambda grade: None, 0.85) == ()


def test_a_device_that_estimates_takes_thresholds_as_well(bench: Bench) -> None:
    """Nothing gives it any; but the rule is one."""
    bench.programs["submission"] = right(1.0)
    path = bench.folder / "student.cu"
    path.write_text("submission")
    loaded = LoadedExercise("twice", bench.folder, TWO, Thresholds("test", {"1.4x": 3.5}))
    assert Grader(loaded, path, bench.device, 1).grade().checks[-2].verdict == "failed"

"""`gpulab watch`: a file is graded again whenever it is saved."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hang_guard import HANG_S
from lean_pytest import WITHOUT

from pytest_gpulab.command import CommandError, main, watch
from pytest_gpulab.command.submission import exercise_of
from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.simulated.device import SimulatedDevice
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import Check, checks_of
from pytest_gpulab.grading.correctness.trials import Trials
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.grader import Grader
from pytest_gpulab.grading.time_limits import CaseLimits
from pytest_gpulab.reports.students import points_text

ROOT = Path(__file__).parents[2]
EXERCISES = ROOT / "exercises"
RIGHT = (ROOT / "solutions/constant_memory/01_constant.cu").read_text()
WRONG = (ROOT / "tests/wrong/constant_memory/swapped_guard.cu").read_text()


class Watch:
    """A running `gpulab watch`."""

    def __init__(self, file: Path) -> None:
        words = [sys.executable, "-m", "pytest_gpulab", "watch", str(file), "--exercises", str(EXERCISES)]
        self.process = subprocess.Popen([*words, "--device", "sim"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        self._out, self._selector = self.process.stdout, selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    def until(self, end: str) -> str:
        """Return the output up to a line with this text."""
        found, limit_s = "", time.monotonic() + HANG_S
        while end not in found or not found.endswith("\n"):
            assert self._selector.select(limit_s - time.monotonic()), found
            piece = os.read(self._out.fileno(), 1 << 16).decode()
            assert piece, f"ended after: {found}"
            found += piece
        return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "constant_memory.cu"
    file.write_text(RIGHT)
    return file


@pytest.fixture
def watching(file: Path) -> Iterator[Watch]:
    running = Watch(file)
    yield running
    running.process.kill()
    running.process.communicate()


def joined(text: str) -> str:
    """Return the text with wrapped commands in one line, as a shell reads them."""
    return " ".join(text.replace("\\\n", " ").split())


def test_a_file_is_graded_now_and_after_each_change(file: Path, watching: Watch) -> None:
    first = watching.until(" points")
    assert first.startswith("gpulab: simulated GPU (cost model: NVIDIA H200), because it was requested; seed 1; ")
    assert "\n100 of 100 points\n" in first and "FAILED" not in first
    file.write_text(WRONG)
    second = watching.until(" points")
    assert second.count("FAILED") == 1 and "FAILED correct[" in second  # only the first failing check
    assert "hint: " in second and " points; lost in correct[" in second
    assert f" run it: gpulab explain {file} --case " in joined(second)
    replaced = file.with_suffix(".new")  # as editors do
    replaced.write_text(RIGHT)
    replaced.replace(file)
    assert "\n100 of 100 points\n" in watching.until(" points")
    watching.process.send_signal(signal.SIGINT)
    assert watching.process.wait(HANG_S) == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_counts_wherever_it_comes() -> None:
    """One that came while an object was finalized was lost, and `gpulab watch` went on."""

    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with watch._interrupts() as interrupts:
        Finalized()
        assert interrupts == [signal.SIGINT]
        assert list(watch._saves(Path(__file__), lambda: bool(interrupts))) == []


def test_a_file_that_is_gone_for_a_moment_is_not_graded(file: Path, watching: Watch) -> None:
    watching.until(" points")
    file.unlink()
    file.with_name("other.cu").write_text(WRONG)
    file.write_text(WRONG)
    assert "FAILED" in watching.until(" points")


def test_an_unchanged_file_is_not_graded_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saves = [RIGHT, WRONG, WRONG, None, RIGHT]

    def saved(*_: object, **__: object) -> Iterator[None]:
        for text in saves:
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(text)
            yield

    monkeypatch.setattr("watchfiles.watch", saved)
    graded = [file.read_text() for _ in watch._saves(file, lambda: False)]
    assert graded == [RIGHT, WRONG, RIGHT]


def test_without_the_library(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(watch, "find_spec", lambda name: None)
    assert main.main(["watch", str(file)]) == 2
    needs = "watching needs watchfiles: python -m pip install 'pytest-gpulab[watch]'"
    assert capsys.readouterr().err == f"gpulab watch: {needs}\n"


def test_a_device_that_is_not_there(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["watch", str(file), "--exercises", str(EXERCISES), "--device", "gpu"]) == 2
    assert capsys.readouterr().err.startswith("gpulab watch: ")


def said_of(monkeypatch: pytest.MonkeyPatch, file: Path, exercise: str) -> list[str]:
    """Return what a watch prints about a file, piece by piece."""
    said: list[str] = []
    monkeypatch.setattr(watch, "_say", said.append)
    loaded, device = Catalogue(EXERCISES).load(exercise), open_device("sim")[0]
    arguments = SimpleNamespace(file=file, seed=1)
    watch._report(watch._grader(arguments, loaded, device), loaded, file)  # type: ignore[arg-type]
    return said


@pytest.mark.parametrize(
    "name",
    [
        "tests/wrong/constant_memory/swapped_guard.cu",
        "tests/wrong/scan/missing_barrier.cu",
        "tests/wrong/scan/offset_of_own_block.cu",
        "solutions/constant_memory/01_constant.cu",
    ],
)
def test_verdicts_and_points_are_those_of_pytest(
    monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester, name: str
) -> None:
    exercise = name.split("/")[-2]
    file, report = pytester.path / f"{exercise}.cu", pytester.path / "grades.json"
    file.write_bytes((ROOT / name).read_bytes())
    watched: list[CheckResult] = []
    summary = watch._summary
    monkeypatch.setattr(watch, "_summary", lambda results: watched.extend(results) or summary(results))
    said = said_of(monkeypatch, file, exercise)
    options = ["--gpulab", "--gpulab-device=sim", "--gpulab-seed=1", f"--gpulab-exercises={EXERCISES}"]
    pytester.runpytest_inprocess(*WITHOUT, *options, f"--gpulab-report=json:{report}", file)
    (grade,) = json.loads(report.read_text())["grades"]
    own = watched[-len(grade["checks"]) :]
    assert [(each.name, each.verdict, each.points) for each in own] == [
        (each["name"], each["verdict"], each["points"]) for each in grade["checks"]
    ]
    assert any(f"{points_text(grade['points'])} of 100 points" in piece for piece in said)
    codes = [[found.code for found in each.findings] for each in own]
    assert codes == [[found["code"] for found in each["findings"]] for each in grade["checks"]]


def test_the_rule_of_sizes_follows_the_points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "scan.cu"
    file.write_bytes((ROOT / "tests/wrong/scan/offset_of_own_block.cu").read_bytes())
    failed, smallest, points, rule = said_of(monkeypatch, file, "scan")
    assert "FAILED correct[" in failed and "smallest failing input" not in failed
    assert smallest.startswith("      smallest failing input: n = 257, in = [0 (256 times) 1]")
    assert f" run it: gpulab explain {file} --case " in joined(smallest)
    assert " points; lost in correct[" in points and "fails for" not in failed
    place = failed.split()[1].rstrip(":")
    assert rule.split() == f"{place} fails for every n that is at least 257; right for all others tried".split()


def test_a_search_for_the_rule_ends_at_the_next_save(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "scan.cu"
    file.write_bytes((ROOT / "tests/wrong/scan/offset_of_own_block.cu").read_bytes())
    tried: list[object] = []

    def saved_before_the_last_trials(self: Any, *words: Any) -> Any:
        tried.append(words)
        if len(tried) == most:
            file.write_text("saved again")
        return run(self, *words)

    run, most = Trials.run, 1 << 30
    monkeypatch.setattr(Trials, "run", saved_before_the_last_trials)
    assert len(said_of(monkeypatch, file, "scan")) == 4
    whole, most = len(tried), len(tried) - 4
    tried.clear()
    assert len(said_of(monkeypatch, file, "scan")) == 3 and len(tried) == most < whole


def test_the_first_variant_is_run_before_others_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed(Exception):
        pass

    def say(text: str) -> None:
        if "FAILED correct[n=1]" in text:
            raise Failed

    def counted(self: SimulatedDevice, source: str, filename: str, *given: Any) -> Any:
        compiled.append(filename)
        return compile_one(self, source, filename, *given)

    compiled: list[str] = []
    compile_one = SimulatedDevice.compile
    monkeypatch.setattr(SimulatedDevice, "compile", counted)
    monkeypatch.setattr(watch, "_say", say)
    loaded, device = Catalogue(EXERCISES).load("reduction"), open_device("sim")[0]
    file = ROOT / "tests/wrong/reduction/copy_never_awaited.cu"
    with pytest.raises(Failed):
        watch._report(Grader(loaded, file, device, 1, limits=CaseLimits(smallest="later")), loaded, file)
    assert compiled.count(file.name) == 1


@pytest.mark.unmeasured
def test_points_come_before_counts_and_after_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "reduction.cu"
    file.write_bytes((ROOT / "tests/wrong/reduction/first_element_of_float_twice.cu").read_bytes())
    failed, first, last, *_ = said_of(monkeypatch, file, "reduction")
    assert "FAILED correct[float32-sum]" in failed
    assert first.startswith("so far: ") and " points; lost in correct[" in first and "uses[" not in first
    assert not last.startswith("so far") and " points; lost in correct[" in last


def test_a_hazard_is_shown_before_further_cases_run(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, device = Catalogue(EXERCISES).load("scan"), open_device("sim")[0]
    file, limits = ROOT / "tests/wrong/scan/sums_by_all_threads.cu", CaseLimits(smallest="later")
    grader = Grader(loaded, file, device, 1, limits=limits)
    checks = checks_of(loaded.exercise)[:3]
    assert {grader.run(check).verdict for check in checks} == {"passed"}
    shown = watch._hazard(grader, checks[-1])
    assert shown is not None and shown.name == "safe[race]" and watch._hazard(grader, checks[0]) is None
    assert shown.findings[0].line and shown.findings[0].evidence[-1] == "seen in correct[n=2]"
    runs: list[int] = []
    run = Trials.run

    def counted(self: Any, *words: Any) -> Any:
        trial = run(self, *words)
        runs.append(len(trial.outcome.runs))
        return trial

    monkeypatch.setattr(Trials, "run", counted)
    found = grader.smallest_inputs.requested(shown)
    assert found is not None and found.smallest is not None and found.smallest.what == "n = 2, in = [0 1]"
    assert len(runs) > 1 and set(runs) == {1}  # only the first run checks hazards
    assert (
        grader.smallest_inputs.rule(lambda: False) == "fails for every n that is at least 2; right for all others tried"
    )
    assert max(runs) > 1


@pytest.mark.unit
def test_a_hazard_and_a_required_figure_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hazard with its smallest input, before further cases run; the points name checks in their own order."""
    loaded = Catalogue(EXERCISES).load("reduction")
    wrong = {"safe[race]": "failed", "uses[coalesced]": "missed", "speedup[1.4x]": "failed"}
    said: list[str] = []

    class Stub(Grader):
        def __init__(self) -> None: ...
        def close(self) -> None: ...
        def first_checks(self) -> set[str]:
            return set()

        def run(self, check: Check) -> CheckResult:
            said.append(f"run {check.name}")
            return check.result(wrong.get(check.name, "passed"))  # type: ignore[arg-type]

    def shown(grader: object, result: CheckResult, file: Path) -> bool:
        said.append(f"smallest of {result.name}")
        return True

    hazard = next(check for check in checks_of(loaded.exercise) if check.name == "safe[race]").result("failed")
    monkeypatch.setattr(watch, "_say", said.append)
    monkeypatch.setattr(watch, "_hazard", lambda grader, check: hazard if check.name == "correct[n=2]" else None)
    monkeypatch.setattr(watch, "_say_smallest", shown)
    monkeypatch.setattr(watch, "_say_rule", lambda grader, check, stopped: said.append(f"rule of {check}"))
    monkeypatch.setattr(watch, "_is_countable", lambda grader, check, shown: check.kind == "speedup")
    watch._report(Stub(), loaded, Path("reduction.cu"))  # type: ignore[arg-type]
    at = said.index("run correct[n=2]")
    assert said[at + 1 : at + 4] == ["", "smallest of safe[race]", "run correct[n=31]"]
    assert said.index("run speedup[1.4x]") < said.index("run uses[coalesced]")
    assert said[-2].endswith("; lost in safe[race], uses[coalesced], speedup[1.4x]")
    assert said[-1] == "rule of safe[race]"


@pytest.mark.unit
def test_points_so_far_come_before_figures_of_another_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grader, "countable", lambda self, check: SimpleNamespace(verdict="passed"))
    grader = Grader.__new__(Grader)
    comes = {
        (of, shown): watch._is_countable(grader, SimpleNamespace(kind=of), SimpleNamespace(kind=shown))  # type: ignore[arg-type]
        for of in ("correct", "uses", "speedup")
        for shown in ("correct", "uses", "speedup")
    }
    assert {pair for pair, is_so in comes.items() if is_so} == {
        (of, shown) for of in ("uses", "speedup") for shown in ("correct", "uses")
    }


@pytest.mark.unit
def test_the_summary_names_checks_that_cost_points() -> None:
    def result(name: str, points: float) -> CheckResult:
        return CheckResult(name, "correct", "passed", points, 10)

    assert watch._summary([result("a", 10)]) == "10 of 10 points"
    assert watch._summary([result("a", 10), result("b", 2.5), result("c", 0)]) == "12.5 of 30 points; lost in b, c"
    many = [result(f"c{number}", 0) for number in range(9)]
    assert watch._summary(many) == "0 of 90 points; lost in c0, c1, c2, c3, and 5 more"


@pytest.mark.unit
def test_a_gpu_grades_in_a_process_of_its_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("pytest_gpulab.grading.isolation.remote.RemoteGrader", lambda *given: asked.append(given))
    device = SimpleNamespace(info=SimpleNamespace(kind="cuda"))
    watch._grader(SimpleNamespace(device="auto", file=file, seed=3), "exercise", device)  # type: ignore[arg-type]
    assert asked == [("exercise", file, "cuda", device.info, 3)]


@pytest.mark.unit
def test_the_exercises_of_a_course_are_found_from_its_folders(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = EXERCISES / "scan" / "scan.cu"
    assert exercise_of(own, None).name == "scan"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        CommandError, match=r"no exercises folder: run from the course's folder, or name it with --exer"
    ):
        exercise_of(file, None)
    monkeypatch.chdir(ROOT / "docs")
    assert exercise_of(file, None).name == "constant_memory"


@pytest.mark.unit
def test_files_that_cannot_be_graded(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no such file: .*/scan\.cu"):
        exercise_of(tmp_path / "scan.cu", EXERCISES)
    (tmp_path / "mine.cu").write_text(RIGHT)
    with pytest.raises(
        CommandError, match=r"mine\.cu belongs to no exercise: its name or its folder's must be one of "
    ):
        exercise_of(tmp_path / "mine.cu", EXERCISES)
    (tmp_path / "exercises/mine").mkdir(parents=True)
    (tmp_path / "exercises/mine/exercise.py").write_text("exercise = 1 / 0\n")
    with pytest.raises(CommandError, match="exercise 'mine' cannot be loaded"):
        exercise_of(tmp_path / "mine.cu", tmp_path / "exercises")

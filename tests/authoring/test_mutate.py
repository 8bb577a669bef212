"""`gpulab check --mutate`: solutions with small mistakes must fail; the others are listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mistaken import KERNEL, course

from pytest_gpulab.authoring import mutants
from pytest_gpulab.authoring.check import check_exercise
from pytest_gpulab.command import check, main
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.grading.catalogue import Catalogue

WEAK = ('cases=tuple(Case(f"n={n}", n, 12) for n in (1, 2, 33, 1025)),', 'cases=(Case("n=1", 1, 48),),')
GUARD = "if (i < n) out[i] = in[i] + in[i == 0 ? n - 1 : i - 1];"


def checked(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main.main(["check", str(folder), "--mutate", *words])
    return (code, *capsys.readouterr())


@pytest.mark.unmeasured
@pytest.mark.simulator
def test_cases_that_are_too_few_are_shown_by_survivors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = course(tmp_path, exercise=WEAK, expected=("points = 90\n", ""))
    code, text, _ = checked(folder, capsys)
    solution = tmp_path / "solutions" / "shift" / "01_shift.cu"
    survivors = re.findall(rf"{re.escape(str(solution))}:(\d+): warning: a mutant passes all checks", text)
    assert code == 0, text  # a survivor may be correct
    assert f"(operator): {GUARD}  =>  {GUARD.replace('i - 1', 'i + 1')}" in text
    assert f"  mutants: {len(survivors)} survive" not in text and set(survivors) <= {"4", "5"}
    killed, made, survived = map(int, re.findall(r"mutants: (\d+) of (\d+) mutants fail; (\d+) survive", text)[0])
    assert (killed + survived, survived) == (made, len(survivors)) and survived > 5


@pytest.mark.unmeasured
@pytest.mark.simulator
def test_good_cases_leave_few_survivors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text, _ = checked(course(tmp_path), capsys)
    killed, made = map(int, re.findall(r"mutants: (\d+) of (\d+) mutants fail", text)[0])
    assert made > 40 and killed >= 0.9 * made
    assert re.search(r"mutants: .*; [1-9]\d* more do not compile, or compile to the same code\n", text)


@pytest.mark.simulator
def test_the_time_is_bounded_and_the_progress_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = iter(range(1000))
    monkeypatch.setattr(mutants.time, "monotonic", lambda: float(next(now_s)))
    monkeypatch.setattr(check, "PROGRESS_S", -1.0)
    _, text, errors = checked(course(tmp_path), capsys, "--mutate-seconds", "3.5")
    found = re.search(r"mutants: \d+ of \d+ mutants fail; \d+ survives?; (\d+) were not tried within 3.5 s", text)
    assert found and int(found[1]) > 40
    assert re.match(r"shift: 0 of \d+ mutants graded; survivors: 0\n", errors)


@pytest.mark.simulator
def test_without_a_correct_solution_there_are_no_mutants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, text, _ = checked(course(tmp_path), capsys, "--no-solutions")
    assert "warning: there is no correct solution to mutate" in text and "mutants:" not in text


@pytest.mark.simulator
def test_mutants_of_all_solutions_take_turns(tmp_path: Path) -> None:
    folder = course(tmp_path)
    second = tmp_path / "solutions" / "shift" / "02_again.cu"
    second.write_text(KERNEL + "// again\n", encoding="utf-8")
    expected = second.with_name("expected.toml")
    expected.write_text(expected.read_text() + '["02_again.cu"]\npoints = 90\n', encoding="utf-8")
    lines: list[str] = []
    device = SimulatedDevice()
    report = check_exercise(
        Catalogue(folder.parent), "shift", device, 1, second.parent, mutate_s=1e-6, progress=lines.append
    )
    assert report.errors == 0 and report.mutants.startswith("0 of 0 mutants fail")
    chosen = list(mutants._in_turns(sorted(second.parent.glob("*.cu")), 1))
    assert [path.name for path, _ in chosen[:4]] == ["01_shift.cu", "02_again.cu"] * 2


def test_declarations_of_shared_memory_stay_as_they_are(tmp_path: Path) -> None:
    source = tmp_path / "01_tile.cu"
    source.write_text(
        KERNEL.replace("    int i", "    __shared__ float tile[BLOCK_SIZE + 2];\n    int i"), encoding="utf-8"
    )
    lines = {mutant.line for _, mutant in mutants._in_turns([source], 1)}
    assert 4 not in lines and {5, 6} <= lines


def test_arguments_whose_order_makes_no_difference_are_not_swapped() -> None:
    body = "__global__ void k(float *a, int n) { a[0] = fmaxf(a[1], powf(a[2], a[3])); }"
    swapped = [mutant.what for mutant in mutants.mutants(body, 1000, 1, pairs=False) if mutant.kind == "arguments"]
    assert len(swapped) == 1 and "powf(a[3], a[2])" in swapped[0]


@pytest.mark.parametrize("seconds", ["0", "-1", "inf", "nan", "soon"])
def test_a_wrong_time_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["check", "x", "--mutate", f"--mutate-seconds={seconds}"])
    assert end.value.code == 2
    assert "--mutate-seconds: " in capsys.readouterr().err

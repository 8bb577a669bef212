"""`gpulab new`: each template passes `gpulab check` at once; and exercises of one kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_gpulab.authoring.scaffold import TEMPLATES
from pytest_gpulab.command import main, new
from pytest_gpulab.exercise import Problem
from pytest_gpulab.single_kernel import Output, single_kernel


@pytest.mark.simulator
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_exercise_passes_the_check_at_once(
    template: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["new", "blurred_image", "--template", template, "--folder", str(tmp_path)]) == 0
    written = capsys.readouterr().out
    assert [line.rpartition("/")[2] for line in written.splitlines()] == [
        *("exercise.py", "naive.cu", "blurred_image.cu", "01_first.cu", "README.md", "expected.toml", "blurred_image")
    ]
    code = main.main(["check", str(tmp_path / "exercises" / "blurred_image")])
    assert (code, capsys.readouterr().out.splitlines()[0]) == (0, "blurred_image: 0 errors, 0 warnings")


def test_the_command_offers_all_templates() -> None:
    assert set(new.TEMPLATES) == set(TEMPLATES)


def test_an_exercise_is_short() -> None:
    folder = Path(new.__file__).parents[1] / "authoring" / "templates"
    lengths = [len(file.read_text(encoding="utf-8").splitlines()) for file in folder.glob("*/exercise.py.txt")]
    assert len(lengths) == len(TEMPLATES) and max(lengths) <= 40


@pytest.mark.parametrize("name", ["3d", "a-b", "naïve", ""])
def test_a_name_that_no_kernel_can_have_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["new", name, "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"gpulab new: {name!r} is no name of a kernel: use letters, digits and _\n"


def test_an_existing_exercise_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "exercises" / "mine").mkdir(parents=True)
    assert main.main(["new", "mine", "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"gpulab new: {tmp_path / 'exercises' / 'mine'} exists already\n"


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "exercises").write_text("a file")
    assert main.main(["new", "mine", "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("gpulab new: cannot write ")


def test_points_that_remain_are_for_the_cases() -> None:
    exercise = single_kernel(
        "Copy", "copy", inputs={"in": np.int32}, output=np.int32, reference=np.copy, speed={1.5: 20, 3: 5}
    )
    assert [case.points for case in exercise.cases] == [8] * 7 + [9]
    assert [(tier.threshold, tier.required) for tier in exercise.speed] == [(1.5, True), (3, False)]


def test_an_output_may_have_another_shape_and_extents_are_parameters() -> None:
    exercise = single_kernel(
        "Transpose",
        "transpose",
        inputs={"in": np.float32},
        output=Output(np.float32, lambda width, height: (width, height)),
        reference=np.transpose,
        speed={1.5: 25},
        dimensions=2,
        version="7",
    )
    plan = exercise.plan(Problem((97, 61), {"TILE_X": 32, "TILE_Y": 8}))
    assert [buffer.shape for buffer in plan.buffers] == [(61, 97), (97, 61)]
    (launch,) = plan.launches
    assert (launch.grid, launch.block, launch.args) == ((4, 8), (32, 8), ("in", "out", 97, 61))
    assert exercise.version == "7"

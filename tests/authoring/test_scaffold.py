"""`gpulab new`: each template passes `gpulab check` at once; and exercises of one kernel."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pytest_gpulab import concepts
from pytest_gpulab.authoring.readme import points_table
from pytest_gpulab.authoring.scaffold import TEMPLATES
from pytest_gpulab.command import main, new
from pytest_gpulab.exercise import ExerciseError, Problem, Tunable, UsesCheck
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


def test_a_tunable_for_items_enlarges_the_tiles_and_the_cases_around_them() -> None:
    exercise = single_kernel(
        "Copy",
        "copy",
        inputs={"in": np.int32},
        output=np.int32,
        reference=np.copy,
        speed={1.5: 25},
        dimensions=2,
        tunables=(Tunable("TILE_X", (32,)), Tunable("TILE_Y", (8,)), Tunable("ITEMS_PER_THREAD", (1, 4), default=1)),
    )
    tunables = {"TILE_X": 32, "TILE_Y": 8, "ITEMS_PER_THREAD": 4}
    (launch,) = exercise.plan(Problem((97, 61), tunables)).launches
    assert (launch.grid, launch.block) == ((4, 2), (32, 8))
    sizes = {case.name: case.problem(tunables).size for case in exercise.cases}
    assert (sizes["whole tiles"], sizes["tile+1 by 2 tiles-1"]) == ((96, 64), (33, 63))


def test_values_may_depend_on_the_pattern() -> None:
    exercise = single_kernel(
        "Copy",
        "copy",
        inputs={"in": np.uint8},
        output=np.uint8,
        reference=np.copy,
        values={"low": lambda rng, shape: rng.integers(0, 9, shape), "high": lambda rng, shape: np.full(shape, 255)},
        speed={1.5: 25},
    )
    assert {case.patterns for case in exercise.cases} == {("low", "high")}
    problem, rng = Problem(100, {"BLOCK_SIZE": 32}), np.random.default_rng(1)
    low, high = (exercise.inputs(problem, pattern, rng)["in"] for pattern in ("low", "high"))
    assert low.max() < 9 and high.min() == 255 and low.dtype == high.dtype == np.uint8


def test_values_that_do_not_depend_on_the_pattern_are_drawn_once() -> None:
    copy = partial(single_kernel, "Copy", "copy", inputs={"in": np.uint8}, output=np.uint8, reference=np.copy)
    exercise = copy(values=lambda rng, shape: rng.integers(0, 9, shape), speed={1.5: 25})
    assert {case.patterns for case in exercise.cases} == {("random",)}
    with pytest.raises(ExerciseError, match=r"`patterns` are those of `numerics.fill`, which `values` replaces"):
        copy(values=lambda rng, shape: rng.integers(0, 9, shape), patterns=("random", "needle"), speed={1.5: 25})


def test_the_points_table_states_bounds_and_required_checks() -> None:
    uses = [
        UsesCheck("tile", (concepts.shared_reads(4), concepts.global_traffic(1.5)), 5, (64, 64)),
        UsesCheck("conflict-free", (concepts.bank_conflicts(0.1),), 5, (64, 64), required=False),
    ]
    exercise = single_kernel(
        "Copy", "copy", inputs={"in": np.int32}, output=np.int32, reference=np.copy, uses=uses, speed={1.5: 20, 3: 5}
    )
    assert points_table(exercise).splitlines()[2:] == [
        "| `correct[...]`: 8 sizes | 55 |",
        "| `safe[memory]`, `safe[barrier]`, `safe[race]`, `safe[uninitialised]`: no such hazard in any of them | 10 |",
        "| `uses[tile]` (reads per warp: 4 or more, times the minimum: 1.5 or less): required | 5 |",
        "| `uses[conflict-free]` (per access to shared memory: 0.1 or less): bonus | 5 |",
        "| `speedup[1.5x]` over `naive.cu`: required | 20 |",
        "| `speedup[3x]` over `naive.cu`: bonus | 5 |",
    ]

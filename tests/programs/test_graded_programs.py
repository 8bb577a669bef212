"""Kernels of whole programs are graded inside their program's file: host code is set aside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from program_runs import PROGRAMS

from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grade import CheckResult
from pytest_gpulab.grading.grader import Grader

CATALOGUE = Catalogue(PROGRAMS.parents[1] / "exercises")
OTHER_TYPES = (
    "int32-max",
    "int32-min",
    "int32-product",
    "float32-sum",
    "float32-max",
    "float32-min",
    "float32-product",
)
LADDER = {"neighbored": 1, "unrolled<4>": 4, "unrolledLastWarp": 8}


def graded(exercise: str, path: Path, names: Callable[[str], bool] = lambda name: True) -> dict[str, CheckResult]:
    """Return the results of the checks of correctness and safety by name; `names` chooses some of them."""
    device = SimulatedDevice()
    loaded = CATALOGUE.load(exercise)
    grader = Grader(loaded, path, device, seed=20)
    checks = [check for check in checks_of(loaded.exercise) if check.kind in ("compile", "correct", "safe")]
    results = {check.name: grader.run(check) for check in checks if names(check.name)}
    device.close()
    return results


def failed(results: dict[str, CheckResult]) -> set[str]:
    return {name for name, result in results.items() if result.verdict != "passed"}


@pytest.mark.parametrize(
    ("exercise", "name"),
    [("scan", "scan_recursive"), ("constant_memory", "field_constant")],
)
def test_kernels_pass_in_their_program(exercise: str, name: str) -> None:
    results = graded(exercise, PROGRAMS / f"{name}.cu")
    assert len(results) > 10 and failed(results) == set()


def test_an_ordinary_int_kernel_is_graded_for_its_type() -> None:
    results = graded("reduction", PROGRAMS / "sum_shared.cu")
    assert failed(results) == {f"correct[{name}]" for name in OTHER_TYPES}
    (reason,) = {finding.code for name in OTHER_TYPES[3:] for finding in results[f"correct[{name}]"].findings}
    assert reason == "wrong-signature"


@pytest.mark.parametrize(("kernel", "items"), LADDER.items())
def test_each_step_of_the_ladder_passes_if_it_is_chosen(tmp_path: Path, kernel: str, items: int) -> None:
    choice = (
        f"GPULAB_KERNEL(reduce, {kernel}) GPULAB_TUNABLE(BLOCK_SIZE, 128) GPULAB_TUNABLE(ITEMS_PER_THREAD, {items})"
    )
    path = tmp_path / "reduction.cu"
    path.write_text(f"{(PROGRAMS / 'reduction_ladder.cu').read_text()}\n#include <gpulab.cuh>\n{choice}\n")
    results = graded("reduction", path, lambda name: "32-" not in name)
    assert len(results) > 15 and failed(results) == set()


def test_several_fitting_kernels_are_listed(tmp_path: Path) -> None:
    results = graded("reduction", PROGRAMS / "reduction_ladder.cu", lambda name: name == "compile")
    (finding,) = results["compile"].findings
    text = " ".join((finding.what, *finding.evidence, finding.hint or ""))
    assert "GPULAB_KERNEL(reduce" in text
    for kernel in ("neighbored", "interleaved", "unrolledLastWarp"):
        assert kernel in text

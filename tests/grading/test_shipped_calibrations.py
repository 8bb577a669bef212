"""Shipped calibrations fit the exercises as they are, and separate the steps of ladders known from the literature."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpulab.devices.protocol import DeviceInfo
from pytest_gpulab.grading.calibration.choice import DeviceThresholds
from pytest_gpulab.grading.calibration.file import read
from pytest_gpulab.grading.catalogue import Catalogue, LoadedExercise

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(ROOT.glob("exercises/calibration/*.toml"))

# Ladders of the literature as measured on an H200, over the baseline, with the tiers that each step must reach: sums of
# 2^26 ints, 64 rounds of arithmetic in two or eight branches, and squared distances from 20 vectors. (Of scans only the
# first phase is known so, which the tiers do not time by itself.)
LITERATURE = {
    "reduction": {
        "interleaved addressing, modulo": ("default", 1.00, 0),
        "interleaved addressing, strided index": ("default", 1.62, 1),
        "sequential addressing": ("default", 2.10, 2),
        "first add during load": ("default", 3.88, 3),
        "8 loads per thread, warp shuffle": ("default", 9.75, 4),
        "int4 grid-stride, warp shuffle": ("default", 9.36, 4),
        "global memory, neighbored pairs, modulo": ("default", 0.89, 0),
        "global memory, neighbored pairs, strided index": ("default", 1.60, 1),
        "global memory, interleaved pairs": ("default", 1.88, 2),
        "global memory, unroll 8, last warp unrolled": ("default", 7.67, 4),
    },
    "divergence": {
        "branch by element": ("two-way", 1.00, 0),
        "two-way branch by warp": ("two-way", 1.94, 2),
        "eight-way branch by warp": ("eight-way", 7.3, 2),
    },
    "constant_memory": {
        "global memory, the result read and written in the loop": ("default", 1.00, 0),
        "constant memory": ("default", 4.57, 2),
        "global memory, the sum in a register": ("default", 4.08, 2),  # so another check asks for constant memory
    },
}


def shipped(name: str, path: Path) -> LoadedExercise:
    found = DeviceThresholds(str(path), ROOT / "exercises", measuring=False)
    calibration = read(path)
    found.choose(DeviceInfo("cuda", calibration.device, "", "", False, {"SMs": calibration.sms}))
    return found.applied_to(Catalogue(ROOT / "exercises").load(name))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
class TestTheShippedFiles:
    def test_hold_for_every_tier_of_the_exercises_as_they_are(self, path: Path) -> None:
        for name in read(path).exercises:
            loaded = shipped(name, path)
            assert set(loaded.thresholds.by_tier) == {tier.name for tier in loaded.exercise.speed}
            assert ";" not in loaded.thresholds.source

    def test_separate_the_steps_that_were_measured_and_so_do_the_exercises_own_thresholds(self, path: Path) -> None:
        for name, table in read(path).exercises.items():
            assert {step.name for step in ROOT.glob(f"solutions/{name}/*.cu")} == {
                step for tier in table["tiers"].values() for step in tier["measured"]
            }
            for tier in table["tiers"].values():
                for threshold in (tier["threshold"], tier["own_threshold"]):
                    for step in tier["measured"].values():
                        assert step["low"] >= threshold if step["must_reach"] else step["high"] < threshold


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("exercise", "step"), [(exercise, step) for exercise, steps in LITERATURE.items() for step in steps]
)
def test_the_literatures_steps_reach_their_tiers_on_an_h200(exercise: str, step: str, own: bool) -> None:
    loaded = shipped(exercise, ROOT / "exercises/calibration/nvidia-h200.toml")
    variant, reached, tiers = LITERATURE[exercise][step]
    asked = [
        tier.threshold if own else loaded.thresholds.of(tier)
        for tier in loaded.exercise.speed
        if tier.variant.name == variant
    ]
    assert sum(threshold <= reached for threshold in asked) == tiers


def test_each_file_has_every_exercise_with_speed_tiers() -> None:
    assert {path.stem for path in SHIPPED} == {"nvidia-h100", "nvidia-h200"}
    catalogue = Catalogue(ROOT / "exercises")
    timed = {name for name in catalogue.names if catalogue.load(name).exercise.speed}
    assert all(set(read(path).exercises) == timed for path in SHIPPED)

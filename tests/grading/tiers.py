"""A ladder of made-up measurements, and an exercise with the tiers that it must reach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from doubling import EXERCISE

from pytest_gpulab.exercise import Exercise, SpeedTier
from pytest_gpulab.grading.calibration.fit import Step
from pytest_gpulab.grading.expected import Expectation, ExpectedFailures
from pytest_gpulab.grading.grade import CheckResult, Finding, Grade, Measurement, Provenance

SOURCE = Provenance("NVIDIA H200", "cuda", "sm_90", "nvcc 13.0", 7, "7", "0.1.0", "0" * 64, {"driver": "580.1"})


def with_tiers(*tiers: SpeedTier) -> Exercise:
    """An exercise whose tiers share 40 points; all else earns 60."""
    return replace(EXERCISE, speed=tiers)


TWO = with_tiers(SpeedTier(1.4, 10, 1024, required=True), SpeedTier(4.3, 30, 1024))
THREE = with_tiers(SpeedTier(1.4, 10, 1024, required=True), SpeedTier(2, 10, 1024), SpeedTier(4.3, 20, 1024))


def expecting(points: float | None = None, **fails: str) -> Expectation:
    return Expectation(ExpectedFailures({f"speedup[{name}]": code for name, code in fails.items()}), points)


def measured(speedup: float, spread: float = 0.01, **more: Any) -> Measurement:
    ends = {"low": speedup - spread, "high": speedup + spread}
    figures: dict[str, Any] = {"rounds": 256, "caches": "cold", "baseline": "naive.cu"} | ends | more
    return Measurement("2^10", 1.0, speedup, speedup, 1.4, False, **figures)


def step(name: str, speedup: float, *reaches: str, exercise: Exercise = TWO) -> Step:
    return Step(name, frozenset(reaches), {tier.name: measured(speedup) for tier in exercise.speed})


LADDER = (
    step("1_naive.cu", 1.0),
    step("2_strided.cu", 1.6, "1.4x"),
    step("3_sequential.cu", 2.1, "1.4x"),
    step("4_loads.cu", 8.0, "1.4x", "4.3x"),
    step("5_shuffle.cu", 9.8, "1.4x", "4.3x"),
)


def graded(name: str, *checks: CheckResult) -> Grade:
    return Grade(f"solutions/twice/{name}", "twice", checks, SOURCE)


def speedup(tier: str, verdict: Any = "passed", *found: Finding, measurement: Any = None) -> CheckResult:
    return CheckResult(f"speedup[{tier}]", "speedup", verdict, 0, 0, found, measurement)

"""Speed checks: the baseline, the threshold of a device, and devices that neither time nor estimate."""

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from doubling import EXERCISE, Bench, kernel, program, right
from fake_device import Program

from pytest_gpulab.devices.protocol import CannotSimulate
from pytest_gpulab.exercise import SpeedTier
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.speed import estimate
from pytest_gpulab.grading.speed.costs import size_text

pytestmark = pytest.mark.unit


def test_the_baseline_sees_the_same_data_and_is_costed_once_for_all_submissions(bench: Bench) -> None:
    seen: dict[str, list[bytes]] = {"naive": [], "submission": []}

    def spying(name: str) -> Program:
        def twice(options: Any, source: Any, out: Any, n: Any) -> dict[str, Any]:
            if n == 2**10:
                seen[name].append(source.values.tobytes())
            return kernel(1.0)(options, source, out, n)  # type: ignore[no-any-return]

        return program(twice)

    bench.programs["naive"] = spying("naive")
    for _ in range(2):
        bench.result("speedup[1.5x]", spying("submission"))
    assert len(seen["naive"]) == 1 and len(seen["submission"]) == 2
    assert set(seen["naive"]) == set(seen["submission"])
    assert [source for source, *_ in bench.device.compiled].count("naive") == 1


def test_costs_of_baselines_are_forgotten_with_their_device(tmp_path: Any) -> None:
    bench = Bench(tmp_path)
    bench.result("speedup[1.5x]", right())
    n_devices = len(estimate._baselines)
    del bench
    gc.collect()
    assert len(estimate._baselines) < n_devices


def test_another_baseline_is_taken_from_the_exercises_folder(bench: Bench) -> None:
    bench.programs["tricky"] = right(8.0)
    (bench.folder / "tricky.cu").write_text("tricky")
    tiers = (SpeedTier(7, 40, 2**10, baseline="tricky.cu"),)
    measured = bench.result("speedup[7x tricky]", right(), speed=tiers).measurement
    assert measured is not None and (measured.speedup, measured.baseline) == (8.0, "tricky.cu")


def test_a_broken_baseline_is_the_instructors_mistake(bench: Bench) -> None:
    bench.programs["naive"] = Program()
    result = bench.result("speedup[1.5x]", right())
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")
    assert result.findings[0].what == (
        "The exercise's baseline naive.cu cannot be used: There is no kernel called `twice`."
    )
    assert "instructor" in result.findings[0].hint


def test_a_baseline_that_cannot_be_simulated_is_not_gradable(bench: Bench) -> None:
    bench.programs["naive"] = Program(error=CannotSimulate("tex"))
    result = bench.result("speedup[1.5x]", right())
    assert (result.verdict, result.findings[0].code) == ("not gradable", "not-timed")
    why = "the simulated GPU does not support tex, which the exercise's baseline naive.cu needs"
    assert result.findings[0].what == f"The speed cannot be graded here: {why}."


@pytest.mark.parametrize(
    ("submission", "what"),
    [
        (right(costs_ms=0.0), "The speed cannot be graded here: the estimated time is zero: the size is too small."),
        (
            program(lambda options, source, out, n: kernel()(options, source, out, n) | {"estimated_ms": None}),
            "The speed cannot be graded here: one of the launches has no estimate.",
        ),
    ],
)
def test_without_an_estimate_speed_is_not_gradable(bench: Bench, submission: Program, what: str) -> None:
    result = bench.result("speedup[1.5x]", submission)
    assert (result.verdict, result.findings[0].code, result.findings[0].what) == ("not gradable", "not-timed", what)


def test_a_device_without_a_clock_is_not_timed(tmp_path: Any) -> None:
    bench = Bench(tmp_path, estimates=False)
    result = bench.result("speedup[1.5x]", right())
    assert (result.verdict, result.findings[0].code) == ("not gradable", "not-timed")
    assert result.findings[0].what == "The speed cannot be graded here: fake GPU can neither time nor estimate."
    assert "does not count in the grade" in result.findings[0].hint


def test_the_simulated_threshold_is_for_devices_that_estimate(bench: Bench) -> None:
    tiers = tuple(replace(tier, simulated_threshold=1.25) for tier in EXERCISE.speed)
    results = bench.results(right(costs_ms=2.0), speed=tiers)
    measured = results["speedup[1.5x]"].measurement
    assert measured is not None
    assert (measured.speedup, measured.threshold, results["speedup[1.5x]"].verdict) == (1.5, 1.25, "passed")


def test_the_simulated_size_is_for_devices_that_estimate(tmp_path: Any) -> None:
    real = Bench(tmp_path, estimates=False).device
    tier = EXERCISE.speed[0]
    assert (estimate.timed_size(tier, real), estimate.timed_size(tier, Bench(tmp_path).device)) == (2**20, 2**10)
    assert estimate.timed_size(replace(tier, simulated_size=None), Bench(tmp_path).device) == 2**20


def test_an_instructors_mistake_in_the_minimal_bytes(bench: Bench) -> None:
    result = bench.result("speedup[1.5x]", right(), min_bytes=lambda problem: problem.size["n"])
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")
    assert "`min_bytes`" in result.findings[0].what


@pytest.mark.parametrize(
    ("size", "text"),
    [(1024, "2^10"), (2**26, "2^26"), (1000, "1000"), (512, "512"), ((256, 128, 20), "256 x 128 x 20")],
)
def test_sizes_in_words(size: Any, text: str) -> None:
    assert size_text(size) == text


def test_a_grade_says_where_it_comes_from_and_how_long_it_took(bench: Bench) -> None:
    grade = bench.grader(right(), seed=np.int64(5)).grade()  # type: ignore[arg-type]
    assert (grade.submission, grade.exercise, grade.points, grade.max_points) == ("student", "twice", 100, 100)
    origin = grade.provenance
    assert (origin.device, origin.device_kind, origin.architecture) == ("fake GPU", "simulated", "sm_90")
    assert (origin.compiler, origin.seed, origin.exercise_version) == ("fakecc 1.0", 5, "7")
    assert type(origin.seed) is int and origin.details == {"driver": "none"}
    assert len(origin.source_sha256) == 64 and origin.plugin_version
    assert [check.name for check in grade.checks] == [check.name for check in checks_of(EXERCISE)]
    assert all(check.duration_s > 0 for check in grade.checks)
    assert type(grade).from_dict(grade.to_dict()) == grade

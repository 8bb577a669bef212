"""The terminal's report of measured times: their precision, and other processes on the GPU."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_gpulab.grading.grade import CheckResult, Grade, Measurement, Provenance
from pytest_gpulab.reports.gradebook import Gradebook, result_properties
from pytest_gpulab.reports.terminal.sections import footnotes, sections

PROVENANCE = Provenance("NVIDIA H200", "cuda", "sm_90", "nvcc 13", 7, "1", "0.1.0", "0" * 64)


def book(**timing: Any) -> Gradebook:
    measured = Measurement("2^26", 0.0658, 0.6515, 9.895, 4.3, "low" not in timing, **timing)
    check = CheckResult("speedup[4.3x]", "speedup", "passed", 12.0, 12.0, (), measured)
    gradebook = Gradebook()
    gradebook.add(result_properties(Grade("a.cu", "sum", (check,), PROVENANCE), 0), is_expected=False)
    return gradebook


def titles(gradebook: Gradebook, verbosity: int) -> dict[str, list[str]]:
    return dict(sections(gradebook, verbosity))


def test_verbose_reports_say_how_sure_a_speedup_is() -> None:
    timed = book(low=9.6686, high=9.9564, rounds=32, dropped=1, caches="cold")
    certainty = (
        "between 9.669x and 9.956x, from 32 rounds, 1 of them discarded because of interference, with cold caches"
    )
    assert titles(timed, 1)["gpulab: timing"] == ["a.cu", f"  speedup[4.3x]: {certainty}"]
    assert "gpulab: timing" not in titles(timed, 0)


@pytest.mark.parametrize("error_pct", [None, 0.0, 0.04])
def test_an_estimate_has_no_interval(error_pct: float | None) -> None:
    assert "gpulab: timing" not in titles(book(sampling_error_pct=error_pct), 1)


def test_an_estimate_from_a_sample_says_how_far_it_may_err() -> None:
    told = "estimated from a sample of the blocks, with a standard error of 3.2 %"
    assert titles(book(sampling_error_pct=3.21), 1)["gpulab: timing"] == ["a.cu", f"  speedup[4.3x]: {told}"]


def test_other_processes_on_the_gpu_are_named() -> None:
    shared = book(low=9.0, high=10.0, rounds=16, caches="cold", shared_with=("python (process 7)",))
    (warning,) = (line for line in footnotes(shared) if line.startswith("!"))
    assert warning == "! other processes used the GPU while it timed, so times may be too long: python (process 7)."
    assert not any(line.startswith("!") for line in footnotes(book(low=9.0, high=10.0, rounds=16, caches="cold")))


def test_the_cause_of_a_slow_gpu_is_named() -> None:
    slow = book(low=9.0, high=10.0, rounds=64, caches="cold", held_down_by=("power cap",))
    (warning,) = (line for line in footnotes(slow) if line.startswith("!"))
    assert warning == "! the GPU was slowed down while it timed, so times may be too long: power cap."


def test_footnotes_of_a_class_without_tables_have_disturbances_and_thresholds() -> None:
    doubtful = {"shared_with": ("python (process 7)",), "held_down_by": ("power cap",), "counters_note": "ncu: no"}
    lines = list(footnotes(book(low=9.0, high=10.0, rounds=64, **doubtful), of_class=True))
    assert [line.partition(":")[0] for line in lines] == [
        "thresholds",
        "! other processes used the GPU while it timed, so times may be too long",
        "! the GPU was slowed down while it timed, so times may be too long",
        "! ncu",
    ]


def test_of_many_other_processes_only_the_first_are_named() -> None:
    others = tuple(f"python (process {number})" for number in range(10, 16))
    (warning,) = (line for line in footnotes(book(low=9.0, high=10.0, rounds=16, shared_with=others)) if line[0] == "!")
    assert warning.endswith("python (process 10), python (process 11), python (process 12), and 3 more.")


def test_verbose_reports_say_how_much_of_the_memorys_bandwidth_is_reached_and_what_the_cpu_took() -> None:
    timed = {"low": 9.6, "high": 9.9, "rounds": 32, "caches": "cold", "bandwidth_gb_s": 4080.0}
    told = book(**timed, peak_bandwidth_gb_s=4814.0, reference_ms=35.14)
    assert titles(told, 1)["gpulab: sum, bandwidth"] == [
        "submission  size      ms  GB/s  of peak  caches  CPU ms",
        "----------  ----  ------  ----  -------  ------  ------",
        "naive.cu    2^26   0.651   412       9%    cold    35.1",
        "a           2^26  0.0658  4080      85%    cold    35.1",
        "of peak: share of 4814 GB/s; a plain copy reaches about 90% on an H200.",
        "CPU ms: the exercise's reference on the CPU, measured once, for information only.",
    ]
    assert "gpulab: sum, bandwidth" not in titles(told, 0)


def test_the_cpu_time_is_shown_for_all_grades_if_one_has_it() -> None:
    timed: dict[str, Any] = {"low": 9.6, "high": 9.9, "rounds": 32, "caches": "cold", "peak_bandwidth_gb_s": 4814.0}
    told = book(**timed)
    measured = Measurement("2^26", 0.0658, 0.6515, 9.895, 4.3, False, **timed, reference_ms=35.14)
    check = CheckResult("speedup[4.3x]", "speedup", "passed", 12.0, 12.0, (), measured)
    told.add(result_properties(Grade("b.cu", "sum", (check,), PROVENANCE), 0), is_expected=False)
    assert [line.split()[-1] for line in titles(told, 1)["gpulab: sum, bandwidth"][2:5]] == ["35.1"] * 3


def test_a_second_baseline_is_named_once() -> None:
    measured = Measurement("2^26", 0.07, 0.65, 9.9, 4.3, True, baseline="blelloch.cu", peak_bandwidth_gb_s=4800.0)
    told = book()
    check = CheckResult("speedup[4.3x blelloch]", "speedup", "passed", 12.0, 12.0, (), measured)
    told.add(result_properties(Grade("b.cu", "sum", (check,), PROVENANCE), 0), is_expected=False)
    assert any(line.startswith("blelloch.cu  2^26 ") for line in titles(told, 1)["gpulab: sum, bandwidth"])


def test_unknown_bandwidths_are_not_available() -> None:
    assert "gpulab: sum, bandwidth" not in titles(book(), 1)
    lines = titles(book(peak_bandwidth_gb_s=4800.0), 1)["gpulab: sum, bandwidth"]
    assert lines[3].split() == ["a", "2^26", "~0.0658", "n/a", "n/a", "-", "n/a"]
    assert not any(line.startswith("CPU ms:") for line in lines)

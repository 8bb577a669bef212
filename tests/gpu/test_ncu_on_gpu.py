"""Nsight Compute on a real GPU: what it counts of a timed kernel, or its refusal as a note in the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.counters import METRICS
from pytest_gpulab.grading.grade import Grade
from pytest_gpulab.grading.isolation.remote import RemoteGrader
from pytest_gpulab.grading.tools import ncu
from pytest_gpulab.reports.gradebook import Gradebook, result_properties
from pytest_gpulab.reports.terminal.sections import footnotes

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("nvidias_tools")]
ROOT = Path(__file__).parents[2]


def measured(submission, info):
    exercise = Catalogue(ROOT / "exercises").load("reduction")
    grader = RemoteGrader(exercise, ROOT / submission, "cuda", info, 1, profiler=ncu.Profiler())
    checks = [check for check in checks_of(exercise.exercise) if check.kind == "speedup"]
    try:
        results = [grader.run(check) for check in checks]
    finally:
        grader.close()
    measurements = [result.measurement for result in results]
    (counters,) = {measurement.counters for measurement in measurements}
    (note,) = {measurement.counters_note for measurement in measurements}  # a refusal is a note, and no more
    assert note == ("" if counters else ncu.NO_PERMISSION)
    said = notes_of_ncu(Grade(submission, exercise.name, tuple(results), grader.provenance))
    assert said == ([] if counters else [f"! {ncu.NO_PERMISSION}."])
    return measurements[0], counters


def notes_of_ncu(grade):
    """Return what the report says below its tables of why there are no counters."""
    gradebook = Gradebook()
    for position, check in enumerate(grade.checks):
        gradebook.add(result_properties(replace(grade, checks=(check,)), position))
    return [line for line in footnotes(gradebook) if "ncu" in line]


def test_the_best_solution_is_counted(opened_device):
    measurement, counters = measured("solutions/reduction/10_shuffle_unroll8.cu", opened_device.info)
    if not counters:
        return
    first = counters[0]
    assert first.kernel.startswith("reduce") and first.block[1:] == (1, 1)
    assert {counter.name for counter in first.counters} == set(METRICS)
    units = {counter.name: counter.unit for counter in first.counters}
    assert units["gpu__time_duration.sum"] == "ns" and units["dram__bytes_read.sum"] == "byte"
    assert 20 < first.value("sm__warps_active.avg.pct_of_peak_sustained_active") <= 100
    assert first.value("dram__bytes_read.sum") == pytest.approx(4 * 2**26, rel=0.05)
    total_ms = sum(launch.value("gpu__time_duration.sum") for launch in counters) / 1e6
    assert total_ms == pytest.approx(measurement.elapsed_ms, rel=0.25)


def test_bank_conflicts_are_counted(opened_device):
    _, counters = measured("solutions/reduction/07_shared_strided.cu", opened_device.info)
    if counters:
        assert counters[0].value("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum") > 1e5

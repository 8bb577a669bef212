"""Nsight Compute on a real GPU: what it counts of a timed kernel, or its refusal as a note."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_gpulab.grading import ncu
from pytest_gpulab.grading.catalogue import Catalogue
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.counters import METRICS
from pytest_gpulab.grading.remote import RemoteGrader

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("nvidias_tools")]
ROOT = Path(__file__).parents[2]


def measured(submission, info):
    exercise = Catalogue(ROOT / "exercises").load("reduction")
    grader = RemoteGrader(exercise, ROOT / submission, "cuda", info, 1, profiler=ncu.Profiler())
    checks = [check for check in checks_of(exercise.exercise) if check.kind == "speedup"]
    try:
        measurements = [grader.run(check).measurement for check in checks]
    finally:
        grader.close()
    (counters,) = {measurement.counters for measurement in measurements}
    (note,) = {measurement.counters_note for measurement in measurements}  # a refusal is a note, and no more
    assert note == ("" if counters else ncu.NO_PERMISSION)
    return measurements[0], counters


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

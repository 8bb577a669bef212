"""A speedup check that fails while timing: its verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from clocked_device import SIZE, TIERS, ClockedBench, tier
from doubling import EXERCISE, kernel, program, right

from pytest_gpulab.devices.protocol import DeviceUnavailable, KernelFault
from pytest_gpulab.exercise import Buffer
from pytest_gpulab.grading.checks import checks_of
from pytest_gpulab.grading.grade import Finding
from pytest_gpulab.grading.speed.buffers import BufferPool

pytestmark = pytest.mark.unit


def test_a_race_that_broke_the_gpu_is_not_run_again_for_its_other_tiers(clocked: ClockedBench) -> None:
    """In another process, that is: the GPU cannot be used any more in the one where it happened."""
    grader, found = clocked.grader(right(1.0), speed=TIERS), Finding("device-fault", "given up")
    checks = [check for check in checks_of(replace(EXERCISE, speed=TIERS)) if check.kind == "speedup"]
    grader.record_failure(checks[0], found)
    results = [grader.run(check) for check in checks]
    assert [(result.verdict, result.findings) for result in results] == [("failed", (found,))] * 2
    assert clocked.watch.cold == []


def test_a_gpu_without_memory_for_checked_outputs_costs_no_point(
    clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(pool: BufferPool, buffer: Buffer) -> None:
        raise DeviceUnavailable("not enough GPU memory for 1,024 bytes more")

    monkeypatch.setattr(BufferPool, "spare", full)
    result = tier(clocked, right(1.0))
    assert (result.verdict, result.findings[0].code) == ("not gradable", "device-fault")


def test_a_fault_at_the_timed_size_is_the_submissions(clocked: ClockedBench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        if n == SIZE:
            raise KernelFault("trap", "__trap() was called")
        return kernel(1.0)(options, source, out, n)

    result = tier(clocked, program(twice))
    assert (result.verdict, result.findings[0].code, result.measurement) == ("failed", "trap", None)
    assert clocked.device.held == []


def test_a_fault_of_the_baseline_is_the_instructors(clocked: ClockedBench) -> None:
    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        raise KernelFault("trap", "__trap() was called")

    clocked.programs["naive"] = program(twice)
    result = tier(clocked, right(1.0))
    assert (result.verdict, result.findings[0].code) == ("not gradable", "reference-mismatch")


@pytest.mark.parametrize("costs_ms", [1.0, 0.01])
@pytest.mark.parametrize("launches", [1, 4, 9])
def test_a_baseline_that_fails_while_it_is_timed_is_the_instructors(
    clocked: ClockedBench, launches: int, costs_ms: float
) -> None:
    clocked.watch.l2_bytes = 4 * 10 * 8 * SIZE
    done = [0]

    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        done[0] += n == SIZE
        if done[0] > launches:
            raise KernelFault("endless-loop", "twice: the kernel had not ended after 10 s")
        return kernel(3 * costs_ms)(options, source, out, n)

    clocked.programs["naive"] = program(twice)
    result = tier(clocked, right(costs_ms))
    (finding,) = result.findings
    assert (result.verdict, finding.code) == ("not gradable", "reference-mismatch")
    assert finding.what.startswith("The exercise's baseline naive.cu cannot be used: ")


@pytest.mark.parametrize("launches", [1, 4, 9])
def test_a_submission_that_fails_while_it_is_timed_answers_for_itself(clocked: ClockedBench, launches: int) -> None:
    done = [0]

    def twice(options: Any, source: Any, out: Any, n: Any) -> Any:
        done[0] += n == SIZE
        if done[0] > launches:
            raise KernelFault("trap", "__trap() was called")
        return kernel(1.0)(options, source, out, n)

    result = tier(clocked, program(twice))
    assert (result.verdict, result.findings[0].code) == ("failed", "trap")


def test_a_gpu_that_is_never_free_costs_no_point(clocked: ClockedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(drain: bool) -> Any:
        raise DeviceUnavailable("another process has been timing on the GPU for 600 s")

    monkeypatch.setattr(clocked.device, "stopwatch", busy)
    result = tier(clocked, right(1.0))
    assert (result.verdict, result.findings[0].code) == ("not gradable", "device-fault")
    assert "another process has been timing" in result.findings[0].what

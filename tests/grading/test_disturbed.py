"""Reads that give other values: what follows from runs that take too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import DeviceError, DeviceUnavailable, KernelFault, LaunchOptions, OutOfMemory
from pytest_gpulab.grading.compilation.builds import BuildFailed
from pytest_gpulab.grading.plans.replay import Run
from pytest_gpulab.grading.usage import used_reads

pytestmark = pytest.mark.unit

SLOW = KernelFault("time-limit", "time limit: the kernel had not ended after 1 s")


def share(monkeypatch: pytest.MonkeyPatch, ended: int) -> tuple[float, list[float | None]]:
    """Return the share and the limits of runs of which every disturbed one takes too long.

    Args:
        monkeypatch: replaces the runs.
        ended: how many undisturbed runs come to their end.
    """
    limits_s: list[float | None] = []
    undisturbed = 0

    def run(device: Any, build: Any, plan: Any, inputs: Any, options: LaunchOptions) -> Run:
        nonlocal undisturbed
        limits_s.append(options.time_limit_s)
        assert options.disturbed is not None
        if options.disturbed.nth >= 0:
            return Run(error=SLOW)
        options.disturbed.seen = 100
        undisturbed += 1
        return Run({"out": np.zeros(1)}) if undisturbed <= ended else Run(error=SLOW)

    monkeypatch.setattr(used_reads, "run_fresh", run)
    nothing: Any = None
    return used_reads.used_reads(
        nothing, nothing, nothing, {}, {}, np.random.default_rng(1), "shared"
    ).counting, limits_s


def test_a_value_that_ends_a_loop_is_used_and_its_runs_have_a_limit_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used, limits_s = share(monkeypatch, ended=1000)
    assert used == 1
    assert limits_s[0] is None, "an undisturbed run has the time of the check"
    own_s = [limit_s for limit_s in limits_s if limit_s is not None]
    assert own_s == [pytest.approx(used_reads.LIMIT_S, abs=0.5)] * (1 + used_reads.ALL_OF_THE_FIRST), (
        "all reads together, then each"
    )


@pytest.mark.parametrize("ended", [0, 1])
def test_reads_that_no_time_is_left_for_do_not_count_as_used(monkeypatch: pytest.MonkeyPatch, ended: int) -> None:
    with pytest.raises(BuildFailed) as blocked:
        share(monkeypatch, ended)
    assert (blocked.value.verdict, blocked.value.finding.code) == ("failed", "time-limit")


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("reduction", [np.max, np.min])
def test_a_maximum_and_a_minimum_use_their_reads(
    monkeypatch: pytest.MonkeyPatch, reduction: Callable[[Any], Any], dtype: type
) -> None:
    values = np.linspace(0, 1 if issubclass(dtype, np.floating) else 50, 100).astype(dtype)

    def run(device: Any, build: Any, plan: Any, inputs: Any, options: LaunchOptions) -> Run:
        read, found = options.disturbed, values.copy()
        assert read is not None
        read.seen = 100
        if read.nth >= 0:
            found.view(np.uint8).reshape(100, -1)[read.nth] ^= np.frombuffer(
                read.flipped.to_bytes(8, "little"), np.uint8
            )[: found.itemsize]
        return Run({"out": np.atleast_1d(reduction(found))})

    monkeypatch.setattr(used_reads, "run_fresh", run)
    nothing: Any = None
    shares = [
        used_reads.used_reads(nothing, nothing, nothing, {}, {}, np.random.default_rng(seed), "shared").counting
        for seed in range(50)
    ]
    assert shares == [1.0] * 50


@pytest.mark.parametrize("compared", [True, False])
def test_a_read_that_is_compared_with_one_of_eight_ranges_is_used(
    monkeypatch: pytest.MonkeyPatch, compared: bool
) -> None:
    """A warp counts the values from 96 to 127: of most reads, the old value and most others change nothing for it."""
    values = np.random.default_rng(2).integers(0, 256, 1000, np.uint8)

    def run(device: Any, build: Any, plan: Any, inputs: Any, options: LaunchOptions) -> Run:
        read, found = options.disturbed, values.copy()
        assert read is not None
        read.seen = 1000
        if read.nth >= 0:
            found[read.nth] ^= read.flipped & 0xFF
        return Run({"out": np.bincount(found, minlength=256)[96:128]})

    monkeypatch.setattr(used_reads, "run_fresh", run)
    nothing: Any = None
    shares = [
        used_reads.used_reads(nothing, nothing, nothing, {}, {}, np.random.default_rng(seed), "shared", compared).share
        for seed in range(20)
    ]
    assert min(shares) == 1.0 if compared else np.mean(shares) < 0.5


def used_share(monkeypatch: pytest.MonkeyPatch, every: int, seed: int) -> float:
    """Return what counts of a kernel that uses every n-th of its reads."""

    def run(device: Any, build: Any, plan: Any, inputs: Any, options: LaunchOptions) -> Run:
        read = options.disturbed
        assert read is not None
        read.seen = 1000
        return Run({"out": np.array([read.nth >= 0 and read.nth % every == 0])})

    monkeypatch.setattr(used_reads, "run_fresh", run)
    nothing: Any = None
    return used_reads.used_reads(nothing, nothing, nothing, {}, {}, np.random.default_rng(seed), "shared").counting


def test_more_reads_decide_if_the_first_ones_leave_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 12 reads, a third would be used once in 20 kernels that use an eighth."""
    assert sum(used_share(monkeypatch, 8, seed) > 0 for seed in range(300)) <= 2
    assert sum(used_share(monkeypatch, 2, seed) > 0 for seed in range(300)) >= 290


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s


def test_a_read_is_tried_again_if_the_machine_has_become_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """No output depends on a read here, but disturbed runs take 9 s from the second on."""
    clock, took_s = Clock(), [0.1, 9.0]

    def run(device: Any, build: Any, plan: Any, inputs: Any, options: LaunchOptions) -> Run:
        read, limit_s = options.disturbed, options.time_limit_s or np.inf
        assert read is not None
        read.seen += 100
        needed_s = took_s.pop(0) if len(took_s) > 1 else took_s[0]
        clock.now_s += min(needed_s, limit_s)
        return Run({"out": np.zeros(1)}) if needed_s <= limit_s else Run(error=SLOW)

    monkeypatch.setattr(used_reads, "run_fresh", run)
    monkeypatch.setattr(used_reads, "time", clock)
    nothing: Any = None
    assert used_reads.used_reads(nothing, nothing, nothing, {}, {}, np.random.default_rng(1), "shared").counting == 0


@pytest.mark.parametrize("error", [DeviceUnavailable("the machine is too busy"), OutOfMemory("no memory is left")])
def test_runs_that_the_machine_ends_do_not_count_as_used(monkeypatch: pytest.MonkeyPatch, error: DeviceError) -> None:
    def run(device: Any, build: Any, plan: Any, inputs: Any, options: LaunchOptions) -> Run:
        read = options.disturbed
        assert read is not None
        read.seen = 100
        return Run({"out": np.zeros(1)}) if read.nth < 0 else Run(error=error)

    monkeypatch.setattr(used_reads, "run_fresh", run)
    nothing: Any = None
    with pytest.raises(BuildFailed) as blocked:
        used_reads.used_reads(nothing, nothing, nothing, {}, {}, np.random.default_rng(1), "shared")
    assert blocked.value.verdict == "not gradable"

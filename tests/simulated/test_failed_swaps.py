"""Compare-and-swaps that fail over and over are checked for races once, and no race is missed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.hazards.accesses import MemoryAccess
from pytest_gpulab.devices.simulated.hazards.races.racecheck import Racecheck

SUM = """__global__ void f(int *x) {
    int seen = *(volatile int *)x, expected;
    do { expected = seen; seen = atomicCAS(x, expected, expected + 1); } while (seen != expected);
}"""
FAILS_TWICE = """__global__ void f(int *x) {
    if (threadIdx.x == 0) atomicCAS(x, 5, 6);
    BETWEEN
    if (threadIdx.x == 32) x[0] = 1;
    AFTER
    if (threadIdx.x == 0) atomicCAS(x, 5, 6);
}"""
IN_A_LOOP = """__global__ void f(int *x) {
    #pragma unroll 1
    for (int k = 0; k < 2; k++) {
        if (threadIdx.x == 32 && k == 1) x[0] = 1;
        AFTER
        if (threadIdx.x == 0) atomicCAS(x, 5, 6);
        BETWEEN
    }
}"""


IN_SHARED_MEMORY = "{ __shared__ int x[2]; if (threadIdx.x == 0) x[0] = x[1] = 0; __syncthreads();"
PLACES = {"global": "", "shared": IN_SHARED_MEMORY}


def placed(source: str, place: str) -> str:
    """Return a program with `x` in the given memory."""
    return source.replace("int *x) {", f"int *all) {place}" if place == IN_SHARED_MEMORY else "int *x) {")


def racing_lines(source: str) -> set[int]:
    device = SimulatedDevice()
    module = device.compile(source)
    x = device.array(np.zeros(2, np.int32))
    profile = module.launch("f", (1,), (64,), (x,), options=LaunchOptions("warps", check=True))
    return {hazard.where.line for hazard in profile.hazards if hazard.kind == "race" and hazard.where}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("source", [FAILS_TWICE, IN_A_LOOP], ids=["two instructions", "one instruction"])
@pytest.mark.parametrize("between", ["", "__syncthreads();", "__syncwarp();", "__threadfence();"])
def test_a_plain_write_between_failed_swaps_races(source: str, between: str, place: str) -> None:
    assert racing_lines(placed(source, place).replace("BETWEEN", between).replace("AFTER", ""))


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("source", [FAILS_TWICE, IN_A_LOOP], ids=["two instructions", "one instruction"])
def test_a_plain_write_between_barriers_does_not(source: str, place: str) -> None:
    source = placed(source, place)
    assert not racing_lines(source.replace("BETWEEN", "__syncthreads();").replace("AFTER", "__syncthreads();"))


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_threads_that_take_turns_are_checked_once_each(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    lanes: list[int] = []
    original = Racecheck.add

    def add(self: Racecheck, event: Any) -> None:
        lanes.extend([event.lanes.n] if isinstance(event, MemoryAccess) else [])
        original(self, event)

    monkeypatch.setattr(Racecheck, "add", add)
    device = SimulatedDevice()
    x = device.array(np.zeros(1, np.int32))
    source = placed(SUM, place)
    if place == IN_SHARED_MEMORY:
        source = source[:-1] + "__syncthreads(); if (threadIdx.x == 0) atomicAdd(all, x[0]); }"
    profile = device.compile(source).launch("f", (2,), (256,), (x,), options=LaunchOptions(check=True))
    assert x.get()[0] == 512 and not profile.hazards
    assert sum(lanes) <= 3 * 512 + 8

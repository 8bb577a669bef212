"""Locks that all threads take in turn: the race check finds no false race and misses none, in linear memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from places import Run

from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated.hazards.fences import Fences

HEAD = """
__device__ int lock;
__device__ unsigned tickets, serving;
__global__ void f(int *counter) {
    #define CRITICAL __threadfence(); *counter += 1; __threadfence();
    #define RELEASE atomicExch(&lock, 0);
"""
LOCKS = {
    "compare and swap": "for (bool done = 0; !done;) if (!atomicCAS(&lock, 0, 1)) { CRITICAL RELEASE done = 1; }",
    "exchange": "for (bool done = false; !done;) if (!atomicExch(&lock, 1)) { CRITICAL RELEASE done = true; }",
    "waits in front": "while (atomicExch(&lock, 1)); CRITICAL RELEASE",
    "sleeps": "for (int ns = 8; atomicCAS(&lock, 0, 1); ns *= 2) __nanosleep(ns); CRITICAL RELEASE",
    "reads first": "do { while (*(volatile int *)&lock); } while (atomicCAS(&lock, 0, 1)); CRITICAL RELEASE",
    "ticket": "int t = atomicAdd(&tickets, 1); while (atomicAdd(&serving, 0) != t); CRITICAL atomicAdd(&serving, 1);",
    "volatile ticket": "unsigned t = atomicAdd(&tickets, 1); volatile unsigned *turn = &serving; "
    "while (*turn != t); CRITICAL *turn = t + 1;",
    "one thread per block": "if (threadIdx.x == 0) { while (atomicCAS(&lock, 0, 1)); CRITICAL RELEASE }",
}
VOLATILE_RELEASE = LOCKS["compare and swap"].replace("RELEASE", "*(volatile int *)&lock = 0;")
MISTAKES = {
    "no fences": LOCKS["exchange"].replace("CRITICAL", "*counter += 1;"),
    "no fence before the release": LOCKS["compare and swap"].replace("CRITICAL", "__threadfence(); *counter += 1;"),
    "volatile release without fences": VOLATILE_RELEASE.replace("CRITICAL", "*counter += 1;"),
    "plain release": LOCKS["exchange"].replace("RELEASE", "lock = 0;"),
    "reads outside": LOCKS["compare and swap"] + "if (*counter == 7) lock = 0;",
    "no lock": "atomicCAS(&lock, 0, 1); CRITICAL RELEASE",
}


def watched(run: Run, body: str, blocks: int = 3) -> LaunchProfile:
    counter = np.zeros(1, np.int32)
    profile = run(f"{HEAD}{body}\n}}", counter, grid=(blocks,), block=(64,), options=LaunchOptions(check=True))
    if not profile.hazards:
        assert counter[0] == blocks * (1 if "threadIdx" in body else 64)
    return profile


@pytest.mark.parametrize("body", LOCKS.values(), ids=LOCKS.keys())
def test_a_correct_lock_has_no_race_and_few_records(run: Run, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    kept: dict[int, int] = {}
    original = Fences.classes

    def classes(self: Fences) -> Any:
        kept[id(self)] = sum(record.lanes.n for record in self._records)
        return original(self)

    monkeypatch.setattr(Fences, "classes", classes)
    profile = watched(run, body)
    assert (profile.hazards, profile.unchecked) == ((), ())
    assert 0 < max(kept.values()) < 10 * 192  # and not the square


def test_a_volatile_release_has_no_race_even_within_a_warp(run: Run) -> None:
    assert watched(run, VOLATILE_RELEASE).hazards == ()


@pytest.mark.parametrize("body", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_wrong_lock_has_races(run: Run, body: str) -> None:
    assert any(hazard.kind == "race" and not hazard.harmless for hazard in watched(run, body).hazards)

"""Hints for the messages of hazards and of compilers."""

from __future__ import annotations

import pytest

from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.grading.findings import HINTS, hint_of, of_error


def test_a_missing_barrier_is_no_matter_of_registers() -> None:
    told = "potential read-after-write (RAW) hazard on __shared__ memory in one block, in the same line"
    assert hint_of("race", told) == HINTS["race"]


HAZARDS = {
    "potential write-after-write (WAW) hazard on __shared__ memory in one warp in the same line": ("race", "an atomic"),
    "potential write-after-write (WAW) hazard on __global__ memory in one block in the same line": (
        "race",
        "one of its own",
    ),
    "potential write-after-write (WAW) hazard on __shared__ memory in one warp": ("race", "__syncthreads(), or __sync"),
    "potential write-after-read (WAR) hazard on __shared__ memory in one block in the same line": (
        "race",
        "atomicAdd()",
    ),
    "potential (RAW) hazard by different blocks, no fence between the value and the flag": ("race", "__threadfence()"),
    "Grid synchronisation in an ordinary launch: its blocks cannot wait": ("barrier", "next launch begins"),
    "Invalid arguments: a shuffle from a lane that is inactive or has exited": ("barrier", "lanes k / 2 apart"),
    "Divergent threads in warp: a tensor-core operation needs all 32 threads of the warp": (
        "barrier",
        "multiple of 32",
    ),
    "Divergent threads in block: barrier 1 expects 64 threads, but more arrive": ("barrier", "same thread count"),
    "Invalid arguments: barrier 31; a block has the barriers 0 to 15": ("barrier", "operand of `bar.sync`"),
    "The kernel does not end: it waits for a change that no thread makes": ("endless-loop", "must be released"),
    "The kernel does not end: nothing in this loop can end it": ("endless-loop", "declare the flag `volatile`"),
    "The kernel does not end: this loop changes nothing": ("endless-loop", "declare the flag `volatile`"),
    "It waits for a change that no thread makes, and the GPU holds 9 of its 20 blocks at once": (
        "endless-loop",
        "must not wait for all others",
    ),
    "The address is a null pointer; malloc() or new had returned null, because the heap was full": (
        "out-of-bounds",
        "free each block",
    ),
}


COMPILERS = {
    'error: calling a __host__ function("f()") is considered a host function': "Mark functions",
    "error: device-side kernel launch could not be processed": "cannot launch another one",
    "error: kernel launch from __device__ or __global__ functions requires separate compilation mode": "without `<<<",
    "error: a __global__ function call must be configured": "is marked `__device__`",
}


@pytest.mark.parametrize(("message", "hint"), COMPILERS.items())
def test_a_compilers_message_has_a_hint_that_fits(message: str, hint: str) -> None:
    assert hint in of_error(CompileError(f"kernel.cu(3): {message}"))[1].hint


@pytest.mark.parametrize(("what", "expected"), HAZARDS.items())
def test_a_hazard_of_barriers_and_fences_has_a_hint_of_its_own(what: str, expected: tuple[str, str]) -> None:
    code, hint = expected
    assert hint in hint_of(code, what)

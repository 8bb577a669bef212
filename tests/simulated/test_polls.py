"""Polls, such as a look-back in a scan: repeated strong accesses cost little, and change no verdict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from places import Run
from searches import search

from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile, Schedule
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.hazards.accesses import MemoryAccess
from pytest_gpulab.devices.simulated.hazards.fences import Fences
from pytest_gpulab.devices.simulated.hazards.polls import MAX_WRITES, Polls

HEAD = """\
__global__ void f(int *data)
{
int b = blockIdx.x, t = threadIdx.x, x = 0;
volatile int *strong = data;
"""
WHO = ["b == 0 && t == 0", "b == 1 && t == 0", "b == 2 && t < 2", "t == 33", "b == 1", "1"]
WHAT = [
    *(
        "x += strong[W];",
        "x += strong[W];",
        "x += atomicAdd(data + W, 0);",
        "strong[W] = b;",
        "atomicAdd(data + W, b);",
    ),
    *("x += data[W];", "data[W] = 1 + b;", "__threadfence();", "__threadfence_block();"),
]
WORDS = ["0", "1", "b", "t % 2"]
statements = st.builds(
    lambda who, what, word: f"if ({who}) {{ {what.replace('W', word)} }}",
    *map(st.sampled_from, (WHO, WHAT, WORDS)),
)
loops = st.builds(
    lambda body, rounds: f"for (int k = 0; k < {rounds}; ++k) {{\n" + "\n".join(body) + "\n}",
    st.lists(statements, min_size=1, max_size=3),
    st.integers(2, 5),
)
programs = st.lists(st.one_of(statements, loops, loops, st.just("__syncthreads();")), min_size=2, max_size=7)


def racing_lines(program: list[str], schedule: Schedule) -> set[frozenset[int]]:
    source = HEAD + "\n".join(program) + "\nif (x == 12345) data[9] = x;\n}\n"
    device = SimulatedDevice()
    data = device.array(np.zeros(16, np.int32))
    options = LaunchOptions(schedule, check=True)
    profile = device.compile(source).launch("f", (3,), (64,), (data,), options=options)
    assert not profile.unchecked
    return {
        frozenset((hazard.where.line, hazard.other.where.line))
        for hazard in profile.hazards
        if hazard.kind == "race" and hazard.where and hazard.other and hazard.other.where
    }


def all_recorded(polls: Polls, access: MemoryAccess) -> MemoryAccess:
    """Take no access for a repetition; strong writes are noted as ever."""
    return polls._modified(access) if access.site.modifies else access


@pytest.mark.parametrize("schedule", ["lockstep", "warps"])
@search(8)
@example(["for (int k = 0; k < 2; ++k) x += atomicAdd(data, 0);", "if (b == 0 && t == 0) x += strong[0];"])
@given(program=programs)
def test_repetitions_race_as_the_first_access_does(schedule: Schedule, program: list[str]) -> None:
    found = racing_lines(program, schedule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Polls, "new", all_recorded)
        assert racing_lines(program, schedule) == found


LOOK_BACK = """
#include <cuda/atomic>
using Ref = cuda::atomic_ref<int, cuda::thread_scope_device>;
__global__ void chain(int *sums, int *flags)
{
    int b = blockIdx.x;
    if (threadIdx.x == 0) {
        int before = 0;
        if (b > 0) { WAIT before = SUM; }
        sums[b] = before + b;
        PUBLISH
    }
}
"""
VOLATILE = {
    "WAIT": "while (((volatile int *)flags)[b - 1] == 0) {} __threadfence();",
    "SUM": "((volatile int *)sums)[b - 1]",
    "PUBLISH": "__threadfence(); ((volatile int *)flags)[b] = 1;",
}
WAYS = {
    "volatile": VOLATILE,
    "atomics": {
        "WAIT": "while (atomicAdd(flags + b - 1, 0) == 0) {} __threadfence();",
        "SUM": "sums[b - 1]",
        "PUBLISH": "__threadfence(); atomicExch(flags + b, 1);",
    },
    "atomic_ref": {
        "WAIT": "while (Ref(flags[b - 1]).load(cuda::memory_order_acquire) == 0) {}",
        "SUM": "sums[b - 1]",
        "PUBLISH": "Ref(flags[b]).store(1, cuda::memory_order_release);",
    },
}


def look_back(way: dict[str, str], run: Run, blocks: int) -> tuple[LaunchProfile, list[int]]:
    source = LOOK_BACK
    for name, code in way.items():
        source = source.replace(name, code)
    sums = np.zeros(blocks, np.int32)
    profile = run(source, sums, np.zeros(blocks, np.int32), grid=(blocks,), block=(32,), options=CHECKED)
    return profile, sums.tolist()


CHECKED = LaunchOptions(check=True)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_blocks_that_wait_for_each_other_record_few_accesses(
    way: dict[str, str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = []
    add = Fences.add
    monkeypatch.setattr(Fences, "add", lambda self, *args: (lanes.append(args[2].n), add(self, *args))[1])
    blocks = 3 * MAX_WRITES
    profile, sums = look_back(way, run, blocks)
    assert sums == np.cumsum(range(blocks)).tolist()
    assert (profile.hazards, profile.unchecked) == ((), ())
    assert sum(lanes) < 12 * blocks  # and not the square


def test_look_back_without_a_fence_still_races(run: Run) -> None:
    profile, _ = look_back(VOLATILE | {"PUBLISH": "((volatile int *)flags)[b] = 1;"}, run, 40)
    assert {hazard.kind for hazard in profile.hazards} == {"race"}

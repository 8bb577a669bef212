"""Random small programs: the simulated GPU finds a race exactly where a brute-force happens-before check finds one.

The check keeps, for every thread, up to which statement it knows each other thread to have come, and compares every
access with every earlier one to the same word. With a small limit, what is remembered of a program is made short on the
way, as it is in long ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from racing_programs import (
    BLOCKS,
    SYNCS,
    THREADS,
    Pair,
    Statement,
    built,
    chosen,
    limited,
    places,
    raced,
)
from searches import search

from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile, Schedule
from pytest_gpulab.devices.simulated import SimulatedDevice

HEAD = """\
#define READ(p) asm volatile("ld.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory")
#define WRITE(p) asm volatile("st.u32 [%0], %1;" :: "l"(p), "r"(t * 7 + b) : "memory")
#define COUNT(p) atomicAdd(p, 1)
#define MEET(what, id, n) asm volatile("bar." what " " #id ", " #n ";" ::: "memory")
#define PLACE(id) static_cast<unsigned>(__cvta_generic_to_shared(phases + id))
#define MEET_INIT(id) asm volatile("mbarrier.init.shared::cta.b64 [%0], 192;" :: "r"(PLACE(id)) : "memory")
#define ARRIVE "mbarrier.arrive.shared::cta.b64 _, [%0], %1;"
#define MEET_ARRIVE(id, n) asm volatile(ARRIVE :: "r"(PLACE(id)), "r"(192 / n) : "memory")
#define TEST "L%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra L%=;"
#define MEET_WAIT(id) asm volatile("{ .reg .pred p; " TEST " }" :: "r"(PLACE(id)) : "memory")
__global__ void f(int *data) {
__shared__ int tile[128];
__shared__ unsigned long long phases[10];
int t = threadIdx.x, b = blockIdx.x, x = 0;
if (t < 10) MEET_INIT(t);
__syncthreads();
"""
FIRST_LINE = HEAD.count("\n") + 1
"""Of the statements, one a line."""
WHO = ["1", "t < 7", "t % 3 == 1", "t / 8 == 2", "b == 1", "t == 5", "t >= 40", "(t & 5) == 4", "t / 32 == 1"]
WHERE = ["t", "t / 2", "t ^ 1", "(t + 5) % 96", "t % 4", "3", "95 - t", "t ^ 32", "(t + 48 * b) % 96", "b", "64 + b"]
STREAMS = ["k", "(t + k) % 96", "k % 8 + 60", "(95 - t + 2 * k) % 96", "t", "b + k", "(t + 48 * b + 7 * k) % 128"]
ROUNDS = 12  # of a stream
accesses = st.builds(
    Statement,
    st.sampled_from(["READ", "READ", "WRITE", "WRITE", "COUNT"]),
    st.sampled_from(WHO),
    st.sampled_from(WHERE),
    st.sampled_from(["tile", "tile", "data"]),
)
streams = st.builds(
    Statement,
    st.sampled_from(["READ", "READ", "READ", "WRITE", "COUNT"]),
    st.sampled_from(WHO),
    st.sampled_from(STREAMS),
    st.sampled_from(["tile", "data", "data"]),
    st.just(ROUNDS),
    st.sampled_from(["", "", *(sync for sync in SYNCS if "MEET" not in sync)]),
)
syncs = st.builds(Statement, st.sampled_from(list(SYNCS)))
programs = st.lists(st.one_of(accesses, accesses, syncs), max_size=9)
long_programs = st.lists(st.one_of(accesses, streams, syncs), max_size=9)


def groups(sync: str, block: int) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Yield (who makes known, who learns) of a sync, in threads of the block."""
    kind, _, condition = SYNCS[sync].partition(": ")
    if kind == "told":
        first, _, second = condition.partition(", ")
        yield np.flatnonzero(chosen(first, block)), np.flatnonzero(chosen(second, block))
        return
    if kind == "after":
        first, _, second = condition.partition(", ")
        learning = np.flatnonzero(chosen(second, block))
        yield np.union1d(np.flatnonzero(chosen(first, block)), learning), learning
        return
    members = np.flatnonzero(chosen(condition or "1", block))
    for warp in range(THREADS // 32) if kind == "warp" else [None]:
        here = members if warp is None else members[members // 32 == warp]
        yield here, here


def racing_lines(program: list[Statement]) -> set[Pair]:
    """Return the pairs of lines that race."""
    known = np.full((BLOCKS * THREADS, BLOCKS * THREADS), -1)
    seen: dict[tuple[object, ...], dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    found: set[Pair] = set()
    steps = [(line, step) for line, statement in enumerate(program) for step in statement.steps()]
    for now, (line, statement) in enumerate(steps):
        for block in range(BLOCKS):
            first = block * THREADS
            if statement.kind in SYNCS:
                for knowing, learning in groups(statement.kind, block):
                    joined = known[first + knowing].max(axis=0, initial=-1)
                    joined[first + knowing] = now
                    known[first + learning] = np.maximum(known[first + learning], joined)
                continue
            words = places(statement.where, block)
            for thread in np.flatnonzero(chosen(statement.who, block)).tolist():
                word = seen[statement.memory, words[thread], block if statement.memory == "tile" else None]
                mine = known[first + thread]
                for earlier, accesses in word.items():
                    pair = frozenset((line, earlier))
                    is_conflict = {statement.kind, program[earlier].kind} not in ({"READ"}, {"COUNT"})
                    if (
                        is_conflict
                        and pair not in found
                        and any(other != first + thread and mine[other] < when for other, when in accesses)
                    ):
                        found.add(pair)
                word[line].append((first + thread, now))
    return {frozenset(FIRST_LINE + line for line in pair) for pair in found}


MEMORY_LIMITS = (300, 3000, 1 << 21)
"""Lanes that the checker remembers before it summarises; the last one is its own limit."""


def built_shared(program: list[Statement]) -> Callable[[Schedule], LaunchProfile]:
    """Return a function that launches a program whose only syncs are barriers of warps and blocks."""
    return built(HEAD, program, "if (x == 123456) data[0] = tile[0];")


def found_lines(launch: Callable[[Schedule], LaunchProfile], schedule: Schedule) -> tuple[set[Pair], LaunchProfile]:
    """Return the pairs of lines that the simulated GPU says race, and its profile."""
    profile = launch(schedule)
    assert not [hazard for hazard in profile.hazards if hazard.kind == "barrier"]
    return raced(profile), profile


@search(10)
@given(program=programs)
def test_found_races_equal_those_of_a_brute_force_check(program: list[Statement]) -> None:
    launch, expected = built_shared(program), racing_lines(program)
    for schedule in ("lockstep", "warps"):
        reported, profile = found_lines(launch, schedule)
        assert reported <= expected, f"a false alarm: {schedule}"
        assert bool(reported) == bool(expected), f"a race was missed: {schedule}"
        assert not profile.unchecked, schedule


@pytest.mark.parametrize("memory", ["tile", "data"])
@pytest.mark.parametrize(("first", "then"), [("COUNT", "READ"), ("COUNT", "WRITE"), ("READ", "WRITE")])
def test_a_barrier_of_two_warps_does_not_order_a_third_warp(first: str, then: str, memory: str) -> None:
    """The third warp's access is neither the word's last one nor the last of another warp."""
    meeting = Statement('if (t >= 32) MEET("sync", ID, 64);')
    racing = [Statement(first, "1", "3", memory), meeting, Statement(then, "t == 70", "3", memory)]
    apart = [Statement(first, "t >= 32", "3", "tile"), meeting, Statement(then, "t == 70", "3", "tile")]
    assert frozenset((FIRST_LINE, FIRST_LINE + 2)) in found_lines(built_shared(racing), "lockstep")[0]
    assert found_lines(built_shared(apart), "lockstep")[0] == racing_lines(apart) == set()


@search(10)
@given(program=long_programs)
def test_races_of_long_programs_are_found_in_bounded_memory(program: list[Statement]) -> None:
    launch, expected = built_shared(program), racing_lines(program)
    has_other_barriers = any("MEET" in statement.kind for statement in program)
    for limit in MEMORY_LIMITS:
        with limited(limit):
            reported, profile = found_lines(launch, "lockstep")
        assert reported <= expected, f"a false alarm: {limit}"
        assert bool(reported) == bool(expected) or (profile.unchecked and not reported), f"a race was missed: {limit}"
        assert has_other_barriers or not profile.unchecked, limit


ORDERS: tuple[Schedule, ...] = ("lockstep", "warps", "warps-reversed")
TOLD = """\
__syncthreads();
data[512 + b * 96 + t] = x;
for (int i = t; i < 128; i += 96) data[128 + b * 128 + i] = tile[i];
}
"""
"""What each thread read, and what was left in shared memory."""


def told(module: Any, device: SimulatedDevice, schedule: Schedule) -> tuple[LaunchProfile, bytes]:
    data = device.array(np.zeros(1024, np.int32))
    options = LaunchOptions(schedule, fill=0, check=True)
    return module.launch("f", (BLOCKS,), (THREADS,), [data], options=options), data.get().tobytes()


@search(10)
@given(program=programs)
def test_an_order_free_launch_has_equal_results_in_every_order(program: list[Statement]) -> None:
    lines = "\n".join(statement.code(number) for number, statement in enumerate(program))
    head = HEAD.replace("x = 0;", "x = 0;\nfor (int i = t; i < 128; i += 96) tile[i] = i;\n__syncthreads();")
    device = SimulatedDevice()
    module = device.compile(f"{head.replace('t * 7 + b', 'x + t * 7 + b')}{lines}\n{TOLD}")
    profiles, left = zip(*(told(module, device, schedule) for schedule in ORDERS), strict=True)
    if profiles[0].order_free:
        assert len(set(left)) == 1
    shares_plainly = not any(statement.kind == "COUNT" or "MEET" in statement.kind for statement in program)
    assert profiles[0].order_free == (shares_plainly and not profiles[0].hazards)

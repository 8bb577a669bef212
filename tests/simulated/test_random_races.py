"""Random small programs: the simulated GPU finds a race exactly where a brute-force happens-before check finds one.

The check keeps, for every thread, up to which statement it knows each other thread to have come, and compares every
access with every earlier one to the same word. With a small limit, what is remembered of a program is made short on the
way, as it is in long ones.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile, Schedule
from pytest_gpulab.devices.simulated import SimulatedDevice

THREADS, BLOCKS, WORDS = 96, 2, 128
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
SYNCS = {
    "__syncthreads();": "block",
    "__syncwarp();": "warp",
    "if (t % 32 < 8) __syncwarp(0xFF);": "warp: t % 32 < 8",
    "if (t % 2) __syncwarp(0xAAAAAAAA);": "warp: t % 2",
    "if (t == 40 || t == 45) __syncwarp(0x2100);": "warp: t == 40 or t == 45",
    'if (t < 32) MEET("sync", ID, 32);': "some: t < 32",
    'if (t < 64) MEET("sync", ID, 64);': "some: t < 64",
    'if (t >= 32) MEET("sync", ID, 64);': "some: t >= 32",
    'if (t < 32) MEET("arrive", ID, 64); else if (t < 64) MEET("sync", ID, 64);': "after: t < 32, t < 64 and t >= 32",
    'if (t >= 64) MEET("arrive", ID, 64); else if (t < 32) MEET("sync", ID, 64);': "after: t >= 64, t < 32",
    "{ MEET_ARRIVE(ID, 96); MEET_WAIT(ID); }": "some: 1",
    "if (t < 64) { MEET_ARRIVE(ID, 64); MEET_WAIT(ID); }": "some: t < 64",
    "MEET_ARRIVE(ID, 96); if (t >= 64) MEET_WAIT(ID);": "told: 1, t >= 64",
    "if (t < 32) MEET_ARRIVE(ID, 32); else if (t < 64) MEET_WAIT(ID);": "told: t < 32, t < 64 and t >= 32",
}


@dataclass(frozen=True)
class Statement:
    """An access of `kind` by some threads of a word each, or a sync; a stream has rounds, with a sync behind each."""

    kind: str
    who: str = ""
    where: str = ""
    memory: str = ""
    rounds: int = 1
    sync: str = ""

    def code(self, number: int) -> str:
        if self.kind in SYNCS:
            return self.kind.replace("ID", str(number + 1))  # a barrier of its own for each
        access = f"if ({self.who}) {self.kind}({self.memory} + ({self.where}));"
        return f"for (int k = 0; k < {self.rounds}; k++) {{ {access} {self.sync} }}" if self.rounds > 1 else access

    def steps(self) -> Iterator[Statement]:
        """Yield what threads do one after the other."""
        for k in range(self.rounds):
            yield replace(self, where=re.sub(r"\bk\b", str(k), self.where))
            if self.sync:
                yield Statement(self.sync)


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


def chosen(condition: str, block: int) -> npt.NDArray[np.bool_]:
    """Return which threads of a block a condition (C or Python) holds for."""
    env = [{"t": t, "b": block} for t in range(THREADS)]
    return np.array([bool(eval(condition.replace("/", "//"), {}, names)) for names in env])


def places(expression: str, block: int) -> list[int]:
    """Return each thread's word."""
    return [int(eval(expression.replace("/", "//"), {}, {"t": t, "b": block})) for t in range(THREADS)]


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


def racing_lines(program: list[Statement]) -> set[frozenset[int]]:
    """Return the pairs of lines that race."""
    known = np.full((BLOCKS * THREADS, BLOCKS * THREADS), -1)
    seen: dict[tuple[object, ...], list[tuple[int, int, int]]] = defaultdict(list)
    found: set[frozenset[int]] = set()
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
                key = (statement.memory, words[thread], block if statement.memory == "tile" else None)
                for other, when, earlier in seen[key]:
                    kinds = {statement.kind, program[earlier].kind}
                    if (
                        other != first + thread
                        and kinds not in ({"READ"}, {"COUNT"})
                        and known[first + thread, other] < when
                    ):
                        found.add(frozenset((line, earlier)))
                seen[key].append((first + thread, now, line))
    return {frozenset(FIRST_LINE + line for line in pair) for pair in found}


def found_lines(program: list[Statement], schedule: Schedule) -> tuple[set[frozenset[int]], LaunchProfile]:
    """Return the pairs of lines that the simulated GPU says race, and its profile."""
    lines = "\n".join(statement.code(number) for number, statement in enumerate(program))
    device = SimulatedDevice()
    module = device.compile(f"{HEAD}{lines}\nif (x == 123456) data[0] = tile[0];\n}}\n")
    args = [device.array(np.zeros(WORDS, np.int32))]
    profile = module.launch("f", (BLOCKS,), (THREADS,), args, options=LaunchOptions(schedule, check=True))
    reported = {
        frozenset((hazard.where.line, hazard.other.where.line))
        for hazard in profile.hazards
        if hazard.kind == "race" and hazard.where and hazard.other and hazard.other.where
    }
    assert not [hazard for hazard in profile.hazards if hazard.kind == "barrier"]
    return reported, profile


@pytest.mark.parametrize("schedule", ["lockstep", "warps"])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs)
def test_races_are_those_of_a_brute_force_check(schedule: Schedule, program: list[Statement]) -> None:
    reported, profile = found_lines(program, schedule)
    expected = racing_lines(program)
    assert reported <= expected, "a false alarm"
    assert bool(reported) == bool(expected), "a race was missed"
    assert not profile.unchecked


@pytest.mark.parametrize("memory", ["tile", "data"])
@pytest.mark.parametrize(("first", "then"), [("COUNT", "READ"), ("COUNT", "WRITE"), ("READ", "WRITE")])
def test_a_barrier_of_two_warps_orders_no_third_one(first: str, then: str, memory: str) -> None:
    """The third warp's access is neither the word's last one nor the last of another warp."""
    meeting = Statement('if (t >= 32) MEET("sync", ID, 64);')
    racing = [Statement(first, "1", "3", memory), meeting, Statement(then, "t == 70", "3", memory)]
    apart = [Statement(first, "t >= 32", "3", "tile"), meeting, Statement(then, "t == 70", "3", "tile")]
    assert frozenset((FIRST_LINE, FIRST_LINE + 2)) in found_lines(racing, "lockstep")[0]
    assert found_lines(apart, "lockstep")[0] == racing_lines(apart) == set()


@pytest.mark.parametrize("limit", [300, 3000, 1 << 21])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=long_programs)
def test_long_programs_are_made_short_without_a_mistake(
    monkeypatch: pytest.MonkeyPatch, limit: int, program: list[Statement]
) -> None:
    for module in ("racecheck", "inter_block"):
        monkeypatch.setattr(f"pytest_gpulab.devices.simulated.hazards.races.{module}.MAX_LANES", limit)
    reported, profile = found_lines(program, "lockstep")
    expected = racing_lines(program)
    assert reported <= expected, "a false alarm"
    assert bool(reported) <= bool(expected) if profile.unchecked else bool(reported) == bool(expected)
    has_other_barriers = any("MEET" in statement.kind for statement in program)
    assert has_other_barriers or not profile.unchecked


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


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=programs)
def test_what_is_called_free_of_order_comes_out_alike_in_every_order(program: list[Statement]) -> None:
    lines = "\n".join(statement.code(number) for number, statement in enumerate(program))
    head = HEAD.replace("x = 0;", "x = 0;\nfor (int i = t; i < 128; i += 96) tile[i] = i;\n__syncthreads();")
    device = SimulatedDevice()
    module = device.compile(f"{head.replace('t * 7 + b', 'x + t * 7 + b')}{lines}\n{TOLD}")
    profiles, left = zip(*(told(module, device, schedule) for schedule in ORDERS), strict=True)
    if profiles[0].order_free:
        assert len(set(left)) == 1
    shares_plainly = not any(statement.kind == "COUNT" or "MEET" in statement.kind for statement in program)
    assert profiles[0].order_free == (shares_plainly and not profiles[0].hazards)


SPOKEN = """\
#define READ(p) asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory")
#define WRITE(p) asm volatile("st.global.u32 [%0], %1;" :: "l"(p), "r"(t * 7 + b) : "memory")
#define LOOK(p) asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory")
#define SAY(p) asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(p), "r"(t * 7 + b) : "memory")
#define SWAP(p) { asm volatile("atom.exch.b32 %0, [%1], %2;" : "=r"(x) : "l"(p), "r"(t * 7) : "memory"); y ^= x; }
#define RELEASE(p) asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(p), "r"(t * 7 + b) : "memory")
#define FENCE(p) __threadfence()
#define NEAR(p) __threadfence_block()
#define MEET(p) __syncthreads()
__global__ void f(int *data) {
int t = threadIdx.x, b = blockIdx.x, x = 0, y = 0;
"""
ONE, OTHER = "t + 99 * b == 5", "t + 99 * b == 139"  # thread 5 of block 0, thread 40 of block 1
NEIGHBOUR = "t + 99 * b == 41"  # thread 41 of block 0


def speech(who: list[str], kinds: list[str]) -> st.SearchStrategy[list[Statement]]:
    """Return statements of these threads about two words."""
    words = st.sampled_from(["0", "0", "1", "1", "t % 2"])
    return st.lists(
        st.builds(Statement, st.sampled_from(kinds), st.sampled_from(who), words, st.just("data")),
        min_size=1,
        max_size=4,
    )


meeting = st.lists(st.just(Statement("MEET", "1", "0", "data")), max_size=1)
speeches = st.tuples(
    speech([ONE, ONE, NEIGHBOUR, "t == 5"], ["WRITE", "SAY", "SAY", "SAY", "SWAP", "RELEASE", "FENCE", "NEAR"]),
    meeting,
    speech([ONE, "t + 99 * b == 40"], ["SAY", "SAY", "FENCE", "NEAR", "SWAP"]) | st.just([]),
    speech([OTHER, OTHER, "t == 40", NEIGHBOUR], ["LOOK", "LOOK", "READ", "SWAP", "FENCE"]),
    meeting,
    speech([OTHER, NEIGHBOUR, "t == 5"], ["LOOK", "READ", "WRITE", "SAY"]) | st.just([]),
).map(lambda parts: [statement for part in parts for statement in part])
WEAK = ("READ", "WRITE")
Done = tuple[int, int]  # an access: thread of the grid and statement


class Hearsay:
    """The brute-force check of what fences put in order: for every thread, the set of accesses that it knows of."""

    def __init__(self, program: list[Statement]) -> None:
        self.program = program
        self.known: dict[int, set[Done]] = defaultdict(set)
        self.public: dict[int, set[Done]] = defaultdict(set)
        self.heard: dict[int, set[Done]] = defaultdict(set)
        self.inside: dict[int, set[Done]] = defaultdict(set)
        self.announced: dict[int, set[Done]] = defaultdict(set)  # the rest by word
        self.nearby: dict[int, dict[int, set[Done]]] = defaultdict(lambda: defaultdict(set))
        self.seen: dict[int, set[Done]] = defaultdict(set)
        self.rumours: dict[int, set[Done]] = defaultdict(set)
        self.spoken: dict[int, Done] = {}
        self.accesses: dict[int, list[Done]] = defaultdict(list)
        self.found: set[frozenset[int]] = set()

    def run(self) -> set[frozenset[int]]:
        """Return the pairs of lines that race."""
        for now, statement in enumerate(self.program):
            if statement.kind == "MEET":
                self.meet()
                continue
            for block in range(BLOCKS):
                words = places(statement.where, block)
                for thread in np.flatnonzero(chosen(statement.who, block)).tolist():
                    self.step(block * THREADS + thread, now, statement.kind, words[thread])
        first = SPOKEN.count("\n") + 1
        return {frozenset(first + line for line in pair) for pair in self.found}

    def meet(self) -> None:
        for block in range(BLOCKS):
            members = range(block * THREADS, (block + 1) * THREADS)
            for thread in members:
                self.known[thread].update(self.accesses_of(thread))
            for table in self.known, self.public, self.inside, self.heard:
                together = set().union(*(table[thread] for thread in members))
                for thread in members:
                    table[thread] = set(together)

    def step(self, thread: int, now: int, kind: str, word: int) -> None:
        if kind in ("FENCE", "RELEASE"):
            self.public[thread] |= self.known[thread] | set(self.accesses_of(thread))
        if kind == "NEAR":
            self.inside[thread] |= self.known[thread] | set(self.accesses_of(thread))
        if kind in ("FENCE", "NEAR"):
            return
        self.compare(thread, now, kind, word)
        if kind in ("LOOK", "SWAP"):
            self.known[thread] |= self.announced[word] | self.nearby[word][thread // THREADS] | self.seen[word]
            self.public[thread] |= self.announced[word]
            self.heard[thread] |= self.rumours[word]
        if kind in ("SAY", "SWAP", "RELEASE"):
            kept = kind == "SWAP"
            before = self.known[thread] | set(self.accesses_of(thread))
            here = {done for done in before & set(self.accesses[word]) if self.program[done[1]].kind not in WEAK}
            if not kept:
                self.announced[word], self.nearby[word] = set(), defaultdict(set)
            self.announced[word] |= self.public[thread]
            self.nearby[word][thread // THREADS] |= self.public[thread] | self.inside[thread]
            self.seen[word] = {(thread, now)} | here | (self.seen[word] if kept else set())
            self.rumours[word] = before | (self.rumours[word] if kept else set())
            self.spoken[word] = thread, now
        self.accesses[word].append((thread, now))

    def accesses_of(self, thread: int) -> list[Done]:
        return [done for all_of in self.accesses.values() for done in all_of if done[0] == thread]

    def compare(self, thread: int, now: int, kind: str, word: int) -> None:
        reads = ("READ", "LOOK")
        for other, when in self.accesses[word]:
            its = self.program[when].kind
            conflict = not (kind in reads and its in reads) and (kind in WEAK or its in WEAK)
            if other != thread and conflict and (other, when) not in self.known[thread]:
                self.found.add(frozenset((now, when)))
        last = self.spoken.get(word)
        apart = kind == "LOOK" and last is not None and last[0] // 32 != thread // 32
        if apart and last in self.heard[thread] and last not in self.known[thread]:
            self.found.add(frozenset((now, last[1])))


def spoken_lines(program: list[Statement]) -> set[frozenset[int]]:
    """Return the pairs of lines that the simulated GPU says race, where fences and strong accesses order threads."""
    lines = "\n".join(statement.code(number) for number, statement in enumerate(program))
    device = SimulatedDevice()
    module = device.compile(f"{SPOKEN}{lines}\nif ((x ^ y) == 123456) data[100] = 1;\n}}\n")
    args = [device.array(np.zeros(WORDS, np.int32))]
    hazards = module.launch("f", (BLOCKS,), (THREADS,), args, options=LaunchOptions(check=True)).hazards
    return {
        frozenset((hazard.where.line, hazard.other.where.line))
        for hazard in hazards
        if hazard.kind == "race" and hazard.where and hazard.other and hazard.other.where
    }


@pytest.mark.parametrize("limit", [4, 150, 1 << 21])
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(program=speeches)
def test_what_fences_put_in_order_is_that_of_a_brute_force_check(
    monkeypatch: pytest.MonkeyPatch, limit: int, program: list[Statement]
) -> None:
    for module in ("racecheck", "inter_block"):
        monkeypatch.setattr(f"pytest_gpulab.devices.simulated.hazards.races.{module}.MAX_LANES", limit)
    reported = spoken_lines(program)
    expected = Hearsay(program).run()
    assert reported <= expected, "a false alarm"
    assert bool(reported) == bool(expected), "a race was missed"


IN_ORDER = {
    "two writes by one thread": [("SAY", ONE), ("SAY", ONE), ("LOOK", OTHER), ("READ", OTHER)],
    "a read and a write by one thread": [("LOOK", ONE), ("SAY", ONE), ("LOOK", OTHER), ("WRITE", OTHER)],
    "handed on": [("SAY", ONE), ("LOOK", NEIGHBOUR), ("SAY", NEIGHBOUR), ("LOOK", OTHER), ("READ", OTHER)],
    "atomics": [("SWAP", ONE), ("SWAP", NEIGHBOUR), ("LOOK", OTHER), ("WRITE", OTHER)],
}
NOT_IN_ORDER = {
    "two threads of a block": [("SAY", ONE), ("SAY", NEIGHBOUR), ("LOOK", OTHER), ("READ", OTHER)],
    "the first of two released": [("RELEASE", ONE), ("SAY", NEIGHBOUR), ("LOOK", OTHER), ("WRITE", OTHER)],
    "a plain write before": [("WRITE", ONE), ("SAY", ONE), ("LOOK", OTHER), ("READ", OTHER)],
    "an atomic overwritten": [("SWAP", ONE), ("SAY", NEIGHBOUR), ("LOOK", OTHER), ("WRITE", OTHER)],
}


@pytest.mark.parametrize("case", [*IN_ORDER, *NOT_IN_ORDER])
def test_a_strong_read_knows_what_the_threads_that_made_its_value_knew_of_the_place(case: str) -> None:
    steps = {**IN_ORDER, **NOT_IN_ORDER}[case]
    program = [Statement(kind, who, "0", "data") for kind, who in steps]
    first = SPOKEN.count("\n") + 1
    racing = {frozenset((first, first + len(program) - 1))}
    assert spoken_lines(program) >= racing if case in NOT_IN_ORDER else not spoken_lines(program)

"""Random programs with fences: the simulated GPU finds a race exactly where a brute-force check finds one.

The check keeps, for every thread, the set of accesses that it knows of, and what each word announces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from racing_programs import BLOCKS, THREADS, Pair, Statement, built, chosen, limited, places, raced
from searches import search

from pytest_gpulab.devices.protocol import LaunchProfile, Schedule

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
        self.found: set[Pair] = set()

    def run(self) -> set[Pair]:
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


def built_spoken(program: list[Statement]) -> Callable[[Schedule], LaunchProfile]:
    """Return a function that launches a program in which fences and strong accesses order threads."""
    return built(SPOKEN, program, "if (x + 3 * y == 123456) data[100] = 1;")


@search(25)
@given(program=speeches)
@example(  # of two reads in a row, the first one races
    program=[
        Statement("SAY", "t + 99 * b == 5", "0", "data", 1, ""),
        Statement("SAY", "t + 99 * b == 5", "1", "data", 1, ""),
        Statement("SWAP", "t + 99 * b == 139", "1", "data", 1, ""),
        Statement("LOOK", "t + 99 * b == 139", "0", "data", 1, ""),
        Statement("LOOK", "t + 99 * b == 139", "0", "data", 1, ""),
    ]
)
@example(  # two threads swap at once, and each knows the other's swap after its second one, which changes nothing
    program=[
        Statement("WRITE", "t + 99 * b == 5", "0", "data", 1, ""),
        Statement("SWAP", "t == 40", "0", "data", 1, ""),
        Statement("SWAP", "t == 40", "0", "data", 1, ""),
        Statement("MEET", "1", "0", "data", 1, ""),
        Statement("READ", "t + 99 * b == 41", "0", "data", 1, ""),
    ]
)
def test_races_with_fences_equal_those_of_a_brute_force_check(program: list[Statement]) -> None:
    launch, expected = built_spoken(program), Hearsay(program).run()
    for limit in (4, 150, 1 << 21):
        with limited(limit):
            reported = raced(launch("lockstep"))
        assert reported <= expected, f"a false alarm: {limit}"
        assert bool(reported) == bool(expected), f"a race was missed: {limit}"


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
def test_a_strong_read_is_ordered_after_the_writes_behind_its_value(case: str) -> None:
    steps = {**IN_ORDER, **NOT_IN_ORDER}[case]
    program = [Statement(kind, who, "0", "data") for kind, who in steps]
    first = SPOKEN.count("\n") + 1
    racing = {frozenset((first, first + len(program) - 1))}
    found = raced(built_spoken(program)("lockstep"))
    assert found >= racing if case in NOT_IN_ORDER else not found

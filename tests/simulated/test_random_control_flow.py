"""Random structured programs of data-dependent branches and loops give every thread what Python computes for it.

The programs mix conditions that depend on thread, block, both or the data, so that groups of lanes part and meet
as rectangles and as single lanes, nested, with values that stay uniform and values that do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from searches import search

from pytest_gpulab.devices.protocol import LaunchOptions, Schedule
from pytest_gpulab.devices.simulated import SimulatedDevice

pytestmark = pytest.mark.unmeasured

THREADS, BLOCKS, WORD = 48, 3, 0xFFFFFFFF
VARIABLES = ("x", "y", "z")
Environment = dict[str, int]


class Left(Exception):
    """A `break`, `continue` or `return` on its way out."""


@dataclass
class Assign:
    target: str
    expression: str

    def code(self) -> Iterator[str]:
        yield f"{self.target} = {self.expression};"

    def run(self, env: Environment) -> None:
        env[self.target] = eval(self.expression.replace("u", ""), {}, env) & WORD


@dataclass
class If:
    condition: str
    yes: list[Statement]
    no: list[Statement]

    def code(self) -> Iterator[str]:
        yield f"if ({self.condition}) {{"
        for statement in self.yes:
            yield from statement.code()
        yield "} else {"
        for statement in self.no:
            yield from statement.code()
        yield "}"

    def run(self, env: Environment) -> None:
        for statement in self.yes if eval(self.condition.replace("u", ""), {}, env) else self.no:
            statement.run(env)


@dataclass
class Loop:
    counter: str
    rounds: str
    body: list[Statement]

    def code(self) -> Iterator[str]:
        yield f"for (unsigned {self.counter} = 0; {self.counter} < ({self.rounds}); {self.counter}++) {{"
        for statement in self.body:
            yield from statement.code()
        yield "}"

    def run(self, env: Environment) -> None:
        rounds = lambda: eval(self.rounds.replace("u", ""), {}, env)  # noqa: E731 read again each round, as in C
        env[self.counter] = 0
        while env[self.counter] < rounds():
            try:
                for statement in self.body:
                    statement.run(env)
            except Left as left:
                if left.args == ("break",):
                    return
                if left.args == ("return",):
                    raise
            env[self.counter] += 1


@dataclass
class Leave:
    condition: str
    how: str

    def code(self) -> Iterator[str]:
        end = "goto done" if self.how == "return" else self.how
        yield f"if ({self.condition}) {end};"

    def run(self, env: Environment) -> None:
        if eval(self.condition.replace("u", ""), {}, env):
            raise Left(self.how)


Statement = Assign | If | Loop | Leave
expressions = st.sampled_from(
    [
        "x + y",
        "x * 3u + z",
        "y ^ (x >> 3)",
        "z + t",
        "x + b * 7u",
        "y * x",
        "(x & 255u) + (z >> 2)",
        "z ^ y",
        "5u",
        "t * 9u",
    ]
)
conditions = st.sampled_from(
    ["(x & 1u) == 0u", "t < 17u", "b == 1u", "(t & 3u) == 2u", "((y >> 2) & 7u) < 3u", "(t + b) % 5u == 0u", "z > x",
     "t >= 32u", "(x ^ t) % 3u == 1u", "x == x"]
)  # fmt: skip
rounds = st.sampled_from(["x & 3u", "t % 4u", "b + 1u", "(y >> 1) & 3u", "2u", "(t ^ b) & 3u"])
assignments = st.builds(Assign, st.sampled_from(VARIABLES), expressions)


def block(depth: int, in_loop: bool) -> st.SearchStrategy[list[Statement]]:
    kinds: list[st.SearchStrategy[Statement]] = [assignments, assignments]
    leaving = ["break", "continue", "return"] if in_loop else ["return"]
    kinds.append(st.builds(Leave, conditions, st.sampled_from(leaving)))
    if depth:
        kinds.append(st.builds(If, conditions, block(depth - 1, in_loop), block(depth - 1, in_loop)))
        kinds.append(st.builds(Loop, st.just(f"i{depth}"), rounds, block(depth - 1, True)))
    return st.lists(st.one_of(kinds), min_size=1, max_size=4)


def source(statements: list[Statement]) -> str:
    lines = "\n".join(line for statement in statements for line in statement.code())
    return (
        "__global__ void f(const unsigned *in, unsigned *out) {\n"
        "unsigned t = threadIdx.x, b = blockIdx.x, i = b * blockDim.x + t;\n"
        f"unsigned x = in[i], y = x >> 5, z = t;\n{lines}\ndone:\nout[i] = x + 31u * y + 997u * z;\n}}\n"
    )


def expected(statements: list[Statement], data: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> list[int]:
    results = []
    for i, value in enumerate(data.tolist()):
        env = {"x": value, "y": value >> 5, "z": i % THREADS, "t": i % THREADS, "b": i // THREADS}
        try:
            for statement in statements:
                statement.run(env)
        except Left:
            pass
        results.append((env["x"] + 31 * env["y"] + 997 * env["z"]) & WORD)
    return results


@pytest.mark.parametrize("schedule", ["lockstep", "warps-reversed"])
@search(10)
@given(statements=block(3, False), seed=st.integers(0, 2**16))
def test_every_thread_gets_its_own_result(schedule: Schedule, statements: list[Statement], seed: int) -> None:
    data = np.random.default_rng(seed).integers(0, 2**32, THREADS * BLOCKS, np.uint32)
    device = SimulatedDevice()
    out = device.empty(len(data), np.uint32)
    options = LaunchOptions(schedule=schedule)
    device.compile(source(statements)).launch("f", (BLOCKS,), (THREADS,), [device.array(data), out], options=options)
    assert out.get().tolist() == expected(statements, data)

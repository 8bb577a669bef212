"""Random small programs of two blocks: statements, their CUDA code, and the races that the simulated GPU reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile, Schedule
from pytest_gpulab.devices.simulated import SimulatedDevice

THREADS, BLOCKS, WORDS = 96, 2, 128
Pair = frozenset[int]
"""Two lines that race."""
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


@cache
def chosen(condition: str, block: int) -> npt.NDArray[np.bool_]:
    """Return the threads of a block for which a condition (C or Python) holds, as a mask."""
    return np.array(places(condition, block), np.bool_)


@cache
def places(expression: str, block: int) -> list[int]:
    """Return the word of each thread."""
    code = compile(expression.replace("/", "//"), expression, "eval")
    return [int(eval(code, {}, {"t": t, "b": block})) for t in range(THREADS)]


@contextmanager
def limited(lanes: int) -> Iterator[None]:
    """Let the checker remember that many lanes."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("racecheck", "inter_block"):
            patch.setattr(f"pytest_gpulab.devices.simulated.hazards.races.{module}.MAX_LANES", lanes)
        yield


def built(head: str, program: list[Statement], tail: str) -> Callable[[Schedule], LaunchProfile]:
    """Compile a program; return a function that launches it with zeros."""
    lines = "\n".join(statement.code(number) for number, statement in enumerate(program))
    device = SimulatedDevice()
    module = device.compile(f"{head}{lines}\n{tail}\n}}\n")

    def launch(schedule: Schedule) -> LaunchProfile:
        args = [device.array(np.zeros(WORDS, np.int32))]
        return module.launch("f", (BLOCKS,), (THREADS,), args, options=LaunchOptions(schedule, check=True))

    return launch


def raced(profile: LaunchProfile) -> set[Pair]:
    """Return the pairs of lines that race, as the simulated GPU reports them."""
    return {
        frozenset((hazard.where.line, hazard.other.where.line))
        for hazard in profile.hazards
        if hazard.kind == "race" and hazard.where and hazard.other and hazard.other.where
    }

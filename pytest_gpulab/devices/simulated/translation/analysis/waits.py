"""Spin loops, which may wait for writes of other threads, and endless loops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_gpulab.devices.simulated.ptx.syntax import Instruction, Statement

if TYPE_CHECKING:
    from pytest_gpulab.devices.simulated.translation.program import Program, TranslatedBlock

FENCES = {"membar", "fence"}
_STRONG = {"volatile", "relaxed", "acquire"}


def is_strong_load(statement: Statement) -> bool:
    """Return whether a statement is a load that observes writes of other threads."""
    return isinstance(statement, Instruction) and statement.op[0] == "ld" and bool(_STRONG & set(statement.op))


def is_fence(statement: Statement) -> bool:
    """Return whether a statement is a memory fence."""
    return isinstance(statement, Instruction) and statement.op[0] in FENCES


def polling_sites(program: Program) -> frozenset[int]:
    """Return the loads, by the index of their sites, with values that end an innermost loop that may wait."""
    loops = _loops(program.steps)
    innermost = [loop for loop in loops if not any(other != loop and set(other) <= set(loop) for other in loops)]
    strong = {
        statement.number
        for loop in innermost
        for i in loop
        for statement in program.steps[i].statements
        if isinstance(statement, Instruction) and is_strong_load(statement)
    }
    sites = (site for site in program.sites if site.is_awaited and site.space != "shared")
    return frozenset(site.index for site in sites if site.number in strong)


def places_that_wait_for_l2(program: Program, inside_loops: bool) -> int:
    """Count the source lines with a load that observes other threads' writes, or with a fence.

    Args:
        program: the kernel.
        inside_loops: True to count only those in loops that may wait.
    """
    loops = _loops(program.steps)
    chosen = [i for i in range(len(program.steps)) if not inside_loops or any(i in loop for loop in loops)]
    return len(set(_places(program.steps, chosen)))


def _places(steps: Sequence[TranslatedBlock], chosen: Sequence[int]) -> Iterator[object]:
    for i in chosen:
        for number, statement in enumerate(steps[i].statements):
            if is_fence(statement) or is_strong_load(statement):
                yield is_fence(statement), getattr(statement, "where", None) or (i, number)


def _loops(steps: Sequence[TranslatedBlock]) -> list[range]:
    """Return the loops that may wait for other threads, as ranges of basic blocks."""
    return [range(min(step.targets), i + 1) for i, step in enumerate(steps) if step.targets and step.spins]


def without_end(steps: Sequence[TranslatedBlock]) -> frozenset[int]:
    """Return the basic blocks without a path to an end of the kernel."""
    entries: dict[int, list[int]] = defaultdict(list)
    for i, step in enumerate(steps):
        for target in step.targets:
            entries[target].append(i)
    ending = {i for i, step in enumerate(steps) if not step.targets}
    fresh = list(ending)
    while fresh:
        found = [i for i in entries[fresh.pop()] if i not in ending]
        ending.update(found)
        fresh += found
    return frozenset(range(len(steps))) - ending

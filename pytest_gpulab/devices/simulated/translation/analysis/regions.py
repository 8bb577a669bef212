"""Regions: parts of a program within which the assembler may reorder instructions.

A region is straight-line code with short bodies of `if`, which the assembler predicates instead of jumping over them.
It ends at a loop's end, at a barrier, and at each other branch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pytest_gpulab.devices.simulated.ptx.syntax import Call, Instruction
from pytest_gpulab.devices.simulated.translation.control.graph import defined_and_used
from pytest_gpulab.devices.simulated.translation.program import TranslatedBlock

MAX_PREDICATED = 12  # statements in the body of an `if`; longer ones keep their branch


def regions(steps: Sequence[TranslatedBlock]) -> list[list[int]]:
    """Return the regions of a program as lists of basic blocks, each in the order of execution."""
    entries: dict[int, set[int]] = defaultdict(set)
    for i, step in enumerate(steps):
        for target in step.targets:
            entries[target].add(i)
    found: list[list[int]] = []
    taken: set[int] = set()
    for i in range(len(steps)):
        if i in taken:
            continue
        region = [i]
        while (following := _following(steps, region[-1], entries, set(region))) is not None:
            region += following
        taken.update(region)
        found.append(region)
    return found


def _following(
    steps: Sequence[TranslatedBlock], last: int, entries: dict[int, set[int]], region: set[int]
) -> list[int] | None:
    """Return the blocks that continue a region: the next block, or a predicated body."""
    step = steps[last]
    after = last + 1
    if step.end == "goto" and step.targets == (after,) and entries[after] <= region:
        return [after]
    if step.end != "branch" or after >= len(steps) or after not in step.targets or entries[after] != {last}:
        return None
    body, join = steps[after], next((t for t in step.targets if t != after), None)
    is_short = len(body.statements) <= MAX_PREDICATED and not any(isinstance(s, Call) for s in body.statements)
    if not (is_short and body.end == "goto" and body.targets == (join,) and join is not None and join > after):
        return None
    return [after, join] if entries[join] <= region | {after} and join == after + 1 else [after]


def load_depths(steps: Sequence[TranslatedBlock]) -> dict[int, int]:
    """Return the number of dependent loads before each load in its region, by the number of its statement."""
    depths: dict[int, int] = {}
    for region in regions(steps):
        behind: dict[str, int] = defaultdict(int)
        for statement in (s for i in region for s in steps[i].statements if isinstance(s, Instruction)):
            defined, used = defined_and_used(statement, {})
            depth = max((behind[name] for name in used), default=0)
            if statement.op[0] in ("ld", "ldu"):
                depths[statement.number] = depth
                depth += "param" not in statement.op
            behind.update(dict.fromkeys(defined, depth))
    return depths

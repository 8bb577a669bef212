"""Enlarged plans: their launches at a small size stand for those at the size for a GPU.

With many elements per thread, a small size has too few blocks for all SMs, while the size for a GPU has enough. An
estimate at the small size therefore distributes the blocks of the larger launch.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import prod

from pytest_gpulab.exercise import Launch, Plan


def enlarged(plan: Plan, full: Plan) -> Plan:
    """Return a plan with the `full_blocks` of its launches.

    A launch stands for the one of the same kernel and block with the same rank by number of blocks: the levels of a
    recursion differ in nothing else. A launch without such a counterpart stands for itself.

    Args:
        plan: the plan at the small size.
        full: the plan at the size for a GPU.
    """
    counterparts = _by_kernel(full)
    blocks: dict[int, int] = {}
    for key, launches in _by_kernel(plan).items():
        for launch, counterpart in zip(launches, counterparts.get(key, ()), strict=False):
            blocks[id(launch)] = max(prod(launch.grid), prod(counterpart.grid))
    return replace(plan, launches=tuple(replace(one, full_blocks=blocks.get(id(one))) for one in plan.launches))


def _by_kernel(plan: Plan) -> dict[tuple[str, tuple[int, ...]], list[Launch]]:
    """Return the launches of each kernel and block, those with most blocks first."""
    found = defaultdict(list)
    for launch in plan.launches:
        found[launch.kernel, launch.block].append(launch)
    return {key: sorted(launches, key=lambda launch: -prod(launch.grid)) for key, launches in found.items()}

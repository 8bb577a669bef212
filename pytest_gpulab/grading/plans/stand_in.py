"""Estimates of launches at the size for a GPU from launches at a small size.

At a small size, a right kernel with many elements per thread may have fewer blocks than the GPU has SMs, and the launch
itself may take longer than the work. Neither is so at the size at which a GPU is timed. The small launch shows the work
of a block; the larger one says how many blocks there are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import prod

from pytest_gpulab.devices.protocol import LargerLaunch
from pytest_gpulab.exercise import Launch, Plan

from .replay import StandIn


def standing_in(plan: Plan, full: Plan) -> Plan:
    """Return a plan at a small size with launches from which those of a `full` plan, for a GPU, are estimated.

    The counterpart of a launch has the same kernel, block and rank by number of blocks: the levels of a recursion
    differ in nothing else. A launch without a counterpart is estimated as it is.
    """
    share = _data_bytes(plan) / _data_bytes(full)
    counterparts = _by_kernel(full)
    found: dict[int, Launch] = {}
    for key, launches in _by_kernel(plan).items():
        most = max(_bytes_per_block(plan, launch) for launch in launches)
        for launch, other in zip(launches, counterparts.get(key, ()), strict=False):
            work = max(_bytes_per_block(full, other) / most, 1.0) if most else 1.0
            larger = LargerLaunch(prod(other.grid), work, share)
            found[id(launch)] = StandIn(**vars(launch), larger=larger)
    return replace(plan, launches=tuple(found.get(id(launch), launch) for launch in plan.launches))


def _data_bytes(plan: Plan) -> int:
    """Return the bytes of the inputs and outputs, which do not depend on the submission; at least 1."""
    return max(sum(buffer.nbytes for buffer in plan.buffers if buffer.role != "scratch"), 1)


def _by_kernel(plan: Plan) -> dict[tuple[str, tuple[int, ...]], list[Launch]]:
    """Return the launches of each kernel and block, those with most blocks first."""
    found = defaultdict(list)
    for launch in plan.launches:
        found[launch.kernel, launch.block].append(launch)
    return {key: sorted(launches, key=lambda launch: -prod(launch.grid)) for key, launches in found.items()}


def _bytes_per_block(plan: Plan, launch: Launch) -> float:
    return sum(plan.buffer(arg).nbytes for arg in launch.args if isinstance(arg, str)) / prod(launch.grid)

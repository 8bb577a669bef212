"""The tiling of an array: the elements of it that each block of a plan takes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pytest_gpulab.exercise import Launch, Plan

Tiling = tuple[int | None, ...]
"""Elements per block along each axis of an array; None where not certain."""


def tiling_of(plan: Plan, name: str, tunables: Mapping[str, int], first: bool = False) -> Tiling:
    """Return the tiling of a buffer by the last launch that takes it, or the first one.

    A block is assumed to take as many consecutive elements as it has threads, or a multiple that is one of the
    submission's tunables. The tiling is unknown if no such number fits the grid, or several do.
    """
    shape = plan.buffer(name).shape
    launches = [launch for launch in plan.launches if name in launch.args]
    if not launches:
        return (None,) * len(shape)
    return _tiling(launches[0 if first else -1], shape, {1, *tunables.values()})


def _tiling(launch: Launch, shape: tuple[int, ...], factors: set[int]) -> Tiling:
    grid, block = (tuple(extents) + (1,) * (3 - len(extents)) for extents in (launch.grid, launch.block))
    axes = len(shape)
    if axes == 1 and grid[1:] == (1, 1):
        return (_tile(shape[0], grid[0], math.prod(block), factors),)
    if axes == 1 or axes > 3 or grid[axes:] != (1,) * (3 - axes):
        return (None,) * axes
    return tuple(_tile(shape[-1 - axis], grid[axis], block[axis], factors) for axis in range(axes))[::-1]


def _tile(length: int, blocks: int, threads: int, factors: set[int]) -> int | None:
    if blocks == 1:
        return length if length <= threads else None
    fitting = {threads * factor for factor in factors if factor > 0 and -(-length // (threads * factor)) == blocks}
    return fitting.pop() if len(fitting) == 1 else None

"""Cooperative launches (`cudaLaunchCooperativeKernel`): their blocks may wait for each other in `grid.sync()`.

Cooperative groups find the workspace of `grid.sync()` through the special registers `%envreg1` and `%envreg2`, the
halves of its address.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_gpulab.devices.protocol import LaunchError

from .launch_state import LaunchState

WORKSPACE_BYTES = 1024  # zeroed; cooperative groups of CUDA 13 use the first few words


@contextmanager
def cooperating(launch: LaunchState, resident: int) -> Iterator[None]:
    """Allocate the workspace of a cooperative launch while it runs.

    Raises LaunchError for more blocks than can be resident at once, which would wait forever.
    """
    if not launch.options.cooperative:
        yield
        return
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    if blocks > resident:
        raise LaunchError(f"a cooperative launch of {blocks} blocks: at most {resident} can be resident at once")
    workspace = launch.arena.allocate(WORKSPACE_BYTES)
    launch.workspace = workspace.base
    if launch.checker is not None and launch.checker.changing is not None:
        launch.checker.changing |= {workspace}
    try:
        yield
    finally:
        launch.arena.free(workspace)

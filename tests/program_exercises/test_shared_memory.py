"""The file of a program's device memory: pages are used again, and its capacity is a limit."""

from __future__ import annotations

import os
import resource

import numpy as np
import pytest

from pytest_gpulab.devices.errors import OutOfMemory
from pytest_gpulab.devices.programs.shared_memory import PAGE, SharedArena

pytestmark = pytest.mark.unit


def test_freed_pages_are_zeroed_and_used_again() -> None:
    arena = SharedArena(capacity=8 * PAGE)
    kept = arena.allocate(PAGE)
    for nbytes in (1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 7 * PAGE):
        for _ in range(20):
            allocation = arena.allocate(nbytes)
            assert not allocation.data.any()
            allocation.data[:] = 1
            arena.free(allocation)
    arena.free(kept)
    assert len(arena.allocate(8 * PAGE).data) == 8 * PAGE
    arena.close()


def test_adjacent_holes_are_one() -> None:
    arena = SharedArena(capacity=4 * PAGE)
    for allocation in [arena.allocate(PAGE) for _ in range(4)][::-1]:
        arena.free(allocation)
    assert arena.offset(arena.allocate(4 * PAGE)) == 0
    arena.close()


def test_the_capacity_is_a_limit() -> None:
    arena = SharedArena(capacity=2 * PAGE)
    first = arena.allocate(PAGE)
    with pytest.raises(OutOfMemory, match=r"the program may use 8,192 bytes of device memory"):
        arena.allocate(PAGE + 1)
    assert np.array_equal(first.data, np.zeros(PAGE, np.uint8))
    arena.close()


def test_a_cleared_allocation_still_shares_its_pages() -> None:
    """The host sets a variable of a module through the file."""
    arena = SharedArena()
    allocation = arena.allocate(4)
    allocation.data[:] = 1
    allocation.clear()
    assert not allocation.data.any()
    os.pwrite(arena.descriptor, b"\x07", arena.offset(allocation))
    assert allocation.data[0] == 7
    arena.close()


def test_a_limit_of_the_system_is_out_of_memory(request: pytest.FixtureRequest) -> None:
    """`ulimit -f` limits the file, too: Python ignores its signal."""
    arena = SharedArena()
    first = arena.allocate(PAGE)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    request.addfinalizer(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * PAGE, before[1]))
    with pytest.raises(OutOfMemory, match=r"the system refuses 12,288 bytes of shared memory: .*File too large"):
        arena.allocate(2 * PAGE)
    assert arena.offset(arena.allocate(PAGE)) == PAGE
    assert not first.data.any()
    arena.close()

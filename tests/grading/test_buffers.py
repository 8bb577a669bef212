"""The arrays that both sides of a race share: how their first contents get to the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from clocked_device import ClockedBench

from pytest_gpulab.exercise import Buffer
from pytest_gpulab.grading.plans.replay import FIRST, initial_contents
from pytest_gpulab.grading.speed.buffers import FIRST_BYTES, BufferPool

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.uint64, np.dtype([("key", np.int16), ("value", np.int8)])])
@pytest.mark.parametrize("zeroed", [False, True])
def test_large_uniform_arrays_are_filled_on_the_device(
    clocked: ClockedBench, dtype: Any, zeroed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    array = clocked.device.array
    monkeypatch.setattr(clocked.device, "array", lambda values: sent.append(values.nbytes) or array(values))
    pool = BufferPool(clocked.device)
    for elements in (FIRST_BYTES // np.dtype(dtype).itemsize, 3 * FIRST_BYTES + 5):
        buffer = Buffer("x", "scratch", dtype, (elements, 1), zeroed=zeroed)
        expected = initial_contents(buffer, {}, FIRST.poison)
        found = pool.source(buffer, {}).get()
        assert found.shape == expected.shape and found.tobytes() == expected.tobytes()
    assert len(sent) == 1 and sent[0] <= FIRST_BYTES
    pool.close()
    assert not clocked.device.held

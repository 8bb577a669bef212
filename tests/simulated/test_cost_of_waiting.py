"""The cost model compared with 176 times of an H100: fences, tickets, chains, look-back, calls, items per thread.

The constants of fences and calls were fitted to some of these times.
"""

from __future__ import annotations

import json
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from tabulate import tabulate

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.gpus import modelled_gpu

pytestmark = pytest.mark.unmeasured
FOLDER = Path(__file__).parents[1] / "h200"
TIMES = json.loads((FOLDER / "waiting_times.json").read_text())["rows"]


@pytest.fixture(scope="module")
def estimated_ms() -> dict[str, float]:
    sys.path.insert(0, str(FOLDER))
    try:
        from waiting_launches import launches
    finally:
        sys.path.remove(str(FOLDER))
    device, found = SimulatedDevice(modelled_gpu("h100")), {}
    module = device.compile((FOLDER / "waiting_kernels.cu").read_text(), "waiting_kernels.cu")
    for row in launches():
        arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in row.args]
        options = LaunchOptions(sample_blocks=32)
        found[row.name] = module.launch(row.kernel, row.grid, row.block, arrays, row.shared_bytes, options).estimated_ms
        device.reset()
    table = [[row, TIMES[row]["median_ms"], ms, ms / TIMES[row]["median_ms"]] for row, ms in found.items()]
    table.sort(key=lambda line: line[-1])
    print(tabulate(table, ["launch", "ms", "estimated", "ratio"], tablefmt="simple", floatfmt=".4f"))
    return found


def test_estimates_are_of_the_size_that_was_measured(estimated_ms: dict[str, float]) -> None:
    factors = sorted(max(ratio(row, estimated_ms), 1 / ratio(row, estimated_ms)) for row in estimated_ms)
    assert len(factors) == 176
    assert factors[len(factors) // 2] <= 1.15
    assert sum(factor <= 1.35 for factor in factors) >= 0.9 * len(factors)


def ratio(row: str, estimated_ms: dict[str, float]) -> float:
    return estimated_ms[row] / TIMES[row]["median_ms"]


@pytest.mark.parametrize("family", ["chain", "look_back", "reduce", "alone", "call", "ticket", "byte", "vector"])
def test_kernels_that_wait_longer_are_estimated_to_do_so(family: str, estimated_ms: dict[str, float]) -> None:
    rows = [row for row in estimated_ms if row.startswith(family)]
    pairs = [(a, b) for a, b in permutations(rows, 2) if TIMES[a]["median_ms"] > 1.3 * TIMES[b]["median_ms"]]
    assert len(pairs) >= 10
    assert not [(a, b) for a, b in pairs if estimated_ms[a] <= estimated_ms[b]]

"""The cost model compared with 95 more times of an H200: kernels that load one part of the GPU each, and classics.

Most constants of the model were read from these times, one launch or a few for each, so this tells how well the formula
puts them together.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tabulate import tabulate

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice

pytestmark = pytest.mark.unmeasured
FOLDER = Path(__file__).parents[1] / "h200"
TIMES = json.loads((FOLDER / "more_times.json").read_text())["rows"]
LONG = {"chase_l2", "chase_l1"}  # tens of thousands of rounds of a single thread


@pytest.fixture(scope="module")
def estimated_ms() -> dict[str, float]:
    sys.path.insert(0, str(FOLDER))
    try:
        from more_launches import launches
    finally:
        sys.path.remove(str(FOLDER))
    device, found = SimulatedDevice(), {}
    module = device.compile((FOLDER / "more_kernels.cu").read_text(), "more_kernels.cu")
    for row in launches():
        if row.name in LONG:
            continue
        for symbol, values in row.constants.items():
            module.set_constant(symbol, values)
        arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in row.args]
        options = LaunchOptions(sample_blocks=8)
        found[row.name] = module.launch(row.kernel, row.grid, row.block, arrays, row.shared_bytes, options).estimated_ms
        device.reset()
    return found


def test_estimates_are_of_the_size_that_was_measured(estimated_ms: dict[str, float]) -> None:
    table = [[row, TIMES[row]["median_ms"], ms, ms / TIMES[row]["median_ms"]] for row, ms in estimated_ms.items()]
    table.sort(key=lambda line: line[-1])
    print(tabulate(table, ["launch", "ms", "estimated", "ratio"], tablefmt="simple", floatfmt=".4f"))
    ordered = sorted(max(line[-1], 1 / line[-1]) for line in table)
    assert len(ordered) == 93
    assert ordered[len(ordered) // 2] <= 1.15
    assert sum(factor <= 1.35 for factor in ordered) >= 0.9 * len(ordered)
    assert ordered[-1] <= 1.6

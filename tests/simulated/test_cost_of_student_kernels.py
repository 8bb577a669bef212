"""Kernels of the kinds that courses ask for: estimates and counters compared with those of an H100.

The first estimates of these launches were made before any was timed: 82 % were within 1.35 of the measured time then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tabulate import tabulate

from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.gpus import modelled_gpu

pytestmark = pytest.mark.unmeasured
FOLDER = Path(__file__).parents[1] / "h200"
TIMES = json.loads((FOLDER / "student_times.json").read_text())["rows"]
COUNTERS = json.loads((FOLDER / "student_counters.json").read_text())
COUNTED = sorted({metric for row in COUNTERS.values() for metric in row} - {"smsp__inst_executed.sum"})
BY_SYSTEM_FENCE = "not known: the hardware counts a further store at each fence of the system"
ORDER = "lanes of several warps get places in the output in another order"
KNOWN_MISSES = {
    "publish_system": BY_SYSTEM_FENCE, "sum_last_block_system": BY_SYSTEM_FENCE,
    "filter_each": ORDER, "filter_warps": ORDER, "sums_by_key_1024": "not known; 0.5 %",
}  # fmt: skip


def launched(size: str, options: LaunchOptions) -> dict[Any, LaunchProfile]:
    """Launch each row; return the profiles by row."""
    device, found = SimulatedDevice(modelled_gpu("h100")), {}
    module = device.compile((FOLDER / "student_kernels.cu").read_text(), "student_kernels.cu")
    for row in rows(size):
        for symbol, values in row.constants.items():
            module.set_constant(symbol, values)
        arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in row.args]
        profile = module.launch(row.kernel, row.grid, row.block, arrays, row.shared_bytes, options)
        found[row.family, row.name] = profile
        device.reset()
    return found


def rows(size: str) -> Iterator[Any]:
    sys.path.insert(0, str(FOLDER))
    try:
        from student_launches import launches
    finally:
        sys.path.remove(str(FOLDER))
    return launches(size)


def test_estimates_have_the_size_and_the_order_of_the_measured_times() -> None:
    estimated = {
        row: profile.estimated_ms for row, profile in launched("large", LaunchOptions(sample_blocks=8)).items()
    }
    measured = {(family, name): TIMES[name]["median_ms"] for family, name in estimated}
    table = sorted((ms / measured[row], row[1], measured[row], ms) for row, ms in estimated.items())
    print(tabulate(table, ["ratio", "launch", "ms", "estimated"], tablefmt="simple", floatfmt=".4f"))
    factors = sorted(max(ratio, 1 / ratio) for ratio, *_ in table)
    assert len(factors) == 93
    assert factors[len(factors) // 2] <= 1.15
    assert sum(factor <= 1.35 for factor in factors) >= 0.9 * len(factors)
    pairs = [(a, b) for a, b in permutations(measured, 2) if a[0] == b[0] and measured[a] > 1.3 * measured[b]]
    assert len(pairs) == 347
    assert not [(a, b) for a, b in pairs if estimated[a] <= estimated[b]]


def test_memory_counters_are_the_hardwares() -> None:
    missed, issued = [], []
    for (_, name), profile in launched("small", LaunchOptions(count=True)).items():
        theirs = COUNTERS[name]
        for metric in COUNTED:
            if profile.counters.get(metric, 0.0) != theirs.get(metric, 0):
                missed.append((name, metric, theirs.get(metric, 0), profile.counters.get(metric, 0.0)))
        issued.append(profile.counters["smsp__inst_executed.sum"] / theirs["smsp__inst_executed.sum"])
    print(tabulate(missed, ["launch", "counter", "H100", "here"], floatfmt=".0f"))
    assert {name for name, *_ in missed} == set(KNOWN_MISSES)
    assert sum(abs(ratio - 1) <= 0.02 for ratio in issued) >= 88

"""Contended atomics and constants: counters and times compared with those of an H100."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import Run
from tabulate import tabulate

from pytest_gpulab.devices.protocol import LaunchOptions, LaunchProfile
from pytest_gpulab.devices.simulated import SimulatedDevice

pytestmark = pytest.mark.unmeasured
FOLDER = Path(__file__).parents[1] / "h200"
COUNTERS = json.loads((FOLDER / "atomic_counters.json").read_text())
TIMES = json.loads((FOLDER / "atomic_times.json").read_text())["rows"]

GLOBAL = [f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for what in ("requests", "sectors")
          for op in ("ld", "st", "atom", "red")]  # fmt: skip
SHARED = [f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom")]
ISSUED, CONSTANTS = "smsp__inst_executed.sum", "idc__requests.sum"
BY_COMPARE_AND_SWAP = ("shared_add_float", "shared_bins_float")
"""Floats are added in shared memory by a loop of the machine code; how often it runs depends on who gets between."""
ADDED_UP = ("global_add_result", "shared_add_result")
"""The assembler computes prefix sums of a warp's values, on a path that is not seen to be taken."""
TIME_MISSES = {
    "shared_add_result": "instructions of the prefix sums, see ADDED_UP",
    "shared_add_float": "one address whose updates the hardware overlaps better than those of unknown addresses",
    "global_bins_float_0x1_32": "floats of four neighbouring sectors",
    "shared_histogram_64": "the bins are added up when all blocks end at once",
    "constant_lanes_16_1024": "warps that need twice what the cache of constants holds take turns",
    "constant_warps_16384": "one address a warp, each time another line",
    "constant_warps_1024": "the same",
}


def rows(size: str) -> Iterator[Any]:
    sys.path.insert(0, str(FOLDER))
    try:
        from atomic_launches import launches
    finally:
        sys.path.remove(str(FOLDER))
    return launches(size)


def launched(size: str, options: LaunchOptions) -> dict[str, LaunchProfile]:
    device, found = SimulatedDevice(), {}
    module = device.compile((FOLDER / "atomic_kernels.cu").read_text(), "atomic_kernels.cu")
    for row in rows(size):
        for symbol, values in row.constants.items():
            module.set_constant(symbol, values)
        arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in row.args]
        found[row.name] = module.launch(row.kernel, row.grid, row.block, arrays, row.shared_bytes, options)
        device.reset()
    return found


def test_memory_counters_are_the_hardwares() -> None:
    wrong = []
    for name, profile in launched("small", LaunchOptions(count=True)).items():
        shared = [] if name.startswith(BY_COMPARE_AND_SWAP) else SHARED
        for metric in (*GLOBAL, *shared, CONSTANTS):
            ours, theirs = profile.counters.get(metric, 0.0), COUNTERS[name].get(metric, 0.0)
            if abs(ours - theirs) > 0.02 * theirs:
                wrong.append((name, metric, theirs, ours))
        if not name.startswith((*BY_COMPARE_AND_SWAP, *ADDED_UP)):
            assert profile.counters[ISSUED] == pytest.approx(COUNTERS[name][ISSUED], rel=0.02), name
    assert not wrong, tabulate(wrong, ["launch", "counter", "H100", "here"])


@pytest.mark.parametrize(
    ("update", "passes"), [("atomicAdd(&s[bin], 1u)", 2), ("atomicAdd(&s[bin], lane)", 20), ("s[bin] = lane", 2)]
)
def test_an_atomic_with_other_values_than_1_takes_a_pass_per_lane_of_a_bank(run: Run, update: str, passes: int) -> None:
    """On an H100, lanes at random bins of 0, 31 and 32 take 2, 21.5 and 2 passes: bins 0 and 32 are in one bank."""
    source = f"""__global__ void f(unsigned *out) {{
        __shared__ unsigned s[64];
        unsigned lane = threadIdx.x, bin = lane < 12 ? 0 : lane < 20 ? 32 : 31;
        {update};
        out[lane] = s[lane];
    }}"""
    counters = run(source, np.zeros(32, np.uint32), block=(32,), options=LaunchOptions(count=True)).counters
    assert sum(counters[metric] for metric in SHARED[1:]) == passes


@pytest.fixture(scope="module")
def ratios() -> dict[str, float]:
    profiles = launched("large", LaunchOptions(sample_blocks=16))
    return {name: (profile.estimated_ms or 0.0) / TIMES[name]["median_ms"] for name, profile in profiles.items()}


def test_estimates_are_of_the_size_that_was_measured(ratios: dict[str, float]) -> None:
    table = sorted((ratio, name) for name, ratio in ratios.items())
    print(tabulate([[name, TIMES[name]["median_ms"], ratio] for ratio, name in table], ["launch", "ms", "ratio"]))
    factors = sorted(max(ratio, 1 / ratio) for ratio in ratios.values())
    assert factors[len(factors) // 2] < 1.07 and factors[len(factors) * 9 // 10] < 1.35
    misses = {name for name, ratio in ratios.items() if max(ratio, 1 / ratio) > 1.4}
    assert misses <= set(TIME_MISSES), misses - set(TIME_MISSES)


def test_clear_differences_on_hardware_are_reproduced(ratios: dict[str, float]) -> None:
    families: dict[str, list[str]] = {}
    for row in rows("large"):
        if row.name not in TIME_MISSES:
            families.setdefault(row.family, []).append(row.name)
    measured = {name: TIMES[name]["median_ms"] for name in ratios}
    swapped = [
        (fast, slow)
        for names in families.values()
        for fast in names
        for slow in names
        if measured[slow] > 1.3 * measured[fast] and ratios[slow] * measured[slow] <= ratios[fast] * measured[fast]
    ]
    assert not swapped

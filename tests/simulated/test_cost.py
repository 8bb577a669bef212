"""The cost model compared with times measured on an H200."""

from __future__ import annotations

import json
import runpy
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tabulate import tabulate

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.cost import model

FOLDER = Path(__file__).parents[1] / "h200"
MEASURED_MS = {
    row: data["large_run"]["median_ms"] for row, data in json.loads((FOLDER / "measured.json").read_text()).items()
}
SAMPLES = {"scan_naive": 2}  # its last block runs 65,536 rounds, however few others run beside it
LIMIT_S = 2.0
TAKEN_S: dict[str, float] = {}
pytestmark = pytest.mark.unmeasured
FAMILIES = {"reduce": "reduction", "scan": "scan", "branch": "divergence", "field": "field", "copy": "copy"}


def test_the_module_and_its_page_state_the_exponents() -> None:
    page = (FOLDER.parents[1] / "docs" / "cost-model.md").read_text(encoding="utf-8")
    busy, whole = f"{model.BUSY_OVERLAP:g}", f"{model.OVERLAP:g}"
    assert f"t^{busy})^(1/{busy})" in str(model.__doc__) and f"t^{whole})^(1/{whole})" in str(model.__doc__)
    assert f"^(1/{busy})" in page and f"^(1/{whole})" in page
    assert f"the exponents {busy} and {whole}" in page


def family_of(row: str) -> str:
    return FAMILIES[row.partition("_")[0]]


@pytest.fixture(scope="module")
def estimated_ms() -> dict[str, float]:
    """The launches whose times were taken at 2^25 elements, estimated from a sample of their blocks."""
    device = SimulatedDevice()
    module = device.compile((FOLDER / "kernels.cu").read_text(), "kernels.cu")
    found: dict[str, float] = {}
    TAKEN_S.clear()
    for row, kernel, grid, block, args, constants in runpy.run_path(str(FOLDER / "launches.py"))["launches"]("large"):
        for symbol, values in constants.items():
            module.set_constant(symbol, values)
        arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in args]
        begin_s = time.process_time()  # of the CPU: other work on the machine does not count
        profile = module.launch(kernel, grid, block, arrays, options=LaunchOptions(sample_blocks=SAMPLES.get(row, 64)))
        TAKEN_S[row] = time.process_time() - begin_s
        assert profile.estimated_ms is not None
        found[row] = profile.estimated_ms
        device.reset()
    return found


def test_an_estimate_at_full_size_takes_at_most_two_seconds(estimated_ms: dict[str, float]) -> None:
    """But for the quadratic scan; the ladders' own kernels have a benchmark."""
    assert {row for row, taken_s in TAKEN_S.items() if taken_s > LIMIT_S} <= {"scan_naive"}
    assert TAKEN_S.keys() == estimated_ms.keys()


def families() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in MEASURED_MS:
        found.setdefault(family_of(row), []).append(row)
    return found


def off(a: float, b: float) -> float:
    """The factor between two numbers, at least 1."""
    return max(a / b, b / a)


def test_estimates_keep_the_order_that_was_measured(estimated_ms: dict[str, float]) -> None:
    pairs = [
        (slow, fast)
        for rows in families().values()
        for slow, fast in (sorted(pair, key=MEASURED_MS.__getitem__, reverse=True) for pair in combinations(rows, 2))
        if MEASURED_MS[slow] > 1.3 * MEASURED_MS[fast]
    ]
    wrong = [pair for pair in pairs if estimated_ms[pair[0]] <= estimated_ms[pair[1]]]
    assert len(pairs) == 29
    assert not wrong


def test_estimates_have_the_ratios_that_were_measured(estimated_ms: dict[str, float]) -> None:
    table: list[list[Any]] = []
    for family, rows in families().items():
        slowest = max(rows, key=MEASURED_MS.__getitem__)
        for row in rows:
            measured, estimated = (times[row] / times[slowest] for times in (MEASURED_MS, estimated_ms))
            table.append(
                [family, row, MEASURED_MS[row], estimated_ms[row], measured, estimated, off(measured, estimated)]
            )
    head = ["family", "launch", "ms", "estimated", "of the slowest", "estimated", "factor between"]
    print(tabulate(table, head, tablefmt="simple", floatfmt=".3f"))
    factors = sorted(line[-1] for line in table if line[4] < 1)  # the slowest is 1 by definition
    assert sum(factor <= 1.35 for factor in factors) >= 0.8 * len(factors)
    assert factors[len(factors) // 2] <= 1.2


def test_a_volatile_loop_that_waits_for_no_block_costs_its_own_work() -> None:
    """Its reads were once taken for a chain of blocks that wait for each other."""
    source = """__global__ void f(volatile float *a)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < ROUNDS; ++k)
        a[i] = a[i] * 1.5f + 1.0f;
}"""
    found = []
    for rounds in (64, 128):
        device = SimulatedDevice()
        module = device.compile(source.replace("ROUNDS", str(rounds)))
        array = device.array(np.zeros(1 << 14, np.float32))
        found.append(module.launch("f", (64,), (256,), (array,), options=LaunchOptions(estimate=True)).estimated_ms)
    assert found[0] < found[1] < 2.2 * found[0] < 0.05


def test_a_block_with_all_the_work_is_as_long_as_the_launch_wherever_it_is() -> None:
    """The paths of warps were once kept for the first 4,096 only, so the last block did its work for nothing."""
    source = """__global__ void f(const int *in, int *out, unsigned n)
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x == BUSY)
        for (unsigned i = threadIdx.x; i < n; i += blockDim.x) out[t] += in[i];
}"""
    found = []
    for busy in ("0", "gridDim.x - 1"):
        device = SimulatedDevice()
        module = device.compile(source.replace("BUSY", busy))
        arrays = device.array(np.ones(1 << 18, np.int32)), device.array(np.zeros(1 << 18, np.int32))
        options = LaunchOptions(estimate=True)
        found.append(module.launch("f", (1024,), (256,), (*arrays, np.uint32(1 << 18)), options=options).estimated_ms)
    assert found[1] == pytest.approx(found[0], rel=0.05) and found[0] > 0.1


def test_blocks_that_read_the_same_data_at_the_same_time_all_wait_for_memory() -> None:
    """One of them was once taken to wait for memory, and the others for the L2 cache."""
    source = """__global__ void f(const int *in, int *out, unsigned apart)
{
    int sum = 0;
#pragma unroll 1
    for (unsigned k = 0; k < 256; ++k)
        sum += in[(k + apart * blockIdx.x) % 256 * 32 + threadIdx.x];
    out[blockIdx.x * 32 + threadIdx.x] = sum;
}"""
    found = []
    for apart in (0, 4):
        device = SimulatedDevice()
        module = device.compile(source)
        arrays = device.array(np.ones(256 * 32, np.int32)), device.array(np.zeros(64 * 32, np.int32))
        options = LaunchOptions(estimate=True)
        found.append(module.launch("f", (64,), (32,), (*arrays, np.uint32(apart)), options=options).estimated_ms)
    assert found[0] > 1.3 * found[1]


def test_blocks_that_publish_their_own_sum_first_do_not_wait_in_a_chain() -> None:
    """At 2^22 elements an H100 takes 0.22 ms, 7 ns per block; in a chain each would take over 100 ns."""
    source = (FOLDER.parent / "honest" / "scan" / "look_back_by_one_thread.cu").read_text()
    first = "publish(status, tile, tile == 0 ? 2 : 1, total);"
    blocks, found = 1024, []
    for text in source, source.replace(first, "if (tile == 0) publish(status, 0, 2, total);"):
        device = SimulatedDevice()
        module = device.compile(text)
        n = blocks * 128
        sizes = (n, np.float32), (n, np.float32), (1, np.uint32), (blocks, np.uint64), (1, np.float32), (1, np.float32)
        arrays = [device.array(np.zeros(size, dtype)) for size, dtype in sizes]
        arguments, options = (*arrays, np.uint32(n)), LaunchOptions(estimate=True)
        found.append(module.launch("scan_single_pass", (blocks,), (128,), arguments, options=options).estimated_ms)
    assert source.count(first) == 1
    assert 5 * found[0] < found[1]
    assert found[1] > blocks * 100e-6


def test_a_sleep_takes_its_time_but_for_loops_that_wait() -> None:
    device = SimulatedDevice()
    source = """__global__ void sleeps(int *out) { __nanosleep(300000); out[threadIdx.x] = 1; }
    __global__ void polls(int *out) { while (*(volatile int *)out == 5) __nanosleep(300000); out[threadIdx.x] = 1; }"""
    module, out = device.compile(source), device.array(np.zeros(32, np.int32))
    options = LaunchOptions(estimate=True)
    slept, polled = (
        module.launch(kernel, (1,), (32,), (out,), options=options).estimated_ms for kernel in ("sleeps", "polls")
    )
    assert slept is not None and 0.3 <= slept < 0.31
    assert polled is not None and polled < 0.01

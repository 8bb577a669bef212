"""How fast the simulated GPU is, in lane-instructions (active lanes x PTX instructions) a second of CPU time.

Run with `pytest tests/benchmarks --benchmark-only`. `credited` counts every lane of an instruction, `computed` only the
lanes for which NumPy really computed something, where that is known from the kernel.
"""

from __future__ import annotations

import runpy
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice

H200 = Path(__file__).parents[1] / "h200"
SOURCE = (Path(__file__).parent / "kernels.cu").read_text()
pytestmark = pytest.mark.benchmark(timer=time.process_time, min_rounds=3, warmup=True, warmup_iterations=1)


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice()


def measure(
    benchmark: BenchmarkFixture, device: SimulatedDevice, kernel: str, blocks: int, threads: int, args: list[Any]
) -> list[Any]:
    """Benchmark a launch; return its arrays."""
    module = device.compile(SOURCE)
    arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in args]
    originals = [a.copy() for a in args if isinstance(a, np.ndarray)]
    counted = module.launch(kernel, (blocks,), (threads,), arrays, options=LaunchOptions(sample_blocks=blocks))
    memories = [a for a in arrays if not isinstance(a, np.generic)]

    def fresh() -> None:
        for memory, original in zip(memories, originals, strict=True):
            memory.set(original)

    benchmark.pedantic(
        lambda: module.launch(kernel, (blocks,), (threads,), arrays), setup=fresh, rounds=5, warmup_rounds=1
    )
    note_rate(benchmark, "credited", counted.counters["gpulab__ptx_thread_inst.sum"])
    return memories


def note_rate(benchmark: BenchmarkFixture, what: str, instructions: float) -> None:
    """Add lane-instructions a second, in units of 1e9, to the benchmark's record."""
    if benchmark.stats is not None:  # None where benchmarks are run once, as tests
        benchmark.extra_info[f"{what}_g_per_s"] = round(instructions / benchmark.stats.stats.min / 1e9, 3)


def test_fma(benchmark: BenchmarkFixture, device: SimulatedDevice) -> None:
    n, rounds = 2**18, 256
    x = np.random.default_rng(1).random(n, np.float32)
    (out,) = measure(benchmark, device, "fma_chain", n // 256, 256, [x, np.uint32(n), np.int32(rounds)])
    note_rate(benchmark, "computed", n * rounds)  # of the loop's instructions only the multiply-adds are
    np.testing.assert_allclose(out.get(), 10 * x, rtol=0.01)


def test_tree_reduction(benchmark: BenchmarkFixture, device: SimulatedDevice) -> None:
    n = 2**20
    x = np.random.default_rng(1).integers(0, 100, n, np.int32)
    args = [x, np.zeros(n // 256, np.int32), np.uint32(n)]
    _, out = measure(benchmark, device, "tree_reduction", n // 256, 256, args)
    assert out.get().sum() == x.sum()


def test_collatz(benchmark: BenchmarkFixture, device: SimulatedDevice) -> None:
    n = 2**16
    x = np.arange(1, n + 1, dtype=np.uint32)
    args = [x, np.zeros(n, np.uint32), np.uint32(n)]
    _, out = measure(benchmark, device, "collatz", n // 256, 256, args)
    assert out.get()[26] == 111  # 27 is known for its long way


def test_bitonic_sort(benchmark: BenchmarkFixture, device: SimulatedDevice) -> None:
    x = np.random.default_rng(1).integers(0, 2**30, 64 * 1024, np.int32)
    (out,) = measure(benchmark, device, "bitonic_sort", 64, 512, [x])
    np.testing.assert_array_equal(out.get().reshape(64, 1024), np.sort(x.reshape(64, 1024), axis=1))


def test_one_block_reduction(benchmark: BenchmarkFixture, device: SimulatedDevice) -> None:
    x = np.arange(256, dtype=np.int32)
    _, out = measure(benchmark, device, "tree_reduction", 1, 256, [x, np.zeros(1, np.int32), np.uint32(256)])
    assert out.get()[0] == x.sum()


def test_all_calibration_kernels(benchmark: BenchmarkFixture, device: SimulatedDevice) -> None:
    module = device.compile((H200 / "kernels.cu").read_text())
    rows = []
    for _, kernel, grid, block, args, constants in runpy.run_path(str(H200 / "launches.py"))["launches"]("small"):
        arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in args]
        rows.append((kernel, grid, block, arrays, constants))

    def launch_all() -> None:
        for kernel, grid, block, arrays, constants in rows:
            for name, values in constants.items():
                module.set_constant(name, values)
            module.launch(kernel, grid, block, arrays)

    benchmark.pedantic(launch_all, rounds=5, warmup_rounds=1)
    assert len(rows) == 20

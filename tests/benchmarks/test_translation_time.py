"""How long a long kernel takes to be read and translated, in CPU time: `pytest tests/benchmarks --benchmark-only`."""

from __future__ import annotations

import time

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from unrolled_fft import source

from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.module import SimulatedModule

POINTS = 512  # 25,000 PTX instructions in one basic block
pytestmark = pytest.mark.benchmark(timer=time.process_time)


def test_unrolled_fft(benchmark: BenchmarkFixture) -> None:
    points = 64 if benchmark.disabled else POINTS  # the compiler alone needs 4 s for the large one
    device = SimulatedDevice()
    ptx, _ = nvrtc.compile_ptx(source(points), "fft.cu", "compute_90")

    def translated() -> SimulatedModule:
        module = SimulatedModule(device, ptx, "", ("", "fft.cu"))
        module.program("fft")
        return module

    module = benchmark.pedantic(translated, rounds=5, warmup_rounds=1)
    rng = np.random.default_rng(1)
    x = rng.random((points, 2, 32), np.float32)
    memory = device.array(x)
    module.launch("fft", (1,), (32,), [memory, np.int32(32)])
    real, imaginary = memory.get().transpose(1, 0, 2)
    expected = np.fft.fft(x[:, 0] + 1j * x[:, 1], axis=0)
    np.testing.assert_allclose(real + 1j * imaginary, expected, rtol=0, atol=1e-3 * points**0.5)

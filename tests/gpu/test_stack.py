"""How deep a recursion may go on a real GPU, beside the limit of the simulated one."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import KernelFault
from pytest_gpulab.devices.simulated import SimulatedDevice

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("opened_device")]
SOURCE = """
__device__ int down(int n) { return n < 2 ? n : down(n - 1) + down(n - 2 > 0 ? 1 : 0) + n; }
__global__ void k(int *x, int n) { x[threadIdx.x] = down(n); }
"""
PROGRAM = f"""
import numpy as np
from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.protocol import KernelFault
device, _ = open_device("cuda")
x = device.array(np.zeros(32, np.int32))
try:
    device.compile('''{SOURCE}''').launch("k", (1,), (32,), (x, np.int32(%d)))
    print("ended with", x.get()[31])
except KernelFault as fault:
    print("fault", fault.code)
"""
DEEPEST = 4096


def on_the_gpu(depth: int) -> str:
    program = [sys.executable, "-c", PROGRAM % depth]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def expected(depth: int) -> int:
    return depth * (depth + 1) // 2 + max(depth - 2, 0)


def deepest_simulated() -> int:
    """Read the depth from the fault: that call is the first without room."""
    device = SimulatedDevice()
    x = device.array(np.zeros(32, np.int32))
    with pytest.raises(KernelFault, match="stack overflow") as caught:
        device.compile(SOURCE).launch("k", (1,), (32,), (x, np.int32(DEEPEST)))
    found = re.search(r"call (\d+) of", caught.value.what)
    assert found is not None
    return int(found[1]) - 1


def test_a_recursion_that_the_simulated_gpu_runs_runs_on_a_gpu() -> None:
    depth = deepest_simulated() * 3 // 4
    assert on_the_gpu(depth) == f"ended with {expected(depth)}"


def test_a_recursion_without_end_is_a_fault() -> None:
    assert on_the_gpu(1_000_000).startswith("fault ")


def test_the_limit_is_that_of_a_gpu_within_a_factor_of_two() -> None:
    low, high = 1, DEEPEST
    while high - low > 1:  # ends with the right result at `low`, not at `high`
        middle = (low + high) // 2
        if on_the_gpu(middle) == f"ended with {expected(middle)}":
            low = middle
        else:
            high = middle
    assert low / 2 <= deepest_simulated() <= 2 * low, f"deepest on the GPU: {low}"

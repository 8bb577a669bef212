"""Launches that the described GPU would refuse are refused before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.devices.compiler import machine_code
from pytest_gpulab.devices.protocol import CannotSimulate, LaunchError, LaunchLimits
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.translation import translator

PLAIN = "__global__ void f(float *p) { p[threadIdx.x] = 1; }"
BOUNDED = "__global__ void __launch_bounds__(128) f(float *p) { p[threadIdx.x] = 1; }"
TILE = """__global__ void f(float *p) {
    extern __shared__ float more[];
    __shared__ float tile[10000];
    more[threadIdx.x] = tile[threadIdx.x] = p[0];
    __syncthreads();
    p[1] = tile[int(p[2])] + more[int(p[3])];
}"""
MANY_REGISTERS = f"""__global__ void f(float *p) {{
    float {", ".join(f"r{k} = p[{k} * 1024 + threadIdx.x]" for k in range(120))};
    __syncthreads();
    {" ".join(f"p[{k} * 1024 + threadIdx.x] = r{k} * r{(k * 7 + 3) % 120};" for k in range(120))}
}}"""


@pytest.mark.parametrize(
    ("source", "block", "shared_bytes", "told"),
    [
        (PLAIN, (1024, 2), 0, "too large"),
        (PLAIN, (1, 1, 65), 0, "too large"),
        (BOUNDED, (129,), 0, r"a block of 129 threads is too large; its __launch_bounds__ allow 128"),
        (TILE, (32,), 200_000, r"240000 bytes of shared memory per block; the limit is 232448"),
        (
            MANY_REGISTERS,
            (1024,),
            0,
            r"f needs \d+ registers per thread, [\d,]+ for a block of 1024 threads; a block may have 65,536",
        ),
    ],
)
def test_a_launch_that_hardware_refuses(source: str, block: tuple[int, ...], shared_bytes: int, told: str) -> None:
    module = SimulatedDevice().compile(source)
    assert isinstance(module, LaunchLimits)
    with pytest.raises(LaunchError, match=told):
        module.check_launch("f", (1,), block, shared_bytes)


@pytest.mark.parametrize(
    ("source", "block", "shared_bytes"),
    [(PLAIN, (1024,), 232_448), (BOUNDED, (128,), 0), (TILE, (32,), 190_000), (MANY_REGISTERS, (256,), 0)],
)
def test_a_launch_that_hardware_takes(source: str, block: tuple[int, ...], shared_bytes: int) -> None:
    module = SimulatedDevice().compile(source)
    assert isinstance(module, LaunchLimits)
    module.check_launch("f", (1,), block, shared_bytes)


@pytest.mark.parametrize(("bounds", "threads"), [("", 256), ("__launch_bounds__(1024) ", 1024)])
def test_registers_of_blocks_that_always_fit_need_no_machine_code(
    monkeypatch: pytest.MonkeyPatch, bounds: str, threads: int
) -> None:
    source = MANY_REGISTERS.replace("void f", f"void {bounds}f")
    module = SimulatedDevice().compile(source)
    assert isinstance(module, LaunchLimits)
    registers = SimulatedDevice().compile(source).resources("f").registers
    assert registers is not None and registers * threads <= 65_536
    monkeypatch.setattr(machine_code, "compile_machine_code", None)
    module.check_launch("f", (1,), (threads,))


def test_a_kernel_of_too_many_instructions_is_refused_before_a_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator, "MAX_STATEMENTS", 3)
    module = SimulatedDevice().compile(PLAIN)
    assert isinstance(module, LaunchLimits)
    with pytest.raises(CannotSimulate, match=r"a kernel of \d instructions; the limit is 3"):
        module.check_launch("f", (1,), (32,))


def test_launch_bounds_hold_for_launches_by_hand() -> None:
    device = SimulatedDevice()
    with pytest.raises(LaunchError, match="its __launch_bounds__ allow 128"):
        device.compile(BOUNDED).launch("f", (1,), (256,), [device.array(np.zeros(256, np.float32))])

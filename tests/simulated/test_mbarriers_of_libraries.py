"""`cuda::barrier` and `cuda::pipeline` of a block: what NVIDIA's headers make of them on two architectures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from places import marked

from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions, Module
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.gpus import modelled_gpu

CHECKED = LaunchOptions(check=True)
HEAD = """
#include <cooperative_groups.h>
#include <cuda/pipeline>
#pragma nv_diag_suppress static_var_with_dynamic_init
namespace cg = cooperative_groups;
"""
BARRIER = f"""{HEAD}
__global__ void f(const int *in, int *out, int rounds, int more)
{{
    __shared__ cuda::barrier<cuda::thread_scope_block> full[2];
    __shared__ alignas(16) int tile[2][128];
    auto block = cg::this_thread_block();
    const int t = threadIdx.x;
    if (t < 2) init(full + t, 64 + more);
    block.sync();
    for (int k = 0; k <= rounds; ++k) {{
        if (k < rounds)
            cuda::memcpy_async(block, tile[k % 2], in + 128 * k, cuda::aligned_size_t<16>(512), full[k % 2]);
        if (k == 0) continue;
        full[(k - 1) % 2].arrive_and_wait(); // HERE
        for (int i = t; i < 128; i += 64) out[128 * (k - 1) + i] = tile[(k - 1) % 2][127 - i];
        block.sync();
    }}
}}
"""
PIPELINE = """
__global__ void g(const int *in, int *out, int rounds, int)
{
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    __shared__ alignas(16) int tile[2][128];
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    const int t = threadIdx.x;
    for (int k = 0; k <= rounds; ++k) {
        if (k < rounds) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, tile[k % 2], in + 128 * k, 512, pipe);
            pipe.producer_commit();
        }
        if (k == 0) continue;
        pipe.consumer_wait();
        for (int i = t; i < 128; i += 64) out[128 * (k - 1) + i] = tile[(k - 1) % 2][127 - i];
        pipe.consumer_release();
    }
}
"""
SOURCE = BARRIER + PIPELINE
"""Both kernels: their headers take the compiler two seconds."""


@pytest.fixture(scope="module", params=["h200", "a100"])
def device(request: pytest.FixtureRequest) -> Iterator[SimulatedDevice]:
    device = SimulatedDevice(modelled_gpu(request.param))
    yield device
    device.close()


@pytest.fixture(scope="module")
def module(device: SimulatedDevice) -> Module:
    return device.compile(SOURCE)


@pytest.mark.parametrize("kernel", ["f", "g"], ids=["cuda::barrier", "cuda::pipeline"])
def test_tiles_are_copied_while_others_are_used(device: SimulatedDevice, module: Module, kernel: str) -> None:
    numbers = np.arange(640, dtype=np.int32)
    expected = numbers.reshape(5, 128)[:, ::-1].ravel()
    for schedule in ("lockstep", "warps", "warps-reversed"):
        x, y = device.array(numbers), device.array(np.zeros(640, np.int32))
        options = LaunchOptions(check=True, schedule=schedule)
        profile = module.launch(kernel, (1,), (64,), [x, y, np.int32(5), np.int32(0)], options=options)
        assert (profile.hazards, profile.unchecked) == ((), ())
        np.testing.assert_array_equal(y.get(), expected)
    if kernel == "f":
        with pytest.raises(KernelFault, match="deadlock: 64 threads wait at") as caught:
            module.launch("f", (1,), (64,), [x, y, np.int32(5), np.int32(1)], options=CHECKED)
        assert caught.value.where == marked(SOURCE)

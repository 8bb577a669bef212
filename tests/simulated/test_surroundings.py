"""Clocks are others at each launch, multiprocessors in each replay: a kernel that goes by them is found out."""

from __future__ import annotations

import time

import numpy as np

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice

SOURCE = """
#define READ(name) ([] { unsigned value; asm volatile("mov.u32 %0, %%" name ";" : "=r"(value)); return value; }())
__global__ void multiprocessors(unsigned *out)
{
    if (threadIdx.x % 40 == 7)
        out[blockIdx.x] = READ("smid");
    out[gridDim.x] = READ("nsmid");
}
__global__ void grids(unsigned long long *out)
{
    asm volatile("mov.u64 %0, %%gridid;" : "=l"(out[0]));
}
__global__ void clocks(unsigned long long *out)
{
    const unsigned long long high = READ("clock_hi");
    out[0] = high << 32 | READ("clock");
    out[1] = clock64();
    const unsigned long long late = READ("globaltimer_hi");
    out[2] = late << 32 | READ("globaltimer_lo");
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(out[3]));
}
"""


def test_blocks_go_to_all_multiprocessors_in_turn(device: SimulatedDevice) -> None:
    module, sms = device.compile(SOURCE), device.gpu.sms
    firsts = []
    for fill in (*range(12), 0):
        out = device.array(np.zeros(2 * sms + 2, np.uint32))
        module.launch("multiprocessors", (2 * sms + 1,), (64,), (out,), 0, LaunchOptions(fill=fill))
        *found, count = out.get().tolist()
        assert count == sms
        assert found == [(found[0] + block) % sms for block in range(2 * sms + 1)]
        firsts.append(found[0])
    assert len(set(firsts)) > 6 and firsts[0] == firsts[-1]  # a grade does not depend on chance


def test_a_grids_number_differs_between_launches(device: SimulatedDevice) -> None:
    module, out, found = device.compile(SOURCE), device.array(np.zeros(1, np.uint64)), []
    for fill in (0, 1, 0):
        module.launch("grids", (1,), (1,), (out,), 0, LaunchOptions(fill=fill))
        found.append(int(out.get()[0]))
    assert 0 not in found and found[0] == found[2] != found[1]


def test_clocks_go_on_from_anywhere(device: SimulatedDevice) -> None:
    module, begun = device.compile(SOURCE), set()
    for _ in range(3):
        out = device.array(np.zeros(4, np.uint64))
        module.launch("clocks", (1,), (1,), (out,))
        first, second, third, fourth = out.get().tolist()
        assert first < second and third < fourth
        assert abs(fourth - time.time_ns()) < 3600e9
        begun.add(first)
    assert len(begun) == 3


def test_warps_and_blocks_read_a_clock_one_after_another(device: SimulatedDevice) -> None:
    source = """__global__ void f(unsigned long long *out) {
        unsigned long long time;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
        unsigned long long *own = out + 3 * (blockIdx.x * blockDim.x + threadIdx.x);
        own[0] = clock64();
        __syncthreads();
        own[1] = clock64();
        own[2] = time;
    }"""
    blocks, threads = 300, 256
    out = device.array(np.zeros((blocks, threads, 3), np.uint64))
    device.compile(source).launch("f", (blocks,), (threads,), (out,))
    found = out.get().reshape(blocks, threads // 32, 32, 3)
    assert (found == found[:, :, :1]).all()  # lanes of a warp read at once
    assert (found[..., 1].min((1, 2)) > found[..., 0].max((1, 2))).all()  # behind a barrier it is later
    by_warp = found[:, :, 0]
    assert len(np.unique(by_warp[:, 0, 0])) > 3 and len(np.unique(by_warp[:, 0, 2])) > 3
    # a secret condition on the time decides differently within a launch, for most blocks even within the block
    for remainder in (by_warp[..., 0] % 7, by_warp[..., 2] % 3):
        chosen = remainder == 1
        assert 0 < np.count_nonzero(chosen) < chosen.size / 2
        assert np.count_nonzero(chosen.any(1) & ~chosen.all(1)) > blocks / 2


def test_results_that_depend_on_them_may_change_between_runs(device: SimulatedDevice) -> None:
    for body, is_free in (("smid", False), ("clock", False), ("gridid", False), ("nsmid", True), ("laneid", True)):
        source = f"""__global__ void f(unsigned *out) {{
            asm volatile("mov.u32 %0, %%{body};" : "=r"(out[threadIdx.x]));
        }}"""
        out, options = device.array(np.zeros(32, np.uint32)), LaunchOptions(check=True)
        assert device.compile(source).launch("f", (1,), (32,), (out,), 0, options).order_free == is_free, body

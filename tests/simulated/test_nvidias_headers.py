"""Correct uses of cooperative groups and CUB are watched without a false alarm inside NVIDIA's headers."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice

pytestmark = pytest.mark.unmeasured

THREADS = 128
KERNEL = """
#include <cooperative_groups.h>
#include <cub/cub.cuh>
namespace cg = cooperative_groups;

struct Largest { char warp; double value; };
struct Larger {
    __device__ Largest operator()(const Largest &a, const Largest &b) const { return a.value < b.value ? b : a; }
};

__global__ void f(const int *in, int *sums, int *scan, Largest *largest)
{
    using Reduce = cub::BlockReduce<Largest, 128>;
    using Scan = cub::BlockScan<int, 128>;
    using Warp = cub::WarpReduce<int>;
    __shared__ union {
        typename Reduce::TempStorage reduce;
        typename Scan::TempStorage scan;
        typename Warp::TempStorage warps[4];
    } storage;
    const int t = threadIdx.x;
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);

    const Largest best = Reduce(storage.reduce).Reduce(Largest{char(t / 32), in[t] * 1.5}, Larger());
    if (t == 0)
        largest[0] = best;
    block.sync();
    Scan(storage.scan).InclusiveSum(in[t], scan[t]);
    block.sync();
    const int of_warp = Warp(storage.warps[t / 32]).Sum(in[t]);
    int of_tile = in[t];
    for (int half = tile.size() / 2; half > 0; half /= 2)
        of_tile += tile.shfl_down(of_tile, half);
    if (tile.thread_rank() == 0)
        sums[t / 8] = of_tile;
    if (t % 32 == 0)
        sums[16 + t / 32] = of_warp;
}
"""


def test_groups_and_block_wide_algorithms_have_no_hazards(device: SimulatedDevice) -> None:
    numbers = np.random.default_rng(3).permutation(THREADS).astype(np.int32)
    sums, scan, largest = device.empty(20, np.int32), device.empty(THREADS, np.int32), device.empty(2, np.float64)
    arguments = [device.array(numbers), sums, scan, largest]
    profile = device.compile(KERNEL).launch("f", (1,), (THREADS,), arguments, 0, LaunchOptions(check=True))
    assert (profile.hazards, profile.unchecked) == ((), ())
    tiles, warps = numbers.reshape(-1, 8).sum(axis=1), numbers.reshape(-1, 32).sum(axis=1)
    np.testing.assert_array_equal(sums.get(), [*tiles, *warps])
    np.testing.assert_array_equal(scan.get(), np.cumsum(numbers))
    assert largest.get()[1] == (THREADS - 1) * 1.5

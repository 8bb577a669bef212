"""Tiles of cooperative groups that are larger than a warp: results, shared memory, missing synchronisation."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions

CHECKED = LaunchOptions(check=True)
THREADS = 256

KERNEL = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void f(const int *in, int *out)
{
    __shared__ cg::block_tile_memory<256> memory;
    __shared__ int held[256];
    auto block = cg::this_thread_block(memory);
    auto tile = cg::tiled_partition<SIZE>(block);
    const int t = block.thread_rank();
    held[t] = in[t];
    SYNC
    const int other = held[t ^ (SIZE - 1)]; // HERE
    tile.sync();
    held[t] = 2 * other;
    tile.sync();
    const int sum = cg::reduce(tile, held[t ^ 33], cg::plus<int>());
    out[t] = sum + tile.shfl(other, 5) + tile.meta_group_rank();
}
"""


def kernel(size: int, sync: str = "tile.sync();") -> str:
    """Return a kernel whose tiles of `size` threads exchange numbers and add them up."""
    return KERNEL.replace("SIZE", str(size)).replace("SYNC", sync)


@pytest.mark.parametrize(("size", "fill"), [(64, 0xFF), (256, 0)])
def test_tiles_exchange_and_reduce(run: Run, size: int, fill: int) -> None:
    numbers, out = np.random.default_rng(1).integers(0, 99, THREADS, np.int32), np.zeros(THREADS, np.int32)
    profile = run(kernel(size), numbers, out, block=(THREADS,), options=LaunchOptions(check=True, fill=fill))
    assert (profile.hazards, profile.unchecked) == ((), ())
    tiles = numbers.reshape(-1, size)
    expected = 2 * tiles.sum(axis=1) + tiles[:, size - 1 - 5] + np.arange(THREADS // size)
    np.testing.assert_array_equal(out, np.repeat(expected, size))


def test_missing_sync_of_a_tile_is_a_race(run: Run) -> None:
    source = kernel(64, sync="")
    profile = run(source, np.ones(THREADS, np.int32), np.zeros(THREADS, np.int32), block=(THREADS,), options=CHECKED)
    assert [(hazard.kind, hazard.where) for hazard in profile.hazards] == [("race", marked(source))]


def test_sync_of_a_warp_orders_no_larger_tile(run: Run) -> None:
    source = kernel(64, sync="__syncwarp();")
    profile = run(source, np.ones(THREADS, np.int32), np.zeros(THREADS, np.int32), block=(THREADS,), options=CHECKED)
    assert [(hazard.kind, hazard.where) for hazard in profile.hazards] == [("race", marked(source))]


def test_reserved_memory_counts_as_no_shared_memory_of_the_kernel(run: Run) -> None:
    source = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void f(unsigned *out)
{
    __shared__ cg::block_tile_memory<64> memory;
    extern __shared__ int words[];
    auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
    words[tile.thread_rank()] = 1;
    tile.sync();
    unsigned dynamic, total;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
    asm("mov.u32 %0, %%total_smem_size;" : "=r"(total));
    out[0] = dynamic;
    out[1] = total;
}
"""
    out, most = np.zeros(2, np.uint32), 227 << 10
    profile = run(source, out, block=(64,), shared_bytes=most)
    assert (profile.resources.shared_bytes, *out) == (most, most, most)


def test_overrun_of_shared_memory_is_still_found(run: Run) -> None:
    source = kernel(64).replace("held[t] = in[t]", "held[t + 1] = in[t]; // FAULT\n")
    with pytest.raises(KernelFault, match=r"invalid __shared__ write of size 4 bytes: .*`?held`?") as caught:
        run(source, np.ones(THREADS, np.int32), np.zeros(THREADS, np.int32), block=(THREADS,))
    assert caught.value.where == marked(source, "// FAULT")

"""Tiles of cooperative groups that are larger than a warp: results, shared memory, missing synchronisation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from places import marked

from pytest_gpulab.devices.protocol import Device, KernelFault, LaunchOptions, LaunchProfile, Module
from pytest_gpulab.devices.simulated import SimulatedDevice

CHECKED = LaunchOptions(check=True)
THREADS = 256

HEAD = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
"""
KERNEL = """
__global__ void NAME(const int *in, int *out)
{
    __shared__ cg::block_tile_memory<256> memory;
    __shared__ int held[256];
    auto block = cg::this_thread_block(memory);
    auto tile = cg::tiled_partition<SIZE>(block);
    const int t = block.thread_rank();
    held[t + SHIFT] = in[t]; // WRITE OF NAME
    SYNC
    const int other = held[t ^ (SIZE - 1)]; // READ OF NAME
    tile.sync();
    held[t] = 2 * other;
    tile.sync();
    const int sum = cg::reduce(tile, held[t ^ 33], cg::plus<int>());
    out[t] = sum + tile.shfl(other, 5) + tile.meta_group_rank();
}
"""
RESERVED = """
__global__ void words_of_the_launch(unsigned *out)
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


def kernel(name: str, size: int = 64, sync: str = "tile.sync();", shift: int = 0) -> str:
    """Return a kernel whose tiles of `size` threads exchange numbers and add them up."""
    changes = {"NAME": name, "SIZE": size, "SYNC": sync, "SHIFT": shift}
    text = KERNEL
    for word, value in changes.items():
        text = text.replace(word, str(value))
    return text


SOURCE = HEAD + "".join(
    (
        kernel("tiles_of_64"),
        kernel("tiles_of_256", size=256),
        kernel("no_sync", sync=""),
        kernel("sync_of_warp", sync="__syncwarp();"),
        kernel("overrun", shift=1),
        RESERVED,
    )
)
"""All kernels: their headers take the compiler a second."""


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    device = SimulatedDevice()
    yield device
    device.close()


@pytest.fixture(scope="module")
def module(gpu: Device) -> Module:
    return gpu.compile(SOURCE)


def launched(
    gpu: Device, module: Module, name: str, numbers: np.ndarray, options: LaunchOptions = CHECKED
) -> tuple[LaunchProfile, np.ndarray]:
    out = gpu.array(np.zeros(THREADS, np.int32))
    return module.launch(name, (1,), (THREADS,), [gpu.array(numbers), out], options=options), out.get()


@pytest.mark.unmeasured
@pytest.mark.parametrize(("size", "fill"), [(64, 0xFF), (256, 0)])
def test_tiles_exchange_and_reduce(gpu: Device, module: Module, size: int, fill: int) -> None:
    numbers = np.random.default_rng(1).integers(0, 99, THREADS, np.int32)
    profile, out = launched(gpu, module, f"tiles_of_{size}", numbers, LaunchOptions(check=True, fill=fill))
    assert (profile.hazards, profile.unchecked) == ((), ())
    tiles = numbers.reshape(-1, size)
    expected = 2 * tiles.sum(axis=1) + tiles[:, size - 1 - 5] + np.arange(THREADS // size)
    np.testing.assert_array_equal(out, np.repeat(expected, size))


@pytest.mark.parametrize("name", ["no_sync", "sync_of_warp"])
def test_missing_sync_of_a_tile_is_a_race_even_with_a_sync_of_its_warps(gpu: Device, module: Module, name: str) -> None:
    profile, _ = launched(gpu, module, name, np.ones(THREADS, np.int32))
    read = marked(SOURCE, f"// READ OF {name}")
    assert [(hazard.kind, hazard.where) for hazard in profile.hazards] == [("race", read)]


def test_overrun_of_shared_memory_is_still_found(gpu: Device, module: Module) -> None:
    with pytest.raises(KernelFault, match=r"invalid __shared__ write of size 4 bytes: .*`?held`?") as caught:
        launched(gpu, module, "overrun", np.ones(THREADS, np.int32), LaunchOptions())
    assert caught.value.where == marked(SOURCE, "// WRITE OF overrun")


def test_reserved_memory_counts_as_no_shared_memory_of_the_kernel(gpu: Device, module: Module) -> None:
    out, most = gpu.array(np.zeros(2, np.uint32)), 227 << 10
    profile = module.launch("words_of_the_launch", (1,), (64,), [out], most)
    assert (profile.resources.shared_bytes, *out.get()) == (most, most, most)

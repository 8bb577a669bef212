"""A read of constant or shared memory, by one warp, that gives other values than memory holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from pytest_gpulab.devices.protocol import DisturbedRead, LaunchOptions, RecordedReads
from pytest_gpulab.devices.simulated import SimulatedDevice

SOURCE = """
__constant__ int given[4];
__constant__ int own[4] = {1, 1, 1, 1};
__global__ void sums(int *out) {
    int sum = 0;
    #pragma unroll 1
    for (int k = 0; k < 4; k++) sum += given[k] + own[k];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
__global__ void odd_warps_only(int *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = threadIdx.x / 32 % 2 ? given[i % 4] : 0;
}
"""
BLOCKS, THREADS = 3, 96
WARPS = BLOCKS * THREADS // 32
FLIPPED = 0x7700_0100_0000_0100


def launched(kernel: str, nth: int) -> tuple[npt.NDArray[np.int32], int]:
    """Return the output, a row per warp, and the number of reads that were seen."""
    device, read = SimulatedDevice(), DisturbedRead(nth, FLIPPED)
    out, module = device.array(np.zeros((WARPS, 32), np.int32)), device.compile(SOURCE)
    module.set_constant("given", np.arange(4, dtype=np.int32))
    module.launch(kernel, (BLOCKS,), (THREADS,), (out,), options=LaunchOptions(disturbed=read))
    return out.get(), read.seen


def test_a_disturbed_read_changes_only_the_results_of_its_warp() -> None:
    undisturbed, seen = launched("sums", -1)
    assert seen == 8 * WARPS and (undisturbed == 10).all()
    changed = [launched("sums", nth)[0] != undisturbed for nth in range(seen)]
    given = [rows for rows in changed if rows.any()]
    assert len(given) == seen // 2  # those of a variable that the host has not set do not change
    assert all(rows.all(axis=1).sum() == rows.any(axis=1).sum() == 1 for rows in given)
    assert (np.sum([rows.any(axis=1) for rows in given], axis=0) == 4).all()


@pytest.mark.parametrize("nth", range(BLOCKS))
def test_only_warps_that_read_are_numbered(nth: int) -> None:
    undisturbed, seen = launched("odd_warps_only", -1)
    changed = (launched("odd_warps_only", nth)[0] != undisturbed).any(axis=1)
    assert seen == BLOCKS and np.flatnonzero(changed).tolist() == [3 * nth + 1]


def test_a_variable_that_is_reset_counts_as_not_set() -> None:
    device, read = SimulatedDevice(), DisturbedRead(0, FLIPPED)
    out, module = device.array(np.zeros((WARPS, 32), np.int32)), device.compile(SOURCE)
    module.set_constant("given", np.arange(4, dtype=np.int32))
    module.reset_variables()
    module.launch("odd_warps_only", (BLOCKS,), (THREADS,), (out,), options=LaunchOptions(disturbed=read))
    assert (out.get() == 0).all() and read.seen == BLOCKS


SHARED = """
#include <cuda_pipeline.h>
#define COPY __pipeline_memcpy_async((int *)words + t, out + i, 4); __pipeline_commit(); __pipeline_wait_prior(0)
__global__ void through_shared(int *out) {
    __shared__ volatile int words[96];
    unsigned t = threadIdx.x, i = blockIdx.x * 96 + t;
    STORE
    __syncthreads();
    out[i] = READ;
}
"""


@pytest.mark.parametrize(
    ("store", "read", "lanes", "from_others"),
    [
        ("words[t] = t;", "words[t]", 96, 0),
        ("words[t] = t;", "words[95 - t]", 96, 96),
        ("words[t] = t;", "words[0]", 96, 95),
        ("COPY;", "words[t]", 96, 96),
        ("words[t] = 0; atomicExch((int *)words + t, t);", "words[t]", 96, 0),
        ("words[t] = 0; __syncthreads(); atomicAdd((int *)words + 95 - t, t);", "words[t]", 96, 96),
        ("((volatile char *)words)[4 * t] = t;", "((volatile char *)words)[4 * t]", 96, 0),
        ("words[t] = t;", "t < 48 ? words[t ^ 1] + words[t] : 0", 96, 48),
        ("if (t < 48) *(double *)(words + 2 * t) = t;", "t < 48 ? *(double *)(words + 2 * t) : 0", 48, 0),
        ("if (t < 24) *(int4 *)(words + 4 * t) = make_int4(t, t, t, t);", "words[t]", 96, 95),
    ],
)
def test_reads_of_other_threads_values_are_counted(store: str, read: str, lanes: int, from_others: int) -> None:
    device, counted = SimulatedDevice(), DisturbedRead(-1, 0, "shared")
    module = device.compile(SHARED.replace("STORE", store).replace("READ", read))
    out = device.array(np.zeros(3 * 96, np.int32))
    module.launch("through_shared", (3,), (96,), (out,), options=LaunchOptions(disturbed=counted))
    assert (counted.lanes, counted.proper) == (3 * lanes, 3 * from_others)


@pytest.mark.parametrize(
    ("read", "lanes", "proper"),
    [
        ("given[t & 3]", 96, 96),
        ("own[t & 3]", 0, 0),
        ("past(given + (t & 3))", 96, 0),
        ("given[t & 3] + past(given) + past(out)", 192, 96),
        ("t < 32 ? given[0] : past(own)", 32, 32),
    ],
)
def test_reads_of_constants_through_the_constant_cache_are_counted(read: str, lanes: int, proper: int) -> None:
    source = """
    __constant__ int given[4];
    __constant__ int own[4] = {1, 1, 1, 1};
    __device__ int past(const int *address) {
        int value;
        asm volatile("ld.b32 %0, [%1];" : "=r"(value) : "l"(address));
        return value;
    }
    __global__ void reads(int *out) { unsigned t = threadIdx.x; out[blockIdx.x * 96 + t] = READ; }
    """
    device, counted = SimulatedDevice(), DisturbedRead(-1, 0)
    module, out = device.compile(source.replace("READ", read)), device.array(np.zeros(3 * 96, np.int32))
    module.set_constant("given", np.arange(4, dtype=np.int32))
    module.launch("reads", (3,), (96,), (out,), options=LaunchOptions(disturbed=counted))
    assert (counted.lanes, counted.proper) == (3 * lanes, 3 * proper)


@pytest.mark.parametrize(
    "store", ["words[t] = t;", "atomicExch((int *)words + t, t);", "atomicMin((int *)words + t, t);", "COPY;"]
)
def test_a_disturbed_write_changes_all_reads_of_its_values(store: str) -> None:
    source = """
    #include <cuda_pipeline.h>
    #define COPY __pipeline_memcpy_async((int *)words + t, out + t, 4); __pipeline_commit(); __pipeline_wait_prior(0)
    __global__ void twice(int *out) {
        __shared__ volatile int words[64];
        unsigned t = threadIdx.x;
        out[t] = t;
        STORE
        __syncthreads();
        out[t] = words[63 - t];
        out[64 + t] = words[t];
    }""".replace("STORE", store)
    device = SimulatedDevice()
    module, out = device.compile(source), device.array(np.zeros(128, np.int32))
    found = []
    for disturbed in (DisturbedRead(-1, 1, "shared"), DisturbedRead(1, 1, "shared", is_write=True)):
        module.launch("twice", (1,), (64,), (out,), options=LaunchOptions(fill=0x7F, disturbed=disturbed))
        found.append(out.get())
    assert np.flatnonzero(found[0] != found[1]).tolist() == [*range(32), *range(96, 128)]
    read = DisturbedRead(0, 1, "shared")
    module.launch("twice", (1,), (64,), (out,), options=LaunchOptions(disturbed=read))
    assert read.source == 1


BULK = """
__global__ void backwards(const int *in, int *out) {
    __shared__ alignas(16) int tile[128];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned to = __cvta_generic_to_shared(tile), full = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(full) : "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 512;" :: "r"(full) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];"
                     :: "r"(to), "l"(in + blockIdx.x * 128), "r"(full) : "memory");
    }
    for (unsigned done = 0; !done;)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(full) : "memory");
    out[blockIdx.x * 128 + threadIdx.x] = tile[127 - threadIdx.x];
}"""


def backwards(read: DisturbedRead, first: int = 0) -> npt.NDArray[np.int32]:
    device = SimulatedDevice()
    given, out = device.array(np.arange(first, first + 384, dtype=np.int32)), device.array(np.zeros(384, np.int32))
    device.compile(BULK).launch("backwards", (3,), (128,), (given, out), options=LaunchOptions(disturbed=read))
    return out.get().reshape(3, 4, 32)


def test_a_read_of_an_array_that_one_thread_has_copied_is_disturbed() -> None:
    undisturbed = backwards(DisturbedRead(-1, 0, "shared"))
    for nth in range(12):
        read = DisturbedRead(nth, FLIPPED, "shared")
        changed = backwards(read) != undisturbed
        assert changed.all(axis=2).sum() == changed.any(axis=2).sum() == 1
        assert read.source >= 0


def test_reads_return_the_recorded_values_of_another_run() -> None:
    recorded = RecordedReads()
    first = backwards(DisturbedRead(-1, 0, "shared", recorded=recorded))
    recorded.turns.clear()
    recorded.is_replayed = True
    assert (backwards(DisturbedRead(-1, 0, "shared"), first=1000) == first + 1000).all()
    assert (backwards(DisturbedRead(-1, 0, "shared", recorded=recorded), first=1000) == first).all()

"""Asynchronous copies to shared memory: their results, their forms, and the waits and barriers that kernels forget."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import CannotSimulate, KernelFault, LaunchOptions
from pytest_gpulab.devices.simulated.memory import async_copies

CHECKED = LaunchOptions(check=True)
N = 64

PIPELINE = """
#include <cuda_pipeline.h>
__global__ void f(const int *in, int *out, int stages)
{
    __shared__ int tile[2][64];
    const int t = threadIdx.x;
    __pipeline_memcpy_async(&tile[0][t], &in[t], 4);
    __pipeline_commit();
    int sum = 0;
    for (int k = 0; k < stages; ++k) {
        if (k + 1 < stages)
            __pipeline_memcpy_async(&tile[(k + 1) % 2][t], &in[64 * (k + 1) + t], 4);
        __pipeline_commit();
        __pipeline_wait_prior(LATEST);
        FIRST
        sum += tile[k % 2][63 - t]; // HERE
        SECOND
    }
    out[t] = sum;
}
"""


def pipeline(latest: int = 1, first: str = "__syncthreads();", second: str = "__syncthreads();") -> str:
    """Return a kernel that adds up stages while the next one is copied, with other waits and barriers."""
    return PIPELINE.replace("LATEST", str(latest)).replace("FIRST", first).replace("SECOND", second)


OVERWRITTEN = """
#include <cuda_pipeline.h>
__global__ void f(int *in, int *out)
{
    __shared__ int tile[64];
    const int t = threadIdx.x;
    __pipeline_memcpy_async(&tile[t], &in[t], 4); // HERE
    __pipeline_commit();
    FIRST
    __syncthreads();
    in[63 - t] = 0; // WRITE
    __pipeline_wait_prior(0);
    out[t] = tile[t];
}
"""


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_source_that_another_thread_overwrites_before_the_wait_is_a_race(run: Run, is_awaited: bool) -> None:
    source = OVERWRITTEN.replace("FIRST", "__pipeline_wait_prior(0);" if is_awaited else "")
    profile = run(source, np.ones(N, np.int32), np.zeros(N, np.int32), block=(N,), options=CHECKED)
    found = [(hazard.kind, hazard.where, hazard.other.where) for hazard in profile.hazards if hazard.other]
    assert found == ([] if is_awaited else [("race", marked(source, "WRITE"), marked(source))])


def test_a_copy_is_on_its_way_until_the_wait_also_behind_a_barrier(run: Run) -> None:
    source = OVERWRITTEN.replace("FIRST", "tile[t] = 0;").replace("in[63 - t] = 0;", "in[64 + t] = tile[63 - t];")
    profile = run(source, np.ones(2 * N, np.int32), np.zeros(N, np.int32), block=(N,), options=CHECKED)
    (race,) = [hazard for hazard in profile.hazards if "(RAW)" in hazard.what]
    assert "without a wait for the asynchronous copy and a barrier between" in race.what
    assert race.where == marked(source, "WRITE") and race.other and race.other.where == marked(source)


def test_double_buffer_adds_up_every_stage(run: Run) -> None:
    numbers, sums = np.arange(5 * N, dtype=np.int32), np.zeros(N, np.int32)
    profile = run(pipeline(), numbers, sums, np.int32(5), block=(N,), options=CHECKED)
    assert (profile.hazards, profile.unchecked) == ((), ())
    np.testing.assert_array_equal(sums, numbers.reshape(5, N).sum(axis=0)[::-1])


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (pipeline(latest=2), "uninitialised"),
        (pipeline(first=""), "race"),
        (pipeline(second=""), "race"),
    ],
    ids=["waits for the stage before", "no barrier behind the wait", "no barrier before the next copy"],
)
def test_forgotten_wait_or_barrier_is_a_hazard(run: Run, source: str, kind: str) -> None:
    profile = run(source, np.ones(5 * N, np.int32), np.zeros(N, np.int32), np.int32(5), block=(N,), options=CHECKED)
    assert kind in {hazard.kind for hazard in profile.hazards}, profile.hazards


def test_a_read_before_the_wait_gets_the_old_contents(run: Run) -> None:
    source = pipeline(latest=2)
    numbers, sums = np.arange(1, 5 * N + 1, dtype=np.int32), np.zeros(N, np.int32)
    run(source, numbers, sums, np.int32(5), block=(N,))
    assert not np.array_equal(sums, numbers.reshape(5, N).sum(axis=0)[::-1])


def test_too_many_copies_without_a_wait_arrive_early(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_copies, "MAX_COPIES", 1)
    numbers, sums = np.arange(1, 5 * N + 1, dtype=np.int32), np.zeros(N, np.int32)
    run(pipeline(latest=2), numbers, sums, np.int32(5), block=(N,))
    stages = numbers.reshape(5, N)[:, ::-1]
    np.testing.assert_array_equal(sums, stages[:4].sum(axis=0) + stages[2])  # the last one never arrives


def asm(body: str) -> str:
    """Return a kernel of 32 threads that copies 16 bytes each by inline assembly."""
    return f"""
__global__ void f(const unsigned *in, unsigned *out)
{{
    __shared__ __align__(16) unsigned tile[128];
    const unsigned t = threadIdx.x, to = __cvta_generic_to_shared(tile + 4 * t);
    {body}
    for (int k = 0; k < 4; ++k)
        out[4 * t + k] = tile[4 * t + k];
}}
"""


def test_bytes_behind_the_source_size_are_zeros(run: Run) -> None:
    source = asm(
        'asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\\n cp.async.wait_all;"'
        ' :: "r"(to), "l"(in + 4 * t), "r"(t % 18) : "memory"); // HERE'
    )
    numbers = np.random.default_rng(5).integers(0, 2**32, 128, np.uint32)
    out = np.full(128, 7, np.uint32)
    assert run(source, numbers, out, options=CHECKED).hazards == ()
    expected = numbers.view(np.uint8).reshape(32, 16).copy()
    for thread in range(32):
        expected[thread, min(thread % 18, 16) :] = 0
    np.testing.assert_array_equal(out.view(np.uint8).reshape(32, 16), expected)


def test_source_of_no_bytes_may_lie_anywhere(run: Run) -> None:
    source = asm(
        'asm volatile("cp.async.ca.shared::cta.global [%0], [%1], 16, %2;\\n cp.async.wait_all;"'
        ' :: "r"(to), "l"(in + 4 * t), "r"(t < 16 ? 16 : 0) : "memory");'
    )
    numbers, out = np.arange(64, dtype=np.uint32), np.full(128, 7, np.uint32)
    run(source, numbers, out)
    np.testing.assert_array_equal(out, [*numbers, *[0] * 64])


def test_threads_wait_for_their_own_copies(run: Run) -> None:
    source = asm(
        "for (int k = 0; k < 128; k += 32) tile[k + t] = 5;\n __syncwarp();\n"
        'asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\\n cp.async.commit_group;"'
        ' :: "r"(to), "l"(in + 4 * t) : "memory");\n'
        'if (t % 3) asm volatile("cp.async.wait_group 0;" ::: "memory");'
    )
    numbers, out = np.arange(128, dtype=np.uint32), np.zeros(128, np.uint32)
    run(source, numbers, out)
    waited = np.arange(128) // 4 % 3 > 0
    np.testing.assert_array_equal(out, np.where(waited, numbers, 5))


def test_copy_of_unwritten_and_of_missing_memory_is_found(run: Run) -> None:
    source = asm(
        'asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\\n cp.async.wait_all;"'
        ' :: "r"(to), "l"(in + 4 * t) : "memory"); // HERE'
    )
    with pytest.raises(KernelFault, match="invalid __global__ read of size 16 bytes") as caught:
        run(source, np.zeros(100, np.uint32), np.zeros(128, np.uint32))
    assert caught.value.where == marked(source)
    assert caught.value.lane is not None
    assert caught.value.lane.thread[0] == 25


def test_misaligned_copy_is_found(run: Run) -> None:
    for size in ("", ", 4"):
        source = asm(
            f'asm volatile("cp.async.ca.shared.global [%0], [%1], 16{size};\\n cp.async.wait_all;"'
            ' :: "r"(to), "l"(in + 4 * t + 1) : "memory"); // HERE'
        )
        with pytest.raises(KernelFault, match="misaligned"):
            run(source, np.zeros(200, np.uint32), np.zeros(128, np.uint32))


def test_other_forms_are_refused(run: Run) -> None:
    source = asm(
        'asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 0; cp.async.cg.shared.global [%0], [%1], 16, p; }"'
        ' :: "r"(to), "l"(in)); // HERE'
    )
    with pytest.raises(CannotSimulate, match="an asynchronous copy of this form"):
        run(source, np.zeros(128, np.uint32), np.zeros(128, np.uint32))


@pytest.mark.parametrize(
    ("header", "copy"),
    [
        (
            "#include <cooperative_groups.h>\n#include <cooperative_groups/memcpy_async.h>",
            "auto block = cooperative_groups::this_thread_block();"
            " cooperative_groups::memcpy_async(block, tile, in, sizeof tile); cooperative_groups::wait(block);",
        ),
        (
            "#include <cuda/pipeline>",
            "auto pipe = cuda::make_pipeline(); pipe.producer_acquire();"
            " cuda::memcpy_async(tile + threadIdx.x, in + threadIdx.x, sizeof(int), pipe); pipe.producer_commit();"
            " pipe.consumer_wait(); __syncthreads(); pipe.consumer_release();",
        ),
    ],
    ids=["cooperative groups", "cuda::pipeline"],
)
def test_copies_of_nvidias_libraries(run: Run, header: str, copy: str) -> None:
    source = f"""{header}
__global__ void f(const int *in, int *out)
{{
    __shared__ __align__(16) int tile[64];
    {copy}
    out[threadIdx.x] = tile[63 - threadIdx.x];
}}
"""
    numbers, out = np.arange(N, dtype=np.int32), np.zeros(N, np.int32)
    profile = run(source, numbers, out, block=(N,), options=CHECKED)
    assert (profile.hazards, profile.unchecked) == ((), ())
    np.testing.assert_array_equal(out, numbers[::-1])


def test_copy_counts_as_a_load_and_a_store(run: Run) -> None:
    numbers, sums = np.arange(5 * N, dtype=np.int32), np.zeros(N, np.int32)
    options = LaunchOptions(count=True, estimate=True)
    counters = run(pipeline(), numbers, sums, np.int32(5), block=(N,), options=options).counters
    assert counters["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == 10
    assert counters["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"] == 10

"""Asynchronous barriers in shared memory: results, phases, and the mistakes that kernels make with them."""

from __future__ import annotations

import re
from typing import get_args

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import CannotSimulate, KernelFault, LaunchOptions, Schedule

SCHEDULES = get_args(Schedule)
HEADER = """
#include <cuda_awbarrier_primitives.h>
#define WAIT(b, token) while (!__mbarrier_try_wait(b, token, 1000)) { }
#define MEET(b) do { const __mbarrier_token_t token = __mbarrier_arrive(b); WAIT(b, token) } while (0)
#define PLACE(p) static_cast<unsigned>(__cvta_generic_to_shared(p))
"""


def checked(schedule: Schedule = "lockstep") -> LaunchOptions:
    return LaunchOptions(check=True, schedule=schedule)


def rotating(barriers: str = "MEET(&b);", count: str = "blockDim.x", before: str = "__syncthreads();") -> str:
    """Return a kernel that passes values from thread to thread, `rounds` times."""
    return f"""{HEADER}
__global__ void f(int *out, int rounds)
{{
    __shared__ __mbarrier_t b;
    __shared__ int tile[1024];
    const int t = threadIdx.x, n = blockDim.x;
    if (t == 0) __mbarrier_init(&b, {count});
    {before}
    int mine = blockIdx.x * n + t;
    for (int k = 0; k < rounds; ++k) {{
        tile[t] = mine; // WRITE
        MEET(&b); // HERE
        mine = tile[(t + 1) % n]; // READ
        {barriers}
    }}
    out[blockIdx.x * n + t] = mine;
}}
"""


def rotated(blocks: int, threads: int, rounds: int) -> np.ndarray:
    return np.roll(np.arange(blocks * threads, dtype=np.int32).reshape(blocks, threads), -rounds, axis=1).ravel()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("blocks", "threads"), [(3, 1), (5, 32), (2, 100), (9, 256), (1, 1024)])
def test_all_threads_meet_in_every_phase(run: Run, blocks: int, threads: int, schedule: Schedule) -> None:
    out = np.zeros(blocks * threads, np.int32)
    profile = run(rotating(), out, np.int32(3), grid=(blocks,), block=(threads,), options=checked(schedule))
    assert (profile.hazards, profile.unchecked) == ((), ())
    np.testing.assert_array_equal(out, rotated(blocks, threads, 3))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_barrier_instead_of_two_is_a_race(run: Run, schedule: Schedule) -> None:
    source = rotating(barriers="")
    profile = run(source, np.zeros(128, np.int32), np.int32(7), block=(128,), options=checked(schedule))
    pairs = {frozenset((hazard.where, hazard.other.where)) for hazard in profile.hazards if hazard.other}
    assert {hazard.kind for hazard in profile.hazards} == {"race"}
    assert pairs == {frozenset((marked(source, "// WRITE"), marked(source, "// READ")))}


def test_initialisation_without_a_barrier_behind_it_is_a_race(run: Run) -> None:
    source = rotating(before="").replace("blockDim.x);", "blockDim.x); // INIT")
    profile = run(source, np.zeros(64, np.int32), np.int32(1), block=(64,), options=checked())
    assert {hazard.kind for hazard in profile.hazards} == {"race"}
    assert marked(source, "// INIT") in {hazard.other.where for hazard in profile.hazards if hazard.other}
    with pytest.raises(KernelFault, match="a barrier in shared memory that is not initialised"):
        run(source, np.zeros(64, np.int32), np.int32(1), block=(64,), options=checked("warps-reversed"))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_expecting_too_many_threads_is_a_deadlock(run: Run, schedule: Schedule) -> None:
    source = rotating(count="blockDim.x + 1")
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(64, np.int32), np.int32(1), block=(64,), options=checked(schedule))
    assert (caught.value.code, caught.value.where) == ("deadlock", marked(source))
    assert "64 threads wait at kernel.cu:" in caught.value.what


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_expecting_too_few_threads_is_a_race(run: Run, schedule: Schedule) -> None:
    source = rotating(count="blockDim.x / 2")
    profile = run(source, np.zeros(128, np.int32), np.int32(1), block=(128,), options=checked(schedule))
    assert {hazard.kind for hazard in profile.hazards} >= {"race"}


def test_barrier_without_initialisation_is_a_fault(run: Run) -> None:
    source = rotating().replace("if (t == 0) __mbarrier_init(&b, blockDim.x);", "")
    with pytest.raises(KernelFault, match="a barrier in shared memory that is not initialised") as caught:
        run(source, np.zeros(64, np.int32), np.int32(1), block=(64,))
    assert caught.value.where == marked(source)
    source = rotating(count="0")
    with pytest.raises(KernelFault, match=re.escape("a barrier for 0 arrivals; 1 to 1048575 are possible")):
        run(source, np.zeros(64, np.int32), np.int32(1), block=(64,))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_accesses_between_arrival_and_wait_are_not_ordered(run: Run, schedule: Schedule) -> None:
    source = f"""{HEADER}
__global__ void f(int *out, int is_wrong)
{{
    __shared__ __mbarrier_t b;
    __shared__ int tile[128], other[128];
    const int t = threadIdx.x;
    if (t == 0) __mbarrier_init(&b, 128);
    __syncthreads();
    int sum = 0;
    for (int k = 0; k < 4; ++k) {{
        tile[t] = t + k;
        const __mbarrier_token_t token = __mbarrier_arrive(&b);
        other[is_wrong ? 127 - t : t] = 3 * t; // BETWEEN
        WAIT(&b, token)
        sum += tile[127 - t] + other[t]; // AFTER
        MEET(&b);
    }}
    out[t] = sum;
}}
"""
    out = np.zeros(128, np.int32)
    assert run(source, out, np.int32(0), block=(128,), options=checked(schedule)).hazards == ()
    t = np.arange(128)
    np.testing.assert_array_equal(out, 4 * (127 - t) + 6 + 12 * t)
    hazards = run(source, out, np.int32(1), block=(128,), options=checked(schedule)).hazards
    pairs = {frozenset((hazard.where, hazard.other.where)) for hazard in hazards if hazard.other}
    assert frozenset((marked(source, "// BETWEEN"), marked(source, "// AFTER"))) in pairs


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_threads_leave_a_barrier_for_good(run: Run, schedule: Schedule) -> None:
    source = f"""{HEADER}
__global__ void f(int *out)
{{
    __shared__ __mbarrier_t b;
    __shared__ int tile[256];
    const int t = threadIdx.x;
    if (t == 0) __mbarrier_init(&b, 256);
    __syncthreads();
    tile[t] = t + 1;
    for (int stride = 128; stride > 0; stride /= 2) {{
        if (t >= 2 * stride) {{ __mbarrier_arrive_and_drop(&b); return; }}
        MEET(&b);
        if (t < stride) tile[t] += tile[t + stride];
    }}
    if (t == 0) out[blockIdx.x] = tile[0];
    if (t == 1) __mbarrier_arrive_and_drop(&b);
}}
"""
    out = np.zeros(3, np.int32)
    profile = run(source, out, grid=(3,), block=(256,), options=checked(schedule))
    assert (profile.hazards, profile.unchecked) == ((), ())
    np.testing.assert_array_equal(out, [256 * 257 // 2] * 3)
    with pytest.raises(KernelFault, match=r"deadlock: .* threads wait at .*, .* have ended; no other thread arrives"):
        run(source.replace("{ __mbarrier_arrive_and_drop(&b); return; }", "return;"), out, grid=(3,), block=(256,))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warps_of_two_kinds_pass_buffers_to_each_other(run: Run, schedule: Schedule) -> None:
    source = f"""{HEADER}
__global__ void f(const int *in, int *out, int rounds)
{{
    __shared__ __mbarrier_t full[2], empty[2];
    __shared__ int tile[2][32];
    const int t = threadIdx.x % 32, n = 32 * rounds;
    if (threadIdx.x < 2) {{ __mbarrier_init(full + t, 32); __mbarrier_init(empty + t, 64); }}
    __syncthreads();
    for (int k = 0; k < rounds; ++k) {{
        const int s = k % 2, phase = k / 2 % 2;
        if (threadIdx.x < 32) {{
            while (!__mbarrier_try_wait_parity(&empty[s], phase ^ 1, 100)) {{ }}
            tile[s][t] = in[32 * k + t]; // PUT
            __mbarrier_arrive(&full[s]);
        }} else {{
            while (!__mbarrier_try_wait_parity(&full[s], phase, 100)) {{ }}
            out[n * (threadIdx.x / 32 - 1) + 32 * k + t] = tile[s][31 - t]; // GET
            __mbarrier_arrive(&empty[s]); // EMPTY
        }}
    }}
}}
"""
    numbers, out = np.arange(320, dtype=np.int32), np.zeros(640, np.int32)
    profile = run(source, numbers, out, np.int32(10), block=(96,), options=checked(schedule))
    assert (profile.hazards, profile.unchecked) == ((), ())
    np.testing.assert_array_equal(out.reshape(2, 10, 32), [numbers.reshape(10, 32)[:, ::-1]] * 2)
    never_full = source.replace("while (!__mbarrier_try_wait_parity(&full[s], phase, 100)) { }", "")
    hazards = run(never_full, numbers, out, np.int32(2), block=(96,), options=checked("warps")).hazards
    pairs = {frozenset((hazard.where, hazard.other.where)) for hazard in hazards if hazard.other}
    assert pairs == {frozenset((marked(source, "// PUT"), marked(source, "// GET")))}
    overrun = source.replace("while (!__mbarrier_try_wait_parity(&empty[s], phase ^ 1, 100)) { }", "")
    with pytest.raises(KernelFault, match="deadlock: 64 threads wait at"):  # the phase came back to its parity
        run(overrun, numbers, out, np.int32(4), block=(96,), options=checked(schedule))


def asm(body: str, count: int = 32) -> str:
    """Return a kernel of 32 threads with a barrier at `b` and 64 unsigned `tile`s, of which it writes 32 to `out`."""
    return f"""{HEADER}
__global__ void f(const unsigned *in, unsigned *out)
{{
    __shared__ __mbarrier_t barrier;
    __shared__ __align__(128) unsigned tile[64];
    const unsigned t = threadIdx.x, b = PLACE(&barrier), to = PLACE(tile);
    if (t == 0) __mbarrier_init(&barrier, {count});
    __syncthreads();
    unsigned long long token = 0;
    unsigned result = 0;
    {body}
    out[t] = result + tile[t];
}}
"""


ARRIVE = 'asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], %2;" : "=l"(token) : "r"(b), "r"({}) : "memory");'
PENDING = 'asm("mbarrier.pending_count.b64 %0, %1;" : "=r"(result) : "l"(token));'


def test_tokens_know_how_many_arrivals_were_missing(run: Run) -> None:
    out = np.zeros(32, np.uint32)
    source = asm(f"tile[t] = 0; {ARRIVE.format(2)} {PENDING} WAIT(&barrier, token)", count=64)
    assert run(source, out, out, options=checked()).hazards == ()
    np.testing.assert_array_equal(out, np.arange(64, 0, -2))


def test_more_arrivals_than_a_phase_waits_for_are_a_fault(run: Run) -> None:
    out = np.zeros(32, np.uint32)
    source = asm(f"tile[t] = 0; {ARRIVE.format(2)} // HERE", count=63)
    with pytest.raises(
        KernelFault, match="too many arrivals at a barrier: the phase waits for 1 more arrivals"
    ) as caught:
        run(source, out, out)
    assert caught.value.where == marked(source)
    assert caught.value.lane is not None
    assert caught.value.lane.thread == (31, 0, 0)


def test_arrival_that_must_not_complete_a_phase(run: Run) -> None:
    arrive = 'asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], %2;" : "=l"(token) : "r"(b), "r"(1));'
    out = np.zeros(32, np.uint32)
    body = f"tile[t] = t; {arrive} __mbarrier_arrive(&barrier);"
    run(asm(body, count=64), out, out)
    np.testing.assert_array_equal(out, np.arange(32))
    with pytest.raises(KernelFault, match="an arrival that must not complete a phase of a barrier completes it"):
        run(asm(body, count=32), out, out)


def test_relaxed_arrival_and_wait_order_nothing(run: Run) -> None:
    arrive = 'asm volatile("mbarrier.arrive.{}.cta.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(b) : "memory");'
    wait = (
        '{{ unsigned done; do asm volatile("{{ .reg .pred p; mbarrier.try_wait.{}.cta.shared::cta.b64 p, [%1], %2;'
        ' selp.u32 %0, 1, 0, p; }}" : "=r"(done) : "r"(b), "l"(token) : "memory"); while (!done); }}'
    )
    out = np.zeros(32, np.uint32)
    for release, acquire in (("release", "acquire"), ("relaxed", "acquire"), ("release", "relaxed")):
        source = asm(f"tile[t] = t; {arrive.format(release)} {wait.format(acquire)} result = tile[31 - t];")
        hazards = run(source, out, out, options=checked()).hazards
        np.testing.assert_array_equal(out, np.full(32, 31))
        assert {hazard.kind for hazard in hazards} == (
            set() if (release, acquire) == ("release", "acquire") else {"race"}
        )


def test_phase_waits_for_announced_bytes(run: Run) -> None:
    bytes_of = 'asm volatile("mbarrier.{}.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(b), "r"({}) : "memory");'
    source = asm(
        f"tile[t] = t; if (t == 5) {bytes_of.format('expect_tx', 64)}\n __syncwarp();"
        f" token = __mbarrier_arrive(&barrier); result = __mbarrier_test_wait(&barrier, token);"
        f" if (t == 7) {bytes_of.format('complete_tx', 64)} WAIT(&barrier, token) // HERE"
    )
    out = np.zeros(32, np.uint32)
    assert run(source, out, out, options=checked()).hazards == ()
    np.testing.assert_array_equal(out, np.arange(32))
    with pytest.raises(KernelFault, match="deadlock: 32 threads wait") as caught:
        run(source.replace("if (t == 7)", "if (t > 99)"), out, out)
    assert caught.value.where == marked(source)
    with pytest.raises(KernelFault, match="more than 1048575 bytes announced or copied"):
        run(source.replace('"r"(64)', '"r"(1 << 20)'), out, out)


BULK = (
    'asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"'
    ' :: "r"(to), "l"(in), "r"(256), "r"(b) : "memory");'
)
EXPECT = (
    'asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %0, [%1], %2;"'
    ' : "=l"(token) : "r"(b), "r"(256) : "memory");'
)
BULK_BODY = f"if (t == 3) {{ {BULK} // COPY\n {EXPECT} }} else token = __mbarrier_arrive(&barrier);\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_copy_arrives_at_its_barrier(run: Run, schedule: Schedule) -> None:
    numbers, out = np.arange(64, dtype=np.uint32), np.zeros(32, np.uint32)
    source = asm(f"{BULK_BODY} WAIT(&barrier, token) result = tile[63 - t];")
    profile = run(source, numbers, out, options=checked(schedule))
    assert (profile.hazards, profile.unchecked) == ((), ())
    np.testing.assert_array_equal(out, np.full(32, 63))
    early = source.replace("WAIT(&barrier, token)", "")
    hazards = run(early, numbers, out, options=checked(schedule)).hazards
    assert {hazard.kind for hazard in hazards} == {"race", "uninitialised"}
    assert {hazard.other.where for hazard in hazards if hazard.other} == {marked(source, "// COPY")}


def test_bulk_copy_beyond_an_array_is_found(run: Run) -> None:
    source = asm(f"{BULK_BODY} WAIT(&barrier, token)")
    with pytest.raises(KernelFault, match="invalid __global__ read") as caught:
        run(source, np.zeros(63, np.uint32), np.zeros(32, np.uint32))
    assert (caught.value.where, caught.value.lane.thread) == (marked(source, "// COPY"), (3, 0, 0))
    for wrong, what in (('"l"(in + 1), "r"(256)', "misaligned"), ('"l"(in), "r"(252)', "a bulk copy of 252 bytes")):
        with pytest.raises(KernelFault, match=what):
            run(source.replace('"l"(in), "r"(256)', wrong), np.zeros(99, np.uint32), np.zeros(32, np.uint32))


def test_bulk_copy_to_global_memory(run: Run) -> None:
    body = (
        "tile[t] = t; tile[32 + t] = 7; __syncwarp();"
        ' if (t == 0) asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;\\n'
        ' cp.async.bulk.commit_group;\\n cp.async.bulk.wait_group.read 0;" :: "l"(out + 32), "r"(to) : "memory");'
    )
    out = np.zeros(96, np.uint32)
    assert run(asm(body), out.copy(), out, options=checked()).hazards == ()
    np.testing.assert_array_equal(out[32:], [*range(32), *[7] * 32])


@pytest.mark.parametrize(
    ("instruction", "feature"),
    [
        ("cp.async.bulk.prefetch.L2.global [%1], 64;", "prefetches into L2 by cp.async.bulk"),
        (
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%0], 64, [%2];",
            "copies between blocks of a cluster",
        ),
        (
            "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%0}], [%2];",
            "copies of tensors",
        ),
    ],
)
def test_other_bulk_copies_are_named(run: Run, instruction: str, feature: str) -> None:
    source = asm(f'asm volatile("{instruction}" :: "r"(to), "l"(in), "r"(b)); // HERE')
    with pytest.raises(CannotSimulate, match=feature) as caught:
        run(source, np.zeros(64, np.uint32), np.zeros(32, np.uint32))
    assert caught.value.where == marked(source)


CLUSTER = """
#include <cooperative_groups.h>
__global__ void f(int *out)
{{
    __shared__ int tile[64];
    const int t = threadIdx.x;
    auto cluster = cooperative_groups::this_cluster();
    {body} // HERE
    out[t] = tile[63 - t]; // READ
}}
"""
RELAXED = 'asm volatile("barrier.cluster.arrive.relaxed; barrier.cluster.wait;" ::: "memory");'


@pytest.mark.parametrize(
    ("body", "is_ordered"),
    [
        ("tile[t] = t; cluster.sync();", True),
        ("tile[t] = t; cluster.barrier_wait(cluster.barrier_arrive());", True),
        ("tile[t] = t; if (t < 9) cluster.barrier_arrive(); else cluster.barrier_arrive();"
         " cluster.barrier_wait();", True),
        (f"tile[t] = t; {RELAXED}", False),
        ("auto token = cluster.barrier_arrive(); tile[t] = t; cluster.barrier_wait(std::move(token));", False),
    ],
)  # fmt: skip
def test_a_cluster_orders_what_comes_before_the_arrival_unless_it_is_relaxed(
    run: Run, body: str, is_ordered: bool
) -> None:
    source = CLUSTER.format(body=body)
    out = np.zeros(64, np.int32)
    hazards = run(source, out, block=(64,), options=checked()).hazards
    assert [hazard.kind for hazard in hazards] == ([] if is_ordered else ["race"])
    if is_ordered:
        assert out.tolist() == list(range(63, -1, -1))
    else:
        assert hazards[0].where == marked(source, "READ") and hazards[0].other.where == marked(source)

"""Threads, warps and blocks that wait for each other make progress: spinning threads starve no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from places import Run

from pytest_gpulab.devices.protocol import LaunchOptions
from pytest_gpulab.devices.simulated.execution.wave import Wave
from pytest_gpulab.devices.simulated.groups.group import SPIN_LIMIT
from pytest_gpulab.devices.simulated.groups.lanes import Lanes

SCHEDULES = pytest.mark.parametrize("schedule", ["lockstep", "warps", "warps-reversed"])

SPIN_LOCK = """
__global__ void f(int *lock, int *counter) {
    while (atomicCAS(lock, 0, 1) != 0);
    __threadfence();
    *(volatile int *)counter = *(volatile int *)counter + 1;
    __threadfence();
    atomicExch(lock, 0);
}
"""


@SCHEDULES
@pytest.mark.parametrize("grid", [1, 3])
def test_spin_lock_between_all_threads(run: Run, schedule: str, grid: int) -> None:
    counter = np.zeros(1, np.int32)
    run(SPIN_LOCK, np.zeros(1, np.int32), counter, grid=(grid,), block=(40,), options=LaunchOptions(schedule=schedule))
    assert counter[0] == 40 * grid


@SCHEDULES
def test_lock_taken_inside_the_loop(run: Run, schedule: str) -> None:
    source = """
    __global__ void f(int *lock, int *counter) {
        bool done = false;
        while (!done) {
            if (atomicExch(lock, 1) == 0) {
                counter[0] += threadIdx.x;
                __threadfence();
                atomicExch(lock, 0);
                done = true;
            }
        }
    }"""
    counter = np.zeros(1, np.int32)
    run(source, np.zeros(1, np.int32), counter, grid=(2,), block=(48,), options=LaunchOptions(schedule=schedule))
    assert counter[0] == 2 * 48 * 47 // 2


@SCHEDULES
def test_ticket_lock_serves_in_order(run: Run, schedule: str) -> None:
    source = """
    __global__ void f(int *next, volatile int *serving, int *order) {
        int ticket = atomicAdd(next, 1);
        while (*serving != ticket) __nanosleep(20);
        order[ticket] = blockIdx.x * blockDim.x + threadIdx.x;
        __threadfence();
        *serving = ticket + 1;
    }"""
    order = np.full(96, -1, np.int32)
    zero = np.zeros(1, np.int32)
    run(source, zero, zero.copy(), order, grid=(2,), block=(48,), options=LaunchOptions(schedule=schedule))
    assert sorted(order) == list(range(96))


@SCHEDULES
@pytest.mark.parametrize(("waiter", "setter"), [(0, 31), (31, 0), (0, 63), (63, 0)])
def test_one_thread_waits_for_another(run: Run, schedule: str, waiter: int, setter: int) -> None:
    source = """
    __global__ void f(volatile int *flag, int *out, int waiter, int setter) {
        if (threadIdx.x == waiter) { while (flag[0] == 0); out[0] = flag[1]; }
        if (threadIdx.x == setter) { flag[1] = 42; __threadfence(); flag[0] = 1; }
    }"""
    out = np.zeros(1, np.int32)
    options = LaunchOptions(schedule=schedule)
    run(source, np.zeros(2, np.int32), out, np.int32(waiter), np.int32(setter), block=(64,), options=options)
    assert out[0] == 42


@SCHEDULES
def test_warp_waits_for_a_flag_in_shared_memory(run: Run, schedule: str) -> None:
    source = """
    __global__ void f(int *out, int producer) {
        __shared__ volatile int flag, value;
        if (threadIdx.x == 0) flag = 0;
        __syncthreads();
        if (threadIdx.x / 32 == producer) { value = 7; __threadfence_block(); flag = 1; }
        else { while (flag == 0); out[threadIdx.x] = value; }
    }"""
    for producer in (0, 1):
        out = np.zeros(64, np.int32)
        run(source, out, np.int32(producer), block=(64,), options=LaunchOptions(schedule=schedule))
        assert (out != 0).sum() == 32 and out.max() == 7


@SCHEDULES
@pytest.mark.parametrize("first", [0, 15], ids=["earlier", "later"])
def test_blocks_wait_for_the_block_beside_them(run: Run, schedule: str, first: int) -> None:
    source = """
    __global__ void f(volatile int *status, int *out, int first) {
        int block = first == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x, before = 0;
        if (threadIdx.x == 0 && block > 0) {
            while ((before = status[block - 1]) == 0);
        }
        __shared__ int base;
        if (threadIdx.x == 0) { base = before; __threadfence(); status[block] = before + 3; }
        __syncthreads();
        out[block * blockDim.x + threadIdx.x] = base;
    }"""
    out = np.zeros(16 * 32, np.int32)
    run(source, np.zeros(16, np.int32), out, np.int32(first), grid=(16,), options=LaunchOptions(schedule=schedule))
    assert out.tolist() == np.repeat(np.arange(16) * 3, 32).tolist()


SINGLE_PASS_SCAN = """
// Each block announces its sum, then its inclusive prefix, and looks back over its predecessors for what came before.
struct Status { int flag; int sum; };
__device__ unsigned long long pack(int flag, int sum) { return (unsigned long long)(unsigned)sum << 32 | flag; }
__global__ void f(const int *in, int *out, unsigned long long *status, int *next, int n) {
    __shared__ int tile[128], ticket, before;
    if (threadIdx.x == 0) ticket = atomicAdd(next, 1);
    __syncthreads();
    int i = ticket * 128 + threadIdx.x, t = threadIdx.x;
    tile[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = 1; step < 128; step <<= 1) {
        int other = t >= step ? tile[t - step] : 0;
        __syncthreads();
        tile[t] += other;
        __syncthreads();
    }
    if (t == 0) {
        atomicExch(&status[ticket], pack(ticket == 0 ? 2 : 1, tile[127]));
        int sum = 0;
        for (int at = ticket - 1; at >= 0;) {
            unsigned long long seen = atomicAdd(&status[at], 0ull);
            int flag = (int)(seen & 3);
            if (flag == 0) continue;
            sum += (int)(seen >> 32);
            if (flag == 2) break;
            --at;
        }
        before = sum;
        atomicExch(&status[ticket], pack(2, sum + tile[127]));
    }
    __syncthreads();
    if (i < n) out[i] = before + tile[t];
}
"""


@SCHEDULES
def test_single_pass_scan(run: Run, schedule: str) -> None:
    n = 5000
    values = (np.arange(n, dtype=np.int32) * 37) % 101
    out, status = np.zeros(n, np.int32), np.zeros(40, np.uint64)
    run(
        SINGLE_PASS_SCAN, values, out, status, np.zeros(1, np.int32), np.int32(n),
        grid=(40,), block=(128,), options=LaunchOptions(schedule=schedule),
    )  # fmt: skip
    assert out.tolist() == np.cumsum(values).tolist()


def test_barrier_of_the_whole_grid_by_hand(run: Run) -> None:
    source = """
    __global__ void f(int *arrived, int *x, int *out) {
        x[blockIdx.x] = blockIdx.x + 1;
        __threadfence();
        if (threadIdx.x == 0) { atomicAdd(arrived, 1); while (atomicAdd(arrived, 0) < gridDim.x); }
        __syncthreads();
        out[blockIdx.x * blockDim.x + threadIdx.x] = *(volatile int *)&x[gridDim.x - 1 - blockIdx.x];
    }"""
    out = np.zeros(8 * 64, np.int32)
    run(source, np.zeros(1, np.int32), np.zeros(8, np.int32), out, grid=(8,), block=(64,))
    assert out.tolist() == np.repeat(np.arange(8, 0, -1), 64).tolist()


def test_warp_that_synchronises_while_it_waits(run: Run) -> None:
    """A plain load is repeated after each warp barrier, so this loop waits although nothing in it is volatile."""
    source = """
    __global__ void f(int *flag, int *out) {
        unsigned t = threadIdx.x;
        if (t < 32) {
            int seen;
            do { __syncwarp(); seen = flag[0]; __syncwarp(); } while (!seen);
            out[t] = 1;
        } else if (t == 40) {
            flag[0] = 1;
        }
    }"""
    out = np.zeros(32, np.int32)
    run(source, np.zeros(1, np.int32), out, block=(64,))
    assert out.all()


TURNS = {
    "lock": "for (bool done = 0; !done;) if (!atomicCAS(words, 0, 1)) { CRITICAL atomicExch(words, 0); done = 1; }",
    "lock in front": "while (atomicExch(words, 1)); CRITICAL atomicExch(words, 0);",
    "ticket": "while (atomicAdd(words, 0) != ticket); CRITICAL atomicAdd(words, 1);",
    "volatile ticket": "while (*(volatile int *)words != ticket); CRITICAL atomicAdd(words, 1);",
}


@pytest.mark.parametrize("block", [128, 512])
@pytest.mark.parametrize("body", TURNS.values(), ids=TURNS.keys())
def test_threads_that_take_turns_poll_seldom(run: Run, monkeypatch: pytest.MonkeyPatch, body: str, block: int) -> None:
    polls = 0
    atomic, load = Wave.atomic, Wave.load_global

    def counted(original: Any) -> Any:
        def call(self: Wave, lanes: Lanes, *args: Any) -> Any:
            nonlocal polls
            polls += lanes.n
            return original(self, lanes, *args)

        return call

    monkeypatch.setattr(Wave, "atomic", counted(atomic))
    monkeypatch.setattr(Wave, "load_global", counted(load))
    source = """__global__ void f(int *words, int n) {
        if (blockIdx.x * blockDim.x + threadIdx.x >= n) return;
        int ticket = atomicAdd(words + 1, 1);
        BODY
    }""".replace("BODY", body.replace("CRITICAL", "*(volatile int *)(words + 2) += 1;"))
    words, n = np.zeros(3, np.int32), 485
    run(source, words, np.int32(n), grid=(512 // block,), block=(block,))
    assert words[2] == n
    assert polls < 2 * SPIN_LIMIT * n  # and not n * n / 2


def test_a_turn_of_another_thread_than_the_first_waiting_one(run: Run) -> None:
    """Each thread waits until the thread after it has ended; the last one waits for no other."""
    source = """
    __global__ void f(volatile int *turn, int *order) {
        while (*turn != blockDim.x - 1 - threadIdx.x);
        order[*turn] = threadIdx.x;
        *turn += 1;
    }"""
    order = np.zeros(100, np.int32)
    run(source, np.zeros(1, np.int32), order, block=(100,))
    assert order.tolist() == list(range(100))[::-1]


def test_a_thread_that_goes_on_and_waits_again_leaves_room_for_others(run: Run) -> None:
    """The threads take the lock again and again, until the last one has counted enough of their turns."""
    source = """
    __global__ void f(int *lock, volatile int *turns, volatile int *stop) {
        if (threadIdx.x == 99) { while (*turns < 300); *stop = 1; return; }
        while (!*stop) {
            while (atomicCAS(lock, 0, 1));
            *turns += 1;
            atomicExch(lock, 0);
        }
    }"""
    turns = np.zeros(1, np.int32)
    run(source, np.zeros(1, np.int32), turns, np.zeros(1, np.int32), block=(100,))
    assert turns[0] >= 300

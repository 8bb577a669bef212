"""Chains of waiting blocks, and locks that threads take in turn, cost a few polls per block or thread."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import KernelFault, LaunchOptions
from pytest_gpulab.devices.simulated.execution.launching import Effort
from pytest_gpulab.devices.simulated.execution.wave import Wave

VOLATILE = {"WAIT": "while (ready[b - 1] == 0);", "SET": "ready[b] = 1;"}
ATOMIC = {"WAIT": "while (atomicAdd((int *)&ready[b - 1], 0) == 0);", "SET": "atomicExch((int *)&ready[b], 1);"}
BY_ONE_THREAD = "if (threadIdx.x == 0 && b > 0) { WAIT } __syncthreads();"
BY_ALL_THREADS = "if (b > 0) { WAIT } __syncthreads();"
CHAIN = """
__global__ void f(volatile int *ready, volatile int *sums, int *out) {
    int b = BLOCK;
    BEFORE
    if (threadIdx.x == 0) {
        __threadfence();
        sums[b] = (b > 0 ? sums[b - 1] : 0) + b;
        __threadfence();
        SET
    }
    __syncthreads();
    out[b * blockDim.x + threadIdx.x] = sums[b];
}"""
LOCKS = {
    "waits in front": "while (atomicCAS(lock, 0, 1) != 0); CRITICAL",
    "works inside": "for (bool done = false; !done;) if (atomicCAS(lock, 0, 1) == 0) { CRITICAL done = true; }",
    "reads first": "do { while (*(volatile int *)lock != 0); } while (atomicCAS(lock, 0, 1) != 0); CRITICAL",
}
CRITICAL = """
    __threadfence();
    *(volatile int *)counter = *(volatile int *)counter + 1;
    __threadfence();
    atomicExch(lock, 0);
"""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The basic blocks that each wave has executed."""
    executed: list[int] = []
    original = Effort.end_wave

    def end_wave(self: Effort, wave: Wave) -> None:
        executed.append(wave.steps)
        original(self, wave)

    monkeypatch.setattr(Effort, "end_wave", end_wave)
    return executed


def chain(words: dict[str, str], before: str = BY_ONE_THREAD, block: str = "blockIdx.x") -> str:
    source = CHAIN.replace("BLOCK", block).replace("BEFORE", before)
    for word, text in words.items():
        source = source.replace(word, text)
    return source


def run_chain(run: Run, source: str, blocks: int, options: LaunchOptions) -> None:
    out = np.zeros(blocks * 64, np.int32)
    zeros = np.zeros(blocks, np.int32)
    run(source, zeros, zeros.copy(), out, grid=(blocks,), block=(64,), options=options)
    assert out.tolist() == np.repeat(np.cumsum(np.arange(blocks)), 64).tolist()


@pytest.mark.parametrize("schedule", ["lockstep", "warps", "warps-reversed"])
@pytest.mark.parametrize("before", [BY_ONE_THREAD, BY_ALL_THREADS], ids=["one thread", "all threads"])
@pytest.mark.parametrize("words", [VOLATILE, ATOMIC], ids=["volatile", "atomic"])
def test_each_link_of_a_chain_costs_a_few_polls(
    run: Run, steps: list[int], words: dict[str, str], before: str, schedule: str
) -> None:
    totals = []
    for blocks in (32, 64, 128):
        run_chain(run, chain(words, before), blocks, LaunchOptions(schedule))
        totals.append(sum(steps))
        steps.clear()
    assert totals[2] - totals[1] < 2.2 * (totals[1] - totals[0])
    assert totals[2] < 128 * (16 if schedule == "lockstep" else 30)


@pytest.mark.parametrize("schedule", ["lockstep", "warps"])
def test_the_last_wave_may_come_first(run: Run, schedule: str) -> None:
    """The first wave waits alone once the last one has ended, but not in vain."""
    source = chain(VOLATILE, block="gridDim.x - 1 - blockIdx.x")
    run_chain(run, source, 1030, LaunchOptions(schedule))


@pytest.mark.parametrize("stride", [1, 32], ids=["all lanes", "one lane per warp"])
@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS.keys())
def test_each_owner_of_a_lock_costs_a_few_polls(run: Run, steps: list[int], lock: str, stride: int) -> None:
    source = "__global__ void f(int *lock, int *counter) { if (threadIdx.x % STRIDE == 0) { LOCK } }"
    source = source.replace("LOCK", lock).replace("CRITICAL", CRITICAL).replace("STRIDE", str(stride))
    counter = np.zeros(1, np.int32)
    run(source, np.zeros(1, np.int32), counter, grid=(2,), block=(256,))
    assert counter[0] == 512 // stride
    assert sum(steps) < 10 * counter[0]


@pytest.mark.parametrize("stride", [1, 32], ids=["all lanes", "one lane per warp"])
@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS.keys())
def test_a_lock_that_is_never_released_is_endless(run: Run, lock: str, stride: int) -> None:
    source = f"__global__ void f(int *lock, int *counter) {{ if (threadIdx.x % {stride} == 0) {{\n{lock} // HERE\n}} }}"
    source = source.replace("CRITICAL", "*counter += 1;")
    with pytest.raises(KernelFault, match="does not end") as caught:
        run(source, np.zeros(1, np.int32), np.zeros(1, np.int32), grid=(2,), block=(512,))
    assert caught.value.code == "endless-loop" and caught.value.where == marked(source)

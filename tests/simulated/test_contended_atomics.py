"""Atomics whose lanes meet at one address: what each finds is what it would find if one acted after the other."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import Run

from pytest_gpulab.devices.protocol import DisturbedRead, LaunchOptions
from pytest_gpulab.devices.simulated.memory.atomics import FLUSHED_ADD, apply

WHOLE = ("add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas")
OPERATIONS = [(operation, np.dtype(f"u{size}")) for operation in WHOLE for size in (4, 8)]
OPERATIONS += [("add", np.dtype(np.float32)), ("add", np.dtype(np.float64)), (FLUSHED_ADD, np.dtype(np.float32))]
OPERATIONS += [("min", np.dtype(np.int32)), ("max", np.dtype(np.int64)), ("exch", np.dtype(np.float32))]


def one_after_the_other(view: Any, index: Any, operation: str, operands: list[Any]) -> Any:
    """The definition: lane by lane, each as if it were alone."""
    found = [
        apply(view, index[lane : lane + 1], operation, [operand[lane : lane + 1] for operand in operands], True)
        for lane in range(len(index))
    ]
    return np.concatenate([one for one in found if one is not None])


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(OPERATIONS),
    st.integers(1, 70),
    st.sampled_from([1, 2, 5, 40]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 5, 2**31]),
)
def test_contended_atomics_return_values_as_if_executed_one_after_the_other(
    what: tuple[str, np.dtype[Any]], lanes: int, places: int, seed: int, largest: int
) -> None:
    operation, dtype = what
    rng = np.random.default_rng(seed)
    index = rng.integers(0, places, lanes)
    count = 2 if operation == "cas" else 1
    scale = 1e-38 if operation == FLUSHED_ADD else 0.37 if dtype.kind == "f" else 1
    operands = [(rng.integers(0, largest, lanes) * scale).astype(dtype) for _ in range(count)]
    if operation == "cas" and seed % 2:  # lanes of a retry loop have read the same value
        operands[0] = rng.integers(0, 2, places).astype(dtype)[index]
    memory = (rng.integers(0, largest, places) * scale).astype(dtype)
    expected_memory = memory.copy()
    with np.errstate(all="ignore"):
        expected = one_after_the_other(expected_memory, index, operation, operands)
        found = apply(memory, index, operation, operands, True)
    assert found is not None
    assert found.dtype == dtype
    assert found.tobytes() == expected.tobytes()
    assert memory.tobytes() == expected_memory.tobytes()


def test_threads_that_append_under_a_condition_take_their_places_block_by_block(run: Run) -> None:
    """As on a GPU, a warp's lanes get neighbouring places, so that their stores touch few sectors."""
    x = np.random.default_rng(5).integers(-9, 9, 1024).astype(np.int32)
    source = """__global__ void f(const int *x, int *kept, int *count) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (x[i] > 0) kept[atomicAdd(count, 1)] = x[i];
    }"""
    kept, expected = np.zeros_like(x), x[x > 0]
    run(source, x, kept, np.zeros(1, np.int32), grid=(8,), block=(128,))
    assert kept[: len(expected)].tolist() == expected.tolist()


LOOPS = {
    "one address": ("int *p = x;", 1),
    "several addresses": ("int *p = x + threadIdx.x % 3;", 3),
    "shared memory": ("__shared__ int sum; int *p = &sum; *p = 0; __syncthreads();", 0),
    "a lock": ("", 1),
}
LOCK = """
    bool done = false;
    while (!done)
        if (atomicExch(x + 8, 1) == 0) {
            *(volatile int *)x = *(volatile int *)x + 1;
            __threadfence();
            atomicExch(x + 8, 0);
            done = true;
        }"""
SWAP = """
    int old = *p, expected;
    do {
        expected = old;
        old = atomicCAS(p, expected, expected + 1);
    } while (expected != old);
    __syncthreads();
    if (threadIdx.x == 0 && p != x)
        x[0] = *p;"""


@pytest.mark.parametrize(("where", "places"), LOOPS.values(), ids=LOOPS.keys())
def test_a_thousand_threads_that_retry_cost_no_second(run: Run, where: str, places: int) -> None:
    """It takes 0.1 s to 0.4 s; lane by lane in NumPy it was 2 s and more."""
    x = np.zeros(16, np.int32)
    source = f"__global__ void f(int *x) {{ {where} {SWAP if where else LOCK} }}"
    begin_s = time.process_time()
    run(source, x, block=(1024,))
    assert time.process_time() - begin_s < 1.5
    assert x[: max(places, 1)].sum() == 1024


def test_retries_at_many_addresses_are_not_made_lane_by_lane(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_gpulab.devices.simulated.memory.atomics._one_by_one", None)
    x = np.zeros(64, np.int32)
    run(
        f"__global__ void f(int *x) {{ int *p = x + blockIdx.x * 2 + threadIdx.x % 2; {SWAP} }}",
        x,
        grid=(32,),
        block=(64,),
    )
    assert x.sum() == 32 * 64


RETRIES = {
    "adds": ("old = *p", "{ seen = old; old = atomicCAS(p, seen, seen + 3); }", "old != seen"),
    "reads again": ("", "seen = *(volatile int *)p;", "atomicCAS(p, seen, seen + 3) != seen"),
    "ends from within": ("", "{ old = *p; if (atomicCAS(p, old, old + 3) == old) break; }", "true"),
    "adds floats": ("old = *p", "{ seen = old; old = atomicCAS(p, seen, bits(real(seen) + 0.1f)); }", "old != seen"),
    "takes the larger float": ("", "seen = *p;", "atomicCAS(p, seen, bits(fmaxf(real(seen), t))) != seen"),
    "multiplies and adds": ("old = *p", "{ seen = old; old = atomicCAS(p, seen, seen * 3 + t); }", "old != seen"),
    "counts to a limit": ("", "seen = *p;", "atomicCAS(p, seen, seen < 20 ? seen + 1 : 20) != seen"),
    "keeps the old value": (
        "old = *p", "{ seen = old; old = atomicCAS(p, seen, seen + 1); }", "old != seen); while ((x[8 + t] = seen, 0)"
    ),
}  # fmt: skip
STEPS: dict[str, Any] = {
    "adds floats": lambda old, t: (old.view(np.float32) + np.float32(0.1)).view(np.int32),
    "takes the larger float": lambda old, t: np.maximum(old.view(np.float32), np.float32(t)).view(np.int32),
    "multiplies and adds": lambda old, t: np.int64(3 * int(old) + t).astype(np.int32),
    "counts to a limit": lambda old, t: np.minimum(old + np.int32(1), np.int32(20)),
    "keeps the old value": lambda old, t: old + np.int32(1),
}


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of lanes of each execution of an atomic."""
    lanes: list[int] = []

    def counted(view: Any, index: Any, operation: Any, operands: Any, returns: bool) -> Any:
        lanes.append(len(index))
        return apply(view, index, operation, operands, returns)

    monkeypatch.setattr("pytest_gpulab.devices.simulated.memory.atomics.apply", counted)
    return lanes


def in_a_loop(before: str, body: str, condition: str, place: str = "") -> str:
    return f"""
        __device__ float real(int x) {{ return __int_as_float(x); }}
        __device__ int bits(float x) {{ return __float_as_int(x); }}
        __global__ void f(int *x) {{
            int t = threadIdx.x, *p = x + t % 2, old = 0, seen, tries = 0;
            {place}
            {before};
            do {body} while ({condition});
            {"__syncthreads(); if (t < 2) x[t] = *p;" if place else ""}
        }}"""


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("place", ["", "__shared__ int s[2]; p = s + t % 2; if (t < 2) *p = 0; __syncthreads();"])
@pytest.mark.parametrize("name", RETRIES)
def test_a_loop_that_updates_a_value_lets_all_threads_succeed_at_once(
    run: Run, executed: list[int], name: str, place: str, check: bool
) -> None:
    x = np.zeros(128, np.int32)
    profile = run(in_a_loop(*RETRIES[name], place), x, block=(96,), options=LaunchOptions(check=check))
    assert executed == [96]
    assert not profile.hazards
    values, old = np.zeros(2, np.int32), []
    for t in range(96):
        old.append(values[t % 2])
        values[t % 2] = STEPS.get(name, lambda old, t: old + np.int32(3))(values[t % 2], t)
    assert x[:2].tolist() == values.tolist()
    if name == "keeps the old value":
        assert x[8:104].tolist() == old


OTHERS = {
    "gives up": ("old = *p", "{ seen = old; old = atomicCAS(p, seen, seen + 1); }", "old != seen && ++tries < 3", 6),
    "ends if it fails": ("old = *p", "{ seen = old; old = atomicCAS(p, seen, seen + 1); }", "false", 2),
    "locks": ("", "{ old = atomicCAS(p, 0, 1); if (!old) { x[2 + t % 2]++; atomicExch(p, 0); } }", "old", 96),
    "counts its tries": (
        "", "{ old = *p; tries++; }", "atomicCAS(p, old, old + 1) != old); while ((atomicAdd(x + 4, tries), 0)", 96
    ),
    "goes to another place": (
        "", "{ seen = *p; old = atomicCAS(p, seen, seen + 1); p = x + (old & 1); }", "old != seen", 96
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "body", "condition", "total"), OTHERS.values(), ids=OTHERS.keys())
def test_other_loops_with_a_swap_try_as_often_as_they_fail(
    run: Run, executed: list[int], before: str, body: str, condition: str, total: int
) -> None:
    x = np.zeros(128, np.int32)
    run(in_a_loop(before, body, condition), x, block=(96,))
    assert x[:4].sum() == total
    assert len(executed) > 2 or "false" in condition
    assert x[4] >= 48 * 49 if "x + 4" in condition else x[4] == 0  # the last of 48 threads needs 48 tries


HISTOGRAM = """
    __global__ void f(int *x) {
        __shared__ int bins[8];
        int t = threadIdx.x, seen;
        if (t < 8) bins[t] = 0;
        __syncthreads();
        for (int k = 0; k < 4; k++)
            do seen = bins[t * k % 8]; while (atomicCAS(bins + t * k % 8, seen, seen + 1) != seen);
        __syncthreads();
        if (t < 8) x[t] = RESULT;
    }"""


@pytest.mark.parametrize(("result", "is_used"), [("bins[t]", True), ("t ? 32 : 160", False)])
def test_a_changed_read_that_a_swap_compares_changes_what_is_in_memory(run: Run, result: str, is_used: bool) -> None:
    outputs = set()
    for nth in (-1, 0, 3, 5):
        x = np.zeros(8, np.int32)
        read = DisturbedRead(nth=nth, flipped=0x40, space="shared", compared=True)
        run(HISTOGRAM.replace("RESULT", result), x, block=(64,), options=LaunchOptions(disturbed=read))
        outputs.add(x.tobytes())
    assert len(outputs) > 3 if is_used else len(outputs) == 1


def test_swaps_at_one_address_take_longer_than_at_many(run: Run) -> None:
    source = """__global__ void f(int *x, int spread) {
        __shared__ int bins[256];
        int seen, *p = bins + threadIdx.x * spread;
        bins[threadIdx.x] = 0;
        __syncthreads();
        for (int k = 0; k < 64; k++) do seen = *p; while (atomicCAS(p, seen, seen + 1) != seen);
        x[threadIdx.x] = *p;
    }"""
    times_ms = [
        run(source, np.zeros(256, np.int32), np.int32(spread), grid=(132,), block=(256,),
            options=LaunchOptions(estimate=True)).estimated_ms
        for spread in (0, 1)
    ]  # fmt: skip
    one, many = (each or 0 for each in times_ms)
    assert one > 5 * many > 0

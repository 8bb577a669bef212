"""Atomics whose lanes meet at one address: what each finds is what it would find if one acted after the other."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import Run

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

"""`malloc`, `free`, `new` and `delete` in kernels: results, bounds, unwritten memory, a full heap."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import CannotSimulate, KernelFault, LaunchOptions
from pytest_gpulab.devices.simulated import SimulatedDevice
from pytest_gpulab.devices.simulated.memory import heap

CHECKED = LaunchOptions(check=True)
THREADS = 64


def kernel(body: str, head: str = "") -> str:
    """Return a kernel of a line of threads, `t` each one's number."""
    first = "const int t = blockIdx.x * blockDim.x + threadIdx.x;"
    return f"{head}\n__global__ void f(int *out)\n{{\n    {first}\n{body}\n}}"


LIST = """
    Node *first = nullptr;
    for (int k = 0; k <= t % 5; ++k)
        first = new Node{k + t, first};
    int sum = 0;
    while (first != nullptr) {
        Node *next = first->next;
        sum += first->value;
        delete first;
        first = next;
    }
    out[t] = sum;
"""
NODE = "struct Node { int value; Node *next; };"


@pytest.mark.parametrize("options", [CHECKED, LaunchOptions(fill=0xFF), LaunchOptions(count=True, estimate=True)])
def test_every_thread_builds_a_list(run: Run, options: LaunchOptions) -> None:
    out = np.zeros(2 * THREADS, np.int32)
    profile = run(kernel(LIST, NODE), out, grid=(2,), block=(THREADS,), options=options)
    assert (profile.hazards, profile.unchecked) == ((), ())
    assert out.tolist() == [sum(range(t, t + t % 5 + 1)) for t in range(2 * THREADS)]


def test_one_thread_allocates_for_its_block(run: Run) -> None:
    body = """
    __shared__ int *memory;
    if (threadIdx.x == 0) memory = (int *)malloc(blockDim.x * sizeof(int));
    __syncthreads();
    memory[threadIdx.x] = t;
    SYNC
    out[t] = memory[blockDim.x - 1 - threadIdx.x]; // HERE
    __syncthreads();
    if (threadIdx.x == 0) free(memory);
"""
    out = np.zeros(THREADS, np.int32)
    source = kernel(body.replace("SYNC", "__syncthreads();"))
    assert run(source, out, block=(THREADS,), options=CHECKED).hazards == ()
    assert out.tolist() == [*range(THREADS)][::-1]
    source = kernel(body.replace("SYNC", ""))
    profile = run(source, out, block=(THREADS,), options=CHECKED)
    assert [(hazard.kind, hazard.where) for hazard in profile.hazards] == [("race", marked(source))]


def test_unwritten_heap_memory_is_found(run: Run) -> None:
    source = kernel("int *p = new int[3]; p[0] = t; p[2] = t;\n out[t] = p[t % 2]; // HERE\n delete[] p;")
    profile = run(source, np.zeros(THREADS, np.int32), block=(THREADS,), options=CHECKED)
    assert [(hazard.kind, hazard.where) for hazard in profile.hazards] == [("uninitialised", marked(source))]


@pytest.mark.parametrize(
    "access",
    [
        "p[out[t] + 3] = 1; // HERE",
        "out[t] = p[out[t] - 1]; // HERE",
        "if (t == 7) free(p);\n p[out[t]] = 1; // HERE",
        "atomicAdd(&p[out[t] + (t % 2) * 3], 1); // HERE",
        "int *q = t == 7 ? out : p; q[out[t] + 4] = 1; // HERE",
    ],
    ids=["behind", "before", "after free", "atomic", "among other arrays"],
)
def test_access_outside_of_a_block_is_out_of_bounds(run: Run, access: str) -> None:
    source = kernel(f"int *p = (int *)malloc(3 * sizeof(int)); p[0] = p[1] = p[2] = 0;\n {access}\n out[t] += p[0];")
    with pytest.raises(
        KernelFault, match=r"invalid __global__ .*: outside of the blocks from malloc\(\) or new"
    ) as caught:
        run(source, np.zeros(THREADS, np.int32), block=(THREADS,))
    assert (caught.value.code, caught.value.where) == ("out-of-bounds", marked(source))


def test_full_heap_gives_null(run: Run) -> None:
    source = kernel("void *p = malloc(1 << 20); out[t] = p != nullptr; free(p);")
    out = np.zeros(THREADS, np.int32)
    run(source, out, block=(THREADS,))
    assert out.sum() == 7  # of 1 MiB and a gap each in 8 MiB
    run(kernel("void *p = malloc(~0ull); out[t] = p != nullptr; free(p);"), out, block=(THREADS,))
    assert out.sum() == 0


def test_null_pointer_of_a_full_heap_is_a_fault_where_it_is_used(run: Run) -> None:
    source = kernel("int *p = (int *)malloc(1 << 20); p[t] = t; // HERE\n out[t] = p[out[t]];")
    with pytest.raises(KernelFault, match=r"null pointer .*; malloc\(\) .* because the heap was full") as caught:
        run(source, np.zeros(THREADS, np.int32), block=(THREADS,))
    assert caught.value.where == marked(source)


def test_freed_memory_can_be_allocated_again(run: Run) -> None:
    source = kernel(
        "int sum = 0; for (int k = 0; k < 20; ++k) { char *p = (char *)malloc(1 << 10); sum += p != nullptr;"
        " if (k % 2) p[k] = k; free(p); free(nullptr); } out[t] = sum;"
    )
    out = np.zeros(THREADS, np.int32)
    run(source, out, block=(THREADS,))
    assert out.tolist() == [20] * THREADS


def test_blocks_that_are_freed_do_not_fill_the_heap(run: Run) -> None:
    """512 MiB in all, each block written and read: its addresses are its own, so nothing races."""
    source = kernel(
        "int sum = 0; for (int k = 0; k < 256; ++k) { int *p = (int *)malloc(32 << 10); if (p == nullptr) continue;"
        " p[k] = t; sum += p[k] == t; free(p); } out[t] = sum;"
    )
    out = np.zeros(THREADS, np.int32)
    profile = run(source, out, block=(THREADS,), options=CHECKED)
    assert out.tolist() == [256] * THREADS and profile.hazards == ()


def test_leaks_fill_the_heap(run: Run) -> None:
    source = kernel("int sum = 0; for (int k = 0; k < 256; ++k) sum += malloc(32 << 10) != nullptr; out[t] = sum;")
    out = np.zeros(THREADS, np.int32)
    run(source, out, block=(THREADS,))
    assert out.sum() == (8 << 20) // ((32 << 10) + 16)


def test_use_after_free_is_found_after_much_memory(run: Run) -> None:
    source = kernel(
        "int *first = (int *)malloc(16); free(first);"
        "for (int k = 0; k < 40; ++k) free(malloc(1 << 20));\n out[t] = *first; // HERE"
    )
    with pytest.raises(KernelFault, match="or in a freed one") as caught:
        run(source, np.zeros(1, np.int32))
    assert caught.value.where == marked(source)


def test_blocks_in_use_among_too_many_freed_ones_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "MAX_PARTS", 2)
    source = kernel("for (int k = 0; k < 20; ++k) {\n malloc(16);\n free(malloc(4 << 20)); }")
    with pytest.raises(
        CannotSimulate, match=r"malloc\(\) with blocks in use among 32 MiB of freed ones at kernel\.cu:"
    ):
        run(source, np.zeros(1, np.int32))


def test_heap_is_no_result_of_a_launch(run: Run) -> None:
    source = kernel("int *p = new int(t); if (t % 32 < 20) *p = __shfl_down_sync(0xFFFFF, *p, 16);\n out[t] = WHAT;")
    out = np.zeros(THREADS, np.int32)
    assert run(source.replace("WHAT", "*p & 0"), out, block=(THREADS,), options=CHECKED).hazards == ()
    profile = run(source.replace("WHAT", "*p"), out, block=(THREADS,), options=CHECKED)
    assert [hazard.kind for hazard in profile.hazards] == ["barrier"]


def test_a_launch_gives_its_heap_back_at_once() -> None:
    """Not when the garbage collector finds the launch's objects, which takes dozens of launches of 40 MiB each."""
    device = SimulatedDevice()
    module = device.compile(kernel("int *p = (int *)malloc(4); *p = t; __syncthreads(); out[t] = *p; free(p);"))
    gc.disable()
    try:
        module.launch("f", (1,), (THREADS,), (device.array(np.zeros(THREADS, np.int32)),), options=CHECKED)
        kept = [part.data.nbytes for part in gc.get_objects() if isinstance(part, heap.HeapPart)]
    finally:
        gc.enable()
    assert sum(kept) == 0

"""Accesses outside an object or off its alignment end the launch and are named with line, block and thread."""

from __future__ import annotations

import numpy as np
import pytest
from places import Run, marked

from pytest_gpulab.devices.protocol import Device, KernelFault, Lane

THREAD_40 = Lane((0, 0, 0), (40, 0, 0))

GLOBAL = {
    "write one element behind": "x[threadIdx.x == 40 ? n : threadIdx.x] = 1; // HERE",
    "read one element behind": "x[0] = x[threadIdx.x == 40 ? n : threadIdx.x]; // HERE",
    "write one element before": "x[threadIdx.x == 40 ? -1 : (int)threadIdx.x] = 1; // HERE",
    "write one byte behind": "if (threadIdx.x == 40) ((char *)x)[4 * n] = 1; // HERE",
    "read one byte before": "if (threadIdx.x == 40) x[3] = ((char *)x)[-1]; // HERE",
    "far away": "if (threadIdx.x == 40) x[1 << 28] = 1; // HERE",
    "null pointer": "if (threadIdx.x == 40) *(int *)(long long)(n - 65) = 1; // HERE",
    "atomic": "if (threadIdx.x == 40) atomicAdd(x + n, 1); // HERE",
    "vector that sticks out": "if (threadIdx.x == 40) ((int4 *)x)[n / 4] = make_int4(1, 2, 3, 4); // HERE",
    "double that sticks out": "if (threadIdx.x == 40) ((double *)x)[n / 2] = 1; // HERE",
    "volatile read": "if (threadIdx.x == 40) x[2] = ((volatile int *)x)[n]; // HERE",
    "in a loop": "for (int k = threadIdx.x; k <= n; k += 64) if (threadIdx.x == 40) x[k + 26 - n % 2] = 1; // HERE",
}


@pytest.mark.parametrize("statement", GLOBAL.values(), ids=GLOBAL.keys())
def test_global_access_outside_an_array(run: Run, statement: str) -> None:
    source = f"__global__ void f(int *x, int n) {{\n\n    {statement}\n}}\n"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(65, np.int32), np.int32(65), block=(64,))
    assert caught.value.code == "out-of-bounds"
    assert caught.value.where == marked(source)
    assert caught.value.lane == THREAD_40


def test_message_names_the_access_the_place_and_the_thread(run: Run) -> None:
    source = "__global__ void f(float *x) { x[blockIdx.x * 8 + threadIdx.x] = 1; }"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(20, np.float32), grid=(4,), block=(8,))
    assert caught.value.lane == Lane((2, 0, 0), (4, 0, 0))
    text = str(caught.value)
    assert text.startswith("kernel.cu:1: ")
    assert "write" in text and "4 bytes" in text and text.endswith("first by block 2 thread 4")


def test_arrays_do_not_touch(device: Device) -> None:
    module = device.compile("__global__ void f(int *x, long long by) { x[by] = 1; }")
    first, second = device.array(np.zeros(8, np.int32)), device.array(np.zeros(8, np.int32))
    for by in (8, 9, 16, -1, -8, 64, 128):
        for array in (first, second):
            with pytest.raises(KernelFault, match="first by block 0 thread 0"):
                module.launch("f", (1,), (1,), [array, np.int64(by)])
    assert not first.get().any() and not second.get().any()


def test_element_sizes_that_end_inside_a_word(run: Run) -> None:
    source = "__global__ void f(unsigned char *x, int at) { x[at] = 7; }"
    bytes_ = np.zeros(37, np.uint8)
    run(source, bytes_, np.int32(36), block=(1,))
    assert bytes_[36] == 7
    with pytest.raises(KernelFault) as caught:
        run(source, bytes_, np.int32(37), block=(1,))
    assert caught.value.code == "out-of-bounds"


def test_array_in_three_dimensions_is_one_object(run: Run) -> None:
    cube = np.zeros((3, 4, 5), np.float64)
    run("__global__ void f(double *x) { x[59] = 1; }", cube, block=(1,))
    assert cube[2, 3, 4] == 1


SPACES = {
    "shared": "__shared__ int tile[40]; tile[threadIdx.x] = at; // HERE\n __syncthreads(); out[at] = tile[39 - at];",
    "shared byte": "__shared__ char tile[40]; tile[threadIdx.x] = at; // HERE\n __syncthreads(); out[at] = tile[5];",
    "shared read": "__shared__ int tile[40]; if (at > 9) tile[at] = 1;\n out[at] = tile[threadIdx.x]; // HERE",
    "shared atomic": "__shared__ int tile[40]; atomicAdd(&tile[threadIdx.x], 1); // HERE\n out[at] = tile[3];",
    "dynamic shared": (
        "extern __shared__ short some[]; some[threadIdx.x] = at; // HERE\n __syncthreads(); out[at] = some[1];"
    ),
    "dynamic shared through a pointer": (
        "extern __shared__ short some[]; short *p = at < 99 ? some : (short *)out;\n"
        " p[threadIdx.x] = at; // HERE\n __syncthreads(); out[at] = some[1];"
    ),
    "local": "int own[40]; for (int k = 0; k < 40; ++k) own[k] = k * at;\n"
    " own[threadIdx.x] = 3; // HERE\n out[at] = own[at] + own[at + 1];",
    "device variable": "out[at] = table[threadIdx.x]; // HERE",
    "device variable written": "table[threadIdx.x] = at; // HERE",
    "constant": "out[at] = fixed[threadIdx.x]; // HERE",
}


@pytest.mark.parametrize("body", SPACES.values(), ids=SPACES.keys())
def test_access_outside_an_object_of_40_elements(run: Run, body: str) -> None:
    source = (
        "__device__ int table[40];\n__constant__ int fixed[40] = {1, 2, 3};\n"
        f"__global__ void f(int *out, int at) {{\n {body}\n}}\n"
    )
    dynamic = 80 if "dynamic" in body or "some" in body else 0
    run(source, np.zeros(64, np.int32), np.int32(5), block=(40,), shared_bytes=dynamic)
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(64, np.int32), np.int32(5), block=(48,), shared_bytes=dynamic)
    assert caught.value.code == "out-of-bounds"
    assert caught.value.where == marked(source)
    assert caught.value.lane == THREAD_40


OVERRUNS = {
    "threads of a block": ("__shared__ int tile[256]; tile[t + 255] = t;", 1, "just past the end"),
    "the first skips some": ("__shared__ int tile[256]; if (t > 9) tile[t + 255] = t;", 10, "36 bytes past the end"),
    "the lowest thread is farthest": ("__shared__ int tile[256]; tile[511 - t] = t;", 0, "1020 bytes past the end"),
    "blocks": ("__shared__ int tile[256]; if (t == 9) tile[256 + blockIdx.x] = t;", 9, "just past the end"),
    "one behind, others before": ("__shared__ int tile[256]; tile[t ? 2 - t : 300] = t;", 0, "176 bytes past the end"),
    "one before, others behind": ("__shared__ int tile[256]; tile[t ? 300 + t : -1] = t;", 0, "before the start"),
    "a thread's own": (
        "int tile[256]; for (int k = 0; k < 256; ++k) tile[k] = k * out[k]; tile[t + 255] = 3;",
        1,
        "just past the end",
    ),
}


@pytest.mark.parametrize(("body", "thread", "far"), OVERRUNS.values(), ids=OVERRUNS.keys())
def test_the_distance_is_that_of_the_thread_that_is_named(run: Run, body: str, thread: int, far: str) -> None:
    source = f"__global__ void f(int *out) {{\n int t = threadIdx.x;\n {body}\n out[t] = tile[(t * 7) & 255];\n}}\n"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(256, np.int32), grid=(2,), block=(256,))
    assert caught.value.lane == Lane((0, 0, 0), (thread, 0, 0))
    assert f": {far} of the " in caught.value.what and caught.value.what.endswith("'s 1024 bytes")


MISALIGNED = {
    "int read": "out[0] = *(int *)(bytes + at); // HERE",
    "int written": "*(int *)(bytes + at) = 5; // HERE",
    "short": "out[0] = *(short *)(bytes + at); // HERE",
    "vector": "*(int4 *)(bytes + 7 * at + 1) = make_int4(1, 2, 3, 4); // HERE",
    "double": "*(double *)(bytes + at + 3) = 1; // HERE",
    "atomic": "atomicAdd((int *)(bytes + at), 1); // HERE",
    "shared": (
        "__shared__ int tile[8]; *(int *)((char *)tile + at) = out[0]; // HERE\n __syncthreads(); out[1] = tile[0];"
    ),
    "local": "int own[8]; for (int k = 0; k < 8; ++k) own[k] = at * k;\n"
    " *(volatile int *)((char *)own + at) = 1; // HERE\n out[1] = own[at];",
}


@pytest.mark.parametrize("body", MISALIGNED.values(), ids=MISALIGNED.keys())
def test_misaligned_access(run: Run, body: str) -> None:
    source = f"__global__ void f(char *bytes, int *out, int at) {{\n {body}\n}}\n"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(64, np.uint8), np.zeros(8, np.int32), np.int32(1), grid=(2,), block=(2,))
    assert caught.value.code == "misaligned"
    assert caught.value.where == marked(source)
    assert caught.value.lane == Lane((0, 0, 0), (0, 0, 0))


def test_fault_says_whose_header_line_and_keeps_what_was_printed(run: Run) -> None:
    source = '#include <cstdio>\n__global__ void f(int *x) { printf("before\\n"); x[9] = 1; }'
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(9, np.int32), block=(1,))
    assert caught.value.output == "before\n"

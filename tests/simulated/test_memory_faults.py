"""Accesses outside an object or off its alignment end the launch and are named with line, block and thread."""

from __future__ import annotations

from typing import Any

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


def test_a_thread_of_several_axes_has_the_index_of_each(run: Run) -> None:
    source = "__global__ void f(float *x) { x[(blockIdx.x + threadIdx.x) * 10] = 1; }"
    with pytest.raises(KernelFault, match=r"first by block \(z=0, y=0, x=1\) thread \(z=0, y=0, x=1\)$"):
        run(source, np.zeros(20, np.float32), grid=(2, 1, 2), block=(2, 2))


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


@pytest.mark.parametrize("write", ["p[n] = 1;", "atomicAdd(p + n, 1);"])
def test_a_write_to_constant_memory_through_a_pointer_stops_the_kernel(run: Run, write: str) -> None:
    hidden = (
        "unsigned long long at = (unsigned long long)(const int *)fixed; atomicExch(out, at); at = atomicExch(out, 0);"
    )
    body = f"{hidden} int *p = (int *)at;\n if (n) {write} // HERE\n *out = p[0];"
    source = f"__constant__ int fixed[4] = {{7}};\n__global__ void f(unsigned long long *out, int n) {{\n {body}\n}}\n"
    run(source, out := np.zeros(1, np.uint64), np.int32(0), block=(1,))
    assert out == [7]
    with pytest.raises(KernelFault, match="constant memory is read-only") as caught:
        run(source, out, np.int32(2), block=(1,))
    assert (caught.value.code, caught.value.where) == ("trap", marked(source))


OVERRUNS = {
    "threads of a block": ("__shared__ int tile[256]; tile[t + 255] = t;", 1, 256),
    "the first skips some": ("__shared__ int tile[256]; if (t > 9) tile[t + 255] = t;", 10, 265),
    "the lowest thread is farthest": ("__shared__ int tile[256]; tile[511 - t] = t;", 0, 511),
    "blocks": ("__shared__ int tile[256]; if (t == 9) tile[256 + blockIdx.x] = t;", 9, 256),
    "one behind, others before": ("__shared__ int tile[256]; tile[t ? 2 - t : 300] = t;", 0, 300),
    "one before, others behind": ("__shared__ int tile[256]; tile[t ? 300 + t : -1] = t;", 0, -1),
}


@pytest.mark.parametrize(("body", "thread", "index"), OVERRUNS.values(), ids=OVERRUNS.keys())
def test_the_element_is_that_of_the_thread_that_is_named(run: Run, body: str, thread: int, index: int) -> None:
    source = f"__global__ void f(int *out) {{\n int t = threadIdx.x;\n {body}\n out[t] = tile[(t * 7) & 255];\n}}\n"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(256, np.int32), grid=(2,), block=(256,))
    assert caught.value.lane == Lane((0, 0, 0), (thread, 0, 0))
    assert caught.value.what.endswith(f": `tile[{index}]` written, `tile` has 256 elements")


def fault_of(run: Run, body: str, *arguments: Any, **launch: Any) -> str:
    """Return the sentence after the kind of access, of a kernel that must end with a memory fault."""
    head = "__device__ int table[40];\n__constant__ float2 vectors[8];\n"
    parameters = "int *out, const float *in, unsigned n"
    source = f"{head}__global__ void f({parameters}) {{\n unsigned t = threadIdx.x;\n {body}\n}}\n"
    arguments = arguments or (np.zeros(64, np.int32), np.zeros(32, np.float32), np.uint32(7))
    with pytest.raises(KernelFault) as caught:
        run(source, *arguments, **{"block": (64,), **launch})
    assert caught.value.location is not None
    return caught.value.what.partition(": ")[2]


NAMED = {
    "static variable": ("out[0] = table[t];", "`table[40]` read, `table` has 40 elements"),
    "constant": ("out[0] = vectors[t].y;", "`vectors[17]` read, `vectors` has 16 elements"),
    "second of two": (
        "__shared__ int a[32], b[32]; b[n + 30] = 1; a[t & 31] = n; __syncthreads(); out[t] = a[5] + b[3];",
        "`b[37]` written, `b` has 32 elements",
    ),
    "first of two": (
        "__shared__ int a[32], b[32]; a[n + 25 + t / 63] = 1; b[t & 31] = n; __syncthreads(); out[t] = a[5] + b[3];",
        "`a[32]` written, `a` has 32 elements",
    ),
    "before the second of two": (
        "__shared__ int a[32], b[32]; b[t & 31] = n; a[t & 31] = b[t % 32 - 1]; __syncthreads(); out[t] = a[5];",
        "`b[-1]` read, `b` has 32 elements",
    ),
    "dynamic before its start": (
        "extern __shared__ int some[]; __shared__ int a[32]; a[t & 31] = n; some[n - 8] = 1; out[t] = a[5];",
        "`some[-1]` written, but the kernel is launched without dynamic shared memory",
    ),
    "atomic on another array": (
        "__shared__ int a[32], b[32]; b[t & 31] = n; atomicAdd(a + n + 25, 1); __syncthreads(); out[t] = a[5] + b[3];",
        "`a[32]` changed by an atomic, `a` has 32 elements",
    ),
    "far before": ("__shared__ short s[96]; s[t - 9 * n] = 1; __syncthreads(); out[t] = s[5];",
                   "`s[-63]` written, `s` has 96 elements"),
    "wider than the element": (
        "__shared__ float4 s[16]; s[t] = make_float4(t, t, t, t); __syncthreads(); out[t] = s[5].x;",
        "`s[64]` to `s[67]` written, `s` has 64 elements",
    ),
    "atomic": ("__shared__ int s[8]; atomicAdd(&s[t], 1); __syncthreads(); out[t] = s[2];",
               "`s[8]` changed by an atomic, `s` has 8 elements"),
    "no dynamic": (
        "extern __shared__ int some[]; some[t] = 1; __syncthreads(); out[t] = some[5];",
        "`some[0]` written, but the kernel is launched without dynamic shared memory",
    ),
    "a thread's own": (
        "int own[64]; for (int k = 0; k < 64; ++k) own[k] = k * out[k]; own[t + 60] = 3; out[t] = own[(t * 7) & 63];",
        "just past the end of a thread's own 256 bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "said"), NAMED.values(), ids=NAMED.keys())
def test_a_variable_is_reported_with_name_index_and_length(run: Run, body: str, said: str) -> None:
    assert fault_of(run, body) == said


EITHER = {
    "chosen": "int *p = n ? b : a; out[t] = p[t];",
    "exchanged in a loop": (
        "int *p = a, *q = b; for (int k = 0; k < n; k++) { int *r = p; p = q; q = r; } out[t] = p[t];"
    ),
    "returned by a function": "out[t] = pick(a, b, n)[t];",
    "from a thread's own array": "int *all[4] = {a, b, b, a}; volatile int k = n; out[t] = all[k][t];",
    "from shared memory": "__shared__ int *p; if (t == 0) p = n ? b : a; __syncthreads(); out[t] = p[t];",
    "from another lane": (
        "unsigned long long p = (unsigned long long)(t % 32 ? a : b);"
        " p = __shfl_sync(~0u, p, 0); out[t] = ((int *)p)[t];"
    ),
    "as a number in memory": (
        "__shared__ unsigned at[2]; at[0] = __cvta_generic_to_shared(a); at[1] = __cvta_generic_to_shared(b);"
        ' int v; asm volatile("ld.shared.s32 %0, [%1];" : "=r"(v) : "r"(at[n] + 4 * t)); out[t] = v;'
    ),
}


@pytest.mark.parametrize("body", EITHER.values(), ids=EITHER.keys())
def test_a_pointer_to_either_of_two_shared_arrays_may_reach_both(run: Run, body: str) -> None:
    """The second one is longer: an address that only seems to be of the first one would be out of its bounds."""
    pick = "__device__ __noinline__ int *pick(int *a, int *b, int n) { return n ? b : a; }"
    source = f"""{pick}
        __global__ void f(int *out, int n) {{
            __shared__ int a[32], b[64];
            int t = threadIdx.x;
            a[t & 31] = 1;
            b[t] = t;
            __syncthreads();
            {body}
        }}"""
    out = np.zeros(64, np.int32)
    run(source, out, np.int32(1), block=(64,))
    assert (out == np.arange(64)).all()


ARRAYS = {
    "below zero": ("out[t] = in[t - 1];", 1, -4),
    "unsigned below zero": ("out[t] = in[blockIdx.x - 1];", 1, -4),
    "far behind": ("out[(1 << 22) + t] = 1;", 0, 1 << 24),
    "where another array lies": ("out[t + (1 << 20)] = in[t & 31];", 0, 1 << 22),
    "through a device function's pointer": ("const float *p = in; for (int k = 0; k < 40; ++k) out[t] = *p++;", 1, 128),
}


@pytest.mark.parametrize(("body", "parameter", "offset"), ARRAYS.values(), ids=ARRAYS.keys())
def test_an_array_is_the_one_that_the_pointer_was_made_of(run: Run, body: str, parameter: int, offset: int) -> None:
    source = f"__global__ void f(int *out, const float *in, unsigned n) {{ unsigned t = threadIdx.x; {body} }}"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(64, np.int32), np.zeros(32, np.float32), np.uint32(7), block=(64,))
    place = caught.value.location
    assert place is not None
    assert (place.parameter, place.offset, place.nbytes) == (parameter, offset, (256, 128)[parameter])


def test_a_null_pointer_is_none_of_the_arrays(run: Run) -> None:
    source = "__global__ void f(int **table) { table[0][threadIdx.x] = 1; }"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(4, np.uint64), block=(32,))
    assert caught.value.what.endswith(": the address is a null pointer or close to one")


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


def test_a_misaligned_access_has_its_elements_and_its_byte(run: Run) -> None:
    source = "__global__ void f(int *x) {\n __shared__ int tile[8]; *(int4 *)(tile + threadIdx.x + 1) = *(int4 *)x; }"
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(8, np.int32), block=(2,))
    place = caught.value.location
    assert place is not None and (place.symbol, place.offset, place.size) == ("tile", 4, 16)
    what = "the address is misaligned: `tile[1]` to `tile[4]` written at once, byte 4 is no multiple of 16"
    assert caught.value.what.endswith(what)


def test_fault_has_its_header_line_and_the_output_so_far(run: Run) -> None:
    source = '#include <cstdio>\n__global__ void f(int *x) { printf("before\\n"); x[9] = 1; }'
    with pytest.raises(KernelFault) as caught:
        run(source, np.zeros(9, np.int32), block=(1,))
    assert caught.value.output == "before\n"

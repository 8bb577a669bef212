"""Messages of ptxas about too much memory, and their rewording."""

from __future__ import annotations

import pytest

from pytest_gpulab.devices.compiler.machine_code import compile_machine_code
from pytest_gpulab.devices.compiler.static_limits import with_plain_words
from pytest_gpulab.devices.protocol import CompileError
from pytest_gpulab.devices.simulated import SimulatedDevice

SHARED = """__global__ void first(float *p) { p[0] = 1; }
__global__ void second(float *p) {
    __shared__ float tile[100][150];
    __shared__ int flags[8];
    tile[threadIdx.x][0] = p[0]; // FIRST USE
    flags[threadIdx.x & 7] = threadIdx.x;
    __syncthreads();
    p[0] = tile[int(p[1])][0] + flags[int(p[2]) & 7];
}"""
IN_FUNCTION = """__shared__ float a[8000];
__shared__ float b[7999];
__shared__ float never[8000];
__device__ __noinline__ float of(int i) { return a[i]; }
__global__ void fits(float *p) { b[threadIdx.x] = p[0]; __syncthreads(); p[0] = b[int(p[1])]; }
__global__ void second(float *p) {
    a[threadIdx.x] = b[threadIdx.x] = p[0];
    __syncthreads();
    p[0] = of(p[1]) + b[int(p[2])];
}"""
CONSTANT = """__constant__ float c[16000];
__constant__ double d[100];
__constant__ char e[3000];
__global__ void second(float *p) { p[0] = c[int(p[1])] + d[int(p[1])] + e[int(p[1])]; }"""
LOCAL = """__global__ void second(float *p) {
    float own[150000];
    for (int i = 0; i < 150000; ++i) own[i] = p[i];
    p[0] = own[int(p[1])];
}"""
NEEDS = {
    "shared": (
        SHARED, "kernel.cu(5): ", "`tile` and `flags`", "`second`",
        "60,032 bytes of shared memory; the limit per block", "49,152",
    ),
    "function": (
        IN_FUNCTION, "kernel.cu(", "`a` and `b`", "`second`",
        "63,996 bytes of shared memory; the limit per block", "49,152",
    ),
    "constant": (
        CONSTANT, "kernel.cu: ", "`c`, `e` and `d`", "the file",
        "67,800 bytes of constant memory; the limit per file", "65,536",
    ),
    "local": (LOCAL, "kernel.cu: ", "`second`", None, "600,000 bytes of local memory; the limit per thread", "524,288"),
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDS)
def test_the_simulated_gpu_refuses_what_the_assembler_refuses_with_the_arrays(name: str) -> None:
    source, place, arrays, _, needs, most = NEEDS[name]
    with pytest.raises(CompileError) as caught:
        SimulatedDevice().compile(source)
    message = caught.value.diagnostics
    assert message.startswith(place)
    assert message.endswith(f"{needs} is {most}")
    assert f": error: {arrays} need" in message


@pytest.mark.parametrize("name", [name for name in NEEDS if name != "local"])
def test_the_assemblers_message_is_reworded(name: str) -> None:
    source, _, _, owner, needs, most = NEEDS[name]
    with pytest.raises(CompileError) as caught:
        compile_machine_code(source, "kernel.cu", "sm_90")
    first, *rest = caught.value.diagnostics.splitlines()
    assert first == f"kernel.cu: error: {owner} needs {needs} is {most}"
    assert any("ptxas error" in line for line in rest)


def test_other_words_stay_as_they_are() -> None:
    assert with_plain_words("kernel.cu(3): error: no", "kernel.cu") == "kernel.cu(3): error: no"


def test_kernels_within_the_limits_compile() -> None:
    source = """__constant__ float c[16384];
    __global__ void k(float *p) {
        __shared__ float tile[12288];
        tile[threadIdx.x] = p[0] + c[int(p[1])];
        __syncthreads();
        p[0] = tile[int(p[1])];
    }"""
    assert SimulatedDevice().compile(source).kernels == ("k",)

"""Kernels that are called as ordinary functions: nvcc refuses them, and so does NVRTC's output here."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from any_nvcc import by_nvcc, needs_nvcc

from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.protocol import CompileError

KERNEL = "__global__ void add(int *p) { *p += 1; }\n"
REFUSED = (
    f"{KERNEL}__global__ void k(int *p) {{ add(p); }}",
    f"{KERNEL}__device__ void f(int *p) {{ if (*p) return add(p); add(p); }}\n__global__ void k(int *p) {{ f(p); }}",
    "template <int N> __global__ void add(int *p) { *p += N; }\n__global__ void k(int *p) { add<2>(p); }",
)
ACCEPTED = (
    f"{KERNEL}struct S {{ int *p; __device__ void add(int n) {{ *p += n; }} }};\n"
    "__global__ void k(int *p) { S s{p}; s.add(2); }",
    f"{KERNEL}__global__ void k(int *p) {{ auto add = [](int a) {{ return a + 1; }}; *p = add(2); }}",
    f"{KERNEL}namespace n {{ __device__ int add(int a) {{ return a + 1; }} }}\n"
    "__global__ void k(int *p) { *p = n::add(2); }",
    "__global__ void add(int *p);\n__global__ void k(int *p) { int add = *p; *p = (add); }\n"
    "__global__ void add(int *p) { *p = 1; }",
)


@pytest.mark.parametrize("source", REFUSED)
def test_a_kernel_that_is_called_as_a_function_is_refused(source: str) -> None:
    with pytest.raises(CompileError, match=r"^a\.cu\(2\): error: a __global__ function call must be configured"):
        nvrtc.compile_ptx(source, "a.cu", "compute_90")


@pytest.mark.parametrize("source", ACCEPTED)
def test_another_function_may_have_a_kernels_name(source: str) -> None:
    nvrtc.compile_ptx(source, "a.cu", "compute_90")


@needs_nvcc
def test_nvcc_gives_the_same_answers(tmp_path: Path) -> None:
    refused = by_nvcc(tmp_path, in_namespaces(REFUSED)).stderr
    assert refused.count("error: a __global__ function call must be configured") == 4
    accepted = by_nvcc(tmp_path, in_namespaces(ACCEPTED))
    assert accepted.returncode == 0, accepted.stderr


def in_namespaces(sources: Iterable[str]) -> str:
    return "\n".join(f"namespace n{number} {{ {source} }}" for number, source in enumerate(sources))

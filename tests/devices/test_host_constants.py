"""Constants of the host in kernels: their values may be used, the variables cannot be read, as with nvcc."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from any_nvcc import by_nvcc, needs_nvcc

from pytest_gpulab.devices.compiler import nvrtc, nvrtc_program
from pytest_gpulab.devices.protocol import CompileError


@pytest.mark.parametrize(
    "array", ["static const int t[3]", "const int t[]", "constexpr int t[3]", "namespace a { const int t[3]"]
)
@pytest.mark.parametrize("read", ["t[i % 3]", "t[1]"])
def test_kernels_cannot_read_constant_arrays_of_hosts(array: str, read: str) -> None:
    """As with nvcc; what a compiler needs at compile time it may have."""
    close = " } using a::t;" if "namespace" in array else ""
    source = f"{array} = {{1, 2, 3}};{close}\n__global__ void k(int *p, int i)\n{{\n    p[0] = {read};\n}}\n"
    with pytest.raises(CompileError, match=r'^a\.cu\(4\): error: identifier "t" is undefined in device code$'):
        nvrtc.compile_ptx(source, "a.cu", "compute_90")
    nvrtc.compile_ptx(source.replace("static ", "").replace("const", "__constant__ const", 1), "a.cu", "compute_90")


REFERENCES = {
    "a local reference": "const int m = 4;\n__global__ void k(int *p) { const int &r = m; *p = r; }",
    "of a class": "struct C { static constexpr int m = 4; };\n__global__ void k(int *p) { auto &r = C::m; *p = r; }",
    "an argument": "constexpr int m = 4; __device__ int g(const int &a) { return a; }\n"
    "__global__ void k(int *p) { *p = g(m); }",
    "of a template": "constexpr int m = 4;\n__global__ void k(int *p) { *p = std::max(m, *p); }",
    "in a shuffle": "const int m = 4;\n__global__ void k(int *p) { *p = __shfl_sync(-1, std::max(m, *p), 0); }",
    "in a namespace": "namespace a { const int m = 4; }\n__global__ void k(int *p) { *p = std::min(a::m, *p); }",
    "in a class": "struct C { static constexpr int m = 4; };\n__global__ void k(int *p) { *p = std::min(C::m, *p); }",
    "of a pointer": "const int m = 4;\n__global__ void k(const int **p) { *p = &m; }",
    "of a default argument": "const int m = 4; __device__ int g(const int &a = m) { return a; }\n"
    "__global__ void k(int *p) { *p = g(); }",
    "of a constructor": "constexpr int m = 4; struct P { int a; __device__ P(const int &b) : a(b) {} };\n"
    "__global__ void k(P *p) { *p = P{m}; }",
}
GPULAB_HEADER = "#include <gpulab.cuh>\n"
VALUES = (
    "const float pi = 3.14f, m = 2 * pi;\n__global__ void k(float *p) { *p = m + pi; }",
    "static const double pi = 3.14; float const two = pi * 2;\nconst int m = two + 1; const int n = m * 2;\n"
    "__global__ void k(int *p) { __shared__ int a[n]; *p = a[0] = m; }",
    "const int m = 4;\n__global__ void k(int *p) { int x = m, y(m); *p = max(x, m) + min(m, y) + p[m]; p[1] = m; }",
    "constexpr int m = 4;\n__global__ void k(int *p) { int a[2] = {m, m}; atomicAdd(p, m); *p = a[p[1]]; }",
    "struct C { static constexpr int m = 4; };\n__global__ void k(int *p) { int x = C::m; *p = max(C::m, x); }",
    "__device__ constexpr int m = 4;\n__global__ void k(int *p) { *p = std::max(m, *p); }",
    "constexpr int m = -1;\n__global__ void k(int *p) { *p = __shfl_sync(m, *p, __any_sync(m, *p)); }",
    f"{GPULAB_HEADER}GPULAB_TUNABLE(m, 4) __global__ void k(int *p) {{ const int &r = m; *p = std::max(r, m); }}",
)


@pytest.mark.parametrize("source", REFERENCES.values(), ids=REFERENCES.keys())
def test_no_reference_of_a_kernel_is_bound_to_a_constant_of_the_host(source: str) -> None:
    with pytest.raises(CompileError, match=r'^a\.cu\(2\): error: identifier "m" is undefined in device code$'):
        nvrtc.compile_ptx(source, "a.cu", "compute_90")


@pytest.mark.parametrize("source", VALUES)
def test_kernels_may_use_the_values_of_constants(source: str) -> None:
    nvrtc.compile_ptx(source, "a.cu", "compute_90")


def test_a_constant_mask_of_lanes_needs_no_second_compilation() -> None:
    """An address is looked for in code without optimisation, which takes as long as the code itself."""
    asked: list[nvrtc_program.Request] = []

    def run(request: nvrtc_program.Request) -> nvrtc_program.Answer:
        asked.append(request)
        return nvrtc_program.compiled(request)

    source = "constexpr int m = -1;\n__global__ void k(int *p) { *p = __shfl_down_sync(m, *p, 1); __syncwarp(m); }"
    nvrtc.compile_ptx(source, "a.cu", "compute_90", run=run)
    assert len(asked) == 1


def in_namespaces(sources: Iterable[str]) -> str:
    """Return one file of several; what each includes is included before all."""
    parts = (source.removeprefix(GPULAB_HEADER) for source in sources)
    return GPULAB_HEADER + "\n".join(f"namespace n{number} {{ {part} }}" for number, part in enumerate(parts))


@needs_nvcc
def test_nvcc_says_the_same_of_constants(tmp_path: Path) -> None:
    accepted = by_nvcc(tmp_path, in_namespaces(VALUES))
    assert accepted.returncode == 0, accepted.stderr
    text = in_namespaces(REFERENCES.values())
    message = r'\((\d+)\): error: identifier "(?:\w+::)+m" is undefined in device code'
    found = re.findall(message, by_nvcc(tmp_path, text).stderr)
    assert [int(line) for line in found] == [
        number for number, line in enumerate(text.splitlines(), 1) if line.startswith("__global__")
    ]


def test_constant_arrays_may_be_used_at_compile_time() -> None:
    kernel = "__global__ void k(int *p) { __shared__ int s[t[1]]; p[0] = s[0] = 1; }"
    nvrtc.compile_ptx(f"constexpr int t[3] = {{1, 2, 3}};\n{kernel}", "a.cu", "compute_90")

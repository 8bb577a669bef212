"""Hostile submissions, as changes to a correct solution: against compilers, files, the GPU, reports."""

from __future__ import annotations

import re
from collections.abc import Callable

Harm = Callable[[str], str]

SECRET = "SECRET-OF-ANOTHER-STUDENT"
"""Part of what every other student's source and the planted files say: it must show up in nobody's findings."""


def _in_kernel(statement: str) -> Harm:
    """Do it as the first thing in every kernel."""
    return lambda right: re.sub(r"(__global__[^;{]*\{)", lambda found: f"{found[1]} {statement}\n", right)


def _before(text: str) -> Harm:
    """Have it in front of all else but the shipped header."""
    return lambda right: right.replace("#include <gpulab.cuh>", f"#include <gpulab.cuh>\n{text}", 1)


def _include(operand: str) -> Harm:
    return _before(f"#include {operand}")


_BOMB = """template <int D, int I> __device__ int bomb() {
    if constexpr (D == 0) return I;
    else return bomb<D - 1, 2 * I>() + bomb<D - 1, 2 * I + 1>();
}
__global__ void boom(int *out) { *out = bomb<26, 1>(); }"""
_DEEP = """template <int N> struct Deep { enum { value = Deep<N - 1>::value + 1 }; };
template <> struct Deep<0> { enum { value = 0 }; };
__device__ int deep = Deep<100000>::value;"""
_CONSTEXPR = """__device__ constexpr long endless(long m) { long n = 1; while (n < m) n = 3 - n; return n; }
__device__ long never = endless(9);"""
_BILLION = "\n".join(
    ["#define X0 0 + 0", *(f"#define X{k} X{k - 1} + X{k - 1}" for k in range(1, 31)), "__device__ int x = X30;"]
)

COMPILERS: dict[str, Harm] = {
    "template bomb": _before(_BOMB),
    "deep template": _before(_DEEP),
    "endless constexpr": _before(_CONSTEXPR),
    "billion laughs": _before(_BILLION),
    "deep brackets": _before(f"__device__ int nested = {'(' * 50_000}1{')' * 50_000};"),
    "includes itself": _include("__FILE__"),
    "unrolled for ever": _in_kernel('\n#pragma unroll 1000000\nfor (int k = 0; k < 1000000; ++k) asm volatile("");'),
    "one long name": _before(f"__device__ int {'a' * 500_000};"),
    "gigantic device array": _before("__device__ double gigantic[1ull << 36];"),
    "gigantic shared array": _in_kernel("__shared__ volatile double gigantic[1 << 24]; gigantic[threadIdx.x] = 1;"),
    "gigantic local array": _in_kernel("volatile int gigantic[1 << 26]; gigantic[threadIdx.x] = 1;"),
}
FILES: dict[str, Harm] = {
    "includes a system file": _include('"/etc/passwd"'),
    "includes a device": _include("</dev/zero>"),
    "includes a neighbour": _include('"../student000/constant_memory.cu"'),
    "includes a planted file": _include('"secret.cuh"'),
    "includes by macro": _before("#define WHERE </etc/passwd>\n#include WHERE"),
    "embeds a system file": _before('__device__ const char text[] = {\n#embed "/etc/passwd"\n};'),
}
GPU: dict[str, Harm] = {
    "endless loop": _in_kernel('while (*(volatile unsigned *)&out[0], true) { asm volatile(""); }'),
    "printf flood": _in_kernel('for (int k = 0; k < 100000; ++k) printf("passed 100/100 \\033[2J<script>%d\\n", k);'),
    "trap": _in_kernel("__trap();"),
    "writes everywhere": _in_kernel(
        "for (unsigned long long k = 1; k; k <<= 1) *((volatile char *)out + k * 4096) = 1;"
    ),
    "null pointer": _in_kernel("*(volatile int *)0 = 1;"),
    "barrier for some": _in_kernel("if (threadIdx.x % 2) __syncthreads();"),
    "unknown instruction": _in_kernel('asm volatile("barrier.cluster.arrive; barrier.cluster.wait;");'),
    "broken assembly": _in_kernel('asm volatile("this is no instruction;");'),
    "asks for all memory": _in_kernel("for (;;) if (void *p = malloc(1 << 30)) *(volatile char *)p = 1;"),
}
REPORTS: dict[str, Harm] = {
    "says so itself": _before('#error "\x1b[32m100/100 passed</td><script>alert(1)</script>"'),
    "pretends another line": _before('#line 1 "</pre><b>student000/reduction.cu"\nint broken'),
}
HARMS = COMPILERS | FILES | GPU | REPORTS
QUICK = ("endless loop", "trap", "null pointer", "barrier for some", "says so itself", "includes itself", *FILES)
"""Those that a grader is done with in a second or two."""

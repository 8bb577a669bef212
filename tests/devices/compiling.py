"""Texts and limits that tests of the compiler's process share."""

from pytest_gpulab.devices.compiler.limits import Limits

KERNEL = (
    '#include <gpulab.cuh>\n#include "own.cuh"\n__global__ void f(int *p) { p[threadIdx.x] = OWN + WHAT; int x; }\n'
)
HEADERS, DEFINES = {"own.cuh": "#define OWN 7\n"}, {"WHAT": "1"}
TIGHT = Limits(nvrtc_bytes=1 << 30, compile_s=1, output_bytes=4000)
MAY = r"\); the limits are 1 s \(90 s for all variants\), 1 GiB of memory and 0\.00381 MiB of output"
# a template tree that takes hours: it doubles with each level
TREE = """template <int N, int M> struct A { static const long v = A<N - 1, M>::v + A<N - 1, M + (1 << N)>::v; };
template <int M> struct A<0, M> { static const long v = M; };
__device__ long x = A<28, 0>::v;
"""
SMALL = "__global__ void f() {}\n"

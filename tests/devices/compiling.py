"""Texts, limits and helpers that tests of the compiler's process share."""

import time
from pathlib import Path

from hang_guard import HANG_S

from pytest_gpulab.devices.compiler import nvrtc
from pytest_gpulab.devices.compiler.compiler_process import CompilerProcess
from pytest_gpulab.devices.compiler.sandbox import Limits

KERNEL = (
    '#include <gpulab.cuh>\n#include "own.cuh"\n__global__ void f(int *p) { p[threadIdx.x] = OWN + WHAT; int x; }\n'
)
HEADERS, DEFINES = {"own.cuh": "#define OWN 7\n"}, {"WHAT": "1"}
TIGHT = Limits(nvrtc_bytes=1 << 30, compile_s=1, output_bytes=4000)
MAY = r"\); the limits are 1 s \(45 s for all variants\), 1 GiB of memory and 0\.00381 MiB of output"
# a template tree that takes hours: it doubles with each level
TREE = """template <int N, int M> struct A { static const long v = A<N - 1, M>::v + A<N - 1, M + (1 << N)>::v; };
template <int M> struct A<0, M> { static const long v = M; };
__device__ long x = A<28, 0>::v;
"""
SMALL = "__global__ void f() {}\n"


def compiled(compiler: CompilerProcess, source: str) -> str:
    return nvrtc.compile_ptx(source, "a.cu", "compute_90", run=compiler.compiled)[0]


def processes_of(group: int) -> list[str]:
    """Return what runs in a process's session."""
    ids = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = []
    for entry in ids:
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == group and fields[0] != "Z":
            found.append(entry.name)
    return found


def gone(group: int, limit_s: float = HANG_S) -> bool:
    until_s = time.monotonic() + limit_s
    while processes_of(group) and time.monotonic() < until_s:
        time.sleep(0.02)
    return not processes_of(group)

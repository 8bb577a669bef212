"""The source of a fast Fourier transform in the registers of one thread, unrolled to one long basic block."""

from __future__ import annotations

import cmath


def source(points: int) -> str:
    """Return a kernel `fft(float *x, int stride)` that transforms `points` (a power of 2) complex numbers in place."""
    bits = points.bit_length() - 1
    order = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(points)]
    lines = [f"float r{i} = x[{2 * j} * s + t], i{i} = x[{2 * j + 1} * s + t];" for i, j in enumerate(order)]
    for size in (2 << stage for stage in range(bits)):
        for base in range(0, points, size):
            lines += [_butterfly(base + k, size, k) for k in range(size // 2)]
    lines += [f"x[{2 * i} * s + t] = r{i}; x[{2 * i + 1} * s + t] = i{i};" for i in range(points)]
    return "__global__ void fft(float *x, int s) {\nint t = threadIdx.x;\n" + "\n".join(lines) + "\n}\n"


def _butterfly(a: int, size: int, k: int) -> str:
    factor, b = cmath.exp(-2j * cmath.pi * k / size), a + size // 2
    cosine, sine = f"{factor.real:.9e}f", f"{factor.imag:.9e}f"
    return (
        f"{{ float u = r{b} * {cosine} - i{b} * {sine}, v = r{b} * {sine} + i{b} * {cosine};"
        f" r{b} = r{a} - u; i{b} = i{a} - v; r{a} += u; i{a} += v; }}"
    )

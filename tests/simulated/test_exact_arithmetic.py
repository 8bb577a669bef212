"""Fused multiply-add against exact rational arithmetic, where rounding twice would show (Fraction, then rounded once)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from places import Run
from truth_values import Array, fractions, noise

FORMATS = {"f32": (np.float32, 24, -149), "f64": (np.float64, 53, -1074)}


def rounded(value: Fraction, mode: str, digits: int, lowest: int) -> float:
    """Return the number of `digits` binary digits, none below 2**lowest, next to the value in a direction of IEEE 754."""
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - digits + 1, lowest)
    below, rest = divmod(size, unit)
    away = {
        "rn": rest * 2 > unit or (rest * 2 == unit and below % 2 == 1),
        "rz": False,
        "rm": rest > 0 and value < 0,
        "rp": rest > 0 and value > 0,
    }[mode]
    return math.copysign(float((below + away) * unit), value)


def hard_cases(dtype: type[np.floating], digits: int) -> tuple[Array, Array, Array]:
    """Return operands of a * b + c whose sum lies a hair beside a tie, or beside a representable number."""
    count = 1500
    bits = noise(3 * count, 70).reshape(3, count)
    unit = 2.0 ** (1 - digits)
    a = 1 + (bits[0] % np.uint64(8)).astype(np.float64) * unit
    b = 1 - (bits[1] % np.uint64(8)).astype(np.float64) * (unit / 2)
    c = 1 + (bits[2] % np.uint64(16)).astype(np.float64) * unit
    scale = 2.0 ** -(digits + (bits[0] >> np.uint64(60)).astype(np.float64) - 2)
    sign = np.where(bits[1] >> np.uint64(63), 1.0, -1.0)
    a[::3], c[::3] = (
        1 + fractions(count, 71)[::3],
        (2 * fractions(count, 72)[::3] - 1) * 2.0 ** (np.arange(0, count, 3) % 9),
    )
    return (a * scale).astype(dtype), (b * sign).astype(dtype), c.astype(dtype)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("width", FORMATS)
def test_fused_multiply_add_rounds_once(run: Run, width: str, mode: str) -> None:
    dtype, digits, lowest = FORMATS[width]
    a, b, c = hard_cases(dtype, digits)
    out = np.zeros_like(a)
    c_type, register = ("float", "f") if width == "f32" else ("double", "d")
    source = f"""
    __global__ void f(const {c_type} *a, const {c_type} *b, const {c_type} *c, {c_type} *out) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        asm volatile("fma.{mode}.{width} %0, %1, %2, %3;"
                     : "={register}"(out[i]) : "{register}"(a[i]), "{register}"(b[i]), "{register}"(c[i]));
    }}"""
    run(source, a, b, c, out, grid=(15,), block=(100,))
    for x, y, z, got in zip(a.tolist(), b.tolist(), c.tolist(), out.tolist(), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        assert got == rounded(exact, mode, digits, lowest), (x, y, z)


def test_cases_are_hard_for_double_rounding() -> None:
    """Without cases in which float64 as an intermediate goes wrong, the test above would prove little."""
    a, b, c = (x.astype(np.float64) for x in hard_cases(np.float32, 24))
    twice = (a * b + c).astype(np.float32)
    once = [rounded(Fraction(x) * Fraction(y) + Fraction(z), "rn", 24, -149) for x, y, z in zip(a, b, c, strict=True)]
    assert (twice != np.array(once, np.float32)).sum() > 20

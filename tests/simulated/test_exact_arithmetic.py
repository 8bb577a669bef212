"""Fused multiply-add against exact rational arithmetic, where rounding twice would show."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from places import Run
from truth_values import Array, fractions

FORMATS = {"f32": (np.float32, 24, -149), "f64": (np.float64, 53, -1074)}


def rounded(value: Fraction, mode: str, digits: int, lowest: int) -> float:
    """Return the number of `digits` binary digits, none below 2**lowest, that IEEE 754 takes for an exact value."""
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
    unit = 2.0 ** (1 - digits)
    steps, even = (np.floor(fractions(count, salt) * 16) for salt in (70, 71))
    sign = np.where(fractions(count, 72) < 0.5, -1.0, 1.0)
    scale = 2.0 ** -(digits + np.arange(count) // 2 % 3)  # times a * b = 1 - (steps * unit)**2: just below half a unit
    a, b, c = (1 + steps * unit) * scale, (1 - steps * unit) * sign, 1 + even * unit
    c[::5] = (2 * fractions(count, 73)[::5] - 1) * 2.0 ** (np.arange(0, count, 5) % 9)
    return a.astype(dtype), b.astype(dtype), c.astype(dtype)


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

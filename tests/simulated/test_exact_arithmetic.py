"""Fused multiply-add against exact rational arithmetic, where rounding twice would show."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from places import Run
from truth_values import Array, fractions

from pytest_gpulab.devices.simulated.arithmetic import rounding

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


def fused(x: float, y: float, z: float, digits: int, lowest: int, largest: float) -> float:
    """Return x * y + z as IEEE 754 defines it, special values and the signs of zeros included."""
    if not all(map(math.isfinite, (x, y, z))):
        if not (math.isfinite(x) and math.isfinite(y)):
            is_invalid = 0 in (x, y) or math.isnan(x) or math.isnan(y)
            return math.nan if is_invalid else math.copysign(1, x) * math.copysign(math.inf, y) + z
        return z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    sign = math.copysign(1, x) * math.copysign(1, y)
    if exact == 0:
        return math.copysign(0.0, sign) if sign == math.copysign(1, z) else 0.0
    scale = 4 if abs(exact) > 1 else 1  # so that what is beyond the largest number has room
    size = min(abs(exact), Fraction(largest) * 5 / 4) / scale
    result = rounded(size, "rn", digits, lowest)
    return math.copysign(math.inf if result > largest / scale else result * scale, 1 if exact > 0 else -1)


def special_values(dtype: type[np.floating]) -> list[float]:
    facts = np.finfo(dtype)
    tiny, least, one = float(facts.tiny), float(facts.smallest_subnormal), 1.0
    above = float(np.nextafter(dtype(one), dtype(2)))
    positive = [0.0, one, above, 1.5, 2.0**-25, 2.0**-54, tiny, tiny - least, least, 3 * least, 2.0**-70 * above]
    return [sign * x for x in (*positive, float(facts.max), math.inf) for sign in (1, -1)] + [math.nan]


@pytest.mark.parametrize("width", FORMATS)
def test_special_values_in_a_wave_of_others(run: Run, width: str) -> None:
    """Zeros of both signs, subnormal and huge numbers, infinities and NaNs share warps with ordinary numbers."""
    dtype, digits, lowest = FORMATS[width]
    edges = special_values(dtype)
    a, b, c = (x.ravel().astype(dtype) for x in np.meshgrid(edges, edges, edges))
    out = np.zeros_like(a)
    c_type, name = ("float", "fmaf") if width == "f32" else ("double", "fma")
    source = f"""
    __global__ void f(const {c_type} *a, const {c_type} *b, const {c_type} *c, {c_type} *out) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < {a.size}) out[i] = {name}(a[i], b[i], c[i]);
    }}"""
    run(source, a, b, c, out, grid=(-(-a.size // 256),), block=(256,))
    largest = float(np.finfo(dtype).max)
    for x, y, z, got in zip(a.tolist(), b.tolist(), c.tolist(), out.tolist(), strict=True):
        expected = fused(x, y, z, digits, lowest, largest)
        same = got == expected and math.copysign(1, got) == math.copysign(1, expected)
        assert same or (math.isnan(got) and math.isnan(expected)), (x, y, z, got, expected)


def test_a_subnormal_sum_that_float64_lifts_to_the_smallest_normal_number(run: Run) -> None:
    """38737 * 1774001 is 2**36 + 1: the exact sum is a hair below the middle between two float32."""
    a, b, c = (np.full(64, x, np.float32) for x in (38737 * 2.0**-93, -1774001 * 2.0**-93, 2.0**-126))
    a[1:], b[1:], c[1:] = 1, 1, 1
    source = """__global__ void f(const float *a, const float *b, float *c) {
        c[threadIdx.x] = fmaf(a[threadIdx.x], b[threadIdx.x], c[threadIdx.x]);
    }"""
    run(source, a, b, c, block=(64,))
    assert c[0] == np.float32(2.0**-126 - 2.0**-149)
    assert (c[1:] == 2).all()


def test_zeros_infinities_and_nans_take_no_slow_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow paths cost 5 to 40 times as much; a kernel often has a lane whose result is zero."""

    def slow(*_: object) -> None:
        raise AssertionError("a slow path")

    monkeypatch.setattr(rounding, "_repaired", slow)
    monkeypatch.setattr(rounding, "_exact_fma", slow)
    a, b, c = (fractions(64, salt) - 0.5 for salt in (1, 2, 3))
    c = c.astype(np.float32).astype(np.float64)
    a[:4], c[:4] = [0.0, -0.0, np.inf, np.nan], 0.0
    a[4:6], b[4:6], c[4:6] = 2.0, [3.0, -3.0], [-6.0, 6.0]
    with np.errstate(all="ignore"):
        single = rounding.fma_f32(a.astype(np.float32).astype(np.float64), b.astype(np.float32).astype(np.float64), c)
        double = rounding.fma_f64(a, b, c)
    assert single[:6].tolist()[:3] == double[:6].tolist()[:3]
    assert single[4:6].tolist() == double[4:6].tolist() == [0.0, 0.0]


def test_few_double_precision_sums_are_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow path rounds low parts to odd, which took most of the time of a `pow`.

    Only sums next to the midpoint of two numbers need it. The rounding error of a product is exact.
    """
    monkeypatch.setattr(rounding, "odd", lambda total, error: pytest.fail(f"{total.size} lanes on the slow path"))
    a, b, c = (fractions(4096, salt) - 0.5 for salt in (4, 5, 6))
    assert np.abs(rounding.fma_f64(a, b, -(a * b))).max() < 2.0**-54
    assert np.abs(rounding.fma_f64(a, b, c) - (a * b + c)).max() < 2.0**-52  # three roundings

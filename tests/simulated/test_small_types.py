"""Floats of 8 bits, and the DPX functions on integers and pairs of shorts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from places import Run

Words = np.ndarray


def decoded(bits: int, exponent_bits: int) -> float:
    """The value of an 8-bit float, by the definition of the formats (OCP 8-bit floating point, 2023)."""
    mantissa_bits = 7 - exponent_bits
    bias = (1 << exponent_bits - 1) - 1
    sign = -1.0 if bits >> 7 else 1.0
    exponent, mantissa = bits >> mantissa_bits & (1 << exponent_bits) - 1, bits & (1 << mantissa_bits) - 1
    if exponent_bits == 5 and exponent == 31:
        return float("nan") if mantissa else sign * float("inf")
    if exponent_bits == 4 and bits & 127 == 127:
        return float("nan")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa * 2.0**-mantissa_bits) * 2.0 ** (exponent - bias)


def encoded(value: float, exponent_bits: int) -> int:
    """Round to the nearest finite 8-bit float, of two equally near ones to the even one."""
    if np.isnan(value):
        return 127
    codes = [code for code in range(128) if np.isfinite(decoded(code, exponent_bits))]
    far = min(abs(value), decoded(codes[-1], exponent_bits))
    code = min(codes, key=lambda code: (abs(decoded(code, exponent_bits) - far), code & 1))
    return code | (128 if np.signbit(value) else 0)


HARD = np.array(
    [0.0, -0.0, 1.0, 1.0625, 1.1875, -1.0625, 447.9, 448, 464, 480, -1e9, np.inf, -np.inf, np.nan, 57344, 61440, 65504,
     2**-9, 2**-10, 3 * 2**-10, 2**-11, 2**-16, 2**-17, 3 * 2**-17, 1e-30, -1e-30, 0.3, -7.7, 250.0, 1.125, 0.0185, 13],
    np.float32,
)  # fmt: skip


@pytest.mark.parametrize(("kind", "exponent_bits"), [("e4m3", 4), ("e5m2", 5)])
def test_floats_of_8_bits_are_rounded_and_read(run: Run, kind: str, exponent_bits: int) -> None:
    source = f"""
#include <cuda_fp8.h>
__global__ void f(const float *in, unsigned char *bits, float *back, unsigned char *of_half, float *all)
{{
    const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    const __nv_fp8_{kind} small(in[t]);
    bits[t] = small.__x;
    back[t] = float(small);
    of_half[t] = __nv_fp8_{kind}(__float2half(in[t])).__x;
    __nv_fp8_{kind} any;
    any.__x = t;
    all[t] = float(any);
}}
"""
    values = np.concatenate([HARD, np.random.default_rng(5).normal(0, 30, 256 - len(HARD)).astype(np.float32)])
    bits, of_half = np.zeros(256, np.uint8), np.zeros(256, np.uint8)
    back, every = np.zeros(256, np.float32), np.zeros(256, np.float32)
    run(source, values, bits, back, of_half, every, grid=(4,), block=(64,))
    expected = [encoded(float(value), exponent_bits) for value in values]
    assert bits.tolist() == expected
    np.testing.assert_array_equal(back, [decoded(code, exponent_bits) for code in expected])
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float16)
    assert of_half.tolist() == [encoded(float(value), exponent_bits) for value in narrow]
    np.testing.assert_array_equal(every, [decoded(code, exponent_bits) for code in range(256)])


def pairs(function: Callable[..., Words]) -> Callable[..., Words]:
    """Apply a function of integers to the halves of words, as signed shorts."""

    def on_words(*operands: Words) -> Words:
        shorts = [operand.view(np.int16).astype(np.int64) for operand in operands]
        return function(*shorts).astype(np.int16).view(np.uint32)

    return on_words


def words(function: Callable[..., Words]) -> Callable[..., Words]:
    """Apply a function of integers to words, as signed ones."""

    def on_words(*operands: Words) -> Words:
        return (
            function(*(operand.view(np.int32).astype(np.int64) for operand in operands))
            .astype(np.int32)
            .view(np.uint32)
        )

    return on_words


def clamped(values: Words) -> Words:
    return np.maximum(values, 0)


def wrapped(bits: int) -> Callable[[Words], Words]:
    return lambda values: (values + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


@pytest.mark.parametrize(("kind", "of", "bits"), [("s32", words, 32), ("s16x2", pairs, 16)])
@pytest.mark.parametrize(("name", "best"), [("max", np.maximum), ("min", np.minimum)])
def test_dpx_functions_that_clamp_at_zero(
    run: Run, kind: str, of: Callable[..., Callable[..., Words]], bits: int, name: str, best: Callable[..., Words]
) -> None:
    source = f"""
__global__ void f(const unsigned *in, unsigned *two, unsigned *three, unsigned *sum)
{{
    const unsigned t = threadIdx.x, a = in[t], b = in[t + 64], c = in[t + 128];
    two[t] = __vi{name}_{kind}_relu(a, b);
    three[t] = __vi{name}3_{kind}_relu(a, b, c);
    sum[t] = __viadd{name}_{kind}_relu(a, b, c);
}}
"""
    values = np.random.default_rng(7).integers(0, 2**32, 192, dtype=np.uint32)
    two, three, total = (np.zeros(64, np.uint32) for _ in range(3))
    run(source, values, two, three, total, block=(64,))
    a, b, c = values[:64], values[64:128], values[128:]
    wrap = wrapped(bits)
    assert np.array_equal(two, of(lambda a, b: clamped(best(a, b)))(a, b))
    assert np.array_equal(three, of(lambda a, b, c: clamped(best(best(a, b), c)))(a, b, c))
    assert np.array_equal(total, of(lambda a, b, c: clamped(best(wrap(a + b), c)))(a, b, c))

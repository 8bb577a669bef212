"""Conversions of the 8-bit floats e4m3 and e5m2, which PTX has in pairs only, without arithmetic.

Formats: OCP 8-bit Floating Point Specification (2023); conversions: PTX ISA, `cvt`.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from .integers import Value, select

_NAN = np.uint16(0x7FFF)  # of float16
_NAN8 = np.uint8(0x7F)  # of both formats
_E4M3_SHIFT, _E4M3_SCALE = 7, 2.0**8  # e4m3's exponent and mantissa in float16's places; the biases are 7 and 15


@cache
def _as_half(kind: str) -> npt.NDArray[np.uint16]:
    """Return the bits of all 256 values as float16, which represents each exactly."""
    codes = np.arange(256, dtype=np.uint16)
    if kind == "e5m2":
        half: npt.NDArray[np.uint16] = codes << np.uint16(8)
        half[np.isnan(half.view(np.float16))] = _NAN
        return half
    magnitude = ((codes & np.uint16(0x7F)) << np.uint16(_E4M3_SHIFT)).view(np.float16).astype(np.float32)
    half = (magnitude * np.float32(_E4M3_SCALE)).astype(np.float16).view(np.uint16)
    half |= (codes & np.uint16(0x80)) << np.uint16(8)
    half[codes & 0x7F == 0x7F] = _NAN
    return half


@cache
def _middles(kind: str) -> npt.NDArray[np.float64]:
    """Return the midpoints between neighbouring finite values, from zero upwards."""
    values = _as_half(kind)[:128].view(np.float16).astype(np.float64)
    finite = values[np.isfinite(values)]
    return (finite[1:] + finite[:-1]) / 2


def float8_to_half(pair: Value, kind: str) -> Value:
    """Return a pair of 8-bit floats as a pair of float16."""
    table = _as_half(kind)
    low, high = table[pair & np.uint16(0xFF)], table[pair >> np.uint16(8)]
    return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))


def to_float8(a: Value, kind: str) -> Value:
    """Round floats to the bits of the nearest finite 8-bit float, ties to even; a NaN stays a NaN."""
    middles, size = _middles(kind), np.abs(a).astype(np.float64)
    code = np.searchsorted(middles, size)  # a tie gets the lower code
    tied = (code < len(middles)) & (middles[np.minimum(code, len(middles) - 1)] == size)
    code = code + (tied & (code & 1 == 1))
    bits = code.astype(np.uint8) | (np.signbit(a).astype(np.uint8) << np.uint8(7))
    return select(np.isnan(a), _NAN8, bits)

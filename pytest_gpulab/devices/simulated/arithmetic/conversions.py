"""Comparisons, and conversions between integers and floats in every rounding mode (PTX ISA 9.7.6 and 9.7.9, `cvt`)."""

from typing import Any

import numpy as np

from .floats import canonical
from .integers import F8, U4, Value, select


def compare(how: str, a: Value, b: Value) -> Value:
    """Comparisons of `setp`. Names that end in u are also true if an operand is NaN."""
    if how in _PLAIN:
        return _PLAIN[how](a, b)
    if how == "ne":
        return a != b if a.dtype.kind in "iub" else (a < b) | (a > b)
    if how == "equ":
        return ~((a < b) | (a > b))
    if how == "num":
        return (a == a) & (b == b)
    if how == "nan":
        return (a != a) | (b != b)
    return ~_PLAIN[_INVERSE[how]](a, b)


_PLAIN = {
    "eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "neu": np.not_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_INVERSE = {"ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}
_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def round_integral(a: Value, mode: str) -> Value:
    """Round a float to an integral float: rni (nearest even), rzi, rmi (down), rpi (up)."""
    return canonical(_ROUND[mode](a))


def float_to_int(a: Value, dtype: np.dtype[Any], mode: str) -> Value:
    """Round and clamp to the integer's range.

    A NaN becomes 0 from float32 to at most 32 bits. In other conversions it becomes the integer with only the highest
    bit set (measured on a GPU of compute capability 9.0).
    """
    unknown = np.isnan(a)
    rounded = select(unknown, F8.type(0), _ROUND[mode](a.astype(F8)))
    result = _clamped(rounded, dtype)
    if (a.dtype == F8 or dtype.itemsize == 8) and unknown.any():
        highest = dtype.type(1 << (8 * dtype.itemsize - 1)) if dtype.kind == "u" else np.iinfo(dtype).min
        result = select(unknown, dtype.type(highest), result)
    return result


def _clamped(a: Value, dtype: np.dtype[Any]) -> Value:
    limits = np.iinfo(dtype)
    if dtype.itemsize < 8:
        return np.clip(a, float(limits.min), float(limits.max)).astype(dtype)
    top = a >= float(limits.max)  # the float is 2**63 or 2**64, one more than the largest integer
    bottom = a <= float(limits.min)
    inside = select(top | bottom, F8.type(0), a).astype(dtype)
    return select(top, dtype.type(limits.max), select(bottom, dtype.type(limits.min), inside))


def int_to_float(a: Value, dtype: np.dtype[Any], mode: str) -> Value:
    """Convert an integer in a rounding mode."""
    rounded = a.astype(dtype)
    if mode == "rn" or (dtype == F8 and a.dtype.itemsize < 8):
        return rounded
    back = float_to_int(rounded, a.dtype, "rni")
    over = (rounded.astype(F8) >= 2.0 ** (8 * a.dtype.itemsize - (a.dtype.kind == "i"))) | (back > a)
    under = (back < a) & ~over
    away = over if mode == "rm" else under if mode == "rp" else select(a >= 0, over, under)
    target = {"rm": -np.inf, "rp": np.inf, "rz": 0.0}[mode]
    return select(away, np.nextafter(rounded, dtype.type(target)), rounded)


def int_to_int(a: Value, dtype: np.dtype[Any], saturating: bool) -> Value:
    """Convert between integers: extend by the source's sign, truncate, or clamp."""
    if saturating:
        limits, source = np.iinfo(dtype), np.iinfo(a.dtype)
        a = np.clip(a, max(limits.min, source.min), min(limits.max, source.max))
    return a.astype(dtype)


def to_tf32(a: Value, mode: str) -> Value:
    """Round float32 to TensorFloat-32, the upper 19 bits; `rna` rounds ties away from zero, beside `rn` and `rz`."""
    bits = a.view(U4)
    half = np.uint32(0xFFF)
    added = {"rna": half + np.uint32(1), "rn": half + (bits >> np.uint32(13) & np.uint32(1)), "rz": np.uint32(0)}[mode]
    rounded = np.where(np.isinf(a), bits, bits + added) & np.uint32(0xFFFFE000)
    # NaNs as measured on an H100: `rna` truncates the payload, even to infinity; other modes give the canonical NaN
    nan = bits & np.uint32(0xFFFFE000) if mode == "rna" else np.uint32(0x7FFFE000)
    return select(np.isnan(a), nan, rounded)

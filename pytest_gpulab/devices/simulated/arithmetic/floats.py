"""Float instructions on NumPy values: minima, flushing and saturation, classes, and the hardware's approximations.

Exactly rounded operations are in `rounding`. Most approximations are closer to the true value than hardware's. Ranges
in which hardware deviates by design follow the PTX ISA manual, 9.7.3, and measurements on a GPU of compute capability
9.0.
"""

from typing import Any

import numpy as np

from .integers import F8, Value, select
from .rounding import F4, flushed, narrow

_TURN = float(np.uint32(0x3E22F983).view(np.float32))  # 1 / (2 pi) in float32, the factor in hardware
_NAN = np.uint32(0x7FFFFFFF).view(np.float32)  # PTX's canonical NaN; NumPy's is 0x7FC00000


def canonical(a: Value) -> Value:
    """Replace each NaN of float32 by hardware's canonical one; float64 keeps its payload."""
    if a.dtype == F8:
        return a
    wrong = np.isnan(a)
    return select(wrong, _NAN, a) if wrong.any() else a


def ftz(a: Value) -> Value:
    """Flush subnormals to zero, keeping the sign."""
    return select(np.abs(a) < np.finfo(a.dtype).tiny, np.copysign(a.dtype.type(0), a), a)


def saturate(a: Value) -> Value:
    """Clamp to [0, 1] (`.sat`); NaN becomes 0."""
    return np.fmin(np.fmax(a, a.dtype.type(0)), a.dtype.type(1)) + a.dtype.type(0)


def min_float(a: Value, b: Value) -> Value:
    """Return the smaller number: a number rather than a NaN, -0 rather than +0."""
    result = np.fmin(a, b)
    return result if result.all() else _signed_zero(result, a, b, np.bitwise_or)


def max_float(a: Value, b: Value) -> Value:
    """Return the larger number: a number rather than a NaN, +0 rather than -0."""
    result = np.fmax(a, b)
    return result if result.all() else _signed_zero(result, a, b, np.bitwise_and)


def _signed_zero(result: Value, a: Value, b: Value, combine: Any) -> Value:
    unsigned = f"u{a.dtype.itemsize}"
    both = combine(a.view(unsigned), b.view(unsigned)).view(a.dtype)
    return select((a == 0) & (b == 0), both, result)


def or_nan(result: Value, a: Value, b: Value) -> Value:
    """Return NaN where an operand is NaN (`.NaN`), else the result."""
    return select(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), result)


def xor_sign(magnitude: Value, a: Value, b: Value) -> Value:
    """Return the magnitude with the product of the operands' signs (`.xorsign`)."""
    return np.where(np.signbit(a) != np.signbit(b), -magnitude, magnitude)[()]


def div_approx(a: Value, b: Value, flush: bool) -> Value:
    """Divide as `div.approx.f32`: a divisor beyond 2**126 gives a zero (NaN if the dividend is infinite).

    Hardware multiplies by a reciprocal, so the last bit of a quotient may differ from that of `div.rn`.
    """
    exact, product = a / b, a * (F4.type(1) / b)
    is_usual = np.isfinite(product) & (np.abs(exact) >= np.finfo(F4).tiny)
    near = select(is_usual, product, exact)
    quotient = flushed(near, "div", a, b) if flush else near
    huge = (np.abs(b) > 2.0**126) & np.isfinite(b)
    return select(huge, a * np.copysign(F4.type(0), b), quotient) if huge.any() else quotient


def sin_approx(a: Value) -> Value:
    """Return the sine as `sin.approx.f32`."""
    return np.sin(_angle(a)).astype(F4)


def cos_approx(a: Value) -> Value:
    """Return the cosine as `cos.approx.f32`."""
    return np.cos(_angle(a)).astype(F4)


def _angle(a: Value) -> Value:
    """Return the angle reduced as in hardware: turns as float32, rounded towards zero, back in radians."""
    turns = narrow(a.astype(F8) * _TURN, "rz").astype(F8)
    return (turns - np.rint(turns)) * (2 * np.pi)


def has_class(a: Value, name: str) -> Value:
    """Return whether each value has a class (`testp`); zeros count as normal, as on hardware."""
    if name in ("number", "notanumber"):
        return np.isnan(a) if name == "notanumber" else ~np.isnan(a)
    if name in ("finite", "infinite"):
        return np.isinf(a) if name == "infinite" else np.isfinite(a)
    subnormal = (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny)
    return subnormal if name == "subnormal" else np.isfinite(a) & ~subnormal

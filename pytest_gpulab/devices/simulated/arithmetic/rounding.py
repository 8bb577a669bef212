"""IEEE 754 rounding that NumPy lacks: fused multiply-add, directed modes, subnormals flushed before rounding.

A float32 operation is computed in float64 and *rounded to odd*: an inexact result with an even last bit is moved by
one unit towards the exact value. Rounding that to float32, in any mode, equals rounding the exact value once (Boldo
and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008). float64
operations in a directed mode are rare, so they are computed lane by lane in rational arithmetic.

Modes are PTX's: rn (nearest even), rz (towards zero), rm (down), rp (up).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .integers import F8, I8, Value, select

if TYPE_CHECKING:  # imported by the few kernels that need it: Ctrl-C during its import leaves a broken `decimal`
    from fractions import Fraction

F4 = np.dtype(np.float32)
TINY = float(np.finfo(np.float32).tiny)  # the smallest normal float32
_TIE = np.iinfo(np.int64).min  # the dropped bits of a tie, shifted to the top
_DROPPED = np.int64(64 - 29)  # shift that moves the 29 bits which float32 lacks to the top
_SIGN = np.uint32(1)  # bits before a float's magnitude
_LEAST_SAFE = np.uint64((1023 - 900) << 53)  # bits of 2.0**-900 without the sign
_SAFE_RANGE = np.uint64(1800 << 53)  # up to 2.0**900
_REST_MARGIN = 2.0**-51  # relative; four times the rounding error of the rest
_LARGEST_SUBNORMAL = np.uint32(0x00FFFFFF)  # as `_magnitudes` gives it; the smallest normal number counts, too
_least = np.minimum.reduce  # faster than ndarray.min, which calls it through Python


# --- float32 --------------------------------------------------------------------------------------


def fma_f32(a: Value, b: Value, c: Value) -> Value:
    """Return a * b + c of float64 operands, rounded once to float32.

    The product is exact in float64. The sum is rounded to 53 bits and then to 24. That differs from rounding once only
    where the first result is a tie of the second, or is nearly subnormal. Those lanes are computed again with the sum's
    rounding error.
    """
    total = a * b
    if total.ndim and total.shape == c.shape:
        total += c  # in place: this memory is still in the cache
    else:
        total = total + c
    if total.ndim == 0:
        return odd(total, sum_error(a * b, c, total)).astype(F4)
    rounded = total.astype(F4)
    # in a tie, only the first of the 29 dropped bits is set; shifted to the top, it is the smallest integer
    bits = total.view(I8)
    np.left_shift(bits, _DROPPED, out=bits)
    if _least(bits, axis=None) == _TIE or _has_subnormals(rounded):
        return _repaired(a, b, c, rounded, bits)
    return rounded


def _has_subnormals(a: Value) -> bool:
    """Return whether any float32 is subnormal or the smallest normal number, which a subnormal may round to."""
    return bool(not _least(a, axis=None) > TINY and _least(_magnitudes(a), axis=None) <= _LARGEST_SUBNORMAL)


def _magnitudes(a: Value) -> Value:
    """Return float32 magnitudes as integers of the same order, except that zeros are the largest.

    Zeros need no repair: a sum that rounds to zero is exact in float64, as both operands are multiples of its last bit.
    """
    magnitudes = a.view(np.uint32) << _SIGN
    magnitudes -= _SIGN
    return magnitudes


def _repaired(a: Value, b: Value, c: Value, rounded: Value, dropped: Value) -> Value:
    """Round again in the lanes where rounding twice may differ from rounding once."""
    product = a * b
    total = product + c
    error = sum_error(product, c, total)
    doubtful = error != 0  # elsewhere the sum is exact: it was rounded once
    if doubtful.any():
        doubtful &= (dropped == _TIE) | (_magnitudes(rounded) <= _LARGEST_SUBNORMAL)
        rounded[doubtful] = odd(total[doubtful], error[doubtful]).astype(F4)
    return rounded


def rounded_f32(kind: str, mode: str, flush: bool, a: Value, b: Value = None, c: Value = None) -> Value:
    """Return `add`, `mul`, `fma`, `div` or `sqrt` of float64 operands, rounded once to float32.

    With `flush` (`.ftz`) an exact value below the normal range becomes a zero of its sign, even where it would round
    to the smallest normal number.
    """
    exact = _exact(kind, mode, a, b, c)
    result = narrow(exact, mode)
    return select(np.abs(exact) < TINY, np.copysign(F4.type(0), result), result) if flush else result


def flushed(result: Value, kind: str, *operands: Value) -> Value:
    """Flush subnormals of a float32 result rounded to nearest (`.ftz`), given the float32 operands."""
    if np.abs(result).min() > TINY:
        return result
    return rounded_f32(kind, "rn", True, *(operand.astype(F8) for operand in operands))


def _exact(kind: str, mode: str, a: Value, b: Value, c: Value) -> Value:
    """Return the operation's value rounded to odd in float64; an exact zero has the mode's sign."""
    if kind == "mul":
        return a * b
    if kind == "sqrt":
        root = np.sqrt(a)
        return odd(root, _remainder(a, root, root))
    if kind == "div":
        quotient = a / b
        return odd(quotient, _remainder(a, quotient, b) * np.sign(b))
    first, second = (a * b, c) if kind == "fma" else (a, b)
    total = first + second
    if mode == "rm":
        total = select((total == 0) & (np.signbit(first) != np.signbit(second)), -0.0, total)
    return odd(total, sum_error(first, second, total))


def _remainder(a: Value, x: Value, y: Value) -> Value:
    """Return a - x * y where x * y is close to a."""
    high, low = _two_product(x, y)
    return (a - high) - low


def odd(total: Value, error: Value) -> Value:
    """Round to odd: `total` is the value rounded to float64, `error` has the sign of the exact value minus `total`."""
    even = (total.view(I8) & np.int64(1)) == 0
    nudge = ((error > 0) | (error < 0)) & even & np.isfinite(total)
    return select(nudge, np.nextafter(total, select(error > 0, F8.type(np.inf), F8.type(-np.inf))), total)


def narrow(a: Value, mode: str, dtype: np.dtype[Any] = F4) -> Value:
    """Round float64 (or float32) to a shorter format in a mode."""
    rounded = a.astype(dtype)
    if mode == "rn":
        return rounded
    exact = rounded.astype(a.dtype)
    if mode == "rz":
        wrong, towards = np.abs(exact) > np.abs(a), 0.0
    elif mode == "rm":
        wrong, towards = exact > a, -np.inf
    else:
        wrong, towards = exact < a, np.inf
    return select(wrong, np.nextafter(rounded, dtype.type(towards)), rounded)


# --- float64 --------------------------------------------------------------------------------------


def fma_f64(a: Value, b: Value, c: Value) -> Value:
    """Return a * b + c rounded once to float64.

    The sum of the product's high part and c is corrected by a rounded rest. If a slightly smaller and a slightly larger
    rest give the same result, the exact one gives it, too (Ziv, "Fast evaluation of elementary mathematical functions
    with correctly rounded last bit", 1991). The other lanes are computed again.
    """
    high, low = _two_product(a, b)
    total = high + c
    error = sum_error(high, c, total)
    rest = error + low
    result = np.asarray(total + rest)
    margin = rest * _REST_MARGIN
    doubtful = total + (rest - margin) != total + (rest + margin)
    if doubtful.any():
        doubtful &= ((error != 0) & (low != 0)) | np.isnan(rest)  # elsewhere the rest is exact
        if doubtful.any():
            result = _repaired_f64(a, b, c, result, doubtful)
    if not result.all():
        result = np.asarray(select(result == 0, _zero(a, b, c, high), result))
    distance = _distance(high)
    if np.maximum.reduce(distance, axis=None) > _SAFE_RANGE:
        rough = (distance > _SAFE_RANGE) & (a != 0) & (b != 0)
        if rough.any():
            a, b, c, rough = np.broadcast_arrays(a, b, c, rough)
            result = _exactly(a, b, c, np.array(result), rough & np.isfinite(a) & np.isfinite(b) & np.isfinite(c))
    return result[()]


def _repaired_f64(a: Value, b: Value, c: Value, result: Value, where: Value) -> Value:
    """Compute the given lanes again: the low parts of the sum are rounded to odd; infinities and NaNs propagate."""
    a, b, c = (x[where] for x in np.broadcast_arrays(a, b, c))
    high, low = _two_product(a, b)
    th, tl = _two_sum(c, low)
    vh, vl = _two_sum(high, th)
    repaired = vh + odd(*_two_sum(tl, vl))
    if not np.isfinite(repaired).all():
        repaired = _with_non_finite(a, b, c, repaired)
    result[where] = repaired
    return result


def _distance(a: Value) -> Value:
    """Return at most `_SAFE_RANGE` for 2**-900 to 2**900, where error terms neither overflow nor underflow."""
    distance = a.view(np.uint64) << np.uint64(1)
    distance -= _LEAST_SAFE
    return distance


def _exactly(a: Value, b: Value, c: Value, result: Value, where: Value) -> Value:
    """Compute the given lanes again in rational arithmetic."""
    for index in np.argwhere(where):
        at = tuple(index)
        result[at] = _exact_fma(float(a[at]), float(b[at]), float(c[at]))
    return result


def _zero(a: Value, b: Value, c: Value, product: Value) -> Value:
    """Return a * b + c where it is zero; a product that underflows keeps its sign."""
    return select((c == 0) & (a != 0) & (b != 0), product, product + c)


def _with_non_finite(a: Value, b: Value, c: Value, result: Value) -> Value:
    """Compute again the lanes that overflow or have a non-finite operand, which spoils error terms."""
    factors = np.isfinite(a) & np.isfinite(b)
    given = ~(factors & np.isfinite(c))
    result = np.where(given, np.where(factors, c, a * b + c), result)
    return _exactly(a, b, c, result, ~given & ~np.isfinite(result))


def sum_error(a: Value, b: Value, total: Value) -> Value:
    """Return the exact a + b minus its rounding (Knuth's two-sum)."""
    back = total - a
    return (a - (total - back)) + (b - back)


def _two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    total = a + b
    return total, sum_error(a, b, total)


def _two_product(a: Value, b: Value) -> tuple[Value, Value]:
    """Return the product and its rounding error (Dekker's product with Veltkamp's splitting)."""
    product = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    return product, al * bl - (((product - ah * bh) - al * bh) - ah * bl)


def _split(a: Value) -> tuple[Value, Value]:
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _exact_fma(a: float, b: float, c: float) -> float:
    plain = a * b
    if not (np.isfinite(a) and np.isfinite(b)):
        return plain + c
    if not np.isfinite(c):
        return c
    from fractions import Fraction

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return plain + c if plain == 0 or c == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


_NEAREST: dict[str, Callable[[Value, Value, Value], Value]] = {
    "add": lambda a, b, c: a + b,
    "mul": lambda a, b, c: a * b,
    "fma": fma_f64,
    "div": lambda a, b, c: a / b,
    "sqrt": lambda a, b, c: np.sqrt(a),
}
# the exact value minus its rounding r, or a number of the same sign
_EXCESS: dict[str, Callable[[Fraction, Fraction, Fraction, Fraction], Fraction]] = {
    "add": lambda a, b, c, r: a + b - r,
    "mul": lambda a, b, c, r: a * b - r,
    "fma": lambda a, b, c, r: a * b + c - r,
    "div": lambda a, b, c, r: a / b - r,
    "sqrt": lambda a, b, c, r: a - r * r,
}


def rounded_f64(kind: str, mode: str, a: Value, b: Value = None, c: Value = None) -> Value:
    """Return `add`, `mul`, `fma`, `div` or `sqrt` of float64 in a directed mode, lane by lane in exact arithmetic."""
    a, b, c = np.broadcast_arrays(a, 1.0 if b is None else b, 0.0 if c is None else c)
    result = np.array(_NEAREST[kind](a, b, c))
    sensible = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & ~np.isnan(result) & ((b != 0) | (kind != "div"))
    for index in np.argwhere(sensible):
        at = tuple(index)
        result[at] = _directed(kind, mode, float(a[at]), float(b[at]), float(c[at]), float(result[at]))
    return result[()]


def _directed(kind: str, mode: str, a: float, b: float, c: float, nearest: float) -> float:
    """Return an operation on finite operands rounded in a directed mode, from the result rounded to nearest."""
    from fractions import Fraction

    if np.isinf(nearest):
        excess = Fraction(-1 if nearest > 0 else 1)
    else:
        excess = _EXCESS[kind](*map(Fraction, (a, b, c, nearest)))
    if nearest == 0 and excess == 0 and mode == "rm" and kind in ("add", "fma"):
        first, second = (a * b, c) if kind == "fma" else (a, b)
        return -0.0 if np.signbit(first) != np.signbit(second) else nearest
    negative = nearest < 0 or (nearest == 0 and excess < 0)
    down = mode == "rm" or (mode == "rz" and not negative)
    if excess < 0 and down:
        return float(np.nextafter(nearest, -np.inf))
    if excess > 0 and not down:
        return float(np.nextafter(nearest, np.inf))
    return nearest

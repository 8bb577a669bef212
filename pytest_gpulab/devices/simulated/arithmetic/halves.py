"""The 16-bit floats: float16 and bfloat16, alone in a 16-bit register or in pairs in a 32-bit one.

An operation unpacks to float32 (exact), computes, and rounds once to 16 bits; rounding a float32 or float64 result
again is innocuous for +, -, *, / because both have more than 2p + 2 bits. Kinds are PTX's: f16, bf16, f16x2, bf16x2.
"""

from collections.abc import Callable

import numpy as np

from .conversions import compare
from .floats import saturate
from .integers import F8, U4, Value, select
from .rounding import F4, narrow, odd, sum_error

U2, F2 = np.dtype(np.uint16), np.dtype(np.float16)
_NAN = U2.type(0x7FFF)  # PTX's canonical NaN, for float16 and bfloat16
_TINY = {"f16": 2.0**-14, "bf16": 2.0**-126}  # the smallest normal numbers


def unpack(bits: Value, kind: str) -> Value:
    """Return 16-bit floats as float32."""
    if kind == "f16":
        return bits.view(F2).astype(F4)
    return (bits.astype(U4) << np.uint32(16)).view(F4)


def pack(a: Value, kind: str, mode: str = "rn") -> Value:
    """Round float32 or float64 to a 16-bit float. A NaN is 0x7FFF; from float64 to float16 it keeps its payload."""
    bits = narrow(a, mode, F2).view(U2) if kind == "f16" else _to_bfloat(a, mode)
    return bits if (kind, a.dtype) == ("f16", F8) else select(np.isnan(a), _NAN, bits)


def _to_bfloat(a: Value, mode: str) -> Value:
    """Round to bfloat16, the upper half of float32, in mode rn or rz."""
    if a.dtype == F8:
        shorter = narrow(a, "rz")
        inexact = (shorter.astype(F8) != a).astype(U4)  # rounding to odd: the last bit marks an inexact value
        bits = shorter.view(U4) | inexact
    else:
        bits = a.view(U4)
    if mode == "rn":
        bits = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    return (bits >> np.uint32(16)).astype(U2)


def halves(kind: str, function: Callable[..., Value], *operands: Value, flush: bool = False, clamp: str = "") -> Value:
    """Apply a function of float32 values to registers that hold one 16-bit float or a pair.

    `kind` is f16, bf16, f16x2 or bf16x2. With `flush` (`.ftz`) subnormal operands and results become zeros. `clamp` is
    `sat` to [0, 1], `relu` to non-negative numbers, or empty.
    """
    if kind.endswith("x2"):
        return _both(lambda *parts: halves(kind[:-2], function, *parts, flush=flush, clamp=clamp), operands)
    values = [unpack(operand, kind) for operand in operands]
    if flush:
        values = [_flushed(value, kind) for value in values]
    result = function(*values)
    if clamp:
        result = saturate(result) if clamp == "sat" else np.maximum(result, result.dtype.type(0))
    bits = pack(_flushed(result, kind) if flush else result, kind)
    return select(np.isnan(result), _NAN, bits)


def _flushed(a: Value, kind: str) -> Value:
    return select(np.abs(a) < _TINY[kind], np.copysign(a.dtype.type(0), a), a)


def _both(function: Callable[..., Value], operands: tuple[Value, ...]) -> Value:
    low, high = (function(*((operand >> np.uint32(s)).astype(U2) for operand in operands)) for s in (0, 16))
    return low.astype(U4) | (high.astype(U4) << np.uint32(16))


def fma_half(a: Value, b: Value, c: Value) -> Value:
    """Return a * b + c of float32 values with at most 11 significant bits, as float64 rounded to odd."""
    product, addend = a.astype(F8) * b.astype(F8), c.astype(F8)
    total = product + addend
    return odd(total, sum_error(product, addend, total))


def compare_halves(how: str, a: Value, b: Value, kind: str) -> Value:
    """Compare 16-bit floats (`setp`, `set`)."""
    return compare(how, unpack(a, kind), unpack(b, kind))


def set_pairs(how: str, a: Value, b: Value, kind: str, true: Value) -> Value:
    """Compare pairs (`set`): each half of the result is `true` or 0."""

    def one(x: Value, y: Value) -> Value:
        return select(compare_halves(how, x, y, kind[:-2]), true, U2.type(0))

    return _both(one, (a, b))

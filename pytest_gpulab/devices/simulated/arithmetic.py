"""What PTX instructions compute, on NumPy values: integers modulo 2^n, IEEE floats, conversions.

Every function takes and returns scalars or arrays of the exact dtype; integer registers are unsigned and viewed as
signed where the instruction says so. References are to the PTX ISA manual, chapter 9.7.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

Value = Any
F4, F8 = np.dtype(np.float32), np.dtype(np.float64)
U4, U8, I8 = np.dtype(np.uint32), np.dtype(np.uint64), np.dtype(np.int64)
_TIE = np.iinfo(np.int64).min
_F4_MIN_NORMAL = float(np.finfo(np.float32).tiny)


def select(condition: Value, a: Value, b: Value) -> Value:
    """`selp`: a where the predicate holds, else b."""
    if condition.ndim == 0:
        return a if condition else b
    return np.where(condition, a, b)


# --- integers -------------------------------------------------------------------------------------


def widen(value: Value) -> Value:
    """Return an integer in twice the bits, with its sign."""
    return value.astype(f"{value.dtype.kind}{2 * value.dtype.itemsize}")


def mul_wide(a: Value, b: Value) -> Value:
    """The full product in twice the bits."""
    return widen(a) * widen(b)


def mul_hi(a: Value, b: Value) -> Value:
    """The upper half of the product."""
    size = a.dtype.itemsize
    if size < 8:
        wide = mul_wide(a, b)
        return (wide >> wide.dtype.type(8 * size)).astype(a.dtype)
    ua, ub = a.view(U8), b.view(U8)
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = ua & mask, ua >> shift, ub & mask, ub >> shift
    middle = a1 * b0 + (a0 * b0 >> shift)
    high = a1 * b1 + (middle >> shift) + ((a0 * b1 + (middle & mask)) >> shift)
    if a.dtype.kind == "i":
        high = high - select(a < 0, ub, np.uint64(0)) - select(b < 0, ua, np.uint64(0))
    return high.view(a.dtype)


def div_int(a: Value, b: Value) -> Value:
    """Quotient truncated towards zero; all bits set where the divisor is zero (PTX leaves it open; hardware does this)."""
    quotient = a // b if a.dtype.kind == "u" else (a - np.fmod(a, b)) // b
    zero = b == 0
    return select(zero, ~np.zeros((), a.dtype)[()], quotient) if zero.any() else quotient


def rem_int(a: Value, b: Value) -> Value:
    """Remainder with the sign of the dividend; all bits set where the divisor is zero, as hardware gives."""
    remainder = a % b if a.dtype.kind == "u" else np.fmod(a, b)
    zero = b == 0
    return select(zero, ~np.zeros((), a.dtype)[()], remainder) if zero.any() else remainder


def _clamped(amount: Value, dtype: np.dtype[Any]) -> Value:
    return np.minimum(amount, np.uint32(8 * dtype.itemsize)).astype(dtype)


def shl(a: Value, amount: Value) -> Value:
    """Left shift; amounts of the width or more give zero."""
    amount = _clamped(amount, a.dtype)
    return np.left_shift(a, amount)


def shr(a: Value, amount: Value) -> Value:
    """Right shift, arithmetic for signed; amounts of the width or more give zero or the sign."""
    amount = _clamped(amount, a.dtype)
    return np.right_shift(a, amount)


def funnel(low: Value, high: Value, amount: Value, left: bool, wrap: bool) -> Value:
    """`shf`: shift the 64 bits high:low by amount and keep one half."""
    amount = amount & np.uint32(31) if wrap else np.minimum(amount, np.uint32(32))
    both = (high.astype(U8) << np.uint64(32)) | low.astype(U8)
    n = amount.astype(U8)
    return ((both << n) >> np.uint64(32) if left else both >> n).astype(U4)


def bit_length(a: Value) -> Value:
    """Position of the highest set bit plus one, 0 for 0; unsigned input, uint32 result."""
    if a.dtype.itemsize == 8:
        high = (a >> np.uint64(32)).astype(U4)
        low = bit_length(a.astype(U4))
        return select(high != 0, bit_length(high) + np.uint32(32), low)
    return np.frexp(a.astype(F8))[1].astype(U4)


def clz(a: Value) -> Value:
    """Leading zero bits."""
    return np.uint32(8 * a.dtype.itemsize) - bit_length(a)


def bfind(a: Value, shift_amount: bool) -> Value:
    """Position of the most significant non-sign bit, or how far to shift it to the top; all ones if there is none."""
    bits = a.view(f"u{a.dtype.itemsize}")
    if a.dtype.kind == "i":
        bits = select(a < 0, ~bits, bits)
    length = bit_length(bits)
    position = length - np.uint32(1)
    if shift_amount:
        position = select(length == 0, position, np.uint32(8 * a.dtype.itemsize - 1) - position)
    return position


def brev(a: Value) -> Value:
    """Bits in reverse order."""
    size = a.dtype.itemsize
    swapped = a.byteswap()
    for shift, mask in ((4, 0x0F), (2, 0x33), (1, 0x55)):
        m = a.dtype.type(int.from_bytes(bytes([mask]) * size, "little"))
        n = a.dtype.type(shift)
        swapped = ((swapped & m) << n) | ((swapped >> n) & m)
    return swapped


def popc(a: Value) -> Value:
    """Number of set bits, uint32."""
    return np.bitwise_count(a).astype(U4)


def _mask(length: Value, dtype: np.dtype[Any]) -> Value:
    """The lowest `length` bits set."""
    one = dtype.type(1)
    return shl(one + np.zeros_like(length, dtype), length) - one


def bfe(a: Value, start: Value, length: Value) -> Value:
    """Extract a bit field, sign extended for signed types."""
    start, length = start & np.uint32(255), length & np.uint32(255)
    width = np.uint32(8 * a.dtype.itemsize)
    bits = a.view(f"u{a.dtype.itemsize}")
    field = shr(bits, start) & _mask(length, bits.dtype)
    if a.dtype.kind == "u":
        return field
    top = np.minimum(start + length - np.uint32(1), width - np.uint32(1))
    sign = (shr(bits, top) & bits.dtype.type(1)) != 0
    kept = np.minimum(length, np.where(start < width, width - start, np.uint32(0)))
    extended = field | ~_mask(kept, bits.dtype)
    return select(sign & (length != 0), extended, field).view(a.dtype)


def bfi(a: Value, b: Value, start: Value, length: Value) -> Value:
    """Insert the low bits of a into b."""
    start, length = start & np.uint32(255), length & np.uint32(255)
    mask = shl(_mask(length, a.dtype), start)
    return (b & ~mask) | (shl(a, start) & mask)


def bmsk(start: Value, length: Value, wrap: bool) -> Value:
    """A mask of `length` bits from `start`."""
    if wrap:
        start, length = start & np.uint32(31), length & np.uint32(31)
    return shl(_mask(length, U4), start)


def prmt(a: Value, b: Value, selector: Value, mode: str) -> Value:
    """Pick four bytes of the eight in b:a."""
    both = (b.astype(U8) << np.uint64(32)) | a.astype(U8)
    result = np.uint32(0)
    for i in range(4):
        if mode:
            choice, sign = _prmt_mode(selector & np.uint32(3), mode, i)
        else:
            nibble = (selector >> np.uint32(4 * i)) & np.uint32(15)
            choice, sign = nibble & np.uint32(7), (nibble & np.uint32(8)) != 0
        byte = ((both >> (choice.astype(U8) * np.uint64(8))) & np.uint64(255)).astype(U4)
        byte = select(sign, select(byte >= 128, np.uint32(255), np.uint32(0)), byte)
        result = result | (byte << np.uint32(8 * i))
    return result


def _prmt_mode(c: Value, mode: str, i: int) -> tuple[Value, Value]:
    n = np.uint32(i)
    choices = {
        "f4e": c + n,
        "b4e": (c - n) & np.uint32(7),
        "rc8": c,
        "ecl": np.maximum(c, n),
        "ecr": np.minimum(c, n),
        "rc16": (c & np.uint32(1)) * np.uint32(2) + (n & np.uint32(1)),
    }
    return choices[mode], np.bool_(False)


def lop3(a: Value, b: Value, c: Value, table: int) -> Value:
    """Any function of three bits, by its truth table."""
    result = np.uint32(0)
    for i in range(8):
        if table >> i & 1:
            result = result | ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c))
    return result


def dot4(a: Value, b: Value, c: Value, signed: tuple[bool, bool], halves: int) -> Value:
    """`dp4a` (halves -1) or `dp2a.lo` (0) and `.hi` (1): c plus the products of the parts of a and b."""
    total = c.astype(I8)
    parts = 4 if halves < 0 else 2
    for i in range(parts):
        first = _part(a, i, 8 if halves < 0 else 16, signed[0])
        second = _part(b, i + 2 * max(halves, 0), 8, signed[1])
        total = total + first * second
    return total.astype(U4)


def _part(a: Value, i: int, bits: int, signed: bool) -> Value:
    kind = "i" if signed else "u"
    return (a >> np.uint32(bits * i)).astype(f"u{bits // 8}").view(f"{kind}{bits // 8}").astype(I8)


def saturated(a: Value, b: Value, subtract: bool) -> Value:
    """`add.sat.s32` and `sub.sat.s32`."""
    wide = widen(a) - widen(b) if subtract else widen(a) + widen(b)
    limits = np.iinfo(a.dtype)
    return np.clip(wide, limits.min, limits.max).astype(a.dtype)


def carry_add(a: Value, b: Value, carry: Value) -> tuple[Value, Value]:
    """Sum and carry out, both of the operands' unsigned dtype."""
    first = a + b
    total = first + carry.astype(a.dtype)
    return total, ((first < a) | (total < first)).astype(U4)


def carry_sub(a: Value, b: Value, borrow: Value) -> tuple[Value, Value]:
    """Difference and borrow out."""
    first = a - b
    total = first - borrow.astype(a.dtype)
    return total, ((a < b) | (first < borrow.astype(a.dtype))).astype(U4)


# --- floats ---------------------------------------------------------------------------------------


def ftz(a: Value) -> Value:
    """Flush float32 subnormals to zero, keeping the sign."""
    return select(np.abs(a) < _F4_MIN_NORMAL, np.copysign(a.dtype.type(0), a), a)


def saturate(a: Value) -> Value:
    """`.sat`: clamp to [0, 1]; NaN becomes 0."""
    return np.fmin(np.fmax(a, a.dtype.type(0)), a.dtype.type(1)) + a.dtype.type(0)


def minimum(a: Value, b: Value) -> Value:
    """The smaller number; a NaN loses; -0 is smaller than +0."""
    result = np.fmin(a, b)
    return result if result.all() else _signed_zero(result, a, b, np.bitwise_or)


def maximum(a: Value, b: Value) -> Value:
    """The larger number; a NaN loses; +0 is larger than -0."""
    result = np.fmax(a, b)
    return result if result.all() else _signed_zero(result, a, b, np.bitwise_and)


def _signed_zero(result: Value, a: Value, b: Value, combine: Any) -> Value:
    unsigned = f"u{a.dtype.itemsize}"
    both = combine(a.view(unsigned), b.view(unsigned)).view(a.dtype)
    return select((a == 0) & (b == 0), both, result)


def fma_f32(a: Value, b: Value, c: Value) -> Value:
    """a * b + c rounded once to float32; the operands come as float64.

    The product is exact in float64. The sum is rounded to 53 bits and then to 24, which differs from rounding once
    only where the first rounding lands on a tie of the second (or near a subnormal): those lanes are done again
    with the sum's rounding error known.
    """
    total = a * b
    if total.ndim == 0 or total.shape != np.broadcast_shapes(total.shape, c.shape):
        total = total + c
    else:
        total += c  # in place: memory that is still in the cache
    if total.ndim == 0:
        return _round_f32(a * b, c, total, "rn")
    rounded = total.astype(F4)
    # of the 29 bits that are dropped, a tie has only the first: shifted to the top that is the smallest integer
    if (total.view(I8) << np.int64(35)).min() == _TIE or not _all_normal(rounded):
        return _repaired(a * b, c, total, rounded)
    return rounded


def _all_normal(a: Value) -> bool:
    """Whether no float32 is zero or subnormal; quickest where all have one sign."""
    return bool(a.min() >= _F4_MIN_NORMAL or a.max() <= -_F4_MIN_NORMAL or np.abs(a).min() >= _F4_MIN_NORMAL)


def _repaired(product: Value, c: Value, total: Value, rounded: Value) -> Value:
    """Round again the lanes at which rounding twice may differ from rounding once."""
    doubtful = (total.view(I8) << np.int64(35)) == _TIE
    doubtful |= (np.abs(rounded) < _F4_MIN_NORMAL) & (total != 0)
    index = np.flatnonzero(doubtful)
    a, b = (np.broadcast_to(x, total.shape).ravel()[index] for x in (product, c))
    rounded.reshape(-1)[index] = _round_f32(a, b, total.ravel()[index], "rn")
    return rounded


def _round_f32(a: Value, b: Value, total: Value, mode: str) -> Value:
    """Round the exact a + b, whose float64 rounding is `total`, to float32."""
    error = _sum_error(a, b, total)
    # nudging an inexact, even sum by one unit in the direction of its error makes it odd: no tie is left
    even = (total.view(I8) & np.int64(1)) == 0
    nudge = (error != 0) & even & np.isfinite(total)
    odd = select(nudge, np.nextafter(total, select(error > 0, np.inf, -np.inf)), total)
    return narrow(odd, mode)


def _sum_error(a: Value, b: Value, total: Value) -> Value:
    """The exact a + b minus its rounding (Knuth's two-sum)."""
    back = total - a
    return (a - (total - back)) + (b - back)


def narrow(a: Value, mode: str) -> Value:
    """float64 to float32 in a rounding mode: rn, rz, rm (down) or rp (up)."""
    rounded = a.astype(F4)
    if mode == "rn":
        return rounded
    exact = rounded.astype(F8)
    if mode == "rz":
        wrong, towards = np.abs(exact) > np.abs(a), F4.type(0)
    elif mode == "rm":
        wrong, towards = exact > a, F4.type(-np.inf)
    else:
        wrong, towards = exact < a, F4.type(np.inf)
    return select(np.asarray(wrong)[()], np.nextafter(rounded, towards), rounded)


def directed(kind: str, a: Value, b: Value, c: Value, mode: str) -> Value:
    """float32 add, mul or fma in a directed rounding mode; the operands come as float64."""
    if kind == "mul":
        return narrow(a * b, mode)
    product = a * b if kind == "fma" else a
    addend = c if kind == "fma" else b
    return _round_f32(product, addend, product + addend, mode)


def fma_f64(a: Value, b: Value, c: Value) -> Value:
    """a * b + c rounded once to float64 (Boldo and Melquiond 2008, with emulated rounding to odd)."""
    a, b, c = np.broadcast_arrays(a, b, c)
    high, low = _two_product(a, b)
    th, tl = _two_sum(c, low)
    vh, vl = _two_sum(high, th)
    z = _odd_sum(tl, vl)
    result = vh + z
    exponents = [np.frexp(x)[1] for x in (a, b, c, high)]
    rough = ~np.isfinite(result) | (result == 0)
    for e in exponents:
        rough = rough | (np.abs(e) > 900)
    for index in np.argwhere(rough):
        at = tuple(index)
        result = np.array(result)
        result[at] = _exact_fma(float(a[at]), float(b[at]), float(c[at]))
    return result[()]


def _two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    total = a + b
    return total, _sum_error(a, b, total)


def _two_product(a: Value, b: Value) -> tuple[Value, Value]:
    """Product and its error (Dekker, with Veltkamp's splitting)."""
    product = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    return product, al * bl - (((product - ah * bh) - al * bh) - ah * bl)


def _split(a: Value) -> tuple[Value, Value]:
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _odd_sum(a: Value, b: Value) -> Value:
    total, error = _two_sum(a, b)
    total = np.asarray(total)
    even = (total.view(I8) & 1) == 0
    return np.where((error != 0) & even, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def _exact_fma(a: float, b: float, c: float) -> float:
    plain = a * b
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        return plain + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return plain + c if plain == 0 or c == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def directed_f64(kind: str, a: Value, b: Value, c: Value, mode: str) -> Value:
    """float64 operations in a directed rounding mode, lane by lane in exact rational arithmetic."""
    a, b, c = np.broadcast_arrays(a, b, 0.0 if c is None else c)
    nearest = {"add": lambda: a + b, "mul": lambda: a * b, "div": lambda: a / b, "fma": lambda: fma_f64(a, b, c)}[kind]()
    result = np.array(nearest)
    for index in np.argwhere(np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & ((b != 0) | (kind != "div"))):
        at = tuple(index)
        x, y, z = (Fraction(float(v[at])) for v in (a, b, c))
        exact = x + y if kind == "add" else x / y if kind == "div" else x * y + z
        result[at] = _towards(float(result[at]), exact, mode)
    return result[()]


def _towards(nearest: float, exact: Fraction, mode: str) -> float:
    down = mode == "rm" or (mode == "rz" and exact > 0)
    if exact == 0:
        return nearest
    if down and ((np.isinf(nearest) and nearest > 0) or (np.isfinite(nearest) and Fraction(nearest) > exact)):
        return float(np.nextafter(nearest, -np.inf))
    if not down and ((np.isinf(nearest) and nearest < 0) or (np.isfinite(nearest) and Fraction(nearest) < exact)):
        return float(np.nextafter(nearest, np.inf))
    return nearest


def in_half(function: Any, *operands: Value) -> Value:
    """An operation on float16, computed in float32 or more and rounded once (innocuous: 24 >= 2 * 11 + 2 bits)."""
    return function(*(operand.astype(F4) for operand in operands)).astype(np.float16)


def half_pairs(function: Any, *operands: Value) -> Value:
    """An operation on both float16 halves of 32-bit registers."""
    low, high = (
        in_half(function, *((o >> np.uint32(s)).astype(np.uint16).view(np.float16) for o in operands)) for s in (0, 16)
    )
    return low.view(np.uint16).astype(U4) | (high.view(np.uint16).astype(U4) << np.uint32(16))


# --- comparisons and conversions --------------------------------------------------------------------


def compare(how: str, a: Value, b: Value) -> Value:
    """`setp`'s comparisons; names ending in u are also true if an operand is NaN."""
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
    return _ROUND[mode](a)


def float_to_int(a: Value, dtype: np.dtype[Any], mode: str) -> Value:
    """Round, clamp to the integer's range, NaN to 0."""
    a = _ROUND[mode](a.astype(F8))
    limits = np.iinfo(dtype)
    a = select(np.isnan(a), F8.type(0), a)
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

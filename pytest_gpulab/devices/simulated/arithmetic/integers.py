"""Integer instructions on NumPy values: modulo 2^n, with PTX's shifts, bit fields and carries (PTX ISA 9.7.1, 2 and 8).

Every function takes and returns scalars or arrays of the exact dtype; registers are unsigned and viewed as signed where
the instruction says so. Shift amounts, bit positions and counts are uint32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Value = Any
U4, U8, I8, F8 = map(np.dtype, (np.uint32, np.uint64, np.int64, np.float64))


def select(condition: Value, a: Value, b: Value) -> Value:
    """`selp`: a where the predicate holds, else b."""
    if condition.ndim == 0:
        return a if condition else b
    return np.where(condition, a, b)


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
    """Quotient truncated towards zero; all bits set where the divisor is zero, as hardware gives."""
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


def fns(mask: Value, base: Value, offset: Value) -> Value:
    """`fns`: position of the offset-th set bit from `base` on, downwards if negative; all ones if none."""
    steps = offset.astype(np.int32)
    found = np.uint32(0xFFFFFFFF)
    for position in range(32):
        bit = np.uint32(position)
        from_base = np.where(steps < 0, position <= base.astype(I8), position >= base.astype(I8))
        set_here = (mask >> bit) & np.uint32(1) != 0
        low, high = np.minimum(base, bit), np.maximum(base, bit)
        between = popc((mask >> low) & _mask(high - low + np.uint32(1), U4)).astype(I8)
        wanted = np.where(steps == 0, position == base, between == np.abs(steps))
        found = np.where(from_base & set_here & wanted, bit, found)
    return found[()]


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


def parts(name: str, a: Value, b: Value, c: Value, signed: tuple[bool, ...], options: tuple[int, bool, bool]) -> Value:
    """`vadd4`, `vabsdiff2` and the like: on the 4 bytes or 2 halves of registers.

    Args:
        name: add, sub, absdiff, min or max.
        signed: the result, a and b.
        options: how many parts; whether to saturate; whether to add all results to c instead of packing them.
    """
    count, saturating, accumulate = options
    bits = 32 // count
    total = c.astype(I8) if accumulate else np.int64(0)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed[0] else (0, (1 << bits) - 1)
    for i in range(count):
        value = _PARTS[name](_part(a, i, bits, signed[1]), _part(b, i, bits, signed[2]))
        if saturating:
            value = np.clip(value, low, high)
        total = total + value if accumulate else total | ((value & np.int64((1 << bits) - 1)) << np.int64(bits * i))
    return total.astype(U4)


_PARTS: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum, "absdiff": lambda a, b: np.abs(a - b),
}  # fmt: skip


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

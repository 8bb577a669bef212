"""Integer instructions on NumPy values: arithmetic modulo 2^n, shifts, bit fields and carries (PTX ISA 9.7.1, 2 and 8).

Every function takes and returns scalars or arrays of the exact dtype; registers are unsigned and viewed as signed where
the instruction says so. Shift amounts, bit positions and counts are uint32.
"""

from typing import Any

import numpy as np

Value = Any
U4, U8, I8, F8 = map(np.dtype, (np.uint32, np.uint64, np.int64, np.float64))
_WIDER = {np.dtype(f"{kind}{size}"): np.dtype(f"{kind}{2 * size}") for kind in "iu" for size in (1, 2, 4)}


def select(condition: Value, a: Value, b: Value) -> Value:
    """Return a where the predicate is true, else b (`selp`)."""
    if condition.ndim == 0:
        return a if condition else b
    return np.where(condition, a, b)


def widen(value: Value) -> Value:
    """Return an integer extended by its sign to twice the width."""
    return value.astype(_WIDER[value.dtype])


def mul_wide(a: Value, b: Value) -> Value:
    """Return the full product in twice the width."""
    return widen(a) * widen(b)


def mul_hi(a: Value, b: Value) -> Value:
    """Return the upper half of the product."""
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
    """Return the quotient truncated towards zero; all bits are set where the divisor is zero, as on hardware."""
    quotient = a // b if a.dtype.kind == "u" else (a - np.fmod(a, b)) // b
    zero = b == 0
    return select(zero, ~np.zeros((), a.dtype)[()], quotient) if zero.any() else quotient


def rem_int(a: Value, b: Value) -> Value:
    """Return the remainder with the dividend's sign; all bits are set where the divisor is zero, as on hardware."""
    remainder = a % b if a.dtype.kind == "u" else np.fmod(a, b)
    zero = b == 0
    return select(zero, ~np.zeros((), a.dtype)[()], remainder) if zero.any() else remainder


def _clamped(amount: Value, dtype: np.dtype[Any]) -> Value:
    return np.minimum(amount, np.uint32(8 * dtype.itemsize)).astype(dtype)


def shl(a: Value, amount: Value) -> Value:
    """Shift left; amounts of at least the width give zero."""
    amount = _clamped(amount, a.dtype)
    return np.left_shift(a, amount)


def shr(a: Value, amount: Value) -> Value:
    """Shift right, arithmetically for signed types; amounts of at least the width give zero or the sign."""
    amount = _clamped(amount, a.dtype)
    return np.right_shift(a, amount)


def funnel(low: Value, high: Value, amount: Value, left: bool, wrap: bool) -> Value:
    """Shift the 64 bits high:low by amount and keep one half (`shf`)."""
    amount = amount & np.uint32(31) if wrap else np.minimum(amount, np.uint32(32))
    both = (high.astype(U8) << np.uint64(32)) | low.astype(U8)
    n = amount.astype(U8)
    return ((both << n) >> np.uint64(32) if left else both >> n).astype(U4)


def bit_length(a: Value) -> Value:
    """Return the position of the highest set bit plus one, 0 for 0. The input is unsigned, the result uint32."""
    if a.dtype.itemsize == 8:
        high = (a >> np.uint64(32)).astype(U4)
        low = bit_length(a.astype(U4))
        return select(high != 0, bit_length(high) + np.uint32(32), low)
    return np.frexp(a.astype(F8))[1].astype(U4)


def clz(a: Value) -> Value:
    """Return the number of leading zero bits."""
    return np.uint32(8 * a.dtype.itemsize) - bit_length(a)


def bfind(a: Value, shift_amount: bool) -> Value:
    """Return the position of the highest non-sign bit, or its distance from the top; all ones if there is none."""
    bits = a.view(f"u{a.dtype.itemsize}")
    if a.dtype.kind == "i":
        bits = select(a < 0, ~bits, bits)
    length = bit_length(bits)
    position = length - np.uint32(1)
    if shift_amount:
        position = select(length == 0, position, np.uint32(8 * a.dtype.itemsize - 1) - position)
    return position


def brev(a: Value) -> Value:
    """Reverse the bits."""
    size = a.dtype.itemsize
    swapped = a.byteswap()
    for shift, mask in ((4, 0x0F), (2, 0x33), (1, 0x55)):
        m = a.dtype.type(int.from_bytes(bytes([mask]) * size, "little"))
        n = a.dtype.type(shift)
        swapped = ((swapped & m) << n) | ((swapped >> n) & m)
    return swapped


def popc(a: Value) -> Value:
    """Return the number of set bits as uint32."""
    return np.bitwise_count(a).astype(U4)


def fns(mask: Value, base: Value, offset: Value) -> Value:
    """Return the position of the offset-th set bit from `base` on, downwards if negative; all ones if none (`fns`)."""
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
    """Return a mask of the lowest `length` bits."""
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
    """Return a mask of `length` bits from `start`."""
    if wrap:
        start, length = start & np.uint32(31), length & np.uint32(31)
    return shl(_mask(length, U4), start)


def prmt(a: Value, b: Value, selector: Value, mode: str) -> Value:
    """Select four of the eight bytes in b:a (`prmt`)."""
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
    """Apply a bitwise function of three operands, given by its truth table (`lop3`)."""
    result = np.uint32(0)
    for i in range(8):
        if table >> i & 1:
            result = result | ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c))
    return result


def dot4(a: Value, b: Value, c: Value, signed: tuple[bool, bool], halves: int) -> Value:
    """Return c plus the products of the parts of a and b: `dp4a` (halves -1), `dp2a.lo` (0) or `.hi` (1)."""
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
    """Compute on the 4 bytes or 2 halves of registers (`vadd4`, `vabsdiff2`): add, sub, absdiff, min or max.

    `signed` is the signedness of the result, of a and of b. `options` are the number of parts, True to saturate, and
    True to add all results to c instead of packing them.
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
    """Add or subtract with saturation (`add.sat.s32`, `sub.sat.s32`)."""
    wide = widen(a) - widen(b) if subtract else widen(a) + widen(b)
    limits = np.iinfo(a.dtype)
    return np.clip(wide, limits.min, limits.max).astype(a.dtype)


def carry_add(a: Value, b: Value, carry: Value) -> tuple[Value, Value]:
    """Return the sum and the carry, both of the operands' unsigned dtype."""
    first = a + b
    total = first + carry.astype(a.dtype)
    return total, ((first < a) | (total < first)).astype(U4)


def carry_sub(a: Value, b: Value, borrow: Value) -> tuple[Value, Value]:
    """Return the difference and the borrow."""
    first = a - b
    total = first - borrow.astype(a.dtype)
    return total, ((a < b) | (first < borrow.astype(a.dtype))).astype(U4)

"""Every rounding mode of single operations, and 16-bit floats, against exact rational arithmetic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from places import Run
from test_exact_arithmetic import rounded
from truth_values import Array, fractions, half_words, noise

from pytest_gpulab.devices.simulated.arithmetic.halves import pack, unpack

WIDTHS = {"f32": (np.float32, 24, -149), "f64": (np.float64, 53, -1074)}
HALVES = {"f16": (11, -24, 65504.0), "bf16": (8, -133, float(np.uint32(0x7F7F0000).view(np.float32)))}
OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
}  # fmt: skip


def values(dtype: type[np.floating], count: int, salt: int) -> Array:
    """Return numbers of many magnitudes, every third with few digits so that results are often exact or ties."""
    whole = np.floor(fractions(count, salt) * 64) - 32
    spread = (fractions(count, salt + 1) - 0.5) * 2.0 ** (np.arange(count) % 60 - 30)
    return np.where(np.arange(count) % 3 == 0, whole, spread).astype(dtype)


def source_of(text: str, width: str, operands: str) -> str:
    c_type, register = ("float", "f") if width == "f32" else ("double", "d")
    inputs = f'"{register}"(a[i])' + (f', "{register}"(b[i])' if operands == "%1, %2" else "")
    return f"""
    __global__ void f(const {c_type} *a, const {c_type} *b, {c_type} *out) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        asm volatile("{text} %0, {operands};" : "={register}"(out[i]) : {inputs});
    }}"""


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("width", WIDTHS)
def test_operation_in_every_mode(run: Run, width: str, name: str, mode: str) -> None:
    dtype, digits, lowest = WIDTHS[width]
    a, b = values(dtype, 600, 80), values(dtype, 600, 90)
    b[b == 0] = 3
    out = np.zeros_like(a)
    run(source_of(f"{name}.{mode}.{width}", width, "%1, %2"), a, b, out, grid=(6,), block=(100,))
    for x, y, got in zip(a.tolist(), b.tolist(), out.tolist(), strict=True):
        exact = OPERATIONS[name](Fraction(x), Fraction(y))
        assert got == rounded(exact, mode, digits, lowest), (x, y)
        if exact == 0 and name in ("add", "sub") and x != 0:
            assert math.copysign(1, got) == (-1 if mode == "rm" else 1), (x, y)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("width", WIDTHS)
def test_square_root_in_directed_modes(run: Run, width: str, mode: str) -> None:
    dtype, _, _ = WIDTHS[width]
    a = np.abs(values(dtype, 600, 84))
    out = np.zeros_like(a)
    run(source_of(f"sqrt.{mode}.{width}", width, "%1"), a, a, out, grid=(6,), block=(100,))
    above = np.nextafter(out, dtype(np.inf))
    for x, got, following in zip(a.tolist(), out.tolist(), above.tolist(), strict=True):
        below = Fraction(float(np.nextafter(dtype(got), dtype(0))))
        if mode == "rp":
            assert Fraction(got) ** 2 >= Fraction(x) and (below**2 < Fraction(x) or got == 0), x
        else:
            assert Fraction(got) ** 2 <= Fraction(x) < Fraction(following) ** 2, x


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "mul", "div"])
def test_overflow_in_directed_modes(run: Run, name: str, mode: str) -> None:
    """A result beyond the largest number becomes that number or an infinity, depending on the mode."""
    largest = np.finfo(np.float64).max
    a = np.array([largest, -largest, largest, -largest])
    b = {"add": a, "mul": np.full(4, 2.0), "div": np.full(4, 0.5)}[name]
    out = np.zeros_like(a)
    run(source_of(f"{name}.{mode}.f64", "f64", "%1, %2"), a, b, out, block=(4,))
    up, down = {"rz": (largest, -largest), "rm": (largest, -np.inf), "rp": (np.inf, -largest)}[mode]
    assert out.tolist() == [up, down, up, down]


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_half_operation_rounds_once(run: Run, kind: str, name: str) -> None:
    digits, lowest, largest = HALVES[kind]
    a, b, c = (words.astype(np.uint16) for words in half_words(800))
    operands, extra = ("%1, %2, %3", ', "h"(c[i])') if name == "fma" else ("%1, %2", "")
    source = f"""
    __global__ void f(const short *a, const short *b, const short *c, short *out) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        asm volatile("{name}.rn.{kind} %0, {operands};" : "=h"(out[i]) : "h"(a[i]), "h"(b[i]){extra});
    }}"""
    out = np.zeros_like(a)
    run(source, a, b, c, out, grid=(8,), block=(100,))
    checked = 0
    for x, y, z, got in zip(*(unpack(bits, kind).tolist() for bits in (a, b, c, out)), strict=True):
        if all(map(math.isfinite, (x, y, z))):
            first, second = Fraction(x), Fraction(y)
            exact = first * second + Fraction(z) if name == "fma" else OPERATIONS[name](first, second)
            expected = rounded(exact, "rn", digits, lowest)
            assert got == (math.copysign(math.inf, expected) if abs(expected) > largest else expected), (x, y, z)
            checked += 1
    assert checked > 400


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("kind", "mode"), [("f16", "rn"), ("f16", "rz"), ("f16", "rm"), ("f16", "rp"), ("bf16", "rn"), ("bf16", "rz")]
)
def test_conversion_to_half_in_every_mode(dtype: type[np.floating], kind: str, mode: str) -> None:
    digits, lowest, largest = HALVES[kind]
    near = (1 + np.floor(fractions(900, 51) * 2048) / 2048) * 2.0 ** (np.arange(900) % 40 - 26)
    hair = np.array([0.0, 2.0**-22, -(2.0**-22)])[np.arange(900) % 3] * near
    a = ((near + hair) * np.where(noise(900, 52) & np.uint64(1), 1, -1)).astype(dtype)
    with np.errstate(over="ignore"):
        got = unpack(pack(a, kind, mode), kind)
    for x, result in zip(a.tolist(), got.tolist(), strict=True):
        expected = rounded(Fraction(x), mode, digits, lowest)
        if abs(expected) <= largest:
            assert result == expected, x


@pytest.mark.parametrize(("kind", "ulp"), [("f16", 2.0**-10), ("bf16", 2.0**-7)])
@pytest.mark.parametrize("name", ["ex2", "tanh"])
def test_half_approximation(run: Run, name: str, kind: str, ulp: float) -> None:
    exact = {"ex2": np.exp2, "tanh": np.tanh}[name]
    a = pack(np.linspace(-4, 4, 64, dtype=np.float32), kind)
    out, pairs = np.zeros_like(a), np.zeros_like(a)
    full = f"{name}.approx" + (".ftz" if (name, kind) == ("ex2", "bf16") else "")
    source = f"""
    __global__ void f(const short *a, short *out, int *pairs) {{
        int i = threadIdx.x;
        asm volatile("{full}.{kind} %0, %1;" : "=h"(out[i]) : "h"(a[i]));
        if (i < 32) asm volatile("{full}.{kind}x2 %0, %1;" : "=r"(pairs[i]) : "r"(((const int *)a)[i]));
    }}"""
    run(source, a, out, pairs, block=(64,))
    np.testing.assert_allclose(unpack(out, kind), exact(unpack(a, kind)), rtol=ulp)
    assert (pairs == out).all()


@pytest.mark.parametrize(
    ("kind", "space"), [("f16x2", "global"), ("bf16x2", "shared"), ("bf16", "global"), ("f16", "shared")]
)
def test_atomic_addition_of_halves(run: Run, kind: str, space: str) -> None:
    constraint, c_type, words = (
        ("r", "unsigned", np.uint32) if kind.endswith("x2") else ("h", "unsigned short", np.uint16)
    )
    one = int(pack(np.float32(1.5), kind.removesuffix("x2")))
    value = one * 0x10001 if kind.endswith("x2") else one
    source = f"""
    __global__ void f({c_type} *out) {{
        __shared__ {c_type} word;
        word = 0;
        {c_type} *place = {"&word" if space == "shared" else "out"}, old;
        asm volatile("atom.add.noftz.{kind} %0, [%1], %2;"
                     : "={constraint}"(old) : "l"(place), "{constraint}"(({c_type}){value}));
        out[1 + threadIdx.x] = old;
        out[0] = *place;
    }}"""
    out = np.zeros(9, words)
    run(source, out, block=(8,))
    low = unpack((out & 0xFFFF).astype(np.uint16), kind.removesuffix("x2"))
    assert low.tolist() == [12.0, *(1.5 * lane for lane in range(8))]
    if kind.endswith("x2"):
        assert (out >> 16 == out & 0xFFFF).all()

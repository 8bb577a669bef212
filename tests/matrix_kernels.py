"""Kernels with matrix instructions, their inputs and their results: for the simulated GPU and for real ones.

Inputs are whole numbers, of which every result is exact, or fractions. Fragments of `mma.sync` are filled as the manual
of the PTX ISA says, 9.7.14.5: `g` is the lane's number divided by 4, `t` the remainder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class MatrixCase:
    """One warp computes D = A B + C.

    Attributes:
        source: with the kernel `product`, of A, B, C and D.
        kinds: PTX types of A, B, C and D.
        layouts: of A, B, C and D in memory, `row` or `col`.
        pad: elements between the lines of a matrix in memory.
    """

    name: str
    source: str
    shape: tuple[int, int, int]
    kinds: tuple[str, str, str, str]
    layouts: tuple[str, str, str, str] = ("row", "row", "row", "row")
    pad: int = 0

    def matrices(self, whole: bool) -> list[Array]:
        """Return A, B and C as float64, of numbers that their types hold exactly."""
        random, (m, n, k) = np.random.default_rng(sum(self.shape)), self.shape
        found = []
        for kind, shape in zip(self.kinds, ((m, k), (k, n), (m, n)), strict=False):
            low = 0 if kind == "u8" else -9
            values = random.integers(low, 10, shape) if whole or kind in INTEGERS else random.normal(size=shape)
            found.append(numbers(bits(values.astype(np.float64), kind), kind))
        return found

    def stored(self, matrix: Array, number: int) -> Array:
        """Return the bits of a matrix as memory holds them, lines with their padding."""
        lines = bits(matrix if self.layouts[number] == "row" else matrix.T, self.kinds[number])
        return np.pad(lines, ((0, 0), (0, self.pad)))

    def read(self, memory: Array) -> Array:
        """Return D as float64 from its bits in memory."""
        lines = numbers(memory, self.kinds[3])[:, : memory.shape[1] - self.pad]
        return lines if self.layouts[3] == "row" else lines.T

    def tolerance(self, a: Array, b: Array, c: Array) -> Array:
        """Return how far each element of D may be off: cut-off summands, and the last bit of D."""
        bits_kept = {"f16": 10, "f32": 21, "f64": 50, "s32": 60}[self.kinds[3]]
        found: Array = (np.abs(a) @ np.abs(b) + np.abs(c)) * 2.0**-bits_kept
        return found


INTEGERS = ("s8", "u8", "s32")
_CODES = {"f16": "f2", "f32": "f4", "tf32": "f4", "f64": "f8", "s8": "i1", "u8": "u1", "s32": "i4"}


def bits(values: Array, kind: str) -> Array:
    """Return numbers in a PTX type."""
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    found = values.astype(_CODES[kind])
    return (found.view(np.uint32) & 0xFFFFE000).view(np.float32) if kind == "tf32" else found


def numbers(values: Array, kind: str) -> Array:
    """Return numbers of a PTX type as float64."""
    if kind == "bf16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


# --- wmma -------------------------------------------------------------------------------------------------------------

_NAMES = {
    "f16": "half", "bf16": "__nv_bfloat16", "tf32": "wmma::precision::tf32", "f64": "double", "f32": "float",
    "s8": "signed char", "u8": "unsigned char", "s32": "int",
}  # fmt: skip
_STORED = _NAMES | {"tf32": "float"}
_WMMA = """
#include <mma.h>
using namespace nvcuda;
__global__ void product(const {sa} *a, const {sb} *b, const {sc} *c, {sd} *d)
{{
    wmma::fragment<wmma::matrix_a, {shape}, {ta}, wmma::{la}_major> fa;
    wmma::fragment<wmma::matrix_b, {shape}, {tb}, wmma::{lb}_major> fb;
    wmma::fragment<wmma::accumulator, {shape}, {tc}> fc;
    wmma::fragment<wmma::accumulator, {shape}, {td}> fd;
    {tiles}
    wmma::load_matrix_sync(fc, c, {nc}, wmma::mem_{lc}_major);
    wmma::mma_sync(fd, fa, fb, fc);
    wmma::store_matrix_sync(d, fd, {nd}, wmma::mem_{ld}_major);
}}
"""
_FROM_GLOBAL = "wmma::load_matrix_sync(fa, a, {na}); wmma::load_matrix_sync(fb, b, {nb});"
_FROM_SHARED = """
    __shared__ __align__(32) {sa} tile_a[{ra} * {na}];
    __shared__ __align__(32) {sb} tile_b[{rb} * {nb}];
    for (int i = threadIdx.x; i < {ra} * {na}; i += 32) tile_a[i] = a[i];
    for (int i = threadIdx.x; i < {rb} * {nb}; i += 32) tile_b[i] = b[i];
    __syncthreads();
    wmma::load_matrix_sync(fa, tile_a, {na});
    wmma::load_matrix_sync(fb, tile_b, {nb});
"""
_WMMA_TYPES = {
    "f16": [("f32", "f32"), ("f16", "f16"), ("f16", "f32"), ("f32", "f16")], "bf16": [("f32", "f32")],
    "s8": [("s32", "s32")], "u8": [("s32", "s32")], "tf32": [("f32", "f32")], "f64": [("f64", "f64")],
}  # fmt: skip
_LAYOUTS = [("row", "col", "row", "row"), ("col", "row", "col", "col"), ("row", "row", "col", "row"),
            ("col", "col", "row", "col")]  # fmt: skip


def _wmma_case(shape: tuple[int, int, int], kinds: Any, layouts: Any, in_shared: bool) -> MatrixCase:
    m, n, k = shape
    pad, rows = 32, [(m, k), (k, n), (m, n), (m, n)]
    lines = [extents if layout == "row" else extents[::-1] for extents, layout in zip(rows, layouts, strict=True)]
    words: dict[str, Any] = {"shape": f"{m}, {n}, {k}"}
    for letter, kind, layout, (count, length) in zip("abcd", kinds, layouts, lines, strict=True):
        words |= {f"t{letter}": _NAMES[kind], f"s{letter}": _STORED[kind], f"l{letter}": layout}
        words |= {f"r{letter}": count, f"n{letter}": length + pad}
    words["tiles"] = (_FROM_SHARED if in_shared else _FROM_GLOBAL).format(**words)
    place = "shared" if in_shared else "global"
    name = f"wmma {m}x{n}x{k} {' '.join(kinds)} {' '.join(layouts)} {place}"
    return MatrixCase(name, _WMMA.format(**words), shape, kinds, layouts, pad)


def wmma_cases() -> list[MatrixCase]:
    """Return cases for all shapes, types, layouts and memories of `nvcuda::wmma`; not each with each."""
    usual = [(16, 16, 16), (32, 8, 16), (8, 32, 16)]
    found = []
    for kind, sums in _WMMA_TYPES.items():
        shapes = {"tf32": [(16, 16, 8)], "f64": [(8, 8, 4)]}.get(kind, usual)
        for shape, (number, layouts), in_shared in product(shapes, enumerate(_LAYOUTS), (False, True)):
            kinds = (kind, kind, *sums[(number + in_shared) % len(sums)])
            found.append(_wmma_case(shape, kinds, layouts, in_shared))
    return found


# --- mma.sync ---------------------------------------------------------------------------------------------------------

_MMA = """
__device__ int row_a(int i, int g, int t) {{ return {row_a}; }}
__device__ int column_a(int i, int g, int t) {{ return {column_a}; }}
__device__ int row_b(int i, int g, int t) {{ return {row_b}; }}
__device__ int row_c(int i, int g, int t) {{ return {row_c}; }}
__global__ void product(const {ta} *a, const {tb} *b, const {tc} *c, {td} *d)
{{
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    union {{ {ta} of[{na}]; {ra} in[{ka}]; }} fa;
    union {{ {tb} of[{nb}]; {ra} in[{kb}]; }} fb;
    union {{ {tc} of[{nc}]; {rc} in[{kc}]; }} fc;
    union {{ {td} of[{nc}]; {rd} in[{kd}]; }} fd;
    for (int i = 0; i < {na}; ++i) fa.of[i] = a[row_a(i, g, t) * {k} + column_a(i, g, t)];
    for (int i = 0; i < {nb}; ++i) fb.of[i] = b[row_b(i, g, t) * {n} + g];
    for (int i = 0; i < {nc}; ++i) fc.of[i] = c[row_c(i, g, t) * {n} + 2 * t + i % 2];
    asm("mma.sync.aligned.{shape}.row.col.{words} {{{pd}}}, {{{pa}}}, {{{pb}}}, {{{pc}}};" : {outs} : {ins});
    for (int i = 0; i < {nc}; ++i) d[row_c(i, g, t) * {n} + 2 * t + i % 2] = fd.of[i];
}}
"""
_PLACES = {  # rows and columns of A, rows of B
    ("m16n8k8", 16): ("i < 2 ? g : g + 8", "2 * t + i % 2", "2 * t + i"),
    ("m16n8k16", 16): ("i < 2 || (4 <= i && i < 6) ? g : g + 8", "2 * t + i % 2 + (i < 4 ? 0 : 8)",
                       "2 * t + i % 2 + (i < 2 ? 0 : 8)"),
    ("m16n8k4", 32): ("i == 0 ? g : g + 8", "t", "t"),
    ("m16n8k8", 32): ("i == 0 || i == 2 ? g : g + 8", "i < 2 ? t : t + 4", "i == 0 ? t : t + 4"),
    ("m8n8k16", 8): ("g", "4 * t + i", "4 * t + i"),
    ("m16n8k16", 8): ("i < 4 ? g : g + 8", "4 * t + i % 4", "4 * t + i"),
    ("m16n8k32", 8): ("i < 4 || (8 <= i && i < 12) ? g : g + 8", "4 * t + i % 4 + (i < 8 ? 0 : 16)",
                      "4 * t + i % 4 + (i < 4 ? 0 : 16)"),
    ("m8n8k4", 64): ("g", "t", "t"),
    ("m16n8k4", 64): ("i == 0 ? g : g + 8", "t", "t"),
    ("m16n8k8", 64): ("i == 0 || i == 2 ? g : g + 8", "i < 2 ? t : t + 4", "i == 0 ? t : t + 4"),
    ("m16n8k16", 64): ("i % 2 == 0 ? g : g + 8", "4 * (i / 2) + t", "4 * i + t"),
}  # fmt: skip
_SIZES = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "f64": 64, "f32": 32, "s32": 32}
_HELD = {"f16": "unsigned short", "bf16": "unsigned short", "tf32": "float", "f32": "float"}
_MMA_TYPES = {
    16: [("f16", "f16", "f32", "f32"), ("f16", "f16", "f16", "f16"), ("bf16", "bf16", "f32", "f32")],
    32: [("tf32", "tf32", "f32", "f32")],
    8: [("s8", "s8", "s32", "s32"), ("u8", "s8", "s32", "s32"), ("s8", "u8", "s32", "s32"), ("u8", "u8", "s32", "s32")],
    64: [("f64", "f64", "f64", "f64")],
}


def _register(kind: str) -> tuple[str, str, int]:
    """Return the C++ type, the constraint and the bits of a register that holds a PTX type."""
    if kind == "f64":
        return "double", "d", 64
    return ("float", "f", 32) if kind == "f32" else ("unsigned", "r", 32)


def _mma_case(shape: str, size: int, kinds: tuple[str, str, str, str]) -> MatrixCase:
    m, n, k = map(int, re.findall(r"\d+", shape))
    elements = {"a": m * k // 32, "b": k * n // 32, "c": m * n // 32, "d": m * n // 32}
    row_a, column_a, row_b = _PLACES[shape, size]
    words: dict[str, Any] = {
        "shape": shape, "n": n, "k": k, "row_a": row_a, "column_a": column_a, "row_b": row_b,
        "row_c": "i < 2 ? g : g + 8", "words": f"{kinds[3]}.{kinds[0]}.{kinds[1]}.{kinds[2]}",
    }  # fmt: skip
    registers, first, operands = {}, 0, {}
    for letter, kind in zip("dabc", (kinds[3], *kinds[:3]), strict=True):
        register, constraint, width = _register(kind)
        count = registers[letter] = elements[letter] * _SIZES[kind] // width
        words |= {f"t{letter}": _HELD.get(kind) or _NAMES[kind], f"r{letter}": register, f"k{letter}": count}
        words |= {f"n{letter}": elements[letter], f"p{letter}": ", ".join(f"%{first + i}" for i in range(count))}
        mark = "=" if letter == "d" else ""
        operands[letter] = ", ".join(f'"{mark}{constraint}"(f{letter}.in[{i}])' for i in range(count))
        first += count
    words |= {"outs": operands["d"], "ins": ", ".join(operands[letter] for letter in "abc")}
    return MatrixCase(f"mma {shape} {' '.join(kinds)}", _MMA.format(**words), (m, n, k), kinds)


def mma_cases() -> list[MatrixCase]:
    """Return a case for each shape and type of `mma.sync` that the simulated GPU knows."""
    return [_mma_case(shape, size, kinds) for shape, size in _PLACES for kinds in _MMA_TYPES[size]]


def launched(
    device: Any, module: Any, case: MatrixCase, whole: bool, kernel: str = "product", **options: Any
) -> tuple[Array, list[Array], Any]:
    """Run a case that a device has compiled; return D, then A, B and C, all as float64, and the launch's profile."""
    matrices = case.matrices(whole)
    arrays = [device.array(case.stored(matrix, number)) for number, matrix in enumerate(matrices)]
    d = device.array(case.stored(np.zeros(matrices[2].shape), 3))
    profile = module.launch(kernel, (1,), (32,), [*arrays, d], **options)
    return case.read(d.get()), matrices, profile

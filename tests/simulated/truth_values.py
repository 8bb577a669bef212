"""Deterministic inputs for the truth kernels: edge values crossed with each other, then noise.

The noise is SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) over the
index, written out here because NumPy's generators may change their streams between versions and the record would
then no longer belong to its inputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

INTEGER_EDGES = (0, 1, -1, 2, -2, 3, 5, 7, 31, 32, 33, 63, 64, 65, 100, 255, 0x7F80, -0x1234, 1 << 12, 0x1F0F0F0F)
FLOAT_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.0, 1 / 3, 0.1, 1e-3, 8388607.5, 16777217.0,
               2147483647.0, -2147483648.0, 4294967296.0, 9.3e18, -1e10)  # fmt: skip

HALF_EDGES = (0x0000, 0x8000, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0x0001, 0x83FF, 0x0400, 0x3555,
              0x4248, 0x3F80, 0xBF80, 0x7F80, 0xFF80, 0x7FC0, 0x0080, 0x807F, 0x7F7F, 0xB8A1, 0x42FF)  # fmt: skip


def noise(count: int, salt: int) -> Array:
    """Return `count` uint64 of SplitMix64, another sequence for each salt."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(salt << 20)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def fractions(count: int, salt: int) -> Array:
    """Return float64 noise in [0, 1)."""
    return (noise(count, salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def operands(dtype: npt.DTypeLike, count: int, arity: int = 2) -> tuple[Array, ...]:
    """Return `arity` arrays: every pair of edges for the first two, then noise.

    A third operand walks through the edges at a stride of its own.
    """
    kind = np.dtype(dtype)
    edges = _float_edges(kind) if kind.kind == "f" else _integer_edges(kind)
    index = np.arange(count)
    result = []
    for position, picked in enumerate((index // len(edges), index, index * 7 + index // len(edges) + 3)[:arity]):
        values = _noise_of(kind, count, position + 1)
        crossed = min(count, len(edges) ** 2)
        values[:crossed] = edges[picked[:crossed] % len(edges)]
        result.append(values)
    return tuple(result)


def half_words(count: int) -> tuple[Array, ...]:
    """Return three arrays of 32-bit words whose halves are edges of float16 and bfloat16, crossed, then noise."""
    index = np.arange(count)
    edges = np.array(HALF_EDGES, "u4")
    result = []
    for position, picked in enumerate((index // len(edges), index, index * 7 + 3)):
        words = noise(count, 60 + position).astype("u4")
        crossed = min(count, len(edges) ** 2)
        low = edges[picked[:crossed] % len(edges)]
        words[:crossed] = low | np.roll(low, 5) << np.uint32(16)
        result.append(words)
    return tuple(result)


def _integer_edges(kind: np.dtype[Any]) -> Array:
    top = 1 << (8 * kind.itemsize - 1)
    values = (*INTEGER_EDGES, top, top - 1, top + 1, top >> 1, top | 0x15)
    wrapped = np.array([value & (2 * top - 1) for value in values], dtype=f"u{kind.itemsize}")
    return np.unique(wrapped).view(kind)


def _float_edges(kind: np.dtype[Any]) -> Array:
    info = np.finfo(kind)
    limits = (info.tiny, info.smallest_subnormal, info.tiny * 0.75, -info.tiny / 2, info.max, -info.max)
    special = (np.inf, -np.inf, np.nan, 1 + info.eps, 1 - info.epsneg, 1 / info.tiny)
    return np.array((*FLOAT_EDGES, *limits, *special), dtype=kind)


def _noise_of(kind: np.dtype[Any], count: int, salt: int) -> Array:
    bits = noise(count, salt)
    if kind.kind != "f":
        return np.ascontiguousarray((bits >> np.uint64(3)).astype(f"u{kind.itemsize}")).view(kind)
    patterns = (bits >> np.uint64(64 - 8 * kind.itemsize)).astype(f"u{kind.itemsize}").view(kind)
    near_one = ((fractions(count, salt + 50) - 0.5) * 8).astype(kind)
    return np.where(np.arange(count) % 2 == 0, patterns, near_one)


def arguments(count: int, salt: int) -> Array:
    """Return float32 arguments for math functions: edges, small, whole, multiples of pi / 2, of all magnitudes."""
    edges = _float_edges(np.dtype(np.float32))
    sign = np.where(noise(count, salt + 1) & np.uint64(1), 1.0, -1.0)
    unit = fractions(count, salt)
    powers = 10 ** ((unit * 2 - 1) * 37), 10 ** (unit * 6 - 3)
    ranges = (unit * 8, unit, np.floor(unit * 40), np.floor(unit * 100) * (np.pi / 2), *powers)
    values = (np.choose(np.arange(count) % len(ranges), ranges) * sign).astype(np.float32)
    values[: len(edges)] = np.roll(edges, salt)
    return values


def double_arguments() -> Array:
    """Return two rows of float64 arguments like those of `arguments`, with powers from 1e-300 to 1e300.

    They are kept, because the last place of NumPy's float64 powers depends on the CPU: on whether it has AVX-512.
    """
    kept: Array = np.load(Path(__file__).with_name("double_arguments.npy"))
    return kept

"""For instructors: input patterns that expose mistakes, and tolerances that come from error bounds.

An exercise's `inputs` calls `fill`, its `reference` one of the `..._tolerance` functions. The bounds are those of
N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM 2002: lemma 3.1 (gamma_n), section 3.1
(products) and section 4.2 (sums: a sum whose terms pass through at most d additions each errs by at most
gamma_d * sum |x_i|, whatever the order). So an honest kernel passes for certain, and nothing is tuned by hand.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_FIRST_FEW = 1024  # terms that mostly tell whether all are integers
_PIECE = 2**18  # terms at a time, which the CPU's cache holds in float64
PATTERNS = ("random", "equal", "alternating", "needle", "cancellation", "integers")


def fill(pattern: str, n: int, dtype: npt.DTypeLike, rng: np.random.Generator) -> Array:
    """Return n input values, shape (n,), float or signed integer `dtype`.

    Patterns:
        random: floats in [0.5, 1.5), so that their sum is well conditioned; integers in [-1000, 1000].
        equal: one negative value throughout.
        alternating: `random`'s magnitudes with signs + - + -.
        needle: zeros and, at a random place, one odd integer over 2048, which half precision cannot hold.
        cancellation: large magnitudes whose sum is small, in random order.
        integers: integers in [-8, 8]; their float sums are exact in any order (see `sums_exactly`).

    Raises:
        ValueError: no such pattern.
    """
    kind = np.dtype(dtype)
    is_float = np.issubdtype(kind, np.floating)
    if pattern == "random":
        values = rng.uniform(0.5, 1.5, n) if is_float else rng.integers(-1000, 1001, n)
    elif pattern == "equal":
        values = np.full(n, -0.7 if is_float else -7)
    elif pattern == "alternating":
        values = np.abs(fill("random", n, kind, rng)) * np.where(np.arange(n) % 2, -1, 1)
    elif pattern == "needle":
        values = np.zeros(n, kind)
        values[rng.integers(n)] = 2049 + 2 * rng.integers(1000)
    elif pattern == "cancellation":
        values = _cancelling(n, is_float, rng)
    elif pattern == "integers":
        values = rng.integers(-8, 9, n)
    else:
        raise ValueError(f"no input pattern is called {pattern!r}; there are {', '.join(PATTERNS)}")
    return values.astype(kind)


def _cancelling(n: int, is_float: bool, rng: np.random.Generator) -> Array:
    half = rng.uniform(1e5, 1e6, n // 2) if is_float else rng.integers(2**29, 2**30, n // 2)
    rest = rng.uniform(0.5, 1.5, n % 2) if is_float else rng.integers(1, 1000, n % 2)
    return rng.permutation(np.concatenate([half, -half, rest]))


def unit_roundoff(dtype: npt.DTypeLike) -> float:
    """Return u, the largest relative error of one rounding to nearest: 2**-24 for float32."""
    return float(np.finfo(np.dtype(dtype)).eps) / 2


def gamma(n: int, dtype: npt.DTypeLike) -> float:
    """Return gamma_n = n*u / (1 - n*u), the bound on the relative error of n roundings in a row; inf from n*u = 1 on.

    Source: Higham, lemma 3.1.
    """
    nu = n * unit_roundoff(dtype)
    return nu / (1 - nu) if nu < 1 else math.inf


def recursive_depth(n: int) -> int:
    """Return the additions that a term of an n-term sum passes through at most, in any order of summation."""
    return max(n - 1, 0)


def pairwise_depth(n: int) -> int:
    """Return the depth of a balanced tree over n terms, the ceiling of log2(n)."""
    return max(n - 1, 0).bit_length()


def sums_exactly(terms: Array, dtype: npt.DTypeLike) -> bool:
    """Return whether every sum of some of the terms is exact in `dtype`, in any order.

    True if all are integers and the sum of their magnitudes is at most 1/u, as all integers up to there are
    representable; always true of integer types, which wrap around.
    """
    if not np.issubdtype(np.dtype(dtype), np.floating):
        return True
    if not _are_integers(terms.reshape(-1)[:_FIRST_FEW]):
        return False
    magnitude = np.sum(np.abs(terms), dtype=np.float64)
    return bool(magnitude <= 1 / unit_roundoff(dtype)) and _are_integers(terms)


def _are_integers(values: Array) -> bool:
    return bool(np.all(values == np.rint(values)))


def sum_tolerance(terms: Array, dtype: npt.DTypeLike, depth: int | None = None) -> float:
    """Return the largest absolute error of a sum of all `terms` that is carried out in `dtype`.

    Args:
        terms: the exact summands, any shape.
        dtype: the type in which the kernel adds.
        depth: the additions that a term passes through at most; None allows any order (`recursive_depth`).

    Source: Higham, section 4.2: gamma_depth * sum |x_i|; 0 where no addition rounds (`sums_exactly`).
    """
    if sums_exactly(terms, dtype):
        return 0.0
    steps = recursive_depth(terms.size) if depth is None else depth
    return gamma(steps, dtype) * float(np.sum(np.abs(terms), dtype=np.float64))


def scan_tolerance(terms: Array, dtype: npt.DTypeLike, depth: int | None = None) -> Array:
    """Return the largest absolute error of each inclusive prefix sum of `terms`, shape (n,), float64.

    Arguments and source as for `sum_tolerance`; for an exclusive scan shift the result as the sums are shifted.
    """
    if sums_exactly(terms, dtype):
        return np.zeros(terms.size)
    steps = recursive_depth(terms.size) if depth is None else depth
    bound: Array = terms.reshape(-1).astype(np.float64)  # far faster than to let cumsum convert them itself
    np.abs(bound, out=bound)  # all in one array, because large new ones cost more than the sums
    np.cumsum(bound, out=bound)
    bound *= gamma(steps, dtype)
    return bound


def prefix_sums_at(terms: Array, counts: Array) -> Array:
    """Return some prefix sums of many terms: sums of the first so many, without making those of all the others.

    Args:
        terms: shape (n,), of any real type; they are added in float64.
        counts: how many terms, from 0 to n, shape (m,).

    Returns:
        Shape (m,), float64.
    """
    return _sums_at(terms, counts)


def scan_tolerance_at(terms: Array, counts: Array, dtype: npt.DTypeLike, depth: int | None = None) -> Array:
    """Return what `scan_tolerance` does at some places only, for sums of the first `counts` terms, shape (m,)."""
    if sums_exactly(terms, dtype):
        return np.zeros(counts.shape)
    steps = recursive_depth(terms.size) if depth is None else depth
    return gamma(steps, dtype) * _sums_at(terms, counts, of_magnitudes=True)


def _sums_at(terms: Array, counts: Array, of_magnitudes: bool = False) -> Array:
    """Add up what lies between one count and the next, piece by piece: large new arrays cost more than the sums."""
    ends, which = np.unique(counts, return_inverse=True)
    sums, total = np.zeros(ends.size), 0.0
    for begin in range(0, terms.size, _PIECE):
        piece = np.append(terms[begin : begin + _PIECE], 0).astype(np.float64)  # 0 is after a cut at the piece's end
        if of_magnitudes:
            np.abs(piece, out=piece)
        first, end = np.searchsorted(ends, (begin, begin + piece.size - 1), side="right")
        cuts = np.append(0, ends[first:end] - begin)
        so_far = total + np.cumsum(np.add.reduceat(piece, cuts))
        sums[first:end], total = so_far[:-1], so_far[-1]
    return sums[which]


def product_tolerance(factors: Array, dtype: npt.DTypeLike) -> float:
    """Return the largest absolute error of the product of all `factors` in `dtype`, in any order.

    Holds while no partial product overflows or underflows. 0 for integer types, which wrap around.

    Source: Higham, section 3.1: gamma_(n-1) * |product|.
    """
    if not np.issubdtype(np.dtype(dtype), np.floating):
        return 0.0
    return gamma(recursive_depth(factors.size), dtype) * abs(float(np.prod(factors, dtype=np.float64)))

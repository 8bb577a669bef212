"""Input patterns that expose mistakes, and tolerances from error bounds.

An exercise's `inputs` calls `fill`, its `reference` one of the `..._tolerance` functions. The bounds are from N. J.
Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM 2002: lemma 3.1 (gamma_n), section 3.1 (products)
and section 4.2 (sums: if each term passes through at most d additions, the error is at most gamma_d * sum |x_i|, in any
order). So a correct kernel always passes, and no tolerance is tuned by hand.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_FIRST_FEW = 1024  # terms tested first: mostly they show whether all are multiples of a power of two
MOVED = 256  # one of this number of repeated values changes its place: more would take too long to draw
_PIECE = 2**18  # terms at a time, so that they fit into the CPU's cache as float64
PATTERNS = ("random", "equal", "alternating", "needle", "cancellation", "integers", "fractions")
ALL_PATTERNS = (*PATTERNS, "bits")  # with the one that not every reference allows
_MANY = 256  # `fractions` with many digits; the others share the rest of 1/u


def fill(pattern: str, n: int, dtype: npt.DTypeLike, rng: np.random.Generator, repeats: int = 1) -> Array:
    """Return n input values, shape (n,), float or signed integer `dtype`, or raise ValueError for an unknown pattern.

    Args:
        n, dtype: the number of values and their type.
        rng: the source of random values.
        repeats: how often the input will repeat the values; sums of all repetitions of `fractions` stay exact.

    Patterns:
        random: floats in [0.5, 1.5), so that their sum is well conditioned; integers in [-1000, 1000].
        equal: one negative value, repeated.
        alternating: `random`'s magnitudes with signs + - + -.
        needle: zeros and, at a random place, one odd integer over 2048, which half precision cannot hold.
        cancellation: large magnitudes with a small sum, in random order.
        integers: integers in [-8, 8]; their float sums are exact in any order (see `sums_exactly`).
        fractions: odd multiples of 2**-10 with random signs, none of them a whole number, with exact float sums in
            any order: a kernel that rounds, truncates, drops or doubles a term gets another sum. Some have too many
            digits for half precision. Beyond 1/(2u) values in total, the rest are zeros. Integer types get odd
            integers.
        bits: integers of random bits, with sums that wrap around; floats as `random`. Not one of PATTERNS: a reference
            must allow for the overflow.
    """
    kind = np.dtype(dtype)
    is_float = np.issubdtype(kind, np.floating)
    if pattern == "fractions":
        values = _fractions(n, repeats, kind, rng)
        return (values / 1024 if is_float else values).astype(kind)
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
        values = _cancelling(n, kind, rng)
    elif pattern == "integers":
        values = rng.integers(-8, 9, n)
    elif pattern == "bits":
        values = fill("random", n, kind, rng) if is_float else rng.integers(0, 1 << 8 * kind.itemsize, n, np.uint64)
    else:
        raise ValueError(f"no input pattern is called {pattern!r}; there are {', '.join(ALL_PATTERNS)}")
    return values.astype(kind)


def repeated(values: Array, n: int, rng: np.random.Generator) -> Array:
    """Return n elements, shape (n,): values of shape (at most n,) repeated, with some elements swapped at random.

    A kernel that reads only the first repetition gets a wrong result. The multiset of values stays the same, so sums
    that are exact in any order stay exact.
    """
    found = np.resize(values, n)
    if n > len(values):
        places = np.unique(rng.integers(n, size=n // MOVED))
        found[places] = found[rng.permutation(places)]
    return found


def _fractions(n: int, repeats: int, kind: np.dtype[Any], rng: np.random.Generator) -> Array:
    """Return odd numerators with a sum of magnitudes of at most 1/u over all `repeats`.

    Half of 1/u is for _MANY of them at random positions, with more digits than half precision if u allows it. The
    others share the other half.
    """
    half = (0.5 / unit_roundoff(kind) if np.issubdtype(kind, np.floating) else 2.0**23) / repeats
    each_most, largest = int(half // max(n, 1)), int(half // _MANY)
    values = (
        2 * rng.integers(0, (each_most + 1) // 2, n) + 1 if each_most else (rng.permutation(n) < half).astype(np.int64)
    )
    some = rng.choice(n, min(n, _MANY), replace=False)
    values[some] = np.maximum(values[some], largest - 1 - 2 * rng.integers(0, max(largest // 4, 1), some.size))
    signed: Array = values * rng.choice([-1, 1], n)
    return signed


def _cancelling(n: int, kind: np.dtype[Any], rng: np.random.Generator) -> Array:
    is_float = np.issubdtype(kind, np.floating)
    top = min(1e6, float(np.finfo(kind).max) / max(n, 1)) if is_float else 0.0  # no partial sum overflows
    half = rng.uniform(top / 10, top, n // 2) if is_float else rng.integers(2**29, 2**30, n // 2)
    rest = rng.uniform(0.5, 1.5, n % 2) if is_float else rng.integers(1, 1000, n % 2)
    return rng.permutation(np.concatenate([half, -half, rest]))


def unit_roundoff(dtype: npt.DTypeLike) -> float:
    """Return u, the largest relative error of one rounding to nearest: 2**-24 for float32."""
    return float(np.finfo(np.dtype(dtype)).eps) / 2


def gamma(n: int, dtype: npt.DTypeLike) -> float:
    """Return gamma_n = n*u / (1 - n*u), the bound on the relative error of n roundings in a row; inf if n*u >= 1.

    Source: Higham, lemma 3.1.
    """
    nu = n * unit_roundoff(dtype)
    return nu / (1 - nu) if nu < 1 else math.inf


def recursive_depth(n: int) -> int:
    """Return the maximal number of additions that a term of an n-term sum passes through, in any order."""
    return max(n - 1, 0)


def pairwise_depth(n: int) -> int:
    """Return the depth of a balanced tree over n terms, the ceiling of log2(n)."""
    return max(n - 1, 0).bit_length()


def sums_exactly(terms: Array, dtype: npt.DTypeLike) -> bool:
    """Return whether every sum of some of the terms is exact in `dtype`, in any order.

    True if all are multiples of a power of two q and their magnitudes add up to at most q/u, as all multiples of q up
    to there are representable: whole numbers (q = 1) or fractions such as 3/8. Always true of integer types, which wrap
    around.
    """
    if not np.issubdtype(np.dtype(dtype), np.floating):
        return True
    flat = terms.reshape(-1)
    if not _are_multiples(flat[:_FIRST_FEW], _quantum(flat[:_FIRST_FEW], dtype)):
        return False
    return _are_multiples(flat, _quantum(flat, dtype))


def _quantum(terms: Array, dtype: npt.DTypeLike) -> float:
    """Return the smallest power of two q with sum |x_i| <= q/u."""
    magnitude = sum(float(np.sum(np.abs(piece), dtype=np.float64)) for piece in _pieces(terms))
    if not 0 < magnitude < math.inf:
        return 1.0 if magnitude == 0 else math.nan  # no value is a multiple of NaN
    fraction, exponent = math.frexp(magnitude * unit_roundoff(dtype))
    return math.ldexp(1.0, exponent - (fraction == 0.5))


def _are_multiples(values: Array, quantum: float) -> bool:
    scaled = (piece.astype(np.float64) / quantum for piece in _pieces(values))  # a power of two: exact
    return all(bool(np.all(piece == np.rint(piece))) for piece in scaled)


def _pieces(values: Array) -> Iterator[Array]:
    return (values[begin : begin + _PIECE] for begin in range(0, values.size, _PIECE))


def sum_tolerance(terms: Array, dtype: npt.DTypeLike, depth: int | None = None) -> float:
    """Return the largest absolute error of a sum of all `terms` computed in `dtype`.

    Args:
        terms: the exact terms, any shape.
        dtype: the type of the kernel's additions.
        depth: maximal number of additions that a term passes through; None allows any order (`recursive_depth`).

    Raises:
        ValueError: the type has no bound for this number of additions: float16 from depth 1024.

    Source: Higham, section 4.2: gamma_depth * sum |x_i|; 0 where no addition rounds (`sums_exactly`).
    """
    if sums_exactly(terms, dtype):
        return 0.0
    return _relative_bound(terms.size, dtype, depth) * float(np.sum(np.abs(terms), dtype=np.float64))


def _relative_bound(n: int, dtype: npt.DTypeLike, depth: int | None = None) -> float:
    """Return gamma of the depth, or of any order of n terms; a bound of 1 or more would allow zeros."""
    steps = recursive_depth(n) if depth is None else depth
    if (bound := gamma(steps, dtype)) >= 1:
        raise ValueError(
            f"{steps} {np.dtype(dtype)} operations in a row may lose every digit, so there is no tolerance: give the "
            "`depth` of the kernel's tree, use a wider type, or values with exact sums"
        )
    return bound


def scan_tolerance(terms: Array, dtype: npt.DTypeLike, depth: int | None = None) -> Array:
    """Return the largest absolute error of each inclusive prefix sum of `terms`, shape (n,), float64.

    Arguments and source as for `sum_tolerance`; for an exclusive scan shift the result as the sums are shifted.
    """
    if sums_exactly(terms, dtype):
        return np.zeros(terms.size)
    relative = _relative_bound(terms.size, dtype, depth)
    bound: Array = terms.reshape(-1).astype(np.float64)  # far faster than the conversion in cumsum
    np.abs(bound, out=bound)  # in place, because large new arrays cost more than the sums
    np.cumsum(bound, out=bound)
    bound *= relative
    return bound


def prefix_sums_at(terms: Array, counts: Array) -> Array:
    """Return selected prefix sums of terms, shape (n,), any real type: shape (m,), added in float64.

    `counts` are the numbers of leading terms, from 0 to n, shape (m,). No array of all prefix sums is made.
    """
    return _sums_at(terms, counts)


def scan_tolerance_at(terms: Array, counts: Array, dtype: npt.DTypeLike, depth: int | None = None) -> Array:
    """Return `scan_tolerance` for selected prefix sums: of the first `counts` terms, shape (m,)."""
    if sums_exactly(terms, dtype):
        return np.zeros(counts.shape)
    return _relative_bound(terms.size, dtype, depth) * _sums_at(terms, counts, of_magnitudes=True)


def _sums_at(terms: Array, counts: Array, of_magnitudes: bool = False) -> Array:
    """Return the sums of the first `counts` terms, computed in pieces: large new arrays cost more than the sums."""
    ends, which = np.unique(counts, return_inverse=True)
    sums, total = np.zeros(ends.size), 0.0
    for begin in range(0, terms.size, _PIECE):
        # The 0 allows a cut at the end of the piece.
        piece = np.append(terms[begin : begin + _PIECE], 0).astype(np.float64)
        if of_magnitudes:
            np.abs(piece, out=piece)
        first, end = np.searchsorted(ends, (begin, begin + piece.size - 1), side="right")
        cuts = np.append(0, ends[first:end] - begin)
        so_far = total + np.cumsum(np.add.reduceat(piece, cuts))
        sums[first:end], total = so_far[:-1], so_far[-1]
    return sums[which]


def multiplies_exactly(factors: Array, dtype: npt.DTypeLike) -> bool:
    """Return whether every product of some of the factors is exact in `dtype`, in any order.

    True if all but one are powers of two or their negatives, and no product can over- or underflow. Always true of
    integer types, which wrap around.
    """
    if not np.issubdtype(np.dtype(dtype), np.floating):
        return True
    fractions, exponents = np.frexp(factors.reshape(-1))
    limits = np.finfo(np.dtype(dtype))
    over, under = np.maximum(exponents - 1, 0).sum() + 1, np.maximum(1 - exponents, 0).sum()
    in_range = over <= limits.maxexp and under <= -limits.minexp
    return bool(in_range and np.sum(np.abs(fractions) != 0.5) <= 1)


def product_tolerance(factors: Array, dtype: npt.DTypeLike) -> float:
    """Return the largest absolute error of the product of all `factors` in `dtype`, in any order.

    Holds while no partial product overflows or underflows. 0 where no multiplication rounds (`multiplies_exactly`).
    Raises ValueError as `sum_tolerance` does.

    Source: Higham, section 3.1: gamma_(n-1) * |product|.
    """
    if multiplies_exactly(factors, dtype):
        return 0.0
    return _relative_bound(factors.size, dtype) * abs(float(np.prod(factors, dtype=np.float64)))

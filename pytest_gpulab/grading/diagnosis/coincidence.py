"""Whether a pattern in wrong elements may be a coincidence: how much it says, in bits.

A pattern explains its elements by chance in about one of 2**bits cases. Several patterns are tried on each result, so
that a pattern is only told where that many chances and a hundred times more would not have produced it.
"""

from __future__ import annotations

from math import lgamma, log, log2

import numpy as np

from .patterns import ROUNDING, Array, WrongValue

LEAST_BITS = log2(100)  # a pattern that holds by chance in 1 of 100 results is not told
PLACE_BITS = log2(20)  # the same for places, of which the ends are likely ones
CERTAIN, GENERAL = 64, 48  # bits that count at most, of a pattern that names a cause and of one that is less specific
MAX_COUNTED = 4096  # wrong elements: they say enough, and sorting all would take long
TRIED = 12  # patterns of values, each an attempt
TINY = 2  # elements of an input that explain nothing: most patterns hold of so few


def is_tiny(mistake: WrongValue) -> bool:
    """Return whether the input and the output are so short that any pattern would hold."""
    inputs = [values.size for values in mistake.around.inputs.values()]
    return max([*inputs, mistake.actual.size]) <= TINY if inputs else mistake.actual.size == 1


def distinct(mistake: WrongValue) -> Array:
    """Return positions of wrong elements that differ in what they are or in what was expected."""
    got, wanted = mistake.got[:MAX_COUNTED], mistake.wanted[:MAX_COUNTED]
    pairs = np.empty(got.size, [("got", got.dtype), ("wanted", wanted.dtype)])
    pairs["got"], pairs["wanted"] = got, wanted
    _, at = np.unique(pairs, return_index=True)
    return np.asarray(at)


def value_bits(mistake: WrongValue, scale: float = 1.0, spread: float | None = None) -> float:
    """Return how much it says that every wrong element has a predicted value.

    A prediction fits by chance with the probability of its window, one number or twice the slack, in the range of what
    the element might be. Elements that are alike count once.

    Args:
        mistake: the wrong elements.
        scale: as in `WrongValue.is_explained_by`.
        spread: the range of possible values; if None, that between plus and minus the largest value at hand.
    """
    at = distinct(mistake)
    got, wanted = mistake.got[at].astype(np.float64), mistake.wanted[at].astype(np.float64)
    size = np.maximum(np.abs(got), np.abs(wanted))
    ranges = 2 * size if spread is None else np.full(size.shape, spread)
    if mistake.is_exact:
        window = np.ones(size.shape)
    else:
        window = 2 * (2 * scale * mistake.allowed[at] + ROUNDING * size)
    with np.errstate(all="ignore"):
        bits = np.log2(ranges / window)
    return float(np.maximum(np.nan_to_num(bits, nan=0.0, posinf=64.0, neginf=0.0), 0).sum())


def place_bits(wrong: int, size: int) -> float:
    """Return how much it says which `wrong` of `size` elements are wrong: how many other choices there are."""
    return (lgamma(size + 1) - lgamma(wrong + 1) - lgamma(size - wrong + 1)) / log(2)


def is_likely(bits: float, tried: int = TRIED) -> bool:
    """Return whether one of `tried` patterns may hold by chance."""
    return bits - log2(tried) < LEAST_BITS

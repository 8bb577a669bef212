"""The chance probability of a pattern in wrong elements, as information in bits.

A pattern of that many bits holds by chance in about one of 2**bits results. Several patterns are tried on each result.
So a pattern is reported only if its chance, times the number of tries, is below 1 in 100.
"""

from collections.abc import Mapping
from math import lgamma, log, log2

import numpy as np

from pytest_gpulab.exercise import Array

from .patterns import ROUNDING, WrongValue

LEAST_BITS = log2(100)  # a pattern that holds by chance in 1 of 100 results is not reported
PLACE_BITS = log2(20)  # the same for positions, where the two ends are likely by themselves
CERTAIN, GENERAL = 64, 48  # most bits that count: of a pattern with a cause, and of a less specific one
MAX_COUNTED = 4096  # wrong elements to examine: enough to be certain, and sorting more takes long
TRIED = 12  # patterns of values, each a try
FEW = 3  # elements; with so few, a near value may be chance
TINY = 2  # elements of an input that is too short: most patterns hold for so few


def is_tiny(output: WrongValue) -> bool:
    """Return True if input and output are so short that most patterns would hold."""
    inputs = [values.size for values in output.context.inputs.values()]
    return max([*inputs, output.actual.size]) <= TINY if inputs else output.actual.size == 1


def are_zeros_and_ones(inputs: Mapping[str, Array]) -> bool:
    """Return True for inputs of these values only, as the smallest failing ones are."""
    return bool(inputs) and all(bool(((values == 0) | (values == 1)).all()) for values in inputs.values())


def distinct(output: WrongValue) -> Array:
    """Return positions of wrong elements, one per distinct pair of actual and expected value."""
    got, wanted = output.got[:MAX_COUNTED], output.wanted[:MAX_COUNTED]
    pairs = np.empty(got.size, [("got", got.dtype), ("wanted", wanted.dtype)])
    pairs["got"], pairs["wanted"] = got, wanted
    _, at = np.unique(pairs, return_index=True)
    return np.asarray(at)


def value_bits(output: WrongValue, spread: float | None = None) -> float:
    """Return the information, in bits, of a prediction that fits every wrong element.

    A prediction fits by chance with the probability of its window (one number, or twice the slack) in the range of
    possible values: `spread`, or from minus to plus the largest known value. Equal elements count once. A single result
    that is an element of its input may be the largest of a part: then any element is as likely.
    """
    if spread is None and output.actual.size == 1 and (few := _choices(output)):
        return log2(few)
    at = distinct(output)
    got, wanted = output.got[at].astype(np.float64), output.wanted[at].astype(np.float64)
    size = np.maximum(np.abs(got), np.abs(wanted))
    ranges = 2 * size if spread is None else np.full(size.shape, spread)
    if output.is_exact:
        window = np.ones(size.shape)
    else:
        window = 2 * (2 * output.allowed[at] + ROUNDING * size)
    with np.errstate(all="ignore"):
        bits = np.log2(ranges / window)
    return float(np.maximum(np.nan_to_num(bits, nan=0.0, posinf=64.0, neginf=0.0), 0).sum())


def _choices(output: WrongValue) -> int:
    """Return the number of distinct elements of the only input that has the result among them; 0 if there is none."""
    inputs = [values for values in output.context.inputs.values() if values.size > 1]
    is_choice = len(inputs) == 1 and bool((inputs[0] == output.got[0]).any())
    return int(np.unique(inputs[0]).size) if is_choice else 0


def place_bits(wrong: int, size: int) -> float:
    """Return the information, in bits, of which `wrong` of `size` elements are wrong: log2 of the possible choices."""
    return (lgamma(size + 1) - lgamma(wrong + 1) - lgamma(size - wrong + 1)) / log(2)


def is_likely(bits: float, tried: int = TRIED) -> bool:
    """Return True if one of `tried` patterns may hold by chance."""
    return bits - log2(tried) < LEAST_BITS
